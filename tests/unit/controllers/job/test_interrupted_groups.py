"""Pod groups with a controller that stops after any of its writes."""

from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from tests.unit.controllers.builders import KINDS, admitted, reserved, timestamp, workload
from tests.unit.controllers.job.pod_groups import EVICTED, PodWorld, group_workload, pods_of_group

HISTORIES: dict[str, tuple[list[str], dict[str, Any] | None]] = {
    "created": (["held", "held"], None),
    "started": (["held", "held"], group_workload(admitted)),
    "evicted": (["running", "running"], group_workload(admitted, EVICTED)),
    "not admitted": (["running", "held"], group_workload(workload)),
    "no Workload": (["running", "held"], None),
    "deleted": (["running", "held"], group_workload(admitted, metadata={"deletionTimestamp": timestamp(9)})),
    "finished": (["succeeded", "succeeded"], group_workload(admitted)),
    "too many": (["running", "running", "held", "held"], group_workload(admitted, owners="abcd")),
    "all deleted": (["deleted", "deleted"], group_workload(admitted)),
    "replaced": (["running", "failed", "held"], group_workload(admitted, owners="abc")),
    "reserved": (["held", "held"], group_workload(reserved)),
}


def create_world(history: str) -> PodWorld:
    world = PodWorld()
    states, existing = HISTORIES[history]
    world.put(PODS, *pods_of_group(*states))
    if existing is not None:
        world.put(KINDS.workloads, existing)
    return world


class LimitedCalls(list[tuple[str, str, Any]]):
    """Calls that fail after the first ``most``."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, call: tuple[str, str, Any]) -> None:
        if len(self) == self._most:
            raise ApiError(503, "ServiceUnavailable", "interrupted")
        super().append(call)


@pytest.mark.parametrize("history", HISTORIES)
async def test_pod_group_reaches_same_state_when_controller_stops_after_any_write(history: str) -> None:
    uninterrupted = create_world(history)
    await uninterrupted.settle()
    writes = len(uninterrupted.client.calls)
    for last in range(writes):
        world = create_world(history)
        world.client.calls = LimitedCalls(last)
        with pytest.raises(ApiError):
            await world.settle()
        world.client.calls = []
        await world.settle()
        assert world.final_objects() == uninterrupted.final_objects(), (
            f"after write {last} of {uninterrupted.calls}"
        )
