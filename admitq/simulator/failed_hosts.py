"""What failed hosts do to the pods of a simulated workload: which pods stop, and which hosts are unhealthy.

The rules about hosts are those of the manager. Besides them, this module decides what kubelets and the
control plane of Kubernetes do to pods.
"""

from collections.abc import Mapping
from typing import NamedTuple

from admitq.core.model import Instant, ResourceFlavor, Toleration, Workload
from admitq.simulator.simulated_nodes import SimulatedNodes
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.workloads.host_failures import (
    FailedHost,
    Failure,
    NodeFailureSettings,
    UnhealthyHosts,
    find_failed_hosts,
    judge_host,
    list_hosts,
    list_unhealthy_hosts,
)

Tolerations = Mapping[str, tuple[Toleration, ...]]
"""The tolerations of the pods of each podset."""


class HostReview(NamedTuple):
    """What follows from the hosts of a workload.

    Attributes:
        failing: the failed hosts. No pod starts there.
        stopping: those of them on which no pod runs on.
        deleted: those of them on which pods were deleted.
        unhealthy: the unhealthy hosts; None if the pods of failed hosts are not placed elsewhere.
        review_at: the instant at which time alone changes this.
    """

    failing: frozenset[str]
    stopping: tuple[str, ...]
    deleted: frozenset[str]
    unhealthy: UnhealthyHosts | None
    review_at: Instant | None


def read_tolerations(workload: Workload, flavors: Mapping[str, ResourceFlavor]) -> Tolerations:
    """Return the tolerations of the pods of an admitted workload, with those of its flavors and checks."""
    assigned = {
        part.name: {flavor for _, flavor in part.flavors}
        for part in (() if workload.admission is None else workload.admission.pod_set_assignments)
    }
    return {
        pod_set.name: (
            *pod_set.tolerations,
            *(
                toleration
                for name in assigned.get(pod_set.name, ())
                if name in flavors
                for toleration in flavors[name].tolerations
            ),
            *(
                toleration
                for update in workload.pod_set_updates
                if update.pod_set == pod_set.name
                for toleration in update.tolerations
            ),
        )
        for pod_set in workload.pod_sets
    }


def review_hosts(
    simulated: SimulatedWorkload,
    nodes: SimulatedNodes,
    tolerations: Tolerations,
    settings: NodeFailureSettings | None,
    now: Instant,
) -> HostReview:
    """Return what follows from the hosts of an admitted workload.

    Args:
        simulated: the workload.
        nodes: the nodes as they are now.
        tolerations: the tolerations of its pods.
        settings: when a host is unhealthy; None if the pods of failed hosts are not placed elsewhere.
        now: the present instant.
    """
    hosts = list_hosts(
        (name, assignment.levels, assignment.domains) for name, assignment in simulated.assignments.items()
    )
    failed = find_failed_hosts(hosts, nodes.list_health, tolerations)
    deletions = {
        host: _find_deletion(
            host, nodes, [tolerations.get(name, ()) for name, own in hosts.items() if host in own], now
        )
        for host in failed
    }
    deleted = frozenset(host for host, at in deletions.items() if at is not None and at <= now)
    due = [at for at in deletions.values() if at is not None and at > now]
    unhealthy = None
    if settings is not None:
        verdicts = {
            host: judge_host(
                settings,
                what,
                now,
                has_pods=lambda _, host=host: host not in deleted and _has_pods(simulated, host),
            )
            for host, what in failed.items()
        }
        unhealthy = list_unhealthy_hosts(verdicts, simulated.workload.unhealthy_nodes)
        due += [verdict.decided_again for verdict in verdicts.values() if verdict.decided_again is not None]
    return HostReview(
        frozenset(failed),
        tuple(host for host, what in failed.items() if host in deleted or _is_down(what)),
        deleted,
        unhealthy,
        min(due, default=None),
    )


def _is_down(failed: FailedHost) -> bool:
    """Whether nothing runs on a host: its node does not exist, or is not ready."""
    return failed.failure >= Failure.NOT_READY


def _has_pods(simulated: SimulatedWorkload, host: str) -> bool:
    """Whether pods are on a host, also those that start, or that stopped when the host failed."""
    return not simulated.runs or host in simulated.work.stranded or simulated.work.runs_on(host)


def _find_deletion(
    host: str, nodes: SimulatedNodes, tolerations: list[tuple[Toleration, ...]], now: Instant
) -> Instant | None:
    """Return when the pods on a host are deleted, also in the past; None if they may stay."""
    there = [*nodes.of_host(host)]
    if not there:
        return now
    deletions = [node.find_deletion(own) for node in there for own in tolerations]
    return min((at for at in deletions if at is not None), default=None)
