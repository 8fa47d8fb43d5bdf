"""Deleted Workloads of kinds without controller: they keep their finalizer while an owner exists."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.controllers.workload.controller import HELD_RETRY_SECONDS, WorkloadController
from admitq.integrations.base import Integration
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import FINISHED, KINDS, NAMES, settings_with, timestamp, workload
from tests.unit.controllers.world import World

KEY = Key("ns", "w")
NEWER_JOBSETS = replace(resource_of(JOBSET), version="v1")
REMOVE_FINALIZER = "json_patch workloads/w"


def owner(kind: Integration, uid: str = "uid-o") -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": "o", "uid": uid, "controller": True}


def deleted(reference: dict[str, Any], **annotations: str) -> dict[str, Any]:
    metadata = {"deletionTimestamp": timestamp(0), "annotations": annotations}
    return workload(FINISHED, name="w", owner=reference, metadata=metadata)


async def calls_for(world: World, obj: dict[str, Any]) -> list[str]:
    """Reconcile a Workload; return the calls of the API server without discovery."""
    world.put(KINDS.workloads, obj)
    assert await WorkloadController(world.ctx, world.core).reconcile(KEY) == HELD_RETRY_SECONDS
    return [call for call in world.calls if "/apis" not in call and "/api/" not in call]


def world_of_jobs() -> World:
    """Return a world in which Jobs are the only kind of jobs."""
    return World(settings_with(integrations=(JOB,)))


async def test_deleted_workload_is_released_when_kind_of_owner_is_not_served() -> None:
    assert await calls_for(world_of_jobs(), deleted(owner(JOBSET))) == [REMOVE_FINALIZER]


async def test_deleted_workload_is_released_when_enabled_kind_of_owner_is_not_served() -> None:
    world = World(settings_with(integrations=(JOB, JOBSET)))
    del world.stores.stores[resource_of(JOBSET)]
    assert await calls_for(world, deleted(owner(JOBSET))) == [REMOVE_FINALIZER]


@pytest.mark.parametrize(
    "served", [resource_of(JOBSET), NEWER_JOBSETS], ids=["its version", "another version"]
)
@pytest.mark.parametrize(
    ("uid", "writes"), [("uid-o", []), ("another", [REMOVE_FINALIZER]), (None, [REMOVE_FINALIZER])]
)
async def test_owner_of_disabled_kind_is_read_before_deleted_workload_is_released(
    served: Any, uid: str | None, writes: list[str]
) -> None:
    world = world_of_jobs()
    world.client.served = {served}
    if uid is not None:
        world.client.api["jobsets", "o"] = {"metadata": {"name": "o", "uid": uid}}
    assert await calls_for(world, deleted(owner(JOBSET))) == ["get jobsets/o", *writes]


async def test_deleted_workload_is_kept_when_reading_its_owner_is_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: Any, **__: Any) -> dict[str, Any]:
        raise ApiError(403, "Forbidden", "no")

    world = world_of_jobs()
    world.client.served = {resource_of(JOBSET)}
    monkeypatch.setattr(world.client, "get", refuse)
    assert await calls_for(world, deleted(owner(JOBSET))) == []


async def test_deleted_workload_of_enabled_kind_is_left_to_controller_of_that_kind() -> None:
    assert await calls_for(World(), deleted(owner(JOB))) == []


async def test_deleted_workload_of_pods_is_released_when_its_pods_are_gone() -> None:
    annotations = {NAMES.job_owner_gvk: f"{LEADER_WORKER_SET.api_version}, Kind=LeaderWorkerSet"}
    annotations |= {NAMES.job_owner_name: "o", NAMES.is_group_workload: "true"}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    obj = deleted({**owner(LEADER_WORKER_SET), "controller": False}, **annotations)
    obj["metadata"]["ownerReferences"].append(pod)
    world = world_of_jobs()
    world.client.served = {PODS}
    world.client.api["pods", "p"] = {"metadata": {"name": "p", "uid": "uid-p"}}
    assert await calls_for(world, obj) == ["get pods/p"]
    del world.client.api["pods", "p"]
    assert (await calls_for(world, obj))[-2:] == ["get pods/p", REMOVE_FINALIZER]
