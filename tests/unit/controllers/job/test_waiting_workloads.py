"""Changes of a job with a pending Workload."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from tests.unit.controllers.builders import NAMES, job, reserved, workload
from tests.unit.controllers.job.decisions import decided, kinds, told, written


@pytest.mark.parametrize(
    ("of_job", "of_workload", "left"),
    [
        ("a.example/x", "a.example/x,b.example/y", "a.example/x"),
        (None, "a.example/x", None),
        ("b.example/y", "a.example/x", None),
        ("b.example/y", "a.example/x, b.example/y", "b.example/y"),
    ],
)
def test_a_gate_that_is_taken_off_the_job_is_taken_off_its_workload(
    of_job: str | None, of_workload: str, left: str | None
) -> None:
    obj = workload(metadata={"annotations": {NAMES.admission_gated_by: of_workload}})
    plan = decided(job(annotations={NAMES.admission_gated_by: of_job} if of_job else {}), obj)
    assert written(obj, plan)["metadata"]["annotations"].get(NAMES.admission_gated_by) == left


@pytest.mark.parametrize(
    ("of_job", "of_workload", "labels"),
    [
        ("a.example/x", "a.example/x", {}),
        ("a.example/x", None, {}),
        (None, "a.example/x", {NAMES.prebuilt_workload_name: "job-j-1"}),
    ],
)
def test_gates_that_the_workload_has_of_its_own_or_no_more_are_left_alone(
    of_job: str | None, of_workload: str | None, labels: Any
) -> None:
    key = NAMES.admission_gated_by
    annotations = {key: of_workload} if of_workload else {}
    obj = workload(metadata={"annotations": annotations, "labels": {NAMES.job_uid: "uid-j"}})
    gated = job(annotations={key: of_job} if of_job else {}, labels={NAMES.queue_name: "lq", **labels})
    assert kinds(decided(gated, obj, known={"workload": {"job-j-1": obj}})) == []


def test_messages_of_pending_checks_are_reported() -> None:
    checks = [
        {"name": "a", "state": "Pending", "message": "waits for nodes"},
        {"name": "b", "state": "Ready", "message": "done"},
        {"name": "c", "state": "Pending", "message": ""},
        {"name": "d", "state": "Pending", "message": "soon"},
    ]
    plan = decided(job(), reserved(admissionChecks=checks))
    assert told(plan) == [("UpdatedAdmissionCheck", "a: waits for nodes; d: soon")]


def test_a_waiting_workload_follows_its_jobs_queue() -> None:
    labels = {NAMES.queue_name: "other"}
    obj = workload()
    assert written(obj, decided(job(labels=labels), obj))["spec"]["queueName"] == "other"
    assert decided(job(labels=labels), reserved()) == ActionPlan()


def test_where_all_jobs_are_managed_a_waiting_workload_follows_its_job_out_of_its_queue() -> None:
    settings = {"without_queue_name": True}
    obj = workload()
    assert "queueName" not in written(obj, decided(job(labels={}), obj, settings=settings))["spec"]
    labels = {NAMES.prebuilt_workload_name: "job-j-1"}
    adopted = workload(metadata={"labels": {NAMES.job_uid: "uid-j"}})
    known = {"workload": {"job-j-1": adopted}}
    assert decided(job(labels=labels), adopted, settings=settings, known=known) == ActionPlan()
