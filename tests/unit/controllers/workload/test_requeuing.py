"""Requeuing and backoff after an eviction."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import ConditionType
from tests.unit.controllers.builders import (
    ADMISSION,
    admitted,
    apply_patch,
    condition,
    condition_of,
    instant,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import AWAITED, BACKOFF_FINISHED, apply_plan, plan_for, settle


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_workload_is_requeued_when_its_backoff_ends(reason: str) -> None:
    obj = workload(
        condition("Requeued", False, reason, "m"), requeueState={"count": 1, "requeueAt": timestamp(60)}
    )
    assert plan_for(obj, now=20) == ActionPlan(requeue_after=40.0)
    requeued = apply_plan(obj, plan_for(obj, now=60))
    assert condition_of(requeued, "Requeued") == (
        "True",
        "BackoffFinished",
        "The workload backoff was finished",
    )
    assert requeued["status"]["requeueState"] == {"count": 1}


def test_workload_without_backoff_time_is_requeued_at_once() -> None:
    obj = workload(condition("Requeued", False, "AdmissionCheck", "m"))
    assert condition_of(apply_plan(obj, plan_for(obj)), "Requeued")[1] == "BackoffFinished"


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
@pytest.mark.parametrize(
    "former", [[], [condition("Requeued", True, "BackoffFinished", BACKOFF_FINISHED[2])]]
)
def test_a5_backoff_ends_at_its_time_while_quota_is_held(reason: str, former: list[dict[str, Any]]) -> None:
    state = {"count": 1, "requeueAt": timestamp(60)}
    obj = admitted(AWAITED, condition("Evicted", True, reason, "m", since=5), *former, requeueState=state)
    assert plan_for(obj, now=20) == ActionPlan(requeue_after=40.0)
    requeued = settle(obj, now=60)
    assert condition_of(requeued, "Requeued") == BACKOFF_FINISHED
    assert requeued["status"]["conditions"][-1]["lastTransitionTime"] == timestamp(60)
    assert requeued["status"]["requeueState"] == {"count": 1}
    assert requeued["status"]["admission"] == ADMISSION, "the job has not stopped"


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_a5_workload_with_ended_backoff_stays_requeued_when_its_job_stops(reason: str) -> None:
    evicted = condition("Evicted", True, reason, "m", since=5)
    obj = settle(admitted(AWAITED, evicted, requeueState={"count": 1, "requeueAt": timestamp(60)}), now=60)
    transition = StatusTransition(obj, instant(90))
    transition.requeue("PendingEvaluation")
    stopped = apply_patch(obj, {"status": transition.status | {"admission": None}})
    assert condition_of(stopped, "Requeued") == BACKOFF_FINISHED
    assert condition_of(stopped, "QuotaReserved") == ("False", "PendingEvaluation", "m")
    assert settle(stopped, now=90) == stopped


@pytest.mark.parametrize(
    ("requeued", "state"),
    [
        ([], {"requeueAt": timestamp(60)}),
        ([condition("Requeued", True, "BackoffFinished", BACKOFF_FINISHED[2], since=1)], {"count": 1}),
        (
            [condition("Requeued", True, "BackoffFinished", BACKOFF_FINISHED[2], since=9)],
            {"requeueAt": timestamp(60)},
        ),
    ],
    ids=["no backoff has ended", "backoff of a former eviction has ended", "another backoff is running"],
)
def test_a5_workload_in_backoff_is_parked_when_the_job_stops(
    requeued: list[dict[str, Any]], state: dict[str, Any]
) -> None:
    evicted = condition("Evicted", True, "PodsReadyTimeout", "m", since=5)
    transition = StatusTransition(admitted(evicted, *requeued, requeueState=state), instant(10))
    transition.requeue("PendingEvaluation")
    requeued_condition = transition.find_condition(ConditionType.REQUEUED) or {}
    assert (requeued_condition["status"], requeued_condition["reason"]) == ("False", "PodsReadyTimeout")


def test_a5_backoff_that_ends_during_another_eviction_is_only_cleared() -> None:
    obj = admitted(AWAITED, condition("Evicted", True, "Preempted"), requeueState={"requeueAt": timestamp(0)})
    requeued = settle(obj, now=60)
    assert "requeueState" not in requeued["status"]
    assert condition_of(requeued, "Requeued") is None
