"""Validation of job updates, and of sequences of updates."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.integrations.registry import load_integrations
from admitq_api.field_errors import FieldError
from admitq_webhooks.validate.jobs import validate_update
from tests.unit.webhooks.job_requests import DEFAULTS, ELASTIC, GATED, MAX_TIME, PREBUILT, deleted, managed
from tests.unit.webhooks.support import (
    NAMES,
    PRIORITY,
    QUEUE,
    FakeLookups,
    a_job,
    policy,
    validate_job,
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            managed(suspend=True), managed(labels={QUEUE: "r"}, suspend=True), id="queue, suspended"
        ),
        pytest.param(managed(suspend=True), a_job(suspend=True), id="queue removed, suspended"),
        pytest.param(managed(suspend=True), managed(suspend=False), id="start"),
        pytest.param(managed(), managed(labels={"x": "y"}), id="other label while running"),
        pytest.param(
            managed(labels={PRIORITY: "a"}),
            managed(labels={PRIORITY: "b"}),
            id="priority class while running",
        ),
        pytest.param(
            managed(suspend=True),
            managed(labels={PRIORITY: "b"}, suspend=True),
            id="priority class, suspended",
        ),
        pytest.param(
            managed(suspend=True), managed(labels={MAX_TIME: "5"}, suspend=True), id="time limit, suspended"
        ),
        pytest.param(
            managed(suspend=True), managed(labels={PREBUILT: "w"}, suspend=True), id="prebuilt, suspended"
        ),
        pytest.param(
            managed(annotations={ELASTIC: "true"}),
            managed(annotations={ELASTIC: "true"}, labels={PREBUILT: "w"}),
            id="prebuilt of a running elastic job",
        ),
        pytest.param(
            managed(annotations={GATED: "a.b/c,a.b/d"}),
            managed(annotations={GATED: "a.b/d"}),
            id="one gate removed",
        ),
        pytest.param(managed(annotations={GATED: "a.b/c"}), managed(), id="last gate removed"),
        pytest.param(
            managed(annotations={GATED: "bad"}),
            managed(annotations={GATED: "bad"}),
            id="invalid stored gate",
        ),
        pytest.param(
            a_job(template_annotations={NAMES.podset_slice_size: "x"}),
            a_job(template_annotations={NAMES.podset_slice_size: "x"}, labels={"x": "y"}),
            id="invalid stored topology request",
        ),
        pytest.param(deleted(managed()), a_job(), id="being deleted"),
    ],
)
async def test_valid_job_change_is_accepted(old: Any, new: Any) -> None:
    assert (await validate_job(new, old)).response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        (managed(), managed(labels={QUEUE: "r"}), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (managed(), a_job(), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (managed(), a_job(labels={QUEUE: ""}), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (a_job(), managed(), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (
            managed(suspend=True),
            managed(labels={QUEUE: "r"}, suspend=False),
            f"metadata.labels[{QUEUE}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(labels={QUEUE: "No Name"}, suspend=True),
            f"metadata.labels[{QUEUE}]",
            "lower case",
        ),
        (
            managed(),
            managed(labels={PRIORITY: "a"}),
            f"metadata.labels[{PRIORITY}]",
            "WorkloadPriorityClass cannot be added to a non-suspended workload",
        ),
        (
            managed(labels={PRIORITY: "a"}, suspend=True),
            managed(suspend=True),
            f"metadata.labels[{PRIORITY}]",
            "WorkloadPriorityClass cannot be removed from a workload",
        ),
        (
            managed(suspend=True),
            managed(labels={MAX_TIME: "5"}, suspend=False),
            f"metadata.labels[{MAX_TIME}]",
            "field is immutable",
        ),
        (
            managed(suspend=False),
            managed(labels={MAX_TIME: "5"}, suspend=True),
            f"metadata.labels[{MAX_TIME}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(labels={MAX_TIME: "0"}, suspend=True),
            f"metadata.labels[{MAX_TIME}]",
            "should be greater than 0",
        ),
        (managed(), managed(labels={PREBUILT: "w"}), f"metadata.labels[{PREBUILT}]", "field is immutable"),
        (
            managed(labels={PREBUILT: "w"}),
            managed(annotations={PREBUILT: "v"}),
            f"metadata.annotations[{PREBUILT}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(annotations={ELASTIC: "true"}, suspend=True),
            f"metadata.annotations[{ELASTIC}]",
            "field is immutable",
        ),
        (
            managed(),
            managed(annotations={GATED: "a.b/c"}),
            f"metadata.annotations[{GATED}]",
            "cannot add admission gate after creation",
        ),
        (
            managed(annotations={GATED: "a.b/c"}),
            managed(annotations={GATED: "a.b/c,a.b/d"}),
            f"metadata.annotations[{GATED}]",
            "can only remove gates, not add new ones",
        ),
        (
            managed(annotations={NAMES.job_min_parallelism: "2"}, suspend=False),
            managed(annotations={NAMES.job_min_parallelism: "2"}, suspend=False, parallelism=3),
            "spec.parallelism",
            "cannot change when partial admission is enabled",
        ),
    ],
)
async def test_invalid_job_change_is_rejected_with_field_and_reason(
    old: Any, new: Any, field: str, message: str
) -> None:
    answer = await validate_job(new, old)
    assert not answer.allowed
    assert answer.message.startswith(f"{field}: ")
    assert message in answer.message


async def test_queue_cannot_be_removed_from_job_in_namespace_with_default_queue() -> None:
    lookups = FakeLookups(**DEFAULTS)
    answer = await validate_job(a_job(suspend=True), managed(suspend=True), lookups=lookups)
    assert "queue-name must not be empty in namespace with default queue" in answer.message
    unmanaged = await validate_job(a_job(labels={"x": "y"}), a_job(), lookups=lookups)
    assert unmanaged.allowed


async def test_admission_gates_are_not_validated_without_the_feature_gate() -> None:
    job = managed(annotations={GATED: "bad"})
    assert (await validate_job(job, gates={"AdmissionGatedBy": False})).allowed


async def test_several_job_errors_are_reported_together() -> None:
    answer = await validate_job(managed(labels={QUEUE: "No Name", MAX_TIME: "0"}))
    assert answer.message.startswith("[metadata.labels")
    fields = [cause["field"] for cause in answer.response["status"]["details"]["causes"]]
    assert fields == [f"metadata.labels[{QUEUE}]", f"metadata.labels[{MAX_TIME}]"]


EDITS = st.sampled_from(
    [(("metadata", "labels", QUEUE), value) for value in (None, "", "q", "r", 7)]
    + [(("metadata", "labels"), value) for value in (None, {}, {QUEUE: "s"})]
    + [(("metadata", "labels", PRIORITY), value) for value in (None, "", "a", "b")]
    + [(("metadata", "labels", MAX_TIME), value) for value in (None, "1", "2", "0")]
    + [(("metadata", "annotations", ELASTIC), value) for value in (None, "true", "false")]
    + [(("metadata", "annotations", GATED), value) for value in (None, "", "a.b/c", "a.b/c,a.b/d")]
    + [(("spec", "suspend"), value) for value in (None, True, False)]
)


def apply_edits(job: dict[str, Any], edits: list[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    changed = orjson.loads(orjson.dumps(job))
    for path, value in edits:
        parent = changed
        for step in path[:-1]:
            if not isinstance(parent.get(step), dict):
                parent[step] = {}
            parent = parent[step]
        if value is None:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = value
    return changed


def get_text(job: dict[str, Any], *path: str) -> Any:
    value: Any = job
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


@settings(max_examples=120, deadline=None)
@given(
    start=st.lists(EDITS, max_size=4),
    updates=st.lists(st.lists(EDITS, min_size=1, max_size=3), min_size=1, max_size=10),
    has_default=st.booleans(),
)
async def test_no_sequence_of_updates_changes_queue_or_limits_of_running_job(
    start: list[Any], updates: list[list[Any]], has_default: bool
) -> None:
    lookups = FakeLookups(**(DEFAULTS if has_default else {}))
    job = apply_edits(managed(), start)
    for edits in updates:
        changed = apply_edits(job, edits)
        if not (await validate_job(changed, job, lookups=lookups)).allowed:
            continue
        running = changed["spec"].get("suspend") is not True
        was_running = job["spec"].get("suspend") is not True
        before, after = (get_text(version, "metadata", "labels", QUEUE) for version in (job, changed))
        if running:
            assert before == after
        if has_default and before:
            assert after
        time_limits = [get_text(version, "metadata", "labels", MAX_TIME) for version in (job, changed)]
        if running or was_running:
            assert time_limits[0] == time_limits[1]
        classes = [get_text(version, "metadata", "labels", PRIORITY) for version in (job, changed)]
        assert not (classes[0] and not classes[1])
        assert not (running and not classes[0] and classes[1])
        elastic = [
            get_text(version, "metadata", "annotations", ELASTIC) == "true" for version in (job, changed)
        ]
        assert elastic[0] == elastic[1]
        gates = [
            set((get_text(version, "metadata", "annotations", GATED) or "").split(","))
            for version in (job, changed)
        ]
        assert gates[1] - {""} <= gates[0]
        job = changed


@pytest.mark.parametrize(
    "framework",
    ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication"],
)
def test_d23_update_that_removes_queue_is_not_validated_without_the_gate(framework: str) -> None:
    (kind,) = (kind for kind in load_integrations() if kind.framework == framework)

    def change(
        gate: bool, before: dict[str, str], after: dict[str, str], **settings: Any
    ) -> list[FieldError]:
        gates = {"ValidateRayAndSparkJobUpdates": gate}
        rules = policy(integrations=(kind,), gates=gates, **settings)
        old, new = ({"metadata": {"name": "j", "labels": labels}, "spec": {}} for labels in (before, after))
        return validate_update(old, new, "team", kind, rules, FakeLookups(local_queues={("team", "default")}))

    queued = {QUEUE: "q", PRIORITY: "p", NAMES.max_exec_time: "5"}
    assert change(False, queued, {}) == []
    paths = {error.path for error in change(True, queued, {})}
    assert paths >= {f"metadata.labels[{key}]" for key in queued}
    assert change(False, queued, {}, manage_jobs_without_queue_name=True)
    assert change(False, queued, {QUEUE: "other"})
