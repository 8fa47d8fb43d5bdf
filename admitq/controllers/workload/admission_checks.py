"""Admission checks: lists those that apply to a Workload, and acts on their states."""

from admitq.controllers.indexes import flavors_of
from admitq.controllers.plan import ActionPlan, RecordEvent
from admitq.controllers.workload.case import WorkloadCase
from admitq.controllers.workload.requeuing import format_requeue_time, requeue_time
from admitq.core.applicable_checks import MOST_CHECKS, applicable_checks, too_many_checks
from admitq.translate.admission_checks import read_admission_check_rules
from admitq.translate.messages import pending_condition
from admitq_api.conditions import SECOND, ConditionType, Reason, format_time, parse_time
from admitq_api.json_objects import JsonObject, value_at


def _checks_in_state(case: WorkloadCase, state: str) -> list[JsonObject]:
    checks = value_at(case.workload, ("status", "admissionChecks"), [])
    return sorted((check for check in checks if check.get("state") == state), key=lambda check: check["name"])


def delay_retry(case: WorkloadCase) -> ActionPlan | None:
    """Store the latest time that a check in state Retry requests as ``requeueAt``.

    These delays do not apply to a deactivated Workload.
    """
    if not case.is_active:
        return None
    retries = [
        parse_time(check["lastTransitionTime"]) + check["requeueAfterSeconds"] * SECOND
        for check in _checks_in_state(case, "Retry")
        if check.get("requeueAfterSeconds") is not None
    ]
    latest = max(retries, default=0)
    if latest <= case.now or latest <= (requeue_time(case) or 0):
        return None
    transition = case.begin_transition()
    state = dict(transition.status.get("requeueState") or {})
    transition.status["requeueState"] = {**state, "requeueAt": format_requeue_time(latest)}
    return case.plan_transition(transition)


def _assigned_flavors(case: WorkloadCase) -> frozenset[str] | None:
    """Return the flavors of the Workload's admission; None while it has no quota."""
    if not case.is_reserved:
        return None
    assignments = value_at(case.workload, ("status", "admission", "podSetAssignments"), [])
    return frozenset(
        flavor for assignment in assignments for flavor in (assignment.get("flavors") or {}).values()
    )


def sync_checks(case: WorkloadCase) -> ActionPlan | None:
    """List exactly the checks that apply; new ones are pending.

    After an eviction, a check with a retry count stays listed until flavors are assigned again, so that the
    count is kept. If more checks apply than the status can list, the list stays as it is. Quota that no job
    uses yet is then released.
    """
    cluster_queue = case.inputs.cluster_queue
    if cluster_queue is None or not case.is_active:
        return None
    transition = case.begin_transition()
    rules, offered = read_admission_check_rules(cluster_queue), frozenset(flavors_of(cluster_queue))
    assigned = _assigned_flavors(case)
    too_many = too_many_checks(case.inputs.cluster_queue_name, rules, offered, assigned)
    if too_many is not None:
        is_used = case.is_true(ConditionType.ADMITTED) or case.is_true(ConditionType.EVICTED)
        if assigned is not None and not is_used:
            why = pending_condition(too_many)
            transition.release(case.reported_reason(why.reason), why.message)
        return case.plan_transition(transition)
    listed = {check["name"]: check for check in transition.status.get("admissionChecks") or ()}
    names = applicable_checks(rules, offered, assigned)
    if assigned is None:
        retried = {rule.name for rule in rules if listed.get(rule.name, {}).get("retryCount")}
        names |= frozenset(sorted(retried - names)[: MOST_CHECKS - len(names)])
    checks = [
        listed.get(name)
        or {"name": name, "state": "Pending", "lastTransitionTime": format_time(case.now), "message": ""}
        for name in sorted(names)
    ]
    transition.status["admissionChecks"] = checks or None
    return case.plan_transition(transition)


def apply_check_states(case: WorkloadCase) -> ActionPlan | None:
    """Deactivate the Workload for a rejected check, or else evict it for one in state Retry."""
    if not case.is_reserved or case.is_true(ConditionType.EVICTED) or not case.is_active:
        return None
    transition = case.begin_transition()
    rejected, retried = _checks_in_state(case, "Rejected"), _checks_in_state(case, "Retry")
    if rejected:
        message = _format_checks(rejected, "Rejected")
        transition.set_condition(ConditionType.DEACTIVATION_TARGET, True, Reason.ADMISSION_CHECK, message)
        note = f"Deactivated due to {message}"
        return case.plan_transition(
            transition, RecordEvent(case.workload, "Warning", "AdmissionCheckRejected", note)
        )
    if retried:
        message = f"Evicted due to {_format_checks(retried, 'Retry')}"
        return case.evict(transition, Reason.ADMISSION_CHECK, message)
    return None


def _format_checks(checks: list[JsonObject], state: str) -> str:
    named = "; ".join(
        f'"{check["name"]}"' + (f" ({message})" if (message := check.get("message")) else "")
        for check in checks
    )
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {named}"
