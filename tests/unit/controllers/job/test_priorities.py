"""Priorities of Workloads, from the classes that their jobs name."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from tests.unit.controllers.builders import FINISHED, NAMES, admitted, job, timestamp, workload
from tests.unit.controllers.job.decisions import (
    COMPLETE,
    EVICTED,
    RUNNING,
    actions_of,
    apply_plan,
    created_workload,
    events_of,
    plan_for,
)

HIGH = {"metadata": {"name": "high"}, "value": 100}

LOW = {"metadata": {"name": "low"}, "value": 1, "globalDefault": True}

LOWER = {"metadata": {"name": "lower"}, "value": 0, "globalDefault": True}

BY_LABEL = {NAMES.queue_name: "lq", NAMES.priority_class: "high"}

WITH_POD_CLASS = {"template": {"spec": {"priorityClassName": "low", "containers": []}}}


def reference(group: str, kind: str, name: str) -> dict[str, Any]:
    return {"group": group, "kind": kind, "name": name}


@pytest.mark.parametrize(
    ("obj", "known", "priority", "ref"),
    [
        (job(), {}, 0, None),
        (
            job(),
            {"priority_class": {"low": LOW, "lower": LOWER}},
            0,
            reference("scheduling.k8s.io", "PriorityClass", "lower"),
        ),
        (
            job(WITH_POD_CLASS),
            {"priority_class": {"low": LOW, "lower": LOWER}},
            1,
            reference("scheduling.k8s.io", "PriorityClass", "low"),
        ),
        (
            job(WITH_POD_CLASS, labels=BY_LABEL),
            {"priority_class": {"low": LOW}, "workload_priority_class": {"high": HIGH}},
            100,
            reference(NAMES.group, "WorkloadPriorityClass", "high"),
        ),
    ],
)
def test_workload_priority_comes_from_most_specific_class(
    obj: dict[str, Any], known: Any, priority: int, ref: Any
) -> None:
    spec = created_workload(plan_for(obj, known=known))["spec"]
    assert (spec["priority"], spec.get("priorityClassRef")) == (priority, ref)


@pytest.mark.parametrize(
    ("obj", "reason", "note"),
    [
        (job(labels=BY_LABEL), "WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "high" not found'),
        (job(WITH_POD_CLASS), "PriorityClassNotFound", 'PriorityClass "low" not found'),
    ],
)
def test_job_with_missing_priority_class_gets_no_workload_and_reports_it(
    obj: dict[str, Any], reason: str, note: str
) -> None:
    plan = plan_for(obj)
    assert (actions_of(plan), events_of(plan)) == ([], [(reason, note)])


@pytest.mark.parametrize(
    ("obj", "follows"),
    [
        (workload(), True),
        (workload(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "old")}), True),
        (admitted(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "old")}), True),
        (admitted(), False),
        (workload(spec={"priorityClassRef": reference("scheduling.k8s.io", "PriorityClass", "p")}), False),
        (workload(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "high")}), False),
    ],
)
def test_workload_priority_follows_class_of_its_job(obj: dict[str, Any], follows: bool) -> None:
    known = {"workload_priority_class": {"high": HIGH}}
    plan = plan_for(job(labels=BY_LABEL), obj, known=known)
    assert (("UpdatedWorkload", "Updated workload priority class: ns/job-j-1") in events_of(plan)) is follows
    if follows:
        assert apply_plan(obj, plan)["spec"]["priority"] == 100


def with_class(name: str) -> dict[str, Any]:
    return {"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", name)}


@pytest.mark.parametrize(
    ("obj", "actions"),
    [
        (admitted(EVICTED, spec=with_class("old")), ["patch Job"]),
        (workload(), ["patch Job"]),
        (admitted(metadata={"deletionTimestamp": timestamp(5)}, spec=with_class("old")), ["patch Job"]),
        (admitted(spec=with_class("old")), []),
    ],
)
def test_missing_priority_class_does_not_prevent_a_stop(obj: dict[str, Any], actions: Any) -> None:
    plan = plan_for(job(RUNNING, labels=BY_LABEL), obj, settings={"pods_ready": None})
    assert actions_of(plan) == actions
    note = 'WorkloadPriorityClass "high" not found'
    assert (("WorkloadPriorityClassNotFound", note) in events_of(plan)) is not bool(actions)


def test_missing_priority_class_is_not_reported_for_finished_job() -> None:
    assert (
        plan_for(job(status=COMPLETE, labels=BY_LABEL), workload(FINISHED, metadata={"finalizers": []}))
        == ActionPlan()
    )
