"""Backoff: how long an evicted Workload waits before it is queued again."""

from typing import Final

from admitq.controllers.plan import ActionPlan
from admitq.controllers.workload.case import WorkloadCase
from admitq.core.model import Instant
from admitq.workloads.evictions import RequeueTime, reasons_requeued
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import SECOND, ConditionType, Reason, format_time, parse_time
from admitq_api.json_objects import value_at

_REASONS_OF_BACKOFF: Final = reasons_requeued(RequeueTime.AFTER_BACKOFF)


def requeue_time(case: WorkloadCase) -> Instant | None:
    """Return the time before which the Workload is not queued again; None if there is none."""
    text = value_at(case.workload, ("status", "requeueState", "requeueAt"))
    return None if text is None else parse_time(text)


def format_requeue_time(at: Instant) -> str:
    """Format a time for the API, rounded up to seconds so that no backoff ends early."""
    return format_time(-(-at // SECOND) * SECOND)


def end_backoff(case: WorkloadCase) -> ActionPlan | None:
    """End the backoff of an active Workload at its time, also while it still holds quota.

    A Workload that was reactivated, or evicted without a requeue time, is requeued once it released quota.
    """
    if not case.is_active:
        return None
    transition = case.begin_transition()
    requeue_at = requeue_time(case)
    is_due = requeue_at is not None and requeue_at <= case.now
    if is_due:
        remaining = {
            key: value for key, value in transition.status["requeueState"].items() if key != "requeueAt"
        }
        transition.status["requeueState"] = remaining or None
    if case.is_reserved:
        if is_due and _eviction_reason(case) in _REASONS_OF_BACKOFF:
            _set_backoff_finished(transition)
        return case.plan_transition(transition)
    reason = requeue_block_reason(case)
    if reason.startswith(Reason.DEACTIVATED):
        transition.set_condition(
            ConditionType.REQUEUED, True, Reason.REACTIVATED, "The workload was reactivated"
        )
    elif reason in _REASONS_OF_BACKOFF and (requeue_at is None or is_due):
        _set_backoff_finished(transition)
    return case.plan_transition(transition)


def _set_backoff_finished(transition: StatusTransition) -> None:
    # Remove the condition first. Otherwise it would keep the time of an earlier backoff.
    transition.remove_condition(ConditionType.REQUEUED)
    transition.set_condition(
        ConditionType.REQUEUED, True, Reason.BACKOFF_FINISHED, "The workload backoff was finished"
    )


def _eviction_reason(case: WorkloadCase) -> str:
    """Return the reason of the eviction in progress; empty if there is none."""
    evicted = case.conditions.find(ConditionType.EVICTED)
    return evicted.get("reason", "") if evicted is not None and evicted.get("status") == "True" else ""


def requeue_block_reason(case: WorkloadCase) -> str:
    """Return the reason why the Workload must not be queued; empty if it may be."""
    requeued = case.conditions.find(ConditionType.REQUEUED)
    return requeued.get("reason", "") if requeued is not None and requeued.get("status") == "False" else ""
