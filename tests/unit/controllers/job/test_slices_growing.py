"""Elastic jobs that grow: a larger slice beside the one that runs."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq.integrations.kinds.job import JOB
from admitq_api.json_objects import FieldPath, value_at, with_value
from tests.unit.controllers.builders import (
    NAMES,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    job,
    reserved,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING, RUNNING_TEMPLATE, decided, kinds, told, written
from tests.unit.controllers.job.elastic_jobs import ELASTIC, EVICTED, created, running, slice_, waiting_job


def test_the_first_workload_begins_a_chain_and_is_named_by_the_jobs_generation() -> None:
    first = created(decided(waiting_job(2)))
    annotations = first["metadata"]["annotations"]
    assert annotations == {**ELASTIC, NAMES.workload_slice_name: first["metadata"]["name"]}
    later = created(decided(with_value(waiting_job(2), ("metadata", "generation"), 7)))
    assert later["metadata"]["name"] != first["metadata"]["name"]


def test_kind_may_distinguish_slices_of_one_generation() -> None:
    versioned = replace(
        JOB,
        scaling=replace(
            JOB.scaling, get_slice_version=lambda job, _: job["metadata"]["annotations"]["version"]
        ),
    )
    names = {
        created(decided(of_version, integration=versioned))["metadata"]["name"]
        for one in ("7", "7_1", "7_2")
        for of_version in [with_value(waiting_job(2), ("metadata", "annotations", "version"), one)]
    }
    assert len(names) == 3


def test_without_the_gate_a_job_is_like_any_other() -> None:
    obj = created(decided(waiting_job(2), settings={"elastic_jobs": False}))
    assert NAMES.elastic_job not in obj["metadata"].get("annotations", {})


def test_a_job_that_grows_gets_a_slice_beside_the_one_that_runs() -> None:
    plan = decided(running(5), slice_("first", 3))
    obj = created(plan)
    assert obj["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: "first",
        NAMES.workload_slice_replacement_for: "ns/first",
    }
    [pod_set] = obj["spec"]["podSets"]
    assert pod_set == {"name": "main", "count": 5, "template": TEMPLATE}
    assert [reason for reason, _ in told(plan)] == ["CreatedWorkload"]


def test_it_is_never_stopped_for_that() -> None:
    slices = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    assert decided(running(5), *slices) == ActionPlan()


def test_job_that_cannot_grow_without_its_class_reports_it_and_stops_when_evicted() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "none-such"}
    plan = decided(running(5, labels=labels), slice_("first", 3))
    assert (kinds(plan), [reason for reason, _ in told(plan)]) == ([], ["WorkloadPriorityClassNotFound"])
    assert kinds(decided(running(5, labels=labels), slice_("first", 3, admitted, EVICTED))) == ["patch Job"]


def test_it_is_not_asked_whether_pods_without_quota_are_ready() -> None:
    ready = slice_("first", 3, admitted, condition("PodsReady", True, "Started"))
    plan = decided(running(5), ready, slice_("second", 5, workload, replaces="first"))
    assert plan == ActionPlan()


def test_elastic_job_that_is_started_with_fewer_pods_than_it_wants_keeps_their_number() -> None:
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first", made=1)
    waits = waiting_job(5)
    started = written(waits, decided(waits, first, second))
    assert (started["spec"]["suspend"], started["spec"]["parallelism"]) == (False, 5)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "queueName"), "other"),
        (("metadata", "annotations", NAMES.workload_slice_replacement_for), "ns/other"),
        (("metadata", "annotations"), {}),
        (("spec", "podSets", 0, "count"), 9),
    ],
)
def test_slice_that_waits_is_restored_where_another_program_changed_it(path: FieldPath, value: Any) -> None:
    second = slice_("second", 5, workload, replaces="first", made=1)
    changed = with_value(second, path, value)
    assert written(changed, decided(running(5), slice_("first", 3), changed)) == second


def test_slice_that_waits_with_other_pods_ends_and_the_one_with_quota_goes_on() -> None:
    other = {**TEMPLATE, "spec": {"containers": []}}
    second = slice_("second", 5, workload, replaces="first", made=1)
    second = with_value(second, ("spec", "podSets", 0, "template"), other)
    plan = decided(running(5), slice_("first", 3), second)
    assert kinds(plan) == ["patch Workload"]
    assert condition_of(written(second, plan), "Finished")[:2] == ("True", "WorkloadSliceReplaced")


def test_slice_that_waits_follows_the_priority_class_of_the_job() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "high"}
    classes = {"workload_priority_class": {"high": {"metadata": {"name": "high"}, "value": 9}}}
    second = slice_("second", 5, workload, replaces="first")
    plan = decided(running(5, labels=labels), slice_("first", 3), second, known=classes)
    assert written(second, plan)["spec"]["priority"] == 9
    assert told(plan) == [("UpdatedWorkload", "Updated workload priority class: ns/second")]


@pytest.mark.parametrize("pods", [4, 7])
def test_a_slice_that_waits_follows_the_job(pods: int) -> None:
    second = slice_("second", 5, workload, replaces="first")
    plan = decided(running(pods), slice_("first", 3), second)
    assert value_at(written(second, plan), ("spec", "podSets"))[0]["count"] == pods


def test_job_grows_to_its_size_where_another_program_assigned_fewer_pods() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    obj = created(decided(running(3), with_value(slice_("first", 3), path, 2)))
    assert obj["metadata"]["annotations"][NAMES.workload_slice_replacement_for] == "ns/first"
    assert obj["spec"]["podSets"][0]["count"] == 3


def test_what_was_replaced_is_freed() -> None:
    over = slice_("first", 3, admitted, condition("Finished", True, "WorkloadSliceReplaced"))
    plan = decided(running(5), over, slice_("second", 5, replaces="first"))
    assert kinds(plan) == ["free Workload"]


def test_an_evicted_slice_stops_the_job_although_a_larger_one_waits() -> None:
    plan = decided(
        running(5), slice_("first", 3, admitted, EVICTED), slice_("second", 5, workload, replaces="first")
    )
    assert kinds(plan) == ["patch Job"]


def test_when_the_evicted_one_holds_nothing_the_other_goes_on_alone() -> None:
    first = slice_("first", 3, workload, EVICTED)
    plan = decided(waiting_job(5), first, slice_("second", 5, workload, replaces="first", made=1))
    assert (condition_of(written(first, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")


def test_one_with_checks_outstanding_does_not_stop_what_runs() -> None:
    assert decided(running(5), slice_("second", 5, reserved, replaces="first")) == ActionPlan()


UNMARKED = {**TEMPLATE, "metadata": {}}


def by_hand(pods: int) -> dict[str, Any]:
    """An elastic job that another program started."""
    return job({**RUNNING, "template": UNMARKED, "parallelism": pods, "completions": 50}, annotations=ELASTIC)


CHECKED = slice_("second", 3, reserved, replaces="first")


@pytest.mark.parametrize("started", [running, by_hand])
@pytest.mark.parametrize(
    ("of", "seconds"),
    [
        (slice_("first", 3, workload, made=9), 1.0),
        (slice_("first", 3, workload, made=8), None),
        (slice_("first", 3, workload), None),
    ],
)
def test_elastic_job_without_quota_is_stopped_when_its_workload_had_time_to_get_some(
    started: Any, of: dict[str, Any], seconds: float | None
) -> None:
    plan = decided(started(3), of)
    assert plan.requeue_after == seconds
    assert told(plan) == ([("Stopped", "Not admitted by cluster queue")] if seconds is None else [])


@pytest.mark.parametrize(("started", "stopped"), [(running, False), (by_hand, True)])
def test_elastic_job_runs_on_while_checks_of_its_larger_slice_are_pending(
    started: Any, stopped: bool
) -> None:
    assert bool(told(decided(started(3), CHECKED))) is stopped


def test_what_runs_without_an_admission_has_its_slice_follow_it() -> None:
    first = slice_("first", 3, workload)
    assert value_at(written(first, decided(by_hand(5), first)), ("spec", "podSets"))[0]["count"] == 5


def test_pods_started_before_the_admission_are_restarted() -> None:
    plan = decided(by_hand(3), slice_("first", 3))
    assert told(plan) == [("Stopped", "Started before it was admitted")]


def test_what_runs_without_a_slice_gets_one_of_the_chain_of_its_pods() -> None:
    template = with_value(
        RUNNING_TEMPLATE, ("metadata", "annotations"), {NAMES.workload_slice_name: "former"}
    )
    runs = job({**RUNNING, "template": template, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    obj = created(decided(runs))
    assert obj["metadata"]["annotations"] == {**ELASTIC, NAMES.workload_slice_name: "former"}


def test_a_job_of_another_shape_is_stopped() -> None:
    other = {**RUNNING_TEMPLATE, "spec": {**RUNNING_TEMPLATE["spec"], "containers": []}}
    changed = job({**RUNNING, "template": other, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    plan = decided(changed, slice_("first", 3))
    assert [reason for reason, _ in told(plan)] == ["Stopped"]


def test_a_suspended_job_that_waits_is_updated_as_any_other() -> None:
    first = slice_("first", 3, workload)
    plan = decided(waiting_job(5), first)
    assert value_at(written(first, plan), ("spec", "podSets"))[0]["count"] == 5
