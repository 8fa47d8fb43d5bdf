"""Slices that are superfluous, replaced, finished or deleted."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import admitted, condition, condition_of, reserved, time, workload
from tests.unit.controllers.job.decisions import decided, kinds, told, written
from tests.unit.controllers.job.elastic_jobs import running, slice_, waiting_job


@pytest.mark.parametrize("of", [workload, admitted])
def test_of_too_many_slices_the_oldest_ends_first(of: Any) -> None:
    old, new = slice_("a", 5, of, replaces="first"), slice_("b", 5, of, replaces="a")
    plan = decided(running(5), new, old)
    assert (condition_of(written(old, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")
    assert written(new, plan) == new
    assert [reason for reason, _ in told(plan)] == ["WorkloadSliceReplaced"]


HAND_IN_HAND = {"a": "b", "b": "c", "c": "a"}

AFTER_EACH_OTHER = {"b": "a", "c": "b"}


@pytest.mark.parametrize(
    ("replaces", "made", "order"),
    [
        pytest.param(AFTER_EACH_OTHER, {}, "abc", id="of one second: by the chain of replacements"),
        pytest.param(AFTER_EACH_OTHER, {"a": 2, "b": 1}, "cba", id="by when they were made"),
        pytest.param({}, {}, "abc", id="of one second that say nothing of each other: by name"),
        pytest.param({"b": "a", "c": "a"}, {}, "abc", id="that replace the same"),
        pytest.param({"a": "gone", "b": "gone"}, {"c": 1}, "abc", id="that replace deleted ones"),
        pytest.param(HAND_IN_HAND, {}, "abc", id="that replace each other in a circle"),
        pytest.param(HAND_IN_HAND, {"a": 1}, "bca", id="in a circle: by when they were made"),
    ],
)
@pytest.mark.parametrize("of", [workload, reserved, admitted])
def test_superfluous_slices_end_one_by_one_for_the_newest(
    replaces: Mapping[str, str], made: Mapping[str, int], order: str, of: Any
) -> None:
    slices = {
        name: with_value(
            slice_(name, 5, of, replaces=replaces.get(name), made=made.get(name, 0)),
            ("metadata", "uid"),
            f"uid-{name}",
        )
        for name in "cab"
    }
    ended = ""
    for _ in order[:-1]:
        plan = decided(running(5), *slices.values())
        [over] = [name for name, one in slices.items() if written(one, plan) is not one]
        after = written(slices[over], plan)
        assert f"(UID: uid-{order[-1]}, JobUID: uid-j)" in condition_of(after, "Finished")[2]
        slices[over] = with_value(after, ("metadata", "finalizers"), [])
        ended += over
    assert ended == order[:-1]
    assert "WorkloadSliceReplaced" not in dict(told(decided(running(5), *slices.values())))


def test_superfluous_slices_with_quota_end_before_those_that_wait() -> None:
    holding = slice_("a", 3), slice_("b", 4, replaces="a", made=1)
    waiting = (
        slice_("c", 5, workload, replaces="b", made=2),
        slice_("d", 6, workload, replaces="b", made=3),
    )
    plan = decided(running(6), *waiting, *holding)
    assert [written(one, plan) is not one for one in (*holding, *waiting)] == [True, False, False, False]
    plan = decided(running(6), *waiting, holding[1])
    assert [written(one, plan) is not one for one in (holding[1], *waiting)] == [False, True, False]
    assert decided(running(6), waiting[1], holding[1]) == ActionPlan()


@pytest.mark.parametrize("over", ["Finished", "deleted"])
def test_what_is_over_makes_no_other_slice_superfluous(over: str) -> None:
    first, second = slice_("a", 3), slice_("b", 5, workload, replaces="a", made=1)
    gone = slice_("c", 5, workload, replaces="a", made=2)
    if over == "deleted":
        gone = with_value(gone, ("metadata", "deletionTimestamp"), time(5))
    else:
        gone = slice_(
            "c", 5, workload, condition("Finished", True, "WorkloadSliceReplaced"), replaces="a", made=2
        )
    plan = decided(running(5), first, second, gone)
    assert [written(one, plan) is one for one in (first, second)] == [True, True]
    assert "WorkloadSliceReplaced" not in dict(told(plan))


@pytest.mark.parametrize("of", [admitted, workload])
def test_slice_that_another_program_finished_is_freed_while_another_goes_on(of: Any) -> None:
    over = slice_("first", 3, admitted, condition("Finished", True, "Succeeded"))
    plan = decided(running(5), over, slice_("second", 5, of, replaces="first", made=1))
    assert kinds(plan) == ["free Workload"]


def test_every_finished_slice_of_a_job_that_has_ended_is_freed() -> None:
    done = with_value(running(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}])
    early, last = (
        slice_(name, 5, admitted, condition("Finished", True, "Succeeded"), made=made)
        for made, name in enumerate(("early", "last"))
    )
    early["metadata"]["finalizers"] = []
    plan = decided(done, early, last)
    assert kinds(plan) == ["free Workload"]
    assert told(plan) == [("FinishedWorkload", "Workload 'ns/last' is declared finished")]


def test_all_slices_of_a_job_end_with_it() -> None:
    done = with_value(running(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}])
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    plan = decided(done, first, second)
    assert (condition_of(written(second, plan), "Finished") or ("", "", ""))[1] == "WorkloadSliceReplaced"
    plan = decided(done, first)
    assert (condition_of(written(first, plan), "Finished") or ("", "", ""))[1] == "Succeeded"


def test_a_slice_that_is_deleted_stops_the_job() -> None:
    going = with_value(slice_("first", 3), ("metadata", "deletionTimestamp"), time(5))
    assert kinds(decided(running(3), going)) == ["patch Job"]


def test_failed_start_of_a_slice_is_reported() -> None:
    failed = slice_("first", 3, workload, condition("Finished", True, "FailedToStart"))
    assert ("FinishedWorkload", "Workload 'ns/first' is declared finished") in told(
        decided(waiting_job(3), failed)
    )
