"""Superfluous, replaced, finished and deleted slices."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import admitted, condition, condition_of, reserved, timestamp, workload
from tests.unit.controllers.job.decisions import actions_of, apply_plan, events_of, plan_for
from tests.unit.controllers.job.elastic_jobs import running_job, slice_, waiting_job


@pytest.mark.parametrize("of", [workload, admitted])
def test_oldest_superfluous_slice_is_finished_first(of: Any) -> None:
    old, new = slice_("a", 5, of, replaces="first"), slice_("b", 5, of, replaces="a")
    plan = plan_for(running_job(5), new, old)
    assert (condition_of(apply_plan(old, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")
    assert apply_plan(new, plan) == new
    assert [reason for reason, _ in events_of(plan)] == ["WorkloadSliceReplaced"]


CIRCLE = {"a": "b", "b": "c", "c": "a"}

CHAIN = {"b": "a", "c": "b"}


@pytest.mark.parametrize(
    ("replaces", "created", "order"),
    [
        pytest.param(CHAIN, {}, "abc", id="same creation time: in order of the chain"),
        pytest.param(CHAIN, {"a": 2, "b": 1}, "cba", id="chain against creation times: in order of creation"),
        pytest.param({}, {}, "abc", id="same creation time without chain: by name"),
        pytest.param({"b": "a", "c": "a"}, {}, "abc", id="two replace the same slice"),
        pytest.param({"a": "gone", "b": "gone"}, {"c": 1}, "abc", id="two replace deleted slices"),
        pytest.param(CIRCLE, {}, "abc", id="circle of replacements: by name"),
        pytest.param(CIRCLE, {"a": 1}, "bca", id="circle of replacements: in order of creation"),
    ],
)
@pytest.mark.parametrize("of", [workload, reserved, admitted])
def test_superfluous_slices_are_finished_one_by_one_in_replacement_order(
    replaces: Mapping[str, str], created: Mapping[str, int], order: str, of: Any
) -> None:
    slices = {
        name: with_value(
            slice_(name, 5, of, replaces=replaces.get(name), at=created.get(name, 0)),
            ("metadata", "uid"),
            f"uid-{name}",
        )
        for name in "cab"
    }
    finished_names = ""
    for _ in order[:-1]:
        plan = plan_for(running_job(5), *slices.values())
        [name] = [name for name, obj in slices.items() if apply_plan(obj, plan) is not obj]
        finished = apply_plan(slices[name], plan)
        assert f"(UID: uid-{order[-1]}, JobUID: uid-j)" in condition_of(finished, "Finished")[2]
        slices[name] = with_value(finished, ("metadata", "finalizers"), [])
        finished_names += name
    assert finished_names == order[:-1]
    assert "WorkloadSliceReplaced" not in dict(events_of(plan_for(running_job(5), *slices.values())))


def test_superfluous_slices_with_quota_are_finished_before_pending_slices() -> None:
    holding = slice_("a", 3), slice_("b", 4, replaces="a", at=1)
    waiting = (
        slice_("c", 5, workload, replaces="b", at=2),
        slice_("d", 6, workload, replaces="b", at=3),
    )
    plan = plan_for(running_job(6), *waiting, *holding)
    assert [apply_plan(obj, plan) is not obj for obj in (*holding, *waiting)] == [True, False, False, False]
    plan = plan_for(running_job(6), *waiting, holding[1])
    assert [apply_plan(obj, plan) is not obj for obj in (holding[1], *waiting)] == [False, True, False]
    assert plan_for(running_job(6), waiting[1], holding[1]) == ActionPlan()


@pytest.mark.parametrize("state", ["Finished", "deleted"])
def test_finished_or_deleted_slice_does_not_make_other_slices_superfluous(state: str) -> None:
    first, second = slice_("a", 3), slice_("b", 5, workload, replaces="a", at=1)
    third = slice_("c", 5, workload, replaces="a", at=2)
    if state == "deleted":
        third = with_value(third, ("metadata", "deletionTimestamp"), timestamp(5))
    else:
        third = slice_(
            "c", 5, workload, condition("Finished", True, "WorkloadSliceReplaced"), replaces="a", at=2
        )
    plan = plan_for(running_job(5), first, second, third)
    assert [apply_plan(obj, plan) is obj for obj in (first, second)] == [True, True]
    assert "WorkloadSliceReplaced" not in dict(events_of(plan))


@pytest.mark.parametrize("of", [admitted, workload])
def test_slice_finished_by_another_program_is_released_while_newer_slice_continues(of: Any) -> None:
    finished = slice_("first", 3, admitted, condition("Finished", True, "Succeeded"))
    plan = plan_for(running_job(5), finished, slice_("second", 5, of, replaces="first", at=1))
    assert actions_of(plan) == ["free Workload"]


def test_every_finished_slice_of_finished_job_is_released() -> None:
    finished_job = with_value(
        running_job(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}]
    )
    early, last = (
        slice_(name, 5, admitted, condition("Finished", True, "Succeeded"), at=second)
        for second, name in enumerate(("early", "last"))
    )
    early["metadata"]["finalizers"] = []
    plan = plan_for(finished_job, early, last)
    assert actions_of(plan) == ["free Workload"]
    assert events_of(plan) == [("FinishedWorkload", "Workload 'ns/last' is declared finished")]


def test_all_slices_are_finished_when_their_job_ends() -> None:
    finished_job = with_value(
        running_job(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}]
    )
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    plan = plan_for(finished_job, first, second)
    assert (condition_of(apply_plan(second, plan), "Finished") or ("", "", ""))[1] == "WorkloadSliceReplaced"
    plan = plan_for(finished_job, first)
    assert (condition_of(apply_plan(first, plan), "Finished") or ("", "", ""))[1] == "Succeeded"


def test_job_is_stopped_when_its_slice_is_deleted() -> None:
    deleted = with_value(slice_("first", 3), ("metadata", "deletionTimestamp"), timestamp(5))
    assert actions_of(plan_for(running_job(3), deleted)) == ["patch Job"]


def test_slice_that_failed_to_start_is_reported() -> None:
    failed = slice_("first", 3, workload, condition("Finished", True, "FailedToStart"))
    assert ("FinishedWorkload", "Workload 'ns/first' is declared finished") in events_of(
        plan_for(waiting_job(3), failed)
    )
