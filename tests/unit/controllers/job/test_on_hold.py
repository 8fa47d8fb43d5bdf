"""Jobs on hold."""

from dataclasses import replace

import pytest

from admitq.controllers.plan import ActionPlan
from admitq.integrations.kinds.job import JOB
from tests.unit.controllers.builders import admitted, condition, condition_of, job, reserved, workload
from tests.unit.controllers.job.decisions import RUNNING, decided, kinds, written


def test_a_job_on_hold_keeps_its_workload_and_no_quota() -> None:
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    obj = reserved()
    held = written(obj, decided(job(), obj, integration=holding))
    assert condition_of(held, "QuotaReserved") == ("False", "OnHold", "Job is on hold")
    assert kinds(decided(job(), held, integration=holding)) == []
    freed = written(held, decided(job(), held))
    assert condition_of(freed, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload no longer on hold; waiting for quota reservation",
    )


@pytest.mark.parametrize("on_hold", [True, False])
def test_e_reservation_with_foreign_reason_is_a_reservation(on_hold: bool) -> None:
    obj = admitted(condition("PodsReady", True, "Started"))
    obj["status"]["conditions"][0] = condition("QuotaReserved", True, "OnHold", "Job is on hold")
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: on_hold))
    final = written(obj, decided(job(RUNNING, {"ready": 3}), obj, integration=holding))
    assert condition_of(final, "QuotaReserved") == (str(not on_hold), "OnHold", "Job is on hold")


def test_that_a_workload_is_deactivated_goes_before_that_its_job_is_on_hold() -> None:
    """Two controllers that each tell their own would do so for ever."""
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    for reason in ("Deactivated", "OnHold"):
        obj = workload(condition("QuotaReserved", False, reason, "m"), spec={"active": False})
        assert decided(job(), obj, integration=holding) == ActionPlan()
    leaving = reserved(condition("Evicted", True, "Deactivated", "m"), spec={"active": False})
    released = written(leaving, decided(job(), leaving, integration=holding))
    assert condition_of(released, "Requeued") == ("False", "Deactivated", "m")
