"""The end of jobs and of their Workloads."""

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
    time,
    workload,
)
from tests.unit.controllers.job.decisions import (
    COMPLETE,
    FOR_NINE,
    NINE_PODS,
    RUNNING,
    decided,
    kinds,
    told,
    written,
)

FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "no"}]}


@pytest.mark.parametrize(
    ("status", "finished"),
    [(COMPLETE, ("True", "Succeeded", "done")), (FAILED, ("True", "Failed", "no"))],
)
def test_a_workload_ends_as_its_job_does(status: dict[str, Any], finished: Any) -> None:
    obj = admitted()
    assert condition_of(written(obj, decided(job(RUNNING, status), obj)), "Finished") == finished


def test_a_job_that_ended_is_not_compared_any_more() -> None:
    obj = admitted(spec=NINE_PODS, admission=FOR_NINE)
    assert condition_of(written(obj, decided(job(RUNNING, COMPLETE), obj)), "Finished")[1] == "Succeeded"


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("make", [admitted, reserved, workload])
def test_an_evicted_workload_ends_with_its_job(make: Any, *, is_gone: bool) -> None:
    evicted = make(condition("Evicted", True, "Preempted", since=5))
    plan = decided(None if is_gone else job(RUNNING, COMPLETE), evicted)
    assert condition_of(written(evicted, plan), "Finished") is not None


def test_an_evicted_workload_that_is_deleted_is_freed_when_its_job_has_stopped() -> None:
    evicted = admitted(condition("Evicted", True, "Preempted"), metadata={"deletionTimestamp": time(9)})
    assert kinds(decided(job(), evicted)) == ["free Workload"]


def test_finished_workload_is_released_and_reported_once() -> None:
    obj = admitted(FINISHED)
    plan = decided(job(RUNNING, COMPLETE), obj)
    assert kinds(plan) == ["free Workload"]
    assert told(plan) == [("FinishedWorkload", "Workload 'ns/job-j-1' is declared finished")]
    assert decided(job(RUNNING, COMPLETE), admitted(FINISHED, metadata={"finalizers": []})) == ActionPlan()


def test_nothing_runs_behind_a_finished_workload() -> None:
    obj = admitted(condition("Finished", True, "FailedToStart"), metadata={"finalizers": []})
    assert kinds(decided(job(RUNNING), obj)) == ["patch Job"]


def test_a_deleted_workload_stops_its_job_and_goes_when_it_has_stopped() -> None:
    going = admitted(metadata={"deletionTimestamp": time(9)})
    plan = decided(job(RUNNING, {"active": 3}), going)
    assert told(plan) == [("Stopped", "Workload is deleted")]
    assert decided(job(status={"active": 1}), going) == ActionPlan()
    assert kinds(decided(job(), going)) == ["free Workload"]


@pytest.mark.parametrize("gone", [None, job(deletionTimestamp=time(9))])
def test_workloads_of_a_job_that_is_gone_are_finished_and_freed(gone: dict[str, Any] | None) -> None:
    obj = admitted()
    finished = written(obj, decided(gone, obj))
    assert condition_of(finished, "Finished")[1] == "OwnerNotFound"
    assert kinds(decided(gone, finished)) == ["free Workload"]
    assert decided(gone, workload(FINISHED, metadata={"finalizers": []})) == ActionPlan()


def test_workloads_of_an_earlier_job_of_the_name_are_freed_first() -> None:
    old = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"})
    plan = decided(job(), old)
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, old),)
    freed = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"}, metadata={"finalizers": []})
    assert kinds(decided(job(), freed)) == ["create Workload"]


def test_a_job_deactivated_for_a_cause_is_deleted_after_its_retention() -> None:
    settings = {"after_deactivated": 60 * SECOND}
    caused = condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=10)
    obj = workload(caused, condition("QuotaReserved", False, "Deactivated"), spec={"active": False})
    assert decided(job(), obj, now=30, settings=settings) == ActionPlan(requeue_after=40.0)
    plan = decided(job(), obj, now=70, settings=settings)
    assert kinds(plan) == ["delete Job"]
    assert told(plan) == [("Deleted", "Deleted job: deactivation retention period expired")]
    by_hand = workload(condition("Evicted", True, "Deactivated", since=10), spec={"active": False})
    assert kinds(decided(job(), by_hand, now=10**6, settings=settings)) == []
    reactivated = condition("Requeued", True, "Reactivated")
    anew = workload(
        caused, condition("QuotaReserved", False, "Deactivated"), reactivated, spec={"active": False}
    )
    assert kinds(decided(job(), anew, now=10**6, settings=settings)) == [], "the second time it was by hand"
    returned = condition("Requeued", True, "BackoffFinished", since=11)
    by_another = workload(
        caused, condition("QuotaReserved", False, "Deactivated"), returned, spec={"active": False}
    )
    assert kinds(decided(job(), by_another, now=10**6, settings=settings)) == [], "it was requeued since"
    # Pods of what serves would be made again.
    served = workload(
        caused,
        condition("QuotaReserved", False, "Deactivated"),
        spec={"active": False},
        metadata={"annotations": {NAMES.job_owner_name: "s"}},
    )
    assert kinds(decided(job(), served, now=10**6, settings=settings)) == []
