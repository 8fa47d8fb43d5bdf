"""Patches that write a reservation, or the reason why a Workload has none, to the Workload (pure).

Each is a merge patch with the resourceVersion of the Workload that it was made from. The API server rejects
it if the Workload has changed since. Lists in the patch are complete, so entries of other programs stay.
"""

from collections.abc import Sequence
from typing import Any, Final

from admitq.core.amounts import Amounts
from admitq.core.model import Admission, Instant
from admitq.core.topology.replacement import select_hosts_with_pods
from admitq.translate.admissions import format_admission, format_pod_set_request, list_delayed_pod_sets
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject

GuardedPatch = dict[str, Any]

NO_RESERVATION: Final = "The workload has no reservation"
CHECKS_PENDING: Final = "The workload has not all checks ready"
ADMITTED: Final = "The workload is admitted"
NOT_ALL_PODS_READY: Final = "Not all pods are ready or succeeded"

CONDITIONS_ENDED_BY_RESERVATION: Final = (
    ConditionType.EVICTED,
    ConditionType.PREEMPTED,
    ConditionType.BLOCKED_ON_PREEMPTION_GATES,
)
"""Conditions that become False with a reservation."""


def _guarded(obj: JsonObject, status: dict[str, Any]) -> GuardedPatch:
    return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": status}


def _conditions(obj: JsonObject) -> list[conditions.Condition]:
    return (obj.get("status") or {}).get("conditions") or []


def _generation(obj: JsonObject) -> int:
    return obj["metadata"].get("generation", 1)


def _add_pods_ready(
    obj: JsonObject, state: list[dict[str, Any]], now: Instant, *, tracks_pods_ready: bool
) -> list[dict[str, Any]]:
    """Add the condition PodsReady=False if it is absent; this saves a write of its own."""
    if not tracks_pods_ready or conditions.find_condition(state, ConditionType.PODS_READY) is not None:
        return state
    return conditions.with_condition(
        state,
        type=ConditionType.PODS_READY,
        status=False,
        reason=Reason.WAIT_FOR_START,
        message=NOT_ALL_PODS_READY,
        now=now,
        observed_generation=_generation(obj),
    )


def reservation_patch(
    obj: JsonObject,
    admission: Admission,
    *,
    admit: bool,
    now: Instant,
    tracks_pods_ready: bool = True,
    by_hostname_prefix: bool = True,
) -> GuardedPatch:
    """Return the patch that reserves quota, and that also admits the workload if ``admit``.

    Conditions of an earlier eviction or of a closed gate become False. Their messages contain the former
    ones.

    Args:
        obj: the Workload.
        admission: its admission.
        admit: whether it is admitted too.
        now: the time of the write.
        tracks_pods_ready: whether Workloads have the condition PodsReady.
        by_hostname_prefix: whether topology assignments may have a slice for each prefix of host names.
    """
    generation = _generation(obj)
    state = conditions.with_condition(
        _conditions(obj),
        type=ConditionType.QUOTA_RESERVED,
        status=True,
        reason=Reason.QUOTA_RESERVED,
        message=f"Quota reserved in ClusterQueue {admission.cluster_queue}",
        now=now,
        observed_generation=generation,
    )
    for former in CONDITIONS_ENDED_BY_RESERVATION:
        condition = conditions.find_condition(state, former)
        if condition is not None and condition.get("status") == "True":
            state = conditions.with_condition(
                state,
                type=former,
                status=False,
                reason=Reason.QUOTA_RESERVED,
                message=f"Previously: {condition.get('message', '')}",
                now=now,
                observed_generation=generation,
            )
    state = conditions.with_condition(
        state,
        type=ConditionType.ADMITTED,
        status=admit,
        reason=Reason.ADMITTED if admit else Reason.UNSATISFIED_ADMISSION_CHECKS,
        message=ADMITTED if admit else CHECKS_PENDING,
        now=now,
        observed_generation=generation,
    )
    state = _add_pods_ready(obj, state, now, tracks_pods_ready=tracks_pods_ready)
    status = {"conditions": state, **_admission(obj, admission, by_hostname_prefix=by_hostname_prefix)}
    if admit and (obj.get("status") or {}).get("resourceRequests"):
        status["resourceRequests"] = None
    return _guarded(obj, status)


def topology_patch(obj: JsonObject, admission: Admission, *, by_hostname_prefix: bool = True) -> GuardedPatch:
    """Return the patch that adds topology assignments to the reservation of a Workload.

    Unhealthy nodes without pods in these assignments are not listed any more.

    Args:
        obj: the Workload.
        admission: its admission with topology assignments.
        by_hostname_prefix: whether these may have a slice for each prefix of host names.
    """
    status = _admission(obj, admission, by_hostname_prefix=by_hostname_prefix)
    if unhealthy := (obj.get("status") or {}).get("unhealthyNodes"):
        kept = select_hosts_with_pods((node["name"] for node in unhealthy), admission)
        status["unhealthyNodes"] = [node for node in unhealthy if node["name"] in kept] or None
    return _guarded(obj, status)


def _admission(obj: JsonObject, admission: Admission, *, by_hostname_prefix: bool) -> dict[str, Any]:
    """Return the field of the status. Topology assignments that were delayed become ready."""
    delayed = list_delayed_pod_sets((obj.get("status") or {}).get("admission"))
    return {"admission": format_admission(admission, delayed=delayed, by_hostname_prefix=by_hostname_prefix)}


def pending_patch(
    obj: JsonObject,
    *,
    reason: str,
    message: str,
    resource_requests: Sequence[tuple[str, Amounts]] | None = None,
    now: Instant,
    gated: bool = False,
    tracks_pods_ready: bool = True,
) -> GuardedPatch | None:
    """Return the patch that states why the workload waits, and its requests; None if nothing changes.

    The patch removes an admission that another program wrote without a reservation.

    Args:
        obj: the Workload.
        reason: the reason of QuotaReserved=False.
        message: the message of QuotaReserved=False.
        resource_requests: the requests by podset; None leaves the requests in the status.
        now: the time of the write.
        gated: whether the workload waits because of a closed preemption gate.
        tracks_pods_ready: whether Workloads have the condition PodsReady.
    """
    generation = _generation(obj)
    before = obj.get("status") or {}
    state = conditions.with_condition(
        _conditions(obj),
        type=ConditionType.QUOTA_RESERVED,
        status=False,
        reason=reason,
        message=message,
        now=now,
        observed_generation=generation,
    )
    state = conditions.with_condition(
        state,
        type=ConditionType.ADMITTED,
        status=False,
        reason=Reason.NO_RESERVATION,
        message=NO_RESERVATION,
        now=now,
        observed_generation=generation,
    )
    if gated:
        state = conditions.with_condition(
            state,
            type=ConditionType.BLOCKED_ON_PREEMPTION_GATES,
            status=True,
            reason=Reason.PREEMPTION_GATED,
            message=message,
            now=now,
            observed_generation=generation,
        )
    state = _add_pods_ready(obj, state, now, tracks_pods_ready=tracks_pods_ready)
    stated = before.get("resourceRequests") or []
    requests = (
        stated
        if resource_requests is None
        else [format_pod_set_request(name, of) for name, of in resource_requests]
    )
    leftover = {"admission": None} if before.get("admission") else {}
    is_stated = state == list(before.get("conditions") or [])
    if is_stated and not leftover and requests == stated:
        return None
    return _guarded(obj, {"conditions": state, "resourceRequests": requests or None, **leftover})


def queued_since(obj: JsonObject) -> Instant:
    """Return the start of the current wait: the creation, or the last transition to Requeued=True."""
    requeued = conditions.find_condition(_conditions(obj), ConditionType.REQUEUED)
    if requeued is not None and requeued.get("status") == "True":
        return conditions.parse_time(requeued["lastTransitionTime"])
    return conditions.parse_time(obj["metadata"]["creationTimestamp"])
