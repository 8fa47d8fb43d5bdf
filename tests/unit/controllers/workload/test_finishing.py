"""Finished, orphaned, deleted and replaced Workloads."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from admitq.controllers.plan import ActionPlan, Delete, Patch, RecordEvent, RemoveFinalizer
from admitq.controllers.workload.finishing import is_final
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    condition,
    condition_of,
    reserved,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import apply_plan, events_of, plan_for
from tests.unit.controllers.workload_states import QUEUE_INPUTS, draw_workload

DELETED = {"deletionTimestamp": timestamp(0)}

ORPHANED = {"labels": {NAMES.job_uid: "uid-j"}}


@given(st.data())
def test_final_workload_has_nothing_to_decide(data: st.DataObject) -> None:
    obj = draw_workload(data)
    metadata = {**obj["metadata"], **data.draw(st.sampled_from([{}, ORPHANED, DELETED]))}
    if data.draw(st.booleans()):
        del metadata["ownerReferences"]
    conditions = [*obj["status"].get("conditions", []), FINISHED]
    obj = {**obj, "metadata": metadata, "status": {**obj["status"], "conditions": conditions}}
    settings = {"finish_orphaned": data.draw(st.booleans())}
    assume(is_final(obj, NAMES, settings_with(**settings)))
    assert plan_for(obj, 310, settings=settings, **data.draw(st.sampled_from(QUEUE_INPUTS))) == ActionPlan()


@pytest.mark.parametrize(
    ("obj", "retention", "expected"),
    [
        pytest.param(workload(FINISHED), None, True, id="kept"),
        pytest.param(workload(FINISHED), 1, False, id="deleted after its retention"),
        pytest.param(workload(FINISHED, metadata=DELETED), None, False, id="being deleted"),
        pytest.param(workload(FINISHED, owner=None), None, True, id="never had an owner"),
        pytest.param(workload(FINISHED, owner=None, metadata=ORPHANED), None, False, id="lost its owner"),
        pytest.param(admitted(), None, False, id="runs"),
    ],
)
def test_finished_workload_is_final_unless_it_ends_later(
    obj: dict[str, Any], retention: int | None, *, expected: bool
) -> None:
    assert is_final(obj, NAMES, settings_with(after_finished=retention)) is expected


def test_workload_without_owner_is_finished_and_released() -> None:
    obj = workload(owner=None, metadata=ORPHANED)
    finished = apply_plan(obj, plan_for(obj))
    assert condition_of(finished, "Finished") == (
        "True",
        "OwnerNotFound",
        "The workload's owner no longer exists",
    )
    assert plan_for(finished).actions == (RemoveFinalizer(KINDS.workloads, finished),)


def test_workload_that_never_had_an_owner_is_not_finished() -> None:
    assert plan_for(workload(owner=None)).actions == ()


def test_deleted_workload_without_owner_is_released() -> None:
    obj = workload(FINISHED, owner=None, metadata=DELETED)
    assert plan_for(obj).actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_deleted_orphaned_workload_is_released_unfinished_without_feature_gate() -> None:
    obj = workload(owner=None, metadata={**DELETED, **ORPHANED})
    plan = plan_for(obj, settings={"finish_orphaned": False})
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_deleted_workload_with_owner_is_left_to_controller_of_owner() -> None:
    assert plan_for(workload(FINISHED, metadata=DELETED)).actions == ()


def test_workload_with_missing_owners_is_finished_and_released() -> None:
    write = plan_for(reserved(metadata=DELETED), owners_gone=True).actions[0]
    assert isinstance(write, Patch)
    assert write.steps[0].patch["status"]["conditions"][-1]["reason"] == "OwnerNotFound"
    obj = workload(FINISHED, metadata=DELETED)
    assert plan_for(obj, owners_gone=True).actions == (RemoveFinalizer(KINDS.workloads, obj),)


@pytest.mark.parametrize("obj", [workload(), reserved(), admitted(), workload(owner=None)])
def test_unfinished_workload_loses_label_of_finished_ones_first(obj: dict[str, Any]) -> None:
    labels = {NAMES.finished: "true", **ORPHANED["labels"]}
    plan = plan_for({**obj, "metadata": {**obj["metadata"], "labels": labels}})
    [patch] = [action for action in plan.actions if isinstance(action, Patch)]
    assert [step.patch for step in patch.steps] == [{"metadata": {"labels": {NAMES.finished: None}}}]
    [(kind, reason, note)] = events_of(plan)
    assert (kind, reason) == ("Warning", "RemovedFinishedLabel")
    assert NAMES.finished in note


def test_finished_workload_keeps_its_label() -> None:
    assert plan_for(workload(FINISHED, metadata={"labels": {NAMES.finished: "true"}})) == ActionPlan()


def test_finished_workload_is_deleted_after_retention() -> None:
    retention = {"settings": {"after_finished": 3600 * SECOND}}
    obj = workload(FINISHED)
    assert plan_for(obj, now=600, **retention) == ActionPlan(requeue_after=3000.0)
    removal, deletion, event = plan_for(obj, now=3600, **retention).actions
    assert (removal, deletion) == (RemoveFinalizer(KINDS.workloads, obj), Delete(KINDS.workloads, obj))
    assert isinstance(event, RecordEvent)
    assert event.note == "Deleted finished workload due to elapsed retention"


def test_finished_orphaned_workload_is_deleted_after_retention() -> None:
    obj = workload(FINISHED, owner=None, metadata={**ORPHANED, "finalizers": []})
    assert plan_for(obj, now=0, settings={"after_finished": 60 * SECOND}) == ActionPlan(requeue_after=60.0)
    plan = plan_for(obj, now=0, settings={"after_finished": 0})
    assert Delete(KINDS.workloads, obj) in plan.actions


def test_finished_workload_is_kept_without_retention() -> None:
    assert plan_for(workload(FINISHED), now=10**6) == ActionPlan()


@pytest.mark.parametrize("obj", [workload(FINISHED, spec={"active": False}), workload(FINISHED)])
def test_finished_workload_gets_no_actions(obj: dict[str, Any]) -> None:
    assert plan_for(obj, local_queue=None).actions == ()


@pytest.mark.parametrize("make", [reserved, admitted])
def test_slice_with_quota_finishes_slice_that_it_replaces(make: Callable[..., dict[str, Any]]) -> None:
    original, larger = admitted(name="original"), make(metadata={"labels": {NAMES.job_uid: "job-uid"}})
    plan = plan_for(larger, original=original)
    message = (
        f"Replaced to accommodate a workload (UID: {larger['metadata']['uid']}, JobUID: job-uid) "
        "due to workload slice aggregation"
    )
    assert events_of(plan) == [("Normal", "WorkloadSliceReplaced", message)]
    [patch] = [action for action in plan.actions if isinstance(action, Patch)]
    assert patch.obj == original
    assert condition_of(apply_plan(original, plan), "Finished") == ("True", "WorkloadSliceReplaced", message)


def test_slice_that_finished_another_is_reconciled_again_at_once() -> None:
    larger, original = reserved(), admitted(name="original")
    assert plan_for(larger, original=original).requeue_after == 0
    finished = apply_plan(original, plan_for(larger, original=original))
    assert condition_of(apply_plan(larger, plan_for(larger, original=finished)), "Admitted")[:2] == (
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
def test_slice_is_not_replaced_before_successor_has_quota_or_after_its_end(
    larger: dict[str, Any], original: dict[str, Any] | None
) -> None:
    assert events_of(plan_for(larger, original=original)) == []
