"""Execution of plans: writes require the version of the decision, and only successful writes are reported."""

from typing import Any

import pytest

from admitq.controllers.plan import (
    Delete,
    Patch,
    RecordEvent,
    RecordMetric,
    RemoveFinalizer,
    execute_plan,
    plan_of,
)
from admitq.integrations.base import PatchStep
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq_api.json_objects import apply_merge_patch, with_value
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    job,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.world import CONFLICT, World


@pytest.fixture
def world() -> World:
    result = World()
    result.put(KINDS.workloads, workload())
    return result


async def test_each_step_is_written_on_version_of_previous_step(world: World) -> None:
    steps = (PatchStep({"spec": {"priority": 1}}), PatchStep({"status": {"clusterName": "x"}}, "status"))
    versions_of_metrics: list[Any] = []
    count = RecordMetric(
        lambda _, written: versions_of_metrics.append(written["metadata"]["resourceVersion"])
    )
    await execute_plan(world.ctx, plan_of(Patch(KINDS.workloads, workload(), steps, "c"), count))
    versions = [body["metadata"]["resourceVersion"] for _, _, body in world.client.calls]
    assert versions == ["7", "101"]
    assert versions_of_metrics == ["102"]
    final = world.get(KINDS.workloads, "job-j-1")
    assert (final["spec"]["priority"], final["status"]["clusterName"]) == (1, "x")


@pytest.mark.parametrize(
    ("change", "is_written"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"status": {"active": 7}}, True, id="counts in the status"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, True, id="labels"),
        pytest.param({"metadata": {"generation": 3}}, False, id="spec"),
        pytest.param({"status": {"conditions": [{"type": "Complete"}]}}, False, id="conditions"),
        pytest.param({"metadata": {"annotations": {"c": "d"}}}, False, id="the first annotation"),
        pytest.param({"metadata": {"uid": "uid-of-another"}}, False, id="another object of the same name"),
    ],
)
async def test_step_is_written_over_newer_version_only_if_required_fields_are_unchanged(
    world: World, change: dict[str, Any], is_written: bool
) -> None:
    decided_job = apply_merge_patch(
        job({"suspend": False}, {"active": 1}), {"metadata": {"annotations": None}}
    )
    newer = with_value(apply_merge_patch(decided_job, change), ("metadata", "resourceVersion"), "9")
    world.put(JOBS, newer)
    patch = {"spec": {"suspend": True}, "metadata": {"annotations": {"a/b": "true"}}}
    step = PatchStep(patch, required_unchanged=(("metadata", "generation"), ("status", "conditions")))
    execution = execute_plan(world.ctx, plan_of(Patch(JOBS, decided_job, (step,), "c")))
    if is_written:
        await execution
        assert world.get(JOBS, "j") == with_value(
            apply_merge_patch(newer, patch), ("metadata", "resourceVersion"), "101"
        )
        return
    with pytest.raises(ApiError) as caught:
        await execution
    assert caught.value.is_conflict


async def test_step_that_makes_an_object_invalid_is_no_conflict(world: World) -> None:
    """Another decision about the same object would be rejected again."""
    world.client.fails["json_patch"] = ApiError(422, "Invalid", "", body={"details": {"name": "j"}})
    step = PatchStep({"spec": {"suspend": True}}, required_unchanged=(("metadata", "generation"),))
    with pytest.raises(ApiError) as caught:
        await execute_plan(world.ctx, plan_of(Patch(JOBS, job(), (step,), "c")))
    assert caught.value.is_invalid


async def test_failed_write_is_not_reported(world: World) -> None:
    world.client.fails["patch"] = ApiError(500, "InternalError", "no")
    event = RecordEvent(workload(), "Normal", "R", "n")
    with pytest.raises(ApiError):
        await execute_plan(
            world.ctx, plan_of(Patch(KINDS.workloads, workload(), (PatchStep({"a": 1}),), "c"), event)
        )
    assert world.recorder.events == []


async def test_d21_event_after_a_write_regards_the_version_of_the_write(world: World) -> None:
    write = Patch(KINDS.workloads, workload(), (PatchStep({"spec": {"priority": 1}}),), "c")
    event = RecordEvent(workload(), "Normal", "R", "n")
    await execute_plan(world.ctx, plan_of(event, write, event))
    assert world.recorder.versions == ["7", "101"]


@pytest.mark.parametrize("strict", [True, False])
async def test_only_own_finalizer_is_removed_and_only_from_same_object(strict: bool) -> None:
    """A strict patch also fails when any other field of the object has changed."""
    world = World(settings=settings_with(strict_finalizers=strict))
    obj = workload(metadata={"finalizers": ["a.example/x", NAMES.finalizer, "b.example/y"]})
    changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "8"}}
    world.put(KINDS.workloads, changed)
    if strict:
        with pytest.raises(ApiError, match="testing value /metadata/resourceVersion failed") as refused:
            await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
        assert refused.value.is_conflict
        world.client.calls.clear()
        obj = changed
    await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
    [(_, _, operations)] = world.client.calls
    assert list(operations) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-w"},
        *([{"op": "test", "path": "/metadata/resourceVersion", "value": "8"}] if strict else []),
        {"op": "test", "path": "/metadata/finalizers/1", "value": NAMES.finalizer},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    left = world.get(KINDS.workloads, "job-j-1")["metadata"]["finalizers"]
    assert left == ["a.example/x", "b.example/y"]


@pytest.mark.parametrize("labels", [None, {}, {"team": "a"}])
async def test_finished_workload_is_labelled_by_the_write_that_removes_its_finalizer(
    labels: dict[str, str] | None,
) -> None:
    world = World()
    metadata = {"finalizers": [NAMES.finalizer]} | ({} if labels is None else {"labels": labels})
    obj = workload(FINISHED, metadata=metadata)
    world.put(KINDS.workloads, obj)
    await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
    written = world.get(KINDS.workloads, "job-j-1")["metadata"]
    assert (written["finalizers"], written["labels"]) == ([], {**(labels or {}), NAMES.finished: "true"})
    assert len(world.client.calls) == 1


async def test_label_of_finished_workload_does_not_replace_labels_added_meanwhile() -> None:
    world, obj = World(settings=settings_with(strict_finalizers=False)), workload(FINISHED)
    world.put(KINDS.workloads, {**obj, "metadata": {**obj["metadata"], "labels": {"team": "a"}}})
    with pytest.raises(ApiError) as refused:
        await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
    assert refused.value.is_conflict


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(admitted(), id="unfinished"),
        pytest.param(workload(FINISHED, metadata={"deletionTimestamp": timestamp(0)}), id="being deleted"),
    ],
)
async def test_other_workload_is_not_labelled_when_its_finalizer_is_removed(obj: dict[str, Any]) -> None:
    world = World()
    world.put(KINDS.workloads, obj)
    await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
    assert world.get(KINDS.workloads, "job-j-1")["metadata"]["finalizers"] == []
    [(_, _, operations)] = world.client.calls
    assert not any(operation["path"].startswith("/metadata/labels") for operation in operations)


async def test_strict_finalizer_removal_uses_version_of_own_last_write(world: World) -> None:
    obj = workload(metadata={"finalizers": [NAMES.finalizer]})
    world.put(KINDS.workloads, obj)
    written = Patch(KINDS.workloads, obj, (PatchStep({"spec": {"priority": 1}}),), "c")
    await execute_plan(world.ctx, plan_of(written, RemoveFinalizer(KINDS.workloads, obj)))
    assert world.get(KINDS.workloads, "job-j-1")["metadata"]["finalizers"] == []


async def test_finalizer_removal_without_own_finalizer_writes_nothing(world: World) -> None:
    obj = workload(metadata={"finalizers": ["a.example/x"]})
    await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj)))
    assert world.calls == []


@pytest.mark.parametrize(
    ("error", "is_conflict"),
    [(ApiError(422, "Invalid", "test failed"), True), (ApiError(500, "InternalError", "no"), False)],
)
async def test_failed_test_of_finalizer_removal_is_a_conflict(
    world: World, error: ApiError, is_conflict: bool
) -> None:
    world.client.fails["json_patch"] = error
    with pytest.raises(ApiError) as raised:
        await execute_plan(world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, workload())))
    assert raised.value.is_conflict is is_conflict


@pytest.mark.parametrize("error", [ApiError(404, "NotFound", ""), ApiError(409, "Conflict", "")])
async def test_deletion_of_missing_or_replaced_object_is_not_an_error(world: World, error: ApiError) -> None:
    world.client.fails["json_patch"] = ApiError(404, "NotFound", "")
    world.client.fails["delete"] = error
    obj = workload()
    await execute_plan(
        world.ctx, plan_of(RemoveFinalizer(KINDS.workloads, obj), Delete(KINDS.workloads, obj))
    )
    assert world.client.calls[-1] == ("delete", "workloads/job-j-1", ("uid-w", None))


async def test_changed_object_is_not_deleted_and_keeps_its_finalizer(world: World) -> None:
    obj = workload()
    world.client.fails["delete"] = CONFLICT
    deleted = Delete(KINDS.workloads, obj, as_seen=True)
    with pytest.raises(ApiError, match="changed since"):
        await execute_plan(world.ctx, plan_of(deleted, RemoveFinalizer(KINDS.workloads, obj)))
    version = obj["metadata"]["resourceVersion"]
    assert world.client.calls == [("delete", "workloads/job-j-1", ("uid-w", version))]


@pytest.mark.parametrize(
    ("answer", "versions"),
    [
        ({"kind": "Status", "metadata": {}, "details": {"uid": "uid-w"}}, ["7"]),
        ({"metadata": {"name": "job-j-1", "uid": "uid-w"}}, ["7"]),
        ({"metadata": {"name": "job-j-1", "uid": "uid-w", "resourceVersion": "8"}}, ["8"]),
    ],
    ids=["status", "object without version", "object that waits for a finalizer"],
)
async def test_event_after_deletion_is_recorded_for_every_answer_of_api_server(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], versions: list[str]
) -> None:
    async def delete(*_: Any, **__: Any) -> dict[str, Any]:
        return answer

    recorded: list[str] = []

    def event(regarding: dict[str, Any], *_: Any) -> None:
        recorded.append(regarding["metadata"]["resourceVersion"])

    monkeypatch.setattr(world.client, "delete", delete)
    monkeypatch.setattr(world.recorder, "event", event)
    event_after = RecordEvent(workload(), "Normal", "Deleted", "deleted")
    await execute_plan(world.ctx, plan_of(Delete(KINDS.workloads, workload()), event_after))
    assert recorded == versions
