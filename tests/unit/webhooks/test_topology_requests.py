"""Annotations by which pod templates ask for a place in the topology."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.integrations.base import PodSetTemplate
from admitq.integrations.kinds.job import JOB
from admitq_webhooks.routes import review_handlers
from tests.unit.webhooks.support import NAMES, FakeLookups, a_job, policy, post, review, validate_job

REQUIRED = NAMES.podset_required_topology
PREFERRED = NAMES.podset_preferred_topology
UNCONSTRAINED = NAMES.podset_unconstrained_topology
SLICE = NAMES.podset_slice_required_topology
SIZE = NAMES.podset_slice_size
CONSTRAINTS = NAMES.podset_slice_required_topology_constraints
GROUP = NAMES.podset_group_name

AT = "spec.template.metadata.annotations"


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
async def test_valid_requests(annotations: dict[str, str]) -> None:
    assert (await validate_job(a_job(template_annotations=annotations))).allowed


@pytest.mark.parametrize(
    ("annotations", "field", "says"),
    [
        ({REQUIRED: "a", PREFERRED: "b"}, AT, "must not contain more than one topology annotation"),
        ({PREFERRED: "a", UNCONSTRAINED: "true"}, AT, UNCONSTRAINED),
        ({REQUIRED: "no label key"}, f"{AT}[{REQUIRED}]", "name part"),
        ({PREFERRED: ""}, f"{AT}[{PREFERRED}]", "name part"),
        ({UNCONSTRAINED: "perhaps"}, f"{AT}[{UNCONSTRAINED}]", "boolean"),
        ({SLICE: "rack"}, f"{AT}[{SIZE}]", f"must be set when '{SLICE}' is specified"),
        ({SIZE: "2"}, f"{AT}[{SIZE}]", f"may not be set when '{SLICE}' is not specified"),
        ({SLICE: "rack", SIZE: "two"}, f"{AT}[{SIZE}]", "numeric"),
        ({SLICE: "rack", SIZE: "-1"}, f"{AT}[{SIZE}]", "numeric"),
        ({SLICE: "rack", SIZE: "0"}, f"{AT}[{SIZE}]", "greater than or equal to 1"),
        ({SLICE: "rack", SIZE: "5"}, f"{AT}[{SIZE}]", "must not be greater than pod set count 4"),
        ({SLICE: "no key", SIZE: "2"}, f"{AT}[{SLICE}]", "name part"),
        ({CONSTRAINTS: "[]"}, f"{AT}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "{}"}, f"{AT}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "[1]"}, f"{AT}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: "nonsense"}, f"{AT}[{CONSTRAINTS}]", "JSON array of 1 to 3"),
        ({CONSTRAINTS: '[{"topology":"a","size":0}]'}, f"{AT}[{CONSTRAINTS}]", "greater than or equal to 1"),
        ({CONSTRAINTS: '[{"topology":"a","size":8}]'}, f"{AT}[{CONSTRAINTS}]", "pod set count 4"),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"b","size":3}]'},
            f"{AT}[{CONSTRAINTS}]",
            "must divide that of its predecessor, 4",
        ),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"a","size":2}]'},
            f"{AT}[{CONSTRAINTS}]",
            "Duplicate value",
        ),
        (
            {CONSTRAINTS: '[{"topology":"a","size":4}]', SLICE: "rack", SIZE: "2"},
            f"{AT}[{CONSTRAINTS}]",
            "may not be set together",
        ),
        ({GROUP: "7", REQUIRED: "rack"}, f"{AT}[{GROUP}]", "must not be a number"),
        ({GROUP: "12345678901", REQUIRED: "rack"}, f"{AT}[{GROUP}]", "must not be a number"),
        ({GROUP: "g"}, f"{AT}[{GROUP}]", "neither"),
        ({GROUP: "g", REQUIRED: "rack", SLICE: "r", SIZE: "2"}, f"{AT}[{GROUP}]", "together"),
        ({GROUP: "g", REQUIRED: "rack"}, f"{AT}[{GROUP}]", "exactly 2 pod sets"),
    ],
)
async def test_wrong_requests_name_the_annotation(annotations: dict[str, str], field: str, says: str) -> None:
    answer = await validate_job(a_job(template_annotations=annotations))
    assert not answer.allowed
    assert f"{field}: " in answer.message
    assert says in answer.message


@pytest.mark.parametrize("key", [REQUIRED, UNCONSTRAINED, SIZE, CONSTRAINTS, GROUP])
@pytest.mark.parametrize("value", [{}, ["a"], 1])
async def test_e_annotation_that_is_no_text_is_refused_by_name(key: str, value: Any) -> None:
    answer = await validate_job(a_job(template_annotations={key: value}))
    assert answer.response["status"]["code"] == 403
    assert f"{AT}[{key}]: " in answer.message


@pytest.mark.parametrize("key", [REQUIRED, PREFERRED])
async def test_elastic_jobs_are_placed_without_constraint_only(key: str) -> None:
    elastic = {NAMES.elastic_job: "true"}
    answer = await validate_job(a_job(annotations=elastic, template_annotations={key: "rack"}))
    assert f"{AT}[{key}]: Forbidden: cannot be used with elastic jobs" in answer.message
    free = a_job(annotations=elastic, template_annotations={UNCONSTRAINED: "true"})
    assert (await validate_job(free)).allowed


async def test_without_the_feature_the_annotations_mean_nothing() -> None:
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


PAIR = replace(
    JOB,
    list_pod_sets=lambda job, _names: (
        PodSetTemplate("leader", job["spec"]["leaders"], ("spec", "leader")),
        PodSetTemplate("worker", 3, ("spec", "worker")),
    ),
)


@pytest.mark.parametrize(
    ("job", "says"),
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
async def test_pod_sets_of_a_group_are_a_leader_and_its_workers(job: dict[str, Any], says: str) -> None:
    handler = review_handlers(policy(integrations=(PAIR,)), FakeLookups(), (PAIR,))["/validate-batch-v1-job"]
    _, body = await post(handler, "/validate-batch-v1-job", review(job))
    response = orjson.loads(body)["response"]
    assert response["allowed"] is (not says)
    assert says in response.get("status", {}).get("message", "")
