"""The admission of a Workload that has quota."""

from admitq.controllers.plan import ActionPlan, RecordEvent
from admitq.controllers.workload.case import WorkloadCase
from admitq.workloads.transitions import (
    CHECKS_OUTSTANDING,
    WORKLOAD_ADMITTED,
    reserved_cluster_queue,
)
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import value_at


def admit(case: WorkloadCase) -> ActionPlan | None:
    """Admit a Workload with quota when every listed check is ready, even if its queues do not exist.

    QuotaReserved=True without ``status.admission`` reserves nothing; such a Workload is quarantined.
    """
    if (
        not reserved_cluster_queue(case.workload)
        or not case.is_active
        or case.is_true(ConditionType.ADMITTED)
        or case.is_true(ConditionType.EVICTED)
    ):
        return None
    transition = case.begin_transition()
    status = transition.status
    if any(check.get("state") != "Ready" for check in status.get("admissionChecks") or ()):
        transition.set_condition(
            ConditionType.ADMITTED, False, Reason.UNSATISFIED_ADMISSION_CHECKS, CHECKS_OUTSTANDING
        )
        return case.plan_transition(transition)
    assignments = value_at(status, ("admission", "podSetAssignments"), [])
    if any(assignment.get("delayedTopologyRequest") == "Pending" for assignment in assignments):
        transition.set_condition(
            ConditionType.ADMITTED,
            False,
            Reason.PENDING_DELAYED_TOPOLOGY_REQUESTS,
            "There are pending delayed topology requests",
        )
        return case.plan_transition(transition)
    transition.set_condition(ConditionType.ADMITTED, True, Reason.ADMITTED, WORKLOAD_ADMITTED)
    status.pop("resourceRequests", None)
    cluster_queue = status["admission"]["clusterQueue"]
    reserved_at = case.conditions.since(ConditionType.QUOTA_RESERVED) or case.now
    waited = max(0, case.now - reserved_at) / SECOND
    note = f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited:.0f}s"
    return case.plan_transition(transition, RecordEvent(case.workload, "Normal", "Admitted", note))


def drop_resource_requests(case: WorkloadCase) -> ActionPlan | None:
    """Remove ``status.resourceRequests`` of a Workload that another program admitted."""
    if not (case.is_reserved and case.is_true(ConditionType.ADMITTED)):
        return None
    transition = case.begin_transition()
    transition.status.pop("resourceRequests", None)
    return case.plan_transition(transition)
