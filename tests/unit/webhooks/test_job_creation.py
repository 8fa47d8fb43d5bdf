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


@pytest.mark.parametrize(("on", "refused"), [(True, "annotations"), (False, "labels")])
async def test_the_gate_says_whether_the_annotation_or_the_label_names_the_workload(
    on: bool, refused: str
) -> None:
    gates = {"WorkloadIdentifierAnnotations": on}
    job = managed(labels={PREBUILT: "Label"}, annotations={PREBUILT: "Annotation"})
    answer = await validate_job(job, gates=gates)
    assert answer.message.startswith(f"metadata.{refused}[{PREBUILT}]: ")
    long = await validate_job(managed(annotations={PREBUILT: "L" * 64}), gates=gates)
    assert long.message.startswith(f"metadata.annotations[{PREBUILT}]: ")
    short = await validate_job(managed(annotations={PREBUILT: "Short"}), gates=gates)
    assert short.allowed is not on


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
async def test_valid_jobs_are_created(job: Any) -> None:
    assert (await validate_job(job)).response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("job", "field", "says"),
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
async def test_a_wrong_job_is_refused_with_the_field_and_the_reason(job: Any, field: str, says: str) -> None:
    answer = await validate_job(job)
    assert not answer.allowed
    assert answer.message.startswith(f"{field}: ")
    assert says in answer.message


async def test_what_a_kind_cannot_do_is_refused() -> None:
    plain = replace(
        JOB,
        delegation=replace(JOB.delegation, adopts_prebuilt_workload=False),
        scaling=replace(JOB.scaling, can_be_elastic=False),
    )
    handler = review_handlers(policy(integrations=(plain,)), FakeLookups(), (plain,))[
        "/validate-batch-v1-job"
    ]
    job = managed(labels={PREBUILT: "w"}, annotations={ELASTIC: "true"})
    _, body = await post(handler, "/validate-batch-v1-job", review(job))
    message = orjson.loads(body)["response"]["status"]["message"]
    assert f"metadata.labels[{PREBUILT}]: Forbidden: Is not supported for batch/v1, Kind=Job" in message
    assert f"metadata.annotations[{ELASTIC}]: Forbidden: " in message


RAY_GROUPS = "spec.rayClusterSpec.workerGroupSpecs"
BEYOND = "19: a Workload has at most 18 podsets; put pods of several together, or make several jobs"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def groups(number: int, **spec: Any) -> dict[str, Any]:
    workers = [{"groupName": f"g{index}", "template": TEMPLATE} for index in range(number)]
    cluster = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": workers}
    return {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **spec}


def wrapped(number: int) -> dict[str, Any]:
    """As many podsets in one object as are declared beside it."""
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


def replicated(number: int) -> dict[str, Any]:
    job = {"spec": {"template": TEMPLATE}}
    return {"replicatedJobs": [{"name": f"j{index}", "template": job} for index in range(number)]}


def tasks(number: int) -> dict[str, Any]:
    return {"tasks": [{"name": f"t{index}", "template": TEMPLATE} for index in range(number)]}


@pytest.mark.parametrize(
    ("framework", "most", "beyond", "field", "says"),
    [
        # The head and the pod that submits the job are podsets too.
        ("ray.io/rayjob", groups(16), groups(17), RAY_GROUPS, "17: must have at most 16 items"),
        (
            "ray.io/rayjob",
            groups(17, submissionMode="HTTPMode"),
            groups(18, submissionMode="HTTPMode"),
            RAY_GROUPS,
            "18: must have at most 17 items",
        ),
        (
            "ray.io/raycluster",
            groups(17)["rayClusterSpec"],
            groups(18)["rayClusterSpec"],
            "spec.workerGroupSpecs",
            "18: must have at most 17 items",
        ),
        ("jobset.x-k8s.io/jobset", replicated(18), replicated(19), "spec.replicatedJobs", BEYOND),
        ("workload.codeflare.dev/appwrapper", wrapped(18), wrapped(19), "spec.components", BEYOND),
        ("tasks.example.com/job", tasks(18), tasks(19), "spec.tasks", BEYOND),
    ],
)
def test_a_job_of_more_podsets_than_a_workload_may_have_is_refused(
    framework: str, most: dict[str, Any], beyond: dict[str, Any], field: str, says: str
) -> None:
    (kind,) = (one for one in (*load_integrations(), *custom_kinds()) if one.framework == framework)
    ours = policy(integrations=(kind,))

    def job(spec: dict[str, Any], **labels: str) -> dict[str, Any]:
        metadata = {"name": "j", "namespace": "team", "labels": labels}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}

    def change(old: dict[str, Any], new: dict[str, Any]) -> list[FieldError]:
        return validate_update(old, new, "team", kind, ours, FakeLookups())

    queue = {QUEUE: "q"}
    assert validate_create(job(most, **queue), kind, ours) == []
    (error,) = validate_create(job(beyond, **queue), kind, ours)
    assert f"{error.path}: {error.message}" == f"{field}: Too many: {says}"
    assert validate_create(job(beyond), kind, ours) == []
    assert error in change(job(most, **queue), job(beyond, **queue))
    assert error in change(job(beyond), job(beyond, **queue))
    assert error not in change(job(beyond), job(beyond, x="y"))


def test_a_job_that_had_too_many_podsets_before_we_looked_at_it_is_let_go() -> None:
    old = {"metadata": {"name": "j", "labels": {QUEUE: "q"}}, "spec": replicated(19)}
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    ours = policy(integrations=(JOBSET,))
    assert validate_update(old, new, "team", JOBSET, ours, FakeLookups()) == []


def half_stopped(job: dict[str, Any]) -> dict[str, Any]:
    metadata = job["metadata"]
    annotations = {**metadata["annotations"], NAMES.stopping: "true"}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(partial(2, suspend=False), partial(2, suspend=True), "", id="stop with fewest"),
        pytest.param(
            partial(2, suspend=False), half_stopped(partial(2, suspend=True)), "", id="first step of a stop"
        ),
        pytest.param(
            half_stopped(partial(2, suspend=True)), partial(5, suspend=True), "", id="last step of a stop"
        ),
        pytest.param(partial(2, suspend=True), partial(5, suspend=True), "", id="restore"),
        pytest.param(
            partial(2, suspend=False, minimum="x"),
            partial(2, suspend=True, minimum="x"),
            "",
            id="stop stored",
        ),
        pytest.param(
            partial(5, suspend=True), partial(2, suspend=True), "should be between 0 and 1", id="shrink"
        ),
        pytest.param(
            partial(5, suspend=False),
            partial(2, suspend=True),
            "should be between 0 and 1",
            id="shrink and stop",
        ),
    ],
)
def test_job_is_suspended_whatever_errors_it_was_stored_with(
    old: dict[str, Any], new: dict[str, Any], says: str
) -> None:
    errors = validate_update(old, new, "team", JOB, policy(), FakeLookups())
    assert [says in str(error) for error in errors] == ([True] if says else [])


def test_rayjob_that_keeps_its_cluster_is_suspended_but_neither_started_nor_queued() -> None:
    (kind,) = (one for one in load_integrations() if one.framework == "ray.io/rayjob")
    ours = policy(integrations=(kind,))

    def job(queue: str = "q", **spec: Any) -> dict[str, Any]:
        labels = {QUEUE: queue} if queue else {}
        return {"metadata": {"name": "j", "labels": labels}, "spec": groups(1, **spec)}

    def refused(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return [error.path for error in validate_update(old, new, "team", kind, ours, FakeLookups())]

    runs, waits, unqueued = (
        job(queue, suspend=suspended, shutdownAfterJobFinishes=False)
        for queue, suspended in (("q", False), ("q", True), ("", True))
    )
    assert refused(runs, waits) == []
    for before, after in ((waits, runs), (unqueued, waits), (job(suspend=True), waits)):
        assert refused(before, after) == ["spec.shutdownAfterJobFinishes"]
