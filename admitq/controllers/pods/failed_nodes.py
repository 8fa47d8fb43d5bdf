"""What follows from failed hosts for a Workload with pods there, as a plan. Pure functions.

As long as pods run on a failed host they are left alone, because the node may come back. Once none runs
there, the host is listed in ``status.unhealthyNodes``, and the core places its pods elsewhere. A second
failure before that evicts the Workload. Pods that wait for a failed host are ended, so that their job creates
other ones.

Source: semantics, Node failure.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.controllers.plan import (
    ActionPlan,
    Patch,
    RecordEvent,
    plan_of,
    workload_status_patch,
)
from admitq.controllers.pods.host_failures import FailedHost, Failure
from admitq.controllers.pods.topology_pods import PLACED_PODS, get_awaited_host, list_unhealthy_nodes
from admitq.controllers.settings import NodeFailureSettings
from admitq.core.model import SECOND, Instant
from admitq.integrations.base import PatchStep
from admitq.integrations.families import pods
from admitq.runtime.resources import Resource
from admitq.workloads.evictions import eviction_event_reason
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject, create_merge_patch
from admitq_api.labels import Names

CONCERN: Final = "node-failure"

NOT_READY_TOLERATED: Final = 30 * SECOND
"""How long a node may be not ready, in nanoseconds, where this time decides."""

UNSCHEDULABLE: Final = "UnschedulableOnAssignedNode"
"""Reason of the condition of a pod that was ended because it could not start on its host."""


@dataclass(frozen=True, slots=True)
class NodeFailureCase:
    """What decides about the failed hosts of one Workload.

    Attributes:
        workload: an admitted Workload, and ``resource`` its resource.
        hosts: the hosts of each podset with an assignment down to hosts.
        failed: those that have failed.
        pods: the pods of its job that have not ended. If no host has failed, those that wait suffice.
        now: the time, in nanoseconds.
    """

    workload: JsonObject
    resource: Resource
    hosts: Mapping[str, AbstractSet[str]]
    failed: Mapping[str, FailedHost]
    pods: Sequence[JsonObject]
    names: Names
    settings: NodeFailureSettings
    now: Instant


class _Verdict(NamedTuple):
    """Whether a host is unhealthy.

    ``decided_again`` is when this changes by time alone. ``ends_waiting_pods`` tells that the end of its pods
    decides, so that no pod may wait for the host.
    """

    is_unhealthy: bool
    decided_again: Instant | None = None
    ends_waiting_pods: bool = False


def handle_failed_nodes(case: NodeFailureCase) -> ActionPlan:
    """Return the plan that lists the unhealthy hosts of a Workload and ends the pods that wait for them.

    If more than one host is unhealthy, the plan evicts the Workload instead.
    """
    verdicts = {host: _judge(case, failed) for host, failed in case.failed.items()}
    before = list_unhealthy_nodes(case.workload)
    unhealthy = [host for host, verdict in verdicts.items() if verdict.is_unhealthy]
    listed_first = sorted(unhealthy, key=lambda host: before.index(host) if host in before else len(before))
    transition = StatusTransition(case.workload, case.now)
    if len(unhealthy) > 1:
        return _evict(case, transition, listed_first)
    if unhealthy != before:
        transition.set_unhealthy_nodes(unhealthy)
    deadlines = [at for _, at, _ in verdicts.values() if at is not None]
    return plan_of(
        _status_patch(case, transition),
        *(
            action
            for pod in case.pods
            if _waits_in_vain(case, pod, verdicts)
            for action in _end_waiting_pod(case, pod)
        ),
        requeue_after=(min(deadlines) - case.now) / SECOND if deadlines else None,
    )


def _judge(case: NodeFailureCase, failed: FailedHost) -> _Verdict:
    settings, failure = case.settings, failed.failure
    if failure <= Failure.TAINTED and not settings.on_taints:
        return _Verdict(is_unhealthy=False)
    if failure is Failure.GONE or (failure is Failure.TAINTED and not settings.on_pod_termination):
        return _Verdict(is_unhealthy=True)
    pods_decide = settings.on_pod_termination or failure is Failure.TAINTED_FOR_A_TIME
    if pods_decide and not any(_progresses_on(pod, failed.nodes) for pod in case.pods):
        return _Verdict(is_unhealthy=True, ends_waiting_pods=True)
    time_decides = failure is Failure.NOT_READY and (not pods_decide or settings.after_fixed_time)
    tolerated_until = failed.since + NOT_READY_TOLERATED
    is_over = time_decides and case.now >= tolerated_until
    return _Verdict(is_over, tolerated_until if time_decides and not is_over else None, pods_decide)


def _progresses_on(pod: JsonObject, nodes: AbstractSet[str]) -> bool:
    """Whether the pod runs on one of the nodes, and is not about to end."""
    is_there = pods.get_text(pod, "spec", "nodeName") in nodes
    return is_there and not pods.is_being_deleted(pod) and not pods.has_ended(pod)


def _evict(case: NodeFailureCase, transition: StatusTransition, unhealthy: Sequence[str]) -> ActionPlan:
    names = ", ".join(unhealthy)
    message = f"Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
    transition.evict(Reason.NODE_FAILURES, message)
    event = RecordEvent(case.workload, "Normal", eviction_event_reason(Reason.NODE_FAILURES), message)
    return plan_of(_status_patch(case, transition), event)


def _status_patch(case: NodeFailureCase, transition: StatusTransition) -> Patch | None:
    return workload_status_patch(case.resource, case.workload, transition.patch(), CONCERN)


# --- waiting pods ---------------------------------------------------------------------------------


def _waits_in_vain(case: NodeFailureCase, pod: JsonObject, verdicts: Mapping[str, _Verdict]) -> bool:
    """Whether the pod waits for a host that its podset no longer has, or where the end of pods decides."""
    host = get_awaited_host(pod, case.names)
    own_hosts = case.hosts.get(pods.get_label(pod, case.names.podset))
    if not host or own_hosts is None:
        return False
    return host not in own_hosts or (host in verdicts and verdicts[host].ends_waiting_pods)


def _end_waiting_pod(case: NodeFailureCase, pod: JsonObject) -> Iterator[Patch | RecordEvent]:
    """Yield the patch that ends a pod without node, which no kubelet reports on, and its event."""
    product = case.names.product_in_reasons
    note = f"Pod terminated by {product} NodeController due to node taint"
    failed = pods.fail_pod(pod, f"TerminatedBy{product}", UNSCHEDULABLE, note, case.now)
    step = PatchStep(create_merge_patch(pod, failed), "status")
    yield Patch(PLACED_PODS, pod, (step,), CONCERN)
    yield RecordEvent(pod, "Warning", f"PodTerminatedBy{product}", note)
