"""Changes of Workloads that another program may write."""

import time
from collections.abc import Callable
from typing import Any, Final

from admitq.core.topology.domains import HOST_NAME
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import SECOND, ConditionType, Reason, format_time
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.topology_assignments import Domain, decode, encode
from tests.controlplane.manners import Change, Manner

PRIORITY_CLASS: Final = "high"
"""The WorkloadPriorityClass of a scene that has one."""


def status(what: Callable[[StatusTransition], object]) -> Change:
    """A change of the status."""

    def change(workload: JsonObject, now: int) -> JsonObject:
        transition = StatusTransition(workload, now)
        what(transition)
        kept = {key: value for key, value in transition.status.items() if value is not None}
        return {**workload, "status": kept}

    return change


def spec(**fields: Any) -> Change:
    """A change of fields of the spec."""
    return lambda workload, _: {**workload, "spec": {**workload["spec"], **fields}}


def refer_to_priority_class(workload: JsonObject, _: int) -> JsonObject:
    """Set the story's WorkloadPriorityClass without changing the priority."""
    reference = {
        "group": workload["apiVersion"].partition("/")[0],
        "kind": "WorkloadPriorityClass",
        "name": f"{PRIORITY_CLASS}-{workload['metadata']['namespace']}",
    }
    return with_value(workload, ("spec", "priorityClassRef"), reference)


def ungate(workload: JsonObject, _: int) -> JsonObject:
    """Remove the annotation of admission gates."""
    annotations: JsonObject = workload["metadata"].get("annotations", {})
    kept = {key: value for key, value in annotations.items() if not key.endswith("/admission-gated-by")}
    return with_value(workload, ("metadata", "annotations"), kept)


def reserve(*, admit: bool, queue: str = "cq") -> Change:
    """Reserve quota in a story's ClusterQueue, with or without the condition Admitted."""

    def change(workload: JsonObject, now: int) -> JsonObject:
        transition = StatusTransition(workload, now)
        namespace = workload["metadata"]["namespace"]
        cluster_queue = f"{queue}-{namespace}"
        transition.status["admission"] = {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [_assignment(one, f"f-{namespace}") for one in workload["spec"]["podSets"]],
        }
        transition.set_condition(
            ConditionType.QUOTA_RESERVED,
            True,
            Reason.QUOTA_RESERVED,
            f"Quota reserved in ClusterQueue {cluster_queue}",
        )
        for former in (ConditionType.EVICTED, ConditionType.PREEMPTED):
            if transition.is_condition_true(former):
                found = transition.find_condition(former) or {}
                message = f"Previously: {found.get('message', '')}"
                transition.set_condition(former, False, Reason.QUOTA_RESERVED, message)
        if admit:
            transition.set_condition(
                ConditionType.ADMITTED, True, Reason.ADMITTED, "The workload is admitted"
            )
            transition.status.pop("resourceRequests", None)
        return {**workload, "status": transition.status}

    return change


def _assignment(pod_set: JsonObject, flavor: str) -> JsonObject:
    count = pod_set.get("count", 1)
    requests = value_at(pod_set, ("template", "spec", "containers", 0, "resources", "requests"), {})
    return {
        "name": pod_set["name"],
        "count": count,
        "flavors": dict.fromkeys(requests, flavor),
        "resourceUsage": {resource: str(count * int(amount)) for resource, amount in requests.items()},
    }


def host_of_story(number: int, namespace: str) -> str:
    """The name of a node of a story with nodes."""
    return f"h{number}-{namespace}"


def list_unhealthy(workload: JsonObject, now: int) -> JsonObject:
    """List the host of the topology assignment as unhealthy. Its node is ready."""
    return status(lambda one: one.set_unhealthy_nodes(_hosts(workload)))(workload, now)


def move_to_other_host(workload: JsonObject, _: int) -> JsonObject:
    """Replace the topology assignment by the other of the two hosts of the story."""
    namespace = workload["metadata"]["namespace"]
    [before] = _hosts(workload)
    [after] = {host_of_story(number, namespace) for number in (1, 2)} - {before}
    path = ("status", "admission", "podSetAssignments", 0, "topologyAssignment")
    domains: list[Domain] = [((after,), 1)]
    return with_value(workload, path, encode([HOST_NAME], domains))


def _hosts(workload: JsonObject) -> list[str]:
    [part] = workload["status"]["admission"]["podSetAssignments"]
    return [values[0] for values, _ in decode(part["topologyAssignment"], "topologyAssignment").domains]


def reserve_and_leave_evicted(workload: JsonObject, now: int) -> JsonObject:
    """Reserve quota without changing the conditions of an earlier eviction."""
    evicted = status(evict_only)(workload, now)
    reserved = reserve(admit=True)(workload, now)
    kept = evicted["status"]["conditions"]
    conditions = [*(one for one in kept if one["type"] == ConditionType.EVICTED)]
    conditions += [one for one in reserved["status"]["conditions"] if one["type"] != ConditionType.EVICTED]
    return {**reserved, "status": {**reserved["status"], "conditions": conditions}}


def remove_status(workload: JsonObject, _: int) -> JsonObject:
    """Remove all fields of the status."""
    return {**workload, "status": {}}


def remove_reservation_condition(workload: JsonObject, now: int) -> JsonObject:
    """Remove the condition QuotaReserved without changing the admission."""
    return status(lambda one: one.remove_condition(ConditionType.QUOTA_RESERVED))(workload, now)


REMOVALS: Final = (Manner.MERGE_PATCH, Manner.PUT, Manner.TYPED_UPDATE)
"""Server-side apply cannot remove what another field manager owns."""


def evict_only(transition: StatusTransition) -> None:
    """Write the condition Evicted and none of its consequences."""
    transition.set_condition(ConditionType.EVICTED, True, Reason.NODE_FAILURES, "its node is gone")


def release_only(transition: StatusTransition) -> None:
    """Write QuotaReserved=False without changing the admission."""
    transition.set_condition(ConditionType.QUOTA_RESERVED, False, Reason.PENDING, "released")


def set_check_state(state: str, **fields: Any) -> Callable[[StatusTransition], None]:
    def stated(transition: StatusTransition) -> None:
        [check] = transition.status["admissionChecks"]
        at = format_time(time.time_ns())
        said = {**check, "state": state, "message": "m", "lastTransitionTime": at, **fields}
        transition.status["admissionChecks"] = [said]

    return stated


def set_backoff(transition: StatusTransition, *, seconds: int = 1) -> None:
    at = format_time((time.time_ns() // SECOND + seconds + 1) * SECOND)
    transition.status["requeueState"] = {"count": 1, "requeueAt": at}


def time_out(transition: StatusTransition) -> None:
    transition.evict(Reason.PODS_READY_TIMEOUT, "late", Reason.WAIT_FOR_START)
    set_backoff(transition)


def park(reason: Reason) -> Callable[[StatusTransition], None]:
    return lambda transition: transition.set_condition(ConditionType.REQUEUED, False, reason, "m")


def park_for_a_while(transition: StatusTransition) -> None:
    park(Reason.PODS_READY_TIMEOUT)(transition)
    set_backoff(transition)


def evict_and_release(transition: StatusTransition) -> None:
    transition.evict(Reason.NODE_FAILURES, "its node is gone")
    transition.requeue(Reason.PENDING_EVALUATION)


def evict_and_retry(transition: StatusTransition) -> None:
    """Write the condition Evicted and a check in the state Retry."""
    transition.evict(Reason.NODE_FAILURES, "its node is gone")
    set_check_state("Retry")(transition)


def requeue(*, may_return: bool) -> Callable[[StatusTransition], None]:
    """End an eviction, if there is one."""

    def requeued(transition: StatusTransition) -> None:
        if transition.is_condition_true(ConditionType.EVICTED):
            transition.requeue(Reason.PENDING_EVALUATION, may_return=may_return)

    return requeued


def set_replacing(value: bool) -> Callable[[StatusTransition], None]:
    type_, reason = ConditionType.WAITING_FOR_REPLACEMENT_PODS, "PodsFailed" if value else "PodsReady"
    return lambda transition: transition.set_condition(type_, value, reason, "m")


def reclaim_pods(transition: StatusTransition) -> None:
    transition.status["reclaimablePods"] = [{"name": "main", "count": 1}]


def count_evictions(transition: StatusTransition) -> None:
    transition.status["accumulatedPastExecutionTimeSeconds"] = 5
    evictions = [{"reason": "Preempted", "underlyingCause": "", "count": 2}]
    transition.status["schedulingStats"] = {"evictions": evictions}
