"""Limits of time: until the pods are ready, and for the whole execution."""

from typing import Final

from admitq.controllers.plan import ActionPlan, RecordEvent
from admitq.controllers.workload.case import WorkloadCase
from admitq.controllers.workload.requeuing import format_requeue_time
from admitq.core.model import Instant
from admitq.workloads.transitions import LARGEST_COUNT
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import value_at

_PODS_READY_GRACE: Final = 30 * SECOND
"""How long after the start of this process no PodsReady timeout expires, at most; nanoseconds.

Jobs need that time to report pods that became ready while no process was acting."""


def record_execution_time(case: WorkloadCase) -> ActionPlan | None:
    """Record the execution time of an admission that another program ended without recording it."""
    transition = case.begin_transition()
    if case.inputs.unrecorded_execution >= SECOND:
        transition.add_execution_time(case.inputs.unrecorded_execution)
    return case.plan_transition(transition)


def _is_running(case: WorkloadCase) -> bool:
    return case.is_active and case.is_true(ConditionType.ADMITTED) and not case.is_true(ConditionType.EVICTED)


def pods_ready_deadline(case: WorkloadCase) -> Instant | None:
    """Return when the pods must be ready; None if there is no such limit now."""
    policy = case.settings.pods_ready
    if policy is None or not _is_running(case):
        return None
    ready = case.conditions.find(ConditionType.PODS_READY) or {}
    if ready.get("status") == "True":
        return None
    if ready.get("reason") == Reason.WAIT_FOR_RECOVERY:
        start, timeout = case.conditions.since(ConditionType.PODS_READY), policy.recovery_timeout
    else:
        start, timeout = case.conditions.since(ConditionType.ADMITTED), policy.timeout
    if start is None:
        return None
    # Pods may have become ready while no process was there to record it.
    return max(start + timeout, case.inputs.acting_since + min(timeout, _PODS_READY_GRACE))


def evict_after_pods_ready_timeout(case: WorkloadCase) -> ActionPlan | None:
    """Evict a Workload if its pods are not ready in time; deactivate it after too many such evictions."""
    policy, deadline = case.settings.pods_ready, pods_ready_deadline(case)
    if policy is None or deadline is None or deadline > case.now:
        return None
    transition = case.begin_transition()
    count = (value_at(case.workload, ("status", "requeueState", "count")) or 0) + 1
    if policy.backoff_limit is not None and count > policy.backoff_limit:
        transition.set_condition(
            ConditionType.DEACTIVATION_TARGET,
            True,
            Reason.REQUEUING_LIMIT_EXCEEDED,
            "exceeding the maximum number of re-queuing retries",
        )
        return case.plan_transition(transition)
    requeue_at = format_requeue_time(case.now + policy.backoff_seconds(count) * SECOND)
    transition.status["requeueState"] = {"count": min(count, LARGEST_COUNT), "requeueAt": requeue_at}
    ready = case.conditions.find(ConditionType.PODS_READY) or {}
    recovering = ready.get("reason") == Reason.WAIT_FOR_RECOVERY
    metadata = case.workload["metadata"]
    return case.evict(
        transition,
        Reason.PODS_READY_TIMEOUT,
        f"Exceeded the PodsReady timeout {metadata['namespace']}/{metadata['name']}",
        Reason.WAIT_FOR_RECOVERY if recovering else Reason.WAIT_FOR_START,
    )


def execution_deadline(case: WorkloadCase) -> Instant | None:
    """Return when the execution reaches its limit; None if there is no such limit now."""
    limit = value_at(case.workload, ("spec", "maximumExecutionTimeSeconds"))
    admitted_at = case.conditions.since(ConditionType.ADMITTED)
    if not limit or admitted_at is None or not _is_running(case):
        return None
    past = value_at(case.workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)
    return admitted_at + (limit - past) * SECOND


def deactivate_after_execution_limit(case: WorkloadCase) -> ActionPlan | None:
    """Deactivate a Workload at the limit of its execution time."""
    deadline = execution_deadline(case)
    if deadline is None or deadline > case.now:
        return None
    if case.is_true(ConditionType.DEACTIVATION_TARGET):
        return None
    transition = case.begin_transition()
    transition.set_condition(
        ConditionType.DEACTIVATION_TARGET,
        True,
        Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
        "exceeding the maximum execution time",
    )
    transition.status.pop("accumulatedPastExecutionTimeSeconds", None)
    limit = case.workload["spec"]["maximumExecutionTimeSeconds"]
    note = f"The maximum execution time ({limit}s) exceeded"
    return case.plan_transition(
        transition, RecordEvent(case.workload, "Warning", "MaximumExecutionTimeExceeded", note)
    )


def report_awaited_pods(case: WorkloadCase) -> ActionPlan | None:
    """Set PodsReady=False where another program reserved the quota without setting it."""
    if not case.is_reserved or case.is_true(ConditionType.EVICTED):
        return None
    transition = case.begin_transition()
    case.set_pods_awaited(transition)
    return case.plan_transition(transition)
