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
from functools import partial
from typing import Final

from admitq.controllers.plan import (
    ActionPlan,
    Patch,
    RecordEvent,
    plan_of,
    workload_status_patch,
)
from admitq.controllers.pods.topology_pods import PLACED_PODS, get_awaited_host, list_unhealthy_nodes
from admitq.core.model import SECOND, Instant
from admitq.integrations.base import PatchStep
from admitq.integrations.families import pods
from admitq.runtime.resources import Resource
from admitq.workloads.evictions import eviction_event_reason
from admitq.workloads.host_failures import (
    FailedHost,
    HostVerdict,
    NodeFailureSettings,
    judge_host,
    list_unhealthy_hosts,
)
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject, create_merge_patch
from admitq_api.labels import Names

CONCERN: Final = "node-failure"

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


def handle_failed_nodes(case: NodeFailureCase) -> ActionPlan:
    """Return the plan that lists the unhealthy hosts of a Workload and ends the pods that wait for them.

    If more than one host is unhealthy, the plan evicts the Workload instead.
    """
    verdicts = {
        host: judge_host(case.settings, failed, case.now, has_pods=partial(_has_pods, case.pods))
        for host, failed in case.failed.items()
    }
    before = list_unhealthy_nodes(case.workload)
    unhealthy, evicts = list_unhealthy_hosts(verdicts, before)
    transition = StatusTransition(case.workload, case.now)
    if evicts:
        return _evict(case, transition, unhealthy)
    if list(unhealthy) != before:
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


def _has_pods(of_job: Sequence[JsonObject], nodes: AbstractSet[str]) -> bool:
    return any(_progresses_on(pod, nodes) for pod in of_job)


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


def _waits_in_vain(case: NodeFailureCase, pod: JsonObject, verdicts: Mapping[str, HostVerdict]) -> bool:
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
