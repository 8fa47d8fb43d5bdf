"""The end of Workloads: orphaned, finished, replaced by another slice."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Delete, Patch, RecordEvent, RemoveFinalizer
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    condition,
    condition_of,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import apply_plan, events_of, plan_for

GOING = {"deletionTimestamp": timestamp(0)}

LABELLED = {"labels": {NAMES.job_uid: "uid-j"}}


def test_workload_without_owner_is_finished_and_released() -> None:
    obj = workload(owner=None, metadata=LABELLED)
    finished = apply_plan(obj, plan_for(obj))
    assert condition_of(finished, "Finished") == (
        "True",
        "OwnerNotFound",
        "The workload's owner no longer exists",
    )
    assert plan_for(finished).actions == (RemoveFinalizer(KINDS.workloads, finished),)


def test_a_workload_that_never_had_an_owner_lives_on() -> None:
    assert plan_for(workload(owner=None)).actions == ()


def test_a_deleted_workload_without_owner_is_freed() -> None:
    obj = workload(FINISHED, owner=None, metadata=GOING)
    assert plan_for(obj).actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_without_the_gate_it_is_freed_without_being_finished() -> None:
    obj = workload(owner=None, metadata={**GOING, **LABELLED})
    plan = plan_for(obj, settings={"finish_orphaned": False})
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_a_deleted_workload_with_an_owner_is_its_owners_matter() -> None:
    assert plan_for(workload(FINISHED, metadata=GOING)).actions == ()


def test_workload_of_a_deleted_kind_is_finished_and_released() -> None:
    write = plan_for(reserved(metadata=GOING), owners_gone=True).actions[0]
    assert isinstance(write, Patch)
    assert write.steps[0].patch["status"]["conditions"][-1]["reason"] == "OwnerNotFound"
    obj = workload(FINISHED, metadata=GOING)
    assert plan_for(obj, owners_gone=True).actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_a_finished_workload_is_kept_for_its_retention_and_then_deleted() -> None:
    retention = {"settings": {"after_finished": 3600 * SECOND}}
    obj = workload(FINISHED)
    assert plan_for(obj, now=600, **retention) == ActionPlan(requeue_after=3000.0)
    removed, deleted, tell = plan_for(obj, now=3600, **retention).actions
    assert (removed, deleted) == (RemoveFinalizer(KINDS.workloads, obj), Delete(KINDS.workloads, obj))
    assert isinstance(tell, RecordEvent)
    assert tell.note == "Deleted finished workload due to elapsed retention"


def test_an_orphan_has_its_retention_too() -> None:
    obj = workload(FINISHED, owner=None, metadata={**LABELLED, "finalizers": []})
    assert plan_for(obj, now=0, settings={"after_finished": 60 * SECOND}) == ActionPlan(requeue_after=60.0)
    plan = plan_for(obj, now=0, settings={"after_finished": 0})
    assert Delete(KINDS.workloads, obj) in plan.actions


def test_a_finished_workload_is_kept_without_a_retention() -> None:
    assert plan_for(workload(FINISHED), now=10**6) == ActionPlan()


@pytest.mark.parametrize("obj", [workload(FINISHED, spec={"active": False}), workload(FINISHED)])
def test_nothing_happens_to_a_finished_workload(obj: dict[str, Any]) -> None:
    assert plan_for(obj, local_queue=None).actions == ()


@pytest.mark.parametrize("by", [reserved, admitted])
def test_a_slice_that_got_its_quota_ends_the_one_that_it_replaces(by: Callable[..., dict[str, Any]]) -> None:
    original, larger = admitted(name="original"), by(metadata={"labels": {NAMES.job_uid: "job-uid"}})
    plan = plan_for(larger, original=original)
    message = (
        f"Replaced to accommodate a workload (UID: {larger['metadata']['uid']}, JobUID: job-uid) "
        "due to workload slice aggregation"
    )
    assert events_of(plan) == [("Normal", "WorkloadSliceReplaced", message)]
    [patch] = [one for one in plan.actions if isinstance(one, Patch)]
    assert patch.obj == original
    assert condition_of(apply_plan(original, plan), "Finished") == ("True", "WorkloadSliceReplaced", message)


def test_slice_that_ended_another_goes_on_with_its_own_steps_at_once() -> None:
    larger, original = reserved(), admitted(name="original")
    assert plan_for(larger, original=original).requeue_after == 0
    over = apply_plan(original, plan_for(larger, original=original))
    assert condition_of(apply_plan(larger, plan_for(larger, original=over)), "Admitted")[:2] == (
        "True",
        "Admitted",
    )


@pytest.mark.parametrize(
    ("larger", "original"),
    [
        (workload(), admitted()),
        (admitted(), admitted(condition("Finished", True, "Succeeded"))),
        (admitted(), None),
    ],
)
def test_until_then_and_thereafter_nothing_is_replaced(
    larger: dict[str, Any], original: dict[str, Any] | None
) -> None:
    assert events_of(plan_for(larger, original=original)) == []
