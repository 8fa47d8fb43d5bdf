"""Deactivation: ``spec.active`` becomes false, then the Workload is evicted."""

from typing import Final

from admitq.controllers.plan import ActionPlan, plan_of
from admitq.controllers.plan import Patch as Write
from admitq.controllers.workload.case import CONCERN, WorkloadCase
from admitq.integrations.base import PatchStep
from admitq.runtime.rate_limit import CallPriority
from admitq_api.conditions import ConditionType, Reason

DEACTIVATED: Final = "The workload is deactivated"
"""Message of the conditions of a deactivated Workload."""


def set_inactive(case: WorkloadCase) -> ActionPlan | None:
    """Set ``spec.active`` to false. The owner of the Workload can set it to true again."""
    if not case.is_active or not case.is_true(ConditionType.DEACTIVATION_TARGET):
        return None
    step = PatchStep({"spec": {"active": False}})
    workloads = case.inputs.kinds.workloads
    return plan_of(Write(workloads, case.workload, (step,), CONCERN, priority=CallPriority.EVICTION))


def evict_inactive(case: WorkloadCase) -> ActionPlan | None:
    """Evict a deactivated Workload once, and reset the count of its requeues.

    An eviction in progress keeps its reason: the job was stopped for that reason, and is not deleted for the
    deactivation. The condition DeactivationTarget is dropped in any case. Otherwise a reactivated Workload
    would be deactivated again at once.
    """
    if case.is_active:
        return None
    target = case.conditions.find(ConditionType.DEACTIVATION_TARGET)
    transition = case.begin_transition()
    transition.status.pop("requeueState", None)
    if target is not None:
        transition.remove_condition(ConditionType.DEACTIVATION_TARGET)
    if case.is_true(ConditionType.EVICTED):
        return case.plan_transition(transition)
    if target is None or target.get("status") != "True":
        return case.evict(transition, Reason.DEACTIVATED, DEACTIVATED)
    return case.evict(
        transition,
        Reason.DEACTIVATED,
        f"{DEACTIVATED} due to {target.get('message', '')}",
        target.get("reason", ""),
    )
