"""Changes of a job with a pending Workload."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from tests.unit.controllers.builders import NAMES, job, reserved, workload
from tests.unit.controllers.job.decisions import actions_of, apply_plan, events_of, plan_for


@pytest.mark.parametrize(
    ("of_job", "of_workload", "expected"),
    [
        ("a.example/x", "a.example/x,b.example/y", "a.example/x"),
        (None, "a.example/x", None),
        ("b.example/y", "a.example/x", None),
        ("b.example/y", "a.example/x, b.example/y", "b.example/y"),
    ],
)
def test_admission_gate_removed_from_job_is_removed_from_its_workload(
    of_job: str | None, of_workload: str, expected: str | None
) -> None:
    obj = workload(metadata={"annotations": {NAMES.admission_gated_by: of_workload}})
    plan = plan_for(job(annotations={NAMES.admission_gated_by: of_job} if of_job else {}), obj)
    assert apply_plan(obj, plan)["metadata"]["annotations"].get(NAMES.admission_gated_by) == expected


@pytest.mark.parametrize(
    ("of_job", "of_workload", "labels"),
    [
        ("a.example/x", "a.example/x", {}),
        ("a.example/x", None, {}),
        (None, "a.example/x", {NAMES.prebuilt_workload_name: "job-j-1"}),
    ],
)
def test_admission_gates_of_workload_do_not_change_without_removal_from_job(
    of_job: str | None, of_workload: str | None, labels: Any
) -> None:
    key = NAMES.admission_gated_by
    annotations = {key: of_workload} if of_workload else {}
    obj = workload(metadata={"annotations": annotations, "labels": {NAMES.job_uid: "uid-j"}})
    gated = job(annotations={key: of_job} if of_job else {}, labels={NAMES.queue_name: "lq", **labels})
    assert actions_of(plan_for(gated, obj, known={"workload": {"job-j-1": obj}})) == []


def test_messages_of_pending_admission_checks_are_reported() -> None:
    checks = [
        {"name": "a", "state": "Pending", "message": "waits for nodes"},
        {"name": "b", "state": "Ready", "message": "done"},
        {"name": "c", "state": "Pending", "message": ""},
        {"name": "d", "state": "Pending", "message": "soon"},
    ]
    plan = plan_for(job(), reserved(admissionChecks=checks))
    assert events_of(plan) == [("UpdatedAdmissionCheck", "a: waits for nodes; d: soon")]


def test_pending_workload_follows_queue_of_its_job() -> None:
    labels = {NAMES.queue_name: "other"}
    obj = workload()
    assert apply_plan(obj, plan_for(job(labels=labels), obj))["spec"]["queueName"] == "other"
    assert plan_for(job(labels=labels), reserved()) == ActionPlan()


def test_pending_workload_loses_queue_with_its_job_where_all_jobs_are_managed() -> None:
    settings = {"without_queue_name": True}
    obj = workload()
    assert "queueName" not in apply_plan(obj, plan_for(job(labels={}), obj, settings=settings))["spec"]


def test_prebuilt_workload_keeps_its_queue_where_all_jobs_are_managed() -> None:
    settings = {"without_queue_name": True}
    labels = {NAMES.prebuilt_workload_name: "job-j-1"}
    adopted = workload(metadata={"labels": {NAMES.job_uid: "uid-j"}})
    known = {"workload": {"job-j-1": adopted}}
    assert plan_for(job(labels=labels), adopted, settings=settings, known=known) == ActionPlan()
