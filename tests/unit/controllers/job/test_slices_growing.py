"""Growing elastic jobs: a larger slice beside the running slice."""

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
from tests.unit.controllers.job.decisions import (
    RUNNING,
    RUNNING_TEMPLATE,
    actions_of,
    apply_plan,
    created_workload,
    events_of,
    plan_for,
)
from tests.unit.controllers.job.elastic_jobs import (
    ELASTIC,
    EVICTED,
    running_job,
    slice_,
    waiting_job,
)


def test_first_slice_starts_chain_and_its_name_depends_on_job_generation() -> None:
    first = created_workload(plan_for(waiting_job(2)))
    annotations = first["metadata"]["annotations"]
    assert annotations == {**ELASTIC, NAMES.workload_slice_name: first["metadata"]["name"]}
    later = created_workload(plan_for(with_value(waiting_job(2), ("metadata", "generation"), 7)))
    assert later["metadata"]["name"] != first["metadata"]["name"]


def test_slice_names_differ_by_slice_version_of_kind() -> None:
    versioned = replace(
        JOB,
        scaling=replace(
            JOB.scaling, get_slice_version=lambda job, _: job["metadata"]["annotations"]["version"]
        ),
    )
    names = {
        created_workload(plan_for(job_of_version, integration=versioned))["metadata"]["name"]
        for version in ("7", "7_1", "7_2")
        for job_of_version in [with_value(waiting_job(2), ("metadata", "annotations", "version"), version)]
    }
    assert len(names) == 3


def test_elastic_job_gets_ordinary_workload_without_gate() -> None:
    obj = created_workload(plan_for(waiting_job(2), settings={"elastic_jobs": False}))
    assert NAMES.elastic_job not in obj["metadata"].get("annotations", {})


def test_growing_job_gets_second_slice_beside_running_slice() -> None:
    plan = plan_for(running_job(5), slice_("first", 3))
    obj = created_workload(plan)
    assert obj["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: "first",
        NAMES.workload_slice_replacement_for: "ns/first",
    }
    [pod_set] = obj["spec"]["podSets"]
    assert pod_set == {"name": "main", "count": 5, "template": TEMPLATE}
    assert [reason for reason, _ in events_of(plan)] == ["CreatedWorkload"]


def test_growing_job_is_not_stopped_while_larger_slice_is_pending() -> None:
    slices = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    assert plan_for(running_job(5), *slices) == ActionPlan()


def test_growing_job_with_missing_priority_class_reports_it_and_stops_when_evicted() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "none-such"}
    plan = plan_for(running_job(5, labels=labels), slice_("first", 3))
    assert (actions_of(plan), [reason for reason, _ in events_of(plan)]) == (
        [],
        ["WorkloadPriorityClassNotFound"],
    )
    assert actions_of(plan_for(running_job(5, labels=labels), slice_("first", 3, admitted, EVICTED))) == [
        "patch Job"
    ]


def test_readiness_of_growing_job_ignores_pods_without_quota() -> None:
    ready = slice_("first", 3, admitted, condition("PodsReady", True, "Started"))
    plan = plan_for(running_job(5), ready, slice_("second", 5, workload, replaces="first"))
    assert plan == ActionPlan()


def test_elastic_job_started_with_smaller_slice_keeps_its_parallelism() -> None:
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first", at=1)
    suspended = waiting_job(5)
    started = apply_plan(suspended, plan_for(suspended, first, second))
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
def test_pending_slice_changed_by_another_program_is_restored(path: FieldPath, value: Any) -> None:
    second = slice_("second", 5, workload, replaces="first", at=1)
    changed = with_value(second, path, value)
    assert apply_plan(changed, plan_for(running_job(5), slice_("first", 3), changed)) == second


def test_pending_slice_with_other_template_is_finished_and_running_slice_continues() -> None:
    other = {**TEMPLATE, "spec": {"containers": []}}
    second = slice_("second", 5, workload, replaces="first", at=1)
    second = with_value(second, ("spec", "podSets", 0, "template"), other)
    plan = plan_for(running_job(5), slice_("first", 3), second)
    assert actions_of(plan) == ["patch Workload"]
    assert condition_of(apply_plan(second, plan), "Finished")[:2] == ("True", "WorkloadSliceReplaced")


def test_pending_slice_follows_priority_class_of_its_job() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "high"}
    classes = {"workload_priority_class": {"high": {"metadata": {"name": "high"}, "value": 9}}}
    second = slice_("second", 5, workload, replaces="first")
    plan = plan_for(running_job(5, labels=labels), slice_("first", 3), second, known=classes)
    assert apply_plan(second, plan)["spec"]["priority"] == 9
    assert events_of(plan) == [("UpdatedWorkload", "Updated workload priority class: ns/second")]


@pytest.mark.parametrize("pods", [4, 7])
def test_pending_slice_follows_pod_count_of_its_job(pods: int) -> None:
    second = slice_("second", 5, workload, replaces="first")
    plan = plan_for(running_job(pods), slice_("first", 3), second)
    assert value_at(apply_plan(second, plan), ("spec", "podSets"))[0]["count"] == pods


def test_job_gets_larger_slice_when_another_program_assigned_fewer_pods() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    obj = created_workload(plan_for(running_job(3), with_value(slice_("first", 3), path, 2)))
    assert obj["metadata"]["annotations"][NAMES.workload_slice_replacement_for] == "ns/first"
    assert obj["spec"]["podSets"][0]["count"] == 3


def test_replaced_slice_is_released() -> None:
    replaced = slice_("first", 3, admitted, condition("Finished", True, "WorkloadSliceReplaced"))
    plan = plan_for(running_job(5), replaced, slice_("second", 5, replaces="first"))
    assert actions_of(plan) == ["free Workload"]


def test_job_with_evicted_slice_is_stopped_while_larger_slice_is_pending() -> None:
    plan = plan_for(
        running_job(5), slice_("first", 3, admitted, EVICTED), slice_("second", 5, workload, replaces="first")
    )
    assert actions_of(plan) == ["patch Job"]


def test_evicted_slice_without_quota_is_finished_when_larger_slice_is_pending() -> None:
    first = slice_("first", 3, workload, EVICTED)
    plan = plan_for(waiting_job(5), first, slice_("second", 5, workload, replaces="first", at=1))
    assert (condition_of(apply_plan(first, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")


def test_running_job_is_not_stopped_while_checks_of_larger_slice_are_pending() -> None:
    assert plan_for(running_job(5), slice_("second", 5, reserved, replaces="first")) == ActionPlan()


UNMARKED_TEMPLATE = {**TEMPLATE, "metadata": {}}


def foreign_start(pods: int) -> dict[str, Any]:
    """Return an elastic job that another program started."""
    return job(
        {**RUNNING, "template": UNMARKED_TEMPLATE, "parallelism": pods, "completions": 50},
        annotations=ELASTIC,
    )


CHECKED = slice_("second", 3, reserved, replaces="first")


@pytest.mark.parametrize("started", [running_job, foreign_start])
@pytest.mark.parametrize(
    ("of", "seconds"),
    [
        (slice_("first", 3, workload, at=9), 1.0),
        (slice_("first", 3, workload, at=8), None),
        (slice_("first", 3, workload), None),
    ],
)
def test_elastic_job_without_quota_is_stopped_once_its_slice_is_two_seconds_old(
    started: Any, of: dict[str, Any], seconds: float | None
) -> None:
    plan = plan_for(started(3), of)
    assert plan.requeue_after == seconds
    assert events_of(plan) == ([("Stopped", "Not admitted by cluster queue")] if seconds is None else [])


@pytest.mark.parametrize(("started", "stopped"), [(running_job, False), (foreign_start, True)])
def test_job_with_pending_checks_of_slice_is_stopped_only_if_another_program_started_it(
    started: Any, stopped: bool
) -> None:
    assert bool(events_of(plan_for(started(3), CHECKED))) is stopped


def test_slice_of_running_job_without_admission_follows_pod_count() -> None:
    first = slice_("first", 3, workload)
    assert (
        value_at(apply_plan(first, plan_for(foreign_start(5), first)), ("spec", "podSets"))[0]["count"] == 5
    )


def test_elastic_job_started_before_its_admission_is_stopped() -> None:
    plan = plan_for(foreign_start(3), slice_("first", 3))
    assert events_of(plan) == [("Stopped", "Started before it was admitted")]


def test_running_job_without_slice_gets_slice_of_chain_of_its_pods() -> None:
    template = with_value(
        RUNNING_TEMPLATE, ("metadata", "annotations"), {NAMES.workload_slice_name: "former"}
    )
    runs = job({**RUNNING, "template": template, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    obj = created_workload(plan_for(runs))
    assert obj["metadata"]["annotations"] == {**ELASTIC, NAMES.workload_slice_name: "former"}


def test_running_job_with_other_template_than_its_slice_is_stopped() -> None:
    other = {**RUNNING_TEMPLATE, "spec": {**RUNNING_TEMPLATE["spec"], "containers": []}}
    changed = job({**RUNNING, "template": other, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    plan = plan_for(changed, slice_("first", 3))
    assert [reason for reason, _ in events_of(plan)] == ["Stopped"]


def test_pending_slice_of_suspended_job_follows_pod_count() -> None:
    first = slice_("first", 3, workload)
    plan = plan_for(waiting_job(5), first)
    assert value_at(apply_plan(first, plan), ("spec", "podSets"))[0]["count"] == 5
