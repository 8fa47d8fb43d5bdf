"""Validation of new jobs."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.registry import load_integrations
from admitq_api.field_errors import FieldError
from admitq_webhooks.routes import review_handlers
from admitq_webhooks.validate.jobs import validate_create, validate_update
from tests.unit.integrations.examples import custom_kinds
from tests.unit.webhooks.job_requests import ELASTIC, GATED, MAX_TIME, PREBUILT, managed, partial
from tests.unit.webhooks.support import (
    NAMES,
    QUEUE,
    FakeLookups,
    a_job,
    policy,
    post,
    review,
    validate_job,
)


@pytest.mark.parametrize(("enabled", "field"), [(True, "annotations"), (False, "labels")])
async def test_gate_selects_whether_annotation_or_label_names_prebuilt_workload(
    enabled: bool, field: str
) -> None:
    gates = {"WorkloadIdentifierAnnotations": enabled}
    job = managed(labels={PREBUILT: "Label"}, annotations={PREBUILT: "Annotation"})
    answer = await validate_job(job, gates=gates)
    assert answer.message.startswith(f"metadata.{field}[{PREBUILT}]: ")
    long = await validate_job(managed(annotations={PREBUILT: "L" * 64}), gates=gates)
    assert long.message.startswith(f"metadata.annotations[{PREBUILT}]: ")
    short = await validate_job(managed(annotations={PREBUILT: "Short"}), gates=gates)
    assert short.allowed is not enabled


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        managed(),
        managed(labels={QUEUE: "a" * 63}),
        managed(labels={MAX_TIME: "1"}),
        managed(labels={PREBUILT: "ready-made"}),
        managed(annotations={PREBUILT: "r" * 253}),
        managed(annotations={ELASTIC: "true"}),
        managed(annotations={ELASTIC: "false"}),
        managed(annotations={GATED: "example.com/a,example.com/b/c"}),
        managed(annotations={GATED: ""}),
        managed(annotations={NAMES.job_min_parallelism: "3"}),
        managed(annotations={NAMES.job_completions_equal_parallelism: "true"}, completionMode="Indexed"),
    ],
)
async def test_valid_new_job_is_accepted(job: Any) -> None:
    assert (await validate_job(job)).response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("job", "field", "message"),
    [
        (managed(labels={QUEUE: "Team A"}), f"metadata.labels[{QUEUE}]", "lower case"),
        (managed(labels={QUEUE: "a" * 254}), f"metadata.labels[{QUEUE}]", "253"),
        (managed(labels={MAX_TIME: "0"}), f"metadata.labels[{MAX_TIME}]", "should be greater than 0"),
        (managed(labels={MAX_TIME: "-5"}), f"metadata.labels[{MAX_TIME}]", "should be greater than 0"),
        (managed(labels={MAX_TIME: "1h"}), f"metadata.labels[{MAX_TIME}]", "whole number"),
        (managed(labels={MAX_TIME: "\uff11"}), f"metadata.labels[{MAX_TIME}]", "whole number"),
        (managed(labels={MAX_TIME: "2147483648"}), f"metadata.labels[{MAX_TIME}]", "less than 2147483648"),
        (managed(labels={PREBUILT: "Ready"}), f"metadata.labels[{PREBUILT}]", "lower case"),
        (managed(annotations={PREBUILT: ""}), f"metadata.annotations[{PREBUILT}]", "Invalid value"),
        (managed(annotations={GATED: "a"}), f"metadata.annotations[{GATED}]", "domain-prefixed"),
        (managed(annotations={GATED: "a.b/"}), f"metadata.annotations[{GATED}]", "domain-prefixed"),
        (managed(annotations={GATED: "A_B/c"}), f"metadata.annotations[{GATED}]", "prefix part"),
        (managed(annotations={GATED: "a.b/c,"}), f"metadata.annotations[{GATED}]", "cannot be empty"),
        (managed(annotations={GATED: "a.b/c,a.b/c"}), f"metadata.annotations[{GATED}]", "Duplicate value"),
        (managed(annotations={GATED: "a.b/" + "c" * 60}), f"metadata.annotations[{GATED}]", "63"),
        (managed(annotations={GATED: "a.b/c d"}), f"metadata.annotations[{GATED}]", "URL"),
        (
            managed(annotations={NAMES.job_min_parallelism: "4"}),
            f"metadata.annotations[{NAMES.job_min_parallelism}]",
            "should be between 0 and 3",
        ),
        (
            managed(annotations={NAMES.job_completions_equal_parallelism: "true"}),
            f"metadata.annotations[{NAMES.job_completions_equal_parallelism}]",
            "NonIndexed",
        ),
    ],
)
async def test_invalid_new_job_is_rejected_with_field_and_reason(job: Any, field: str, message: str) -> None:
    answer = await validate_job(job)
    assert not answer.allowed
    assert answer.message.startswith(f"{field}: ")
    assert message in answer.message


async def test_feature_unsupported_by_job_kind_is_rejected() -> None:
    limited_kind = replace(
        JOB,
        delegation=replace(JOB.delegation, adopts_prebuilt_workload=False),
        scaling=replace(JOB.scaling, can_be_elastic=False),
    )
    handler = review_handlers(policy(integrations=(limited_kind,)), FakeLookups(), (limited_kind,))[
        "/validate-batch-v1-job"
    ]
    job = managed(labels={PREBUILT: "w"}, annotations={ELASTIC: "true"})
    _, body = await post(handler, "/validate-batch-v1-job", review(job))
    message = orjson.loads(body)["response"]["status"]["message"]
    assert f"metadata.labels[{PREBUILT}]: Forbidden: Is not supported for batch/v1, Kind=Job" in message
    assert f"metadata.annotations[{ELASTIC}]: Forbidden: " in message


RAY_GROUPS = "spec.rayClusterSpec.workerGroupSpecs"
TOO_MANY_PODSETS = (
    "19: a Workload has at most 18 podsets; use fewer podsets, or split the job into several jobs"
)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def ray_job(number: int, **spec: Any) -> dict[str, Any]:
    workers = [{"groupName": f"g{index}", "template": TEMPLATE} for index in range(number)]
    cluster = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": workers}
    return {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **spec}


def app_wrapper(number: int) -> dict[str, Any]:
    """Return an AppWrapper spec with one JobSet that declares `number` podsets."""
    template = {"spec": {"template": TEMPLATE, "parallelism": 1}}
    jobs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{"name": f"j{index}", "template": template} for index in range(number)]},
    }
    paths = [
        {"path": f"template.spec.replicatedJobs[{index}].template.spec.template"} for index in range(number)
    ]
    return {"components": [{"template": jobs, "podSets": paths}]}


def job_set(number: int) -> dict[str, Any]:
    job = {"spec": {"template": TEMPLATE}}
    return {"replicatedJobs": [{"name": f"j{index}", "template": job} for index in range(number)]}


def task_job(number: int) -> dict[str, Any]:
    return {"tasks": [{"name": f"t{index}", "template": TEMPLATE} for index in range(number)]}


@pytest.mark.parametrize(
    ("framework", "at_limit", "too_many", "field", "message"),
    [
        # The head and the pod that submits the job are podsets too.
        ("ray.io/rayjob", ray_job(16), ray_job(17), RAY_GROUPS, "17: must have at most 16 items"),
        (
            "ray.io/rayjob",
            ray_job(17, submissionMode="HTTPMode"),
            ray_job(18, submissionMode="HTTPMode"),
            RAY_GROUPS,
            "18: must have at most 17 items",
        ),
        (
            "ray.io/raycluster",
            ray_job(17)["rayClusterSpec"],
            ray_job(18)["rayClusterSpec"],
            "spec.workerGroupSpecs",
            "18: must have at most 17 items",
        ),
        ("jobset.x-k8s.io/jobset", job_set(18), job_set(19), "spec.replicatedJobs", TOO_MANY_PODSETS),
        (
            "workload.codeflare.dev/appwrapper",
            app_wrapper(18),
            app_wrapper(19),
            "spec.components",
            TOO_MANY_PODSETS,
        ),
        ("tasks.example.com/job", task_job(18), task_job(19), "spec.tasks", TOO_MANY_PODSETS),
    ],
)
def test_job_with_more_podsets_than_workload_limit_is_rejected(
    framework: str, at_limit: dict[str, Any], too_many: dict[str, Any], field: str, message: str
) -> None:
    (kind,) = (kind for kind in (*load_integrations(), *custom_kinds()) if kind.framework == framework)
    rules = policy(integrations=(kind,))

    def job(spec: dict[str, Any], **labels: str) -> dict[str, Any]:
        metadata = {"name": "j", "namespace": "team", "labels": labels}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}

    def change(old: dict[str, Any], new: dict[str, Any]) -> list[FieldError]:
        return validate_update(old, new, "team", kind, rules, FakeLookups())

    queue = {QUEUE: "q"}
    assert validate_create(job(at_limit, **queue), kind, rules) == []
    (error,) = validate_create(job(too_many, **queue), kind, rules)
    assert f"{error.path}: {error.message}" == f"{field}: Too many: {message}"
    assert validate_create(job(too_many), kind, rules) == []
    assert error in change(job(at_limit, **queue), job(too_many, **queue))
    assert error in change(job(too_many), job(too_many, **queue))
    assert error not in change(job(too_many), job(too_many, x="y"))


def test_stored_job_with_too_many_podsets_can_be_updated() -> None:
    old = {"metadata": {"name": "j", "labels": {QUEUE: "q"}}, "spec": job_set(19)}
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    rules = policy(integrations=(JOBSET,))
    assert validate_update(old, new, "team", JOBSET, rules, FakeLookups()) == []


def mark_as_stopping(job: dict[str, Any]) -> dict[str, Any]:
    metadata = job["metadata"]
    annotations = {**metadata["annotations"], NAMES.stopping: "true"}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            partial(2, suspend=False), partial(2, suspend=True), "", id="suspend with minimum parallelism"
        ),
        pytest.param(
            partial(2, suspend=False),
            mark_as_stopping(partial(2, suspend=True)),
            "",
            id="first step of suspending",
        ),
        pytest.param(
            mark_as_stopping(partial(2, suspend=True)),
            partial(5, suspend=True),
            "",
            id="last step of suspending",
        ),
        pytest.param(partial(2, suspend=True), partial(5, suspend=True), "", id="restore"),
        pytest.param(
            partial(2, suspend=False, minimum="x"),
            partial(2, suspend=True, minimum="x"),
            "",
            id="suspend with invalid stored minimum",
        ),
        pytest.param(
            partial(5, suspend=True), partial(2, suspend=True), "should be between 0 and 1", id="shrink"
        ),
        pytest.param(
            partial(5, suspend=False),
            partial(2, suspend=True),
            "should be between 0 and 1",
            id="shrink and suspend",
        ),
    ],
)
def test_partially_admitted_job_can_be_suspended_and_restored_but_not_shrunk(
    old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    errors = validate_update(old, new, "team", JOB, policy(), FakeLookups())
    assert [message in str(error) for error in errors] == ([True] if message else [])


def test_rayjob_that_keeps_its_cluster_can_be_suspended_but_not_started_or_queued() -> None:
    (kind,) = (kind for kind in load_integrations() if kind.framework == "ray.io/rayjob")
    rules = policy(integrations=(kind,))

    def job(queue: str = "q", **spec: Any) -> dict[str, Any]:
        labels = {QUEUE: queue} if queue else {}
        return {"metadata": {"name": "j", "labels": labels}, "spec": ray_job(1, **spec)}

    def rejected_fields(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return [error.path for error in validate_update(old, new, "team", kind, rules, FakeLookups())]

    running, suspended, unqueued = (
        job(queue, suspend=is_suspended, shutdownAfterJobFinishes=False)
        for queue, is_suspended in (("q", False), ("q", True), ("", True))
    )
    assert rejected_fields(running, suspended) == []
    for before, after in ((suspended, running), (unqueued, suspended), (job(suspend=True), suspended)):
        assert rejected_fields(before, after) == ["spec.shutdownAfterJobFinishes"]
