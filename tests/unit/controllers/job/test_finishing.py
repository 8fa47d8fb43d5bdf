"""Finished and deleted jobs and their Workloads."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, RemoveFinalizer
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    OWNER,
    admitted,
    condition,
    condition_of,
    job,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import (
    ADMISSION_OF_NINE_PODS,
    COMPLETE,
    NINE_PODS,
    RUNNING,
    actions_of,
    apply_plan,
    events_of,
    plan_for,
)

FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "no"}]}


@pytest.mark.parametrize(
    ("status", "finished"),
    [(COMPLETE, ("True", "Succeeded", "done")), (FAILED, ("True", "Failed", "no"))],
)
def test_workload_is_finished_with_outcome_of_its_job(status: dict[str, Any], finished: Any) -> None:
    obj = admitted()
    assert condition_of(apply_plan(obj, plan_for(job(RUNNING, status), obj)), "Finished") == finished


def test_finished_job_is_not_compared_with_its_workload() -> None:
    obj = admitted(spec=NINE_PODS, admission=ADMISSION_OF_NINE_PODS)
    assert condition_of(apply_plan(obj, plan_for(job(RUNNING, COMPLETE), obj)), "Finished")[1] == "Succeeded"


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("make", [admitted, reserved, workload])
def test_evicted_workload_is_finished_when_its_job_ends(make: Any, *, is_deleted: bool) -> None:
    evicted = make(condition("Evicted", True, "Preempted", since=5))
    plan = plan_for(None if is_deleted else job(RUNNING, COMPLETE), evicted)
    assert condition_of(apply_plan(evicted, plan), "Finished") is not None


def test_deleted_evicted_workload_loses_finalizer_when_its_job_has_stopped() -> None:
    evicted = admitted(condition("Evicted", True, "Preempted"), metadata={"deletionTimestamp": timestamp(9)})
    assert actions_of(plan_for(job(), evicted)) == ["free Workload"]


def test_finished_workload_is_released_and_reported_once() -> None:
    obj = admitted(FINISHED)
    plan = plan_for(job(RUNNING, COMPLETE), obj)
    assert actions_of(plan) == ["free Workload"]
    assert events_of(plan) == [("FinishedWorkload", "Workload 'ns/job-j-1' is declared finished")]
    assert plan_for(job(RUNNING, COMPLETE), admitted(FINISHED, metadata={"finalizers": []})) == ActionPlan()


def test_running_job_is_stopped_when_its_workload_is_finished() -> None:
    obj = admitted(condition("Finished", True, "FailedToStart"), metadata={"finalizers": []})
    assert actions_of(plan_for(job(RUNNING), obj)) == ["patch Job"]


def test_deleted_workload_stops_its_job_and_then_loses_finalizer() -> None:
    deleted = admitted(metadata={"deletionTimestamp": timestamp(9)})
    plan = plan_for(job(RUNNING, {"active": 3}), deleted)
    assert events_of(plan) == [("Stopped", "Workload is deleted")]
    assert plan_for(job(status={"active": 1}), deleted) == ActionPlan()
    assert actions_of(plan_for(job(), deleted)) == ["free Workload"]


@pytest.mark.parametrize("deleted", [None, job(deletionTimestamp=timestamp(9))])
def test_workload_of_deleted_job_is_finished_and_released(deleted: dict[str, Any] | None) -> None:
    obj = admitted()
    finished = apply_plan(obj, plan_for(deleted, obj))
    assert condition_of(finished, "Finished")[1] == "OwnerNotFound"
    assert actions_of(plan_for(deleted, finished)) == ["free Workload"]
    assert plan_for(deleted, workload(FINISHED, metadata={"finalizers": []})) == ActionPlan()


def test_workload_of_former_job_with_same_name_is_released_first() -> None:
    old = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"})
    plan = plan_for(job(), old)
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, old),)
    freed = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"}, metadata={"finalizers": []})
    assert actions_of(plan_for(job(), freed)) == ["create Workload"]


def test_job_deactivated_for_cause_is_deleted_after_retention() -> None:
    settings = {"after_deactivated": 60 * SECOND}
    caused = condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=10)
    obj = workload(caused, condition("QuotaReserved", False, "Deactivated"), spec={"active": False})
    assert plan_for(job(), obj, now=30, settings=settings) == ActionPlan(requeue_after=40.0)
    plan = plan_for(job(), obj, now=70, settings=settings)
    assert actions_of(plan) == ["delete Job"]
    assert events_of(plan) == [("Deleted", "Deleted job: deactivation retention period expired")]


BY_CHECK = condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=10)
RELEASED = condition("QuotaReserved", False, "Deactivated")
INACTIVE = {"active": False}


@pytest.mark.parametrize(
    "obj",
    [
        workload(condition("Evicted", True, "Deactivated", since=10), spec=INACTIVE),
        workload(BY_CHECK, RELEASED, condition("Requeued", True, "Reactivated"), spec=INACTIVE),
        workload(BY_CHECK, RELEASED, condition("Requeued", True, "BackoffFinished", since=11), spec=INACTIVE),
        workload(BY_CHECK, RELEASED, spec=INACTIVE, metadata={"annotations": {NAMES.job_owner_name: "s"}}),
    ],
    ids=[
        "deactivated by its user",
        "deactivated by its user after a reactivation",
        "requeued since",
        "pod of a serving object, which would recreate it",
    ],
)
def test_deactivated_job_is_not_deleted_after_retention(obj: dict[str, Any]) -> None:
    settings = {"after_deactivated": 60 * SECOND}
    assert actions_of(plan_for(job(), obj, now=10**6, settings=settings)) == []
