"""Workloads of groups without existing pods."""

from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from tests.unit.controllers.builders import KINDS, admitted, condition_of, reserved, timestamp, workload
from tests.unit.controllers.job.pod_groups import (
    EVICTED,
    GROUP,
    PodWorld,
    group_workload,
    owner,
    pods_of_group,
)


@pytest.mark.parametrize("make", [workload, reserved, admitted])
async def test_b8_group_workload_without_owner_is_not_finished_before_its_first_pod(make: Any) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(make, owners=""))
    assert await world.pods.reconcile(GROUP) is None
    assert world.calls == []


async def test_e_group_workload_that_is_evicted_before_its_first_pod_is_requeued() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(admitted, EVICTED, owners=""))
    await world.settle()
    released = world.get(KINDS.workloads, "g")
    assert condition_of(released, "QuotaReserved")[:2] == ("False", "PendingEvaluation")
    assert condition_of(released, "Requeued")[:2] == ("True", "Preempted")
    assert condition_of(released, "Finished") is None
    assert "admission" not in released["status"]


async def test_b8_group_workload_gets_its_first_pod_as_owner() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(workload, owners=""))
    await world.settle()
    world.put(PODS, *pods_of_group("held"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"] == [owner("a")]


@pytest.mark.parametrize(
    ("owners", "metadata"),
    [("ab", {}), ("", {"deletionTimestamp": timestamp(9)})],
    ids=["owners gone", "deleted"],
)
async def test_b8_group_workload_is_finished_when_its_owners_are_gone_or_it_is_deleted(
    owners: str, metadata: Any
) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(admitted, owners=owners, metadata=metadata))
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []


async def test_pod_group_is_finished_when_api_server_rejects_its_start() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("held", "held"))
    world.put(KINDS.workloads, group_workload(admitted))
    original = world.client.merge_patch

    async def refuse(resource: Any, *args: Any, **named: Any) -> dict[str, Any]:
        if resource == PODS:
            raise ApiError(422, "Invalid", "spec: immutable")
        return await original(resource, *args, **named)

    world.client.merge_patch = refuse  # type: ignore[method-assign]
    await world.pods.reconcile(GROUP)
    failed = condition_of(world.get(KINDS.workloads, "g"), "Finished")
    assert failed == ("True", "FailedToStart", "spec: immutable")
