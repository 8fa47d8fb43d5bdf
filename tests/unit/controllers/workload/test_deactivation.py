"""Deactivation and reactivation."""

import pytest

from tests.unit.controllers.builders import (
    ADMISSION,
    admitted,
    apply_patch,
    condition,
    condition_of,
    workload,
)
from tests.unit.controllers.workload.decisions import NOT_ADMITTED, apply_plan, events_of, plan_for, settle


def test_deactivated_workload_is_evicted_and_keeps_reason_deactivated() -> None:
    obj = workload(spec={"active": False}, requeueState={"count": 3})
    plan = plan_for(obj)
    assert events_of(plan) == [("Normal", "EvictedDueToDeactivated", "The workload is deactivated")]
    final = settle(obj)
    assert condition_of(final, "Evicted") == ("True", "Deactivated", "The workload is deactivated")
    assert condition_of(final, "QuotaReserved")[1] == "Deactivated"
    assert "requeueState" not in final["status"]


def test_workload_with_deactivation_target_becomes_inactive_and_is_evicted() -> None:
    target = condition("DeactivationTarget", True, "RequeuingLimitExceeded", "too often")
    obj = admitted(target)
    inactive = apply_plan(obj, plan_for(obj))
    assert inactive["spec"]["active"] is False
    plan = plan_for(inactive)
    assert events_of(plan) == [
        (
            "Normal",
            "EvictedDueToDeactivatedDueToRequeuingLimitExceeded",
            "The workload is deactivated due to too often",
        )
    ]
    evicted = apply_plan(inactive, plan)
    assert condition_of(evicted, "Evicted")[1] == "DeactivatedDueToRequeuingLimitExceeded"
    assert condition_of(evicted, "DeactivationTarget") is None
    assert condition_of(evicted, "Admitted")[0] == "True"
    assert evicted["status"]["admission"] == ADMISSION


def test_reactivated_workload_is_not_deactivated_again_by_old_target() -> None:
    """The remaining condition DeactivationTarget must not deactivate the Workload again."""
    target = condition("DeactivationTarget", True, "AdmissionCheck", "m")
    obj = workload(
        condition("Evicted", True, "Preempted"),
        condition("QuotaReserved", False, "Deactivated", "The workload is deactivated"),
        NOT_ADMITTED,
        target,
        spec={"active": False},
    )
    settled = settle(obj)
    assert condition_of(settled, "DeactivationTarget") is None
    assert settle(apply_patch(settled, {"spec": {"active": True}}))["spec"]["active"] is True


@pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToMaximumExecutionTimeExceeded"])
def test_reactivated_workload_is_requeued_after_any_cause(reason: str) -> None:
    obj = workload(condition("Requeued", False, reason, "m"))
    reactivated = apply_plan(obj, plan_for(obj))
    assert condition_of(reactivated, "Requeued") == (
        "True",
        "Reactivated",
        "The workload was reactivated",
    )
