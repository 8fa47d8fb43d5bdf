"""Validation of the topology annotations of pod templates."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.integrations.base import Integration, PodSetTemplate
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq_webhooks.routes import review_handlers
from admitq_webhooks.validate.jobs import validate_create, validate_update
from tests.unit.webhooks.support import NAMES, QUEUE, FakeLookups, a_job, policy, post, review, validate_job

REQUIRED = NAMES.podset_required_topology
PREFERRED = NAMES.podset_preferred_topology
UNCONSTRAINED = NAMES.podset_unconstrained_topology
SLICE = NAMES.podset_slice_required_topology
SIZE = NAMES.podset_slice_size
CONSTRAINTS = NAMES.podset_slice_required_topology_constraints
GROUP = NAMES.podset_group_name

ANNOTATIONS = "spec.template.metadata.annotations"


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {REQUIRED: "cloud.example.com/rack"},
        {PREFERRED: "rack"},
        {UNCONSTRAINED: "true"},
        {UNCONSTRAINED: "false"},
        {SLICE: "rack", SIZE: "2"},
        {SLICE: "rack", SIZE: "4", REQUIRED: "block"},
        {CONSTRAINTS: '[{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]'},
    ],
)
async def test_valid_topology_request_is_accepted(annotations: dict[str, str]) -> None:
    assert (await validate_job(a_job(template_annotations=annotations))).allowed


@pytest.mark.parametrize(
    ("annotations", "field", "message"),
    [
        ({REQUIRED: "a", PREFERRED: "b"}, ANNOTATIONS, "must not contain more than one topology annotation"),
        ({PREFERRED: "a", UNCONSTRAINED: "true"}, ANNOTATIONS, UNCONSTRAINED),
        ({REQUIRED: "no label key"}, f"{ANNOTATIONS}[{REQUIRED}]", "name part"),
        ({PREFERRED: ""}, f"{ANNOTATIONS}[{PREFERRED}]", "name part"),
        ({UNCONSTRAINED: "perhaps"}, f"{ANNOTATIONS}[{UNCONSTRAINED}]", "boolean"),
        ({SLICE: "rack"}, f"{ANNOTATIONS}[{SIZE}]", f"must be set when '{SLICE}' is specified"),
        ({SIZE: "2"}, f"{ANNOTATIONS}[{SIZE}]", f"may not be set when '{SLICE}' is not specified"),
        ({SLICE: "rack", SIZE: "two"}, f"{ANNOTATIONS}[{SIZE}]", "numeric"),
        ({SLICE: "rack", SIZE: "-1"}, f"{ANNOTATIONS}[{SIZE}]", "numeric"),
        ({SLICE: "rack", SIZE: "0"}, f"{ANNOTATIONS}[{SIZE}]", "greater than or equal to 1"),
        ({SLICE: "rack", SIZE: "5"}, f"{ANNOTATIONS}[{SIZE}]", "must not be greater than pod set count 4"),
        ({SLICE: "no key", SIZE: "2"}, f"{ANNOTATIONS}[{SLICE}]", "name part"),
        ({CONSTRAINTS: "[]"}, f"{ANNOTATIONS}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "{}"}, f"{ANNOTATIONS}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "[1]"}, f"{ANNOTATIONS}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "nonsense"}, f"{ANNOTATIONS}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        (
            {CONSTRAINTS: '[{"topology":"a","size":0}]'},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            "greater than or equal to 1",
        ),
        (
            {CONSTRAINTS: '[{"topology":"a","size":"2"}]'},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            'Invalid value: "2": size must be greater than or equal to 1',
        ),
        ({CONSTRAINTS: '[{"topology":"a","size":8}]'}, f"{ANNOTATIONS}[{CONSTRAINTS}]", "pod set count 4"),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"b","size":3}]'},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            "must divide that of its predecessor, 4",
        ),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"a","size":2}]'},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            "Duplicate value",
        ),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4}]', SLICE: "rack", SIZE: "2"},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            "may not be set together",
        ),
        ({GROUP: "7", REQUIRED: "rack"}, f"{ANNOTATIONS}[{GROUP}]", "must not be a number"),
        ({GROUP: "12345678901", REQUIRED: "rack"}, f"{ANNOTATIONS}[{GROUP}]", "must not be a number"),
        ({GROUP: "g"}, f"{ANNOTATIONS}[{GROUP}]", "neither"),
        ({REQUIRED: "a" * 64}, f"{ANNOTATIONS}[{REQUIRED}]", "may not be more than 63 bytes"),
        ({REQUIRED: f"{'a' * 40}.io/{'b' * 40}"}, f"{ANNOTATIONS}[{REQUIRED}]", "more than 63 bytes"),
        ({GROUP: "g" * 257, REQUIRED: "rack"}, f"{ANNOTATIONS}[{GROUP}]", "more than 256 bytes"),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4},{"topology":["b"],"size":2}]'},
            f"{ANNOTATIONS}[{CONSTRAINTS}]",
            "must be a string",
        ),
        ({GROUP: "g", REQUIRED: "rack", SLICE: "r", SIZE: "2"}, f"{ANNOTATIONS}[{GROUP}]", "together"),
        ({GROUP: "g", REQUIRED: "rack"}, f"{ANNOTATIONS}[{GROUP}]", "exactly 2 pod sets"),
    ],
)
async def test_invalid_topology_request_is_rejected_with_annotation(
    annotations: dict[str, str], field: str, message: str
) -> None:
    answer = await validate_job(a_job(template_annotations=annotations))
    assert not answer.allowed
    assert f"{field}: " in answer.message
    assert message in answer.message


@pytest.mark.parametrize("key", [REQUIRED, UNCONSTRAINED, SIZE, CONSTRAINTS, GROUP])
@pytest.mark.parametrize("value", [{}, ["a"], 1])
async def test_e_topology_annotation_that_is_no_text_is_rejected(key: str, value: Any) -> None:
    answer = await validate_job(a_job(template_annotations={key: value}))
    assert answer.response["status"]["code"] == 403
    assert f"{ANNOTATIONS}[{key}]: " in answer.message


@pytest.mark.parametrize("key", [REQUIRED, PREFERRED])
async def test_elastic_job_may_only_use_unconstrained_topology(key: str) -> None:
    elastic = {NAMES.elastic_job: "true"}
    answer = await validate_job(a_job(annotations=elastic, template_annotations={key: "rack"}))
    assert f"{ANNOTATIONS}[{key}]: Forbidden: cannot be used with elastic jobs" in answer.message
    free = a_job(annotations=elastic, template_annotations={UNCONSTRAINED: "true"})
    assert (await validate_job(free)).allowed


async def test_topology_annotations_are_ignored_without_feature_gate() -> None:
    job = a_job(template_annotations={REQUIRED: "no label key"})
    assert (await validate_job(job, gates={"TopologyAwareScheduling": False})).allowed
    layered = a_job(template_annotations={CONSTRAINTS: "nonsense"})
    assert (await validate_job(layered, gates={"TASMultiLayerTopology": False})).allowed


def a_pair(leader: dict[str, str], worker: dict[str, str], *, leaders: int = 1) -> dict[str, Any]:
    job = a_job()
    job["spec"]["leader"] = {"metadata": {"annotations": leader}}
    job["spec"]["worker"] = {"metadata": {"annotations": worker}}
    job["spec"]["leaders"] = leaders
    return job


# --- parts of jobs, and other numbers of pods -----------------------------------------------------------

IN_GROUP = {GROUP: "g", REQUIRED: "rack"}
IN_SLICES = {SLICE: "rack", SIZE: "8"}
LARGE_LAYER = {CONSTRAINTS: '[{"topology": "block", "size": 8}]'}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u"}


def errors_of(kind: Integration, obj: Any, old: Any = None) -> list[str]:
    enabled = policy(integrations=(JOB, JOBSET, POD, kind))
    if old is None:
        return [str(error) for error in validate_create(obj, kind, enabled)]
    errors = validate_update(old, obj, "team", kind, enabled, FakeLookups())
    return [str(error) for error in errors]


@pytest.mark.parametrize("annotations", [IN_GROUP, IN_SLICES, LARGE_LAYER])
def test_job_of_a_jobset_may_be_a_part_of_a_podset(annotations: dict[str, str]) -> None:
    assert errors_of(JOB, a_job(template_annotations=annotations))
    assert not errors_of(JOB, a_job(template_annotations=annotations, owner=JOB_SET))


def test_part_of_a_podset_with_invalid_annotation_is_rejected() -> None:
    [error] = errors_of(JOB, a_job(template_annotations={UNCONSTRAINED: "perhaps"}, owner=JOB_SET))
    assert "must be a boolean value" in error


def a_pod(labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"labels": {NAMES.managed: "true", **labels}, "annotations": annotations}
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("labels", "annotations", "is_part"),
    [
        ({}, {}, False),
        ({NAMES.pod_group_name: "g"}, {NAMES.pod_group_total_count: "9"}, True),
        ({}, {NAMES.pod_suspending_parent: "statefulset"}, True),
        ({}, {NAMES.pod_suspending_parent: "leaderworkerset"}, True),
        ({}, {NAMES.pod_suspending_parent: "deployment"}, False),
    ],
)
def test_pod_of_a_group_may_be_a_part_of_a_podset(labels: Any, annotations: Any, is_part: bool) -> None:
    for requested in (IN_GROUP, IN_SLICES, LARGE_LAYER):
        assert bool(errors_of(POD, a_pod(labels, {**annotations, **requested}))) is not is_part


def test_reduced_number_of_pods_of_a_started_job_limits_no_slices() -> None:
    fewer = {"annotations": {NAMES.job_min_parallelism: "1"}, "template_annotations": {SLICE: "r", SIZE: "4"}}
    stored, started = a_job(**fewer, suspend=True), a_job(**fewer, suspend=False, parallelism=2)
    assert not errors_of(JOB, started, stored)
    reduced = a_job(**fewer, suspend=True, parallelism=2)
    assert any(
        "must not be greater than pod set count 2" in error for error in errors_of(JOB, reduced, stored)
    )


def test_scaled_elastic_job_may_have_fewer_pods_than_a_slice() -> None:
    elastic = {"annotations": {NAMES.elastic_job: "true"}, "template_annotations": {SLICE: "r", SIZE: "4"}}
    assert not errors_of(JOB, a_job(**elastic, suspend=False, parallelism=2), a_job(**elastic, suspend=False))


def served(kind: Integration, replicas: int, queue: str = "q", **annotations: str) -> dict[str, Any]:
    pods = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "s", "labels": {QUEUE: queue} if queue else {}},
        "spec": {"replicas": replicas, "template": pods},
    }


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET], ids=lambda kind: kind.kind)
def test_templates_of_serving_objects_are_checked_if_they_are_managed(kind: Integration) -> None:
    [error] = errors_of(kind, served(kind, 2, **{REQUIRED: "rack", PREFERRED: "rack"}))
    assert error.startswith("spec.template.metadata.annotations: Invalid value")
    assert not errors_of(kind, served(kind, 2, "", **{REQUIRED: "rack", PREFERRED: "rack"}))
    assert any("pod set count" in error for error in errors_of(kind, served(kind, 2, **IN_SLICES)))


def test_stateful_set_with_slices_can_be_scaled_to_zero() -> None:
    slices = {SLICE: "rack", SIZE: "2"}
    assert not errors_of(STATEFUL_SET, served(STATEFUL_SET, 0, **slices), served(STATEFUL_SET, 2, **slices))


def test_templates_of_ray_clusters_are_checked_if_they_are_managed() -> None:
    head = {"template": {"metadata": {"annotations": {UNCONSTRAINED: "perhaps"}}}}
    for labels, is_checked in (({QUEUE: "q"}, True), ({}, False)):
        cluster = {"metadata": {"name": "c", "labels": labels}, "spec": {"headGroupSpec": head}}
        field = f"spec.headGroupSpec.template.metadata.annotations[{UNCONSTRAINED}]"
        assert any(error.startswith(field) for error in errors_of(RAY_CLUSTER, cluster)) is is_checked


PAIR = replace(
    JOB,
    list_pod_sets=lambda job, _names: (
        PodSetTemplate("leader", job["spec"]["leaders"], ("spec", "leader")),
        PodSetTemplate("worker", 3, ("spec", "worker")),
    ),
)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (a_pair({GROUP: "g", REQUIRED: "rack"}, {GROUP: "g", REQUIRED: "rack"}), ""),
        (a_pair({GROUP: "g", REQUIRED: "rack"}, {GROUP: "h", REQUIRED: "rack"}), "exactly 2 pod sets"),
        (a_pair({GROUP: "g", REQUIRED: "rack"}, {GROUP: "g", REQUIRED: "rack"}, leaders=2), "exactly 1 pod"),
        (
            a_pair({GROUP: "g", REQUIRED: "rack"}, {GROUP: "g", REQUIRED: "block"}),
            f"spec.worker.metadata.annotations[{REQUIRED}]",
        ),
        (
            a_pair({GROUP: "g", REQUIRED: "rack"}, {GROUP: "g", PREFERRED: "rack"}),
            "must be the same in both pod sets of group g",
        ),
    ],
)
async def test_podset_group_must_be_one_leader_and_its_workers(job: dict[str, Any], message: str) -> None:
    handler = review_handlers(policy(integrations=(PAIR,)), FakeLookups(), (PAIR,))["/validate-batch-v1-job"]
    _, body = await post(handler, "/validate-batch-v1-job", review(job))
    response = orjson.loads(body)["response"]
    assert response["allowed"] is (not message)
    assert message in response.get("status", {}).get("message", "")
