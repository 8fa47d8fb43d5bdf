"""Pod groups with a controller that stops after any of its writes."""

from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from tests.unit.controllers.builders import KINDS, admitted, reserved, time, workload
from tests.unit.controllers.job.pod_groups import EVICTED, PodWorld, of_group, pair

HISTORIES: dict[str, tuple[list[str], dict[str, Any] | None]] = {
    "made": (["held", "held"], None),
    "started": (["held", "held"], of_group(admitted)),
    "evicted": (["running", "running"], of_group(admitted, EVICTED)),
    "not admitted": (["running", "held"], of_group(workload)),
    "no Workload": (["running", "held"], None),
    "deleted": (["running", "held"], of_group(admitted, metadata={"deletionTimestamp": time(9)})),
    "finished": (["succeeded", "succeeded"], of_group(admitted)),
    "too many": (["running", "running", "held", "held"], of_group(admitted, owners="abcd")),
    "all deleted": (["going", "going"], of_group(admitted)),
    "replaced": (["running", "failed", "held"], of_group(admitted, owners="abc")),
    "reserved": (["held", "held"], of_group(reserved)),
}


def staged(history: str) -> PodWorld:
    world = PodWorld()
    states, made = HISTORIES[history]
    world.put(PODS, *pair(*states))
    if made is not None:
        world.put(KINDS.workloads, made)
    return world


class Falling(list[tuple[str, str, Any]]):
    """Calls of which only so many get through."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, call: tuple[str, str, Any]) -> None:
        if len(self) == self._most:
            raise ApiError(503, "ServiceUnavailable", "fallen")
        super().append(call)


@pytest.mark.parametrize("history", HISTORIES)
async def test_whatever_write_is_the_last_before_a_fall_the_end_is_the_same(history: str) -> None:
    whole = staged(history)
    await whole.settle()
    writes = len(whole.client.calls)
    for last in range(writes):
        world = staged(history)
        world.client.calls = Falling(last)
        with pytest.raises(ApiError):
            await world.settle()
        world.client.calls = []
        await world.settle()
        assert world.seen() == whole.seen(), f"after write {last} of {whole.calls}"
