"""Jobs on hold."""

from dataclasses import replace

import pytest

from admitq.controllers.plan import ActionPlan
from admitq.integrations.kinds.job import JOB
from tests.unit.controllers.builders import admitted, condition, condition_of, job, reserved, workload
from tests.unit.controllers.job.decisions import RUNNING, actions_of, apply_plan, plan_for


def test_job_on_hold_keeps_its_workload_without_quota() -> None:
    on_hold_kind = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    obj = reserved()
    held = apply_plan(obj, plan_for(job(), obj, integration=on_hold_kind))
    assert condition_of(held, "QuotaReserved") == ("False", "OnHold", "Job is on hold")
    assert actions_of(plan_for(job(), held, integration=on_hold_kind)) == []
    freed = apply_plan(held, plan_for(job(), held))
    assert condition_of(freed, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload no longer on hold; waiting for quota reservation",
    )


@pytest.mark.parametrize("on_hold", [True, False])
def test_e_reservation_with_foreign_reason_is_released_only_when_job_is_on_hold(on_hold: bool) -> None:
    obj = admitted(condition("PodsReady", True, "Started"))
    obj["status"]["conditions"][0] = condition("QuotaReserved", True, "OnHold", "Job is on hold")
    on_hold_kind = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: on_hold))
    final = apply_plan(obj, plan_for(job(RUNNING, {"ready": 3}), obj, integration=on_hold_kind))
    assert condition_of(final, "QuotaReserved") == (str(not on_hold), "OnHold", "Job is on hold")


def test_deactivated_workload_of_job_on_hold_keeps_reason_deactivated() -> None:
    """If each of two controllers wrote its own reason, they would overwrite each other forever."""
    on_hold_kind = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    for reason in ("Deactivated", "OnHold"):
        obj = workload(condition("QuotaReserved", False, reason, "m"), spec={"active": False})
        assert plan_for(job(), obj, integration=on_hold_kind) == ActionPlan()
    leaving = reserved(condition("Evicted", True, "Deactivated", "m"), spec={"active": False})
    released = apply_plan(leaving, plan_for(job(), leaving, integration=on_hold_kind))
    assert condition_of(released, "Requeued") == ("False", "Deactivated", "m")
