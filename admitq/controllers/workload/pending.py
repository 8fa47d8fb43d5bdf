"""Reports why a Workload waits: reason and message of QuotaReserved=False."""

from typing import Final

from admitq.controllers.plan import ActionPlan, RecordEvent
from admitq.controllers.workload.case import WorkloadCase
from admitq.controllers.workload.deactivation import DEACTIVATED
from admitq.controllers.workload.queue_stops import TERMINATING_OR_MISSING, is_usable, stop_policy
from admitq.core.model import Instant
from admitq.core.refusals import NamespaceMismatch
from admitq.integrations.admission_gates import list_holding_gates
from admitq.translate.messages import Explanation, is_unwritten_reservation, pending_condition
from admitq.workloads.transitions import is_on_hold
from admitq_api.conditions import GATED_BY, SECOND, ConditionType, Reason, list_reported_gates, parse_time
from admitq_api.json_objects import JsonObject, value_at

_FIRST_EVALUATION: Final = 2 * SECOND
"""Time within which a cycle evaluates or skips a new Workload; nanoseconds."""

_PENDING: Final = "Workload is pending evaluation in the scheduling queue"

_GATES_CLEARED: Final = "AdmissionGatedBy cleared, waiting for quota reservation"

_REFRESHED_REASONS: Final = frozenset(
    {Reason.PENDING_EVALUATION, Reason.DEACTIVATED, Reason.SUSPENDED, Reason.PENDING, Reason.INADMISSIBLE}
)
"""Reasons that every decision replaces. The others are results of an evaluation and stay until the next."""

_QUEUE_PROBLEM_PREFIXES: Final = (
    "LocalQueue ",
    "ClusterQueue ",
    pending_condition(NamespaceMismatch()).message,
)
"""Prefixes of the messages of Misconfigured about a queue that is absent or does not select the namespace.

Other messages are results of an evaluation."""


def _admission_gates(case: WorkloadCase) -> list[str]:
    return (
        list_holding_gates(case.workload, case.inputs.names) if case.settings.pending.admission_gates else []
    )


def report_admission_gates(case: WorkloadCase) -> ActionPlan | None:
    """Report the gates of a Workload, and report when the last one is removed.

    Another reason to wait, such as a stopped queue, is reported instead of the gates.
    """
    if case.is_reserved:
        return None
    was_gated = bool(list_reported_gates(value_at(case.workload, ("status", "conditions"))))
    gates = ",".join(_admission_gates(case))
    transition = case.begin_transition()
    if gates and not was_gated:
        why = _explain_waiting(case)
        if why is None or why.reason != Reason.ADMISSION_GATED:
            return None
        transition.release(Reason.ADMISSION_GATED, GATED_BY + gates)
        note = f"Workload admission is gated by: {gates}"
        return case.plan_transition(transition, RecordEvent(case.workload, "Normal", "AdmissionGated", note))
    if was_gated and not gates:
        transition.release(case.reported_reason(Reason.PENDING_EVALUATION), _GATES_CLEARED)
        note = "Admission gate cleared, workload is now admissible"
        return case.plan_transition(
            transition, RecordEvent(case.workload, "Normal", "AdmissionGateCleared", note)
        )
    return None


def _find_local_queue_problem(case: WorkloadCase) -> Explanation | None:
    """Return why the LocalQueue queues nothing; None if it does."""
    queue, name = case.inputs.local_queue, case.queue_name
    if queue is None:
        return Explanation(Reason.MISCONFIGURED, f"LocalQueue {name} doesn't exist")
    if not is_usable(queue):
        return Explanation(Reason.MISCONFIGURED, f"LocalQueue {name} {TERMINATING_OR_MISSING}")
    if stop_policy(queue) != "None" or not case.inputs.is_local_queue_readable:
        return Explanation(Reason.SUSPENDED, f"LocalQueue {name} is inactive")
    return None


def _explain_waiting(case: WorkloadCase) -> Explanation | None:
    """Return reason and message of QuotaReserved=False; None to keep the present ones."""
    cluster_queue = case.inputs.cluster_queue_name
    quota = case.conditions.find(ConditionType.QUOTA_RESERVED)
    reason = None if quota is None else quota.get("reason")
    if not case.is_active:
        return Explanation(Reason.DEACTIVATED, DEACTIVATED)
    if is_on_hold(case.workload):
        return None
    if (problem := _find_local_queue_problem(case)) is not None:
        return problem
    if case.inputs.cluster_queue is None:
        return Explanation(Reason.MISCONFIGURED, f"ClusterQueue {cluster_queue} doesn't exist")
    if case.inputs.cluster_queue_active is None:
        return None
    if not case.inputs.cluster_queue_active:
        return Explanation(Reason.SUSPENDED, f"ClusterQueue {cluster_queue} is inactive")
    if case.inputs.inadmissible is not None:
        return case.inputs.inadmissible
    if _admission_gates(case):
        return Explanation(Reason.ADMISSION_GATED, GATED_BY + ",".join(_admission_gates(case)))
    if quota is None:
        # A cycle that skips a Workload for an equal one reports nothing about it.
        if not case.settings.pending.explicit_pending and case.inputs.bypassed is None:
            return None
    elif reason not in _REFRESHED_REASONS and not _is_resolved_queue_problem(quota):
        return None
    elif _is_eviction_message(case, quota) or is_unwritten_reservation(quota.get("message", "")):
        # The next cycle replaces the message.
        return case.inputs.bypassed
    return case.inputs.bypassed or Explanation(Reason.PENDING_EVALUATION, _PENDING)


def _is_resolved_queue_problem(quota: JsonObject) -> bool:
    """Whether the condition names a problem of the queues; the caller has found that they have none."""
    message: str = quota.get("message", "")
    return quota.get("reason") == Reason.MISCONFIGURED and message.startswith(_QUEUE_PROBLEM_PREFIXES)


def _is_eviction_message(case: WorkloadCase, quota: JsonObject) -> bool:
    """Whether the condition carries the message of the last eviction, which a cycle will replace."""
    evicted = case.conditions.find(ConditionType.EVICTED) or {}
    return (
        quota.get("reason") == Reason.PENDING_EVALUATION
        and evicted.get("status") == "True"
        and quota.get("message") == evicted.get("message")
    )


def report_pending(case: WorkloadCase) -> ActionPlan | None:
    """Update the conditions of a Workload without quota."""
    if case.is_reserved:
        return None
    transition = case.begin_transition()
    why = _explain_waiting(case)
    if why is not None and _is_reported(case, why.reason):
        transition.set_condition(
            ConditionType.QUOTA_RESERVED, False, case.reported_reason(why.reason), why.message
        )
    # Another program may have set Admitted without QuotaReserved.
    if transition.find_condition(ConditionType.QUOTA_RESERVED) is not None or case.is_true(
        ConditionType.ADMITTED
    ):
        transition.end_admission()
    return case.plan_transition(transition)


def _is_reported(case: WorkloadCase, reason: str) -> bool:
    """Whether to report a reason; without detailed reasons only problems of queues are reported."""
    return case.settings.pending.detailed_reasons or reason in {Reason.MISCONFIGURED, Reason.SUSPENDED}


def first_evaluation_deadline(case: WorkloadCase) -> Instant | None:
    """Return when a new Workload without conditions has been evaluated or skipped; None for others."""
    if case.is_reserved or case.conditions.find(ConditionType.QUOTA_RESERVED) is not None:
        return None
    return parse_time(case.workload["metadata"]["creationTimestamp"]) + _FIRST_EVALUATION
