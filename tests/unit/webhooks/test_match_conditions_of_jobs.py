"""The API server calls the webhook of Jobs if it may reject an object."""

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from admitq_api.feature_gates import Gate
from admitq_webhooks.match_conditions.expressions import MOST_ENTRIES
from tests.unit.webhooks.job_requests import ELASTIC, GATED, MAX_TIME, PREBUILT, managed
from tests.unit.webhooks.support import (
    NAMES,
    PRIORITY,
    QUEUE,
    FakeLookups,
    a_job,
    is_called,
    review,
    validate_job,
)

PATH = "/validate-batch-v1-job"
REQUIRED = NAMES.podset_required_topology
MANY = {f"key-{number}": "a" for number in range(MOST_ENTRIES + 1)}


def is_reviewed(new: Any, old: Any = None) -> bool:
    """Whether the API server calls the webhook."""
    return is_called(PATH, review(new, old)["request"])


def started(**template: Any) -> Any:
    """A Job that admitq has started, with further fields of its template's metadata or spec."""
    job = managed(
        suspend=False, template_annotations={NAMES.workload: "w", **template.pop("annotations", {})}
    )
    spec = job["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], **template}
    job["spec"]["template"]["metadata"]["labels"] = {NAMES.podset: "main"}
    return job


@pytest.mark.parametrize(
    ("job", "reviewed"),
    [
        pytest.param(a_job(), False, id="no queue"),
        pytest.param(managed(), False, id="queue"),
        pytest.param(managed(labels={PRIORITY: "high", "a": "b"}), False, id="other labels"),
        pytest.param(managed(annotations={"a": "b"}), False, id="other annotations"),
        pytest.param(managed(template_annotations={"a": "b"}), False, id="other annotations of the template"),
        pytest.param(a_job(labels={QUEUE: "Upper"}), True, id="name of a queue"),
        pytest.param(managed(labels={MAX_TIME: "5"}), True, id="time limit"),
        pytest.param(managed(labels={PREBUILT: "w"}), True, id="prebuilt"),
        pytest.param(managed(annotations={PREBUILT: "w"}), True, id="prebuilt, annotation"),
        pytest.param(managed(annotations={GATED: "a.b/c"}), True, id="gate"),
        pytest.param(managed(annotations={ELASTIC: "true"}), True, id="elastic"),
        pytest.param(managed(template_annotations={REQUIRED: "rack"}), True, id="topology"),
        pytest.param(managed(labels=MANY), True, id="many labels"),
        pytest.param(managed(annotations=MANY), True, id="many annotations"),
    ],
)
def test_new_job_is_reviewed_if_a_rule_restricts_it(job: Any, reviewed: bool) -> None:
    assert is_reviewed(job) is reviewed


SUSPENDED, RUNNING = managed(suspend=True), managed(suspend=False)


def with_container(job: Any, **fields: Any) -> Any:
    spec = {"containers": [{"name": "c", "image": "i", **fields}]}
    return {**job, "spec": {**job["spec"], "template": {**job["spec"]["template"], "spec": spec}}}


@pytest.mark.parametrize(
    ("old", "new", "reviewed"),
    [
        pytest.param(SUSPENDED, RUNNING, False, id="start by a user"),
        pytest.param(SUSPENDED, started(), False, id="start by admitq"),
        pytest.param(started(), SUSPENDED, False, id="stop by admitq"),
        pytest.param(RUNNING, SUSPENDED, False, id="stop by a user"),
        pytest.param(a_job(suspend=True), a_job(suspend=False), False, id="start without queue"),
        pytest.param(SUSPENDED, started(schedulingGates=[{"name": "a"}]), False, id="start with a gate"),
        pytest.param(SUSPENDED, started(annotations={REQUIRED: "rack"}), True, id="topology added"),
        pytest.param(started(annotations={REQUIRED: "rack"}), SUSPENDED, True, id="topology removed"),
        pytest.param(
            started(annotations={REQUIRED: "rack"}),
            started(annotations={REQUIRED: "block"}),
            True,
            id="topology changed",
        ),
        pytest.param(started(), started(nodeSelector={}), True, id="template while running"),
        pytest.param(SUSPENDED, with_container(SUSPENDED, resources={}), True, id="containers"),
        pytest.param(
            SUSPENDED, managed(suspend=False, parallelism=5), True, id="start with other parallelism"
        ),
        pytest.param(SUSPENDED, managed(suspend=True, completions=5), True, id="completions"),
        pytest.param(SUSPENDED, managed(suspend=True, backoffLimit=5), False, id="other field"),
        pytest.param(SUSPENDED, started(overhead={"cpu": "1"}), True, id="start with overhead"),
        pytest.param(SUSPENDED, started(runtimeClassName="vm"), True, id="start with a runtime class"),
        pytest.param(SUSPENDED, started(annotations=MANY), True, id="start with many annotations"),
        pytest.param(SUSPENDED, managed(suspend=True, labels={"a": "b"}), True, id="labels"),
        pytest.param(SUSPENDED, a_job(suspend=True), True, id="labels removed"),
        pytest.param(SUSPENDED, managed(suspend=True, annotations={"a": "b"}), True, id="annotations"),
        pytest.param(SUSPENDED, managed(suspend=True, owner={"uid": "u"}), True, id="owner"),
    ],
)
def test_update_of_job_is_reviewed_if_a_rule_restricts_the_change(old: Any, new: Any, reviewed: bool) -> None:
    assert is_reviewed(new, old) is reviewed


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict(fields))


values = st.sampled_from(["true", "false", "2", "", "q", "Q", "a.b/c", "a.b/c,d"])
all_keys = st.sampled_from([row.key for row in NAMES.list_rows() if "gate" not in row.kind])
frequent_keys = st.sampled_from(
    [QUEUE, MAX_TIME, PREBUILT, ELASTIC, GATED, REQUIRED, NAMES.job_min_parallelism]
)
maps = st.dictionaries(all_keys | frequent_keys | st.sampled_from(["a", "b"]), values, max_size=2)
owners = st.sampled_from(
    [None, {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "owner-uid"}]
)
pod_counts = st.integers(1, 3)
containers = st.sampled_from(
    [[{"name": "c", "resources": {"requests": {"cpu": amount}}}] for amount in ("1", "2")]
)
jobs = st.builds(
    a_job,
    labels=maps,
    annotations=maps,
    owner=owners,
    suspend=st.booleans(),
    template_annotations=maps,
    parallelism=pod_counts,
    completions=pod_counts,
    template_labels=maps,
    template_spec=st.fixed_dictionaries(
        {"containers": containers},
        optional={
            "nodeSelector": maps,
            "schedulingGates": st.just([{"name": NAMES.elastic_gate}]),
            "overhead": st.just({"cpu": "1"}),
            "resources": st.just({"requests": {"cpu": "3"}}),
            "runtimeClassName": st.just("vm"),
        },
    ),
)
GATES: list[dict[str, bool]] = [
    {},
    *({str(gate): False} for gate in (Gate.ADMISSION_GATED_BY, Gate.ELASTIC_JOBS)),
    {str(Gate.TOPOLOGY_AWARE_SCHEDULING): False},
    {str(Gate.TAS_MULTI_LAYER_TOPOLOGY): True},
    *({str(Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS): on} for on in (True, False)),
]
policies = st.fixed_dictionaries(
    {
        "rejects_increases": st.booleans(),
        "manage_jobs_without_queue_name": st.booleans(),
        "gates": st.sampled_from(GATES),
    }
)


def merged(old: Any, new: Any, kept: set[tuple[str, ...]]) -> Any:
    """The new Job, with some fields of the old one."""
    result = new
    for path in kept:
        result = _with_field_of(old, result, path)
    return result


def _with_field_of(source: Any, target: Any, path: tuple[str, ...]) -> Any:
    first, *rest = path
    if rest:
        return {**target, first: _with_field_of(source[first], target[first], tuple(rest))}
    without = {key: value for key, value in target.items() if key != first}
    return {**without, first: source[first]} if first in source else without


FIELDS = [
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "parallelism"),
    ("spec", "completions"),
    ("spec", "template"),
    ("spec", "template", "metadata"),
    ("spec", "template", "spec"),
    ("spec", "suspend"),
]


new_jobs = given(jobs, policies)
updates = given(jobs, jobs, st.sets(st.sampled_from(FIELDS)), policies)


@settings(max_examples=150)
@new_jobs
async def test_new_job_that_a_rule_rejects_is_reviewed(job: Any, policy: Any) -> None:
    await check(job, None, policy)


@pytest.mark.release
@settings(max_examples=500)
@new_jobs
async def test_new_job_that_a_rule_rejects_is_reviewed_in_many_examples(job: Any, policy: Any) -> None:
    await check(job, None, policy)


@settings(max_examples=250)
@updates
async def test_update_of_job_that_a_rule_rejects_is_reviewed(
    old: Any, drawn: Any, kept: set[tuple[str, ...]], policy: Any
) -> None:
    await check(merged(old, drawn, kept), old, policy)


@pytest.mark.release
@settings(max_examples=1000)
@updates
async def test_update_of_job_that_a_rule_rejects_is_reviewed_in_many_examples(
    old: Any, drawn: Any, kept: set[tuple[str, ...]], policy: Any
) -> None:
    await check(merged(old, drawn, kept), old, policy)


async def check(new: Any, old: Any, policy: Any) -> None:
    """Validate as an account without further permissions."""
    owner = managed(suspend=False)
    owner["metadata"] |= {"name": "owner", "uid": "owner-uid"}
    lookups = FakeLookups(
        objects={"Job/owner": owner}, plurals={"Job": "jobs"}, local_queues={("team", "default")}
    )
    # This function also compares a rejection with the match condition.
    answer = await validate_job(new, old, lookups=lookups, **policy)
    event("allowed" if answer.allowed else "rejected")
    if not is_reviewed(new, old):
        event("not reviewed")
        assert answer.allowed
