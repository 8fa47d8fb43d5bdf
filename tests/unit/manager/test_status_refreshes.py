"""Refreshes of statuses wait for the end of due cycles, but not longer than a second."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from admitq.core.instructions import Instruction, RefreshClusterQueue
from admitq.core.model import SECOND
from localcluster.waiting import eventually
from tests.unit.manager.failing_work import Core, Refresh, create_manager, running

CYCLES = 8


class BusyCore(Core):
    """Is due for several cycles. Each cycle changes the status of the same ClusterQueue."""

    def __init__(self, after_cycle: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._after_cycle = after_cycle

    def next_wakeup(self, now: int) -> int | None:
        return now if self.queries.cycles_run < CYCLES else None

    def cycle_steps(self, _: object, *, now: int) -> Iterator[None]:
        assert now
        self.queries.cycles_run += 1
        changed: list[Instruction] = [RefreshClusterQueue("a")]
        self.decided = changed
        self._after_cycle()
        yield


async def refreshes_of(core: BusyCore, **parts: Any) -> list[str]:
    """Run a manager until the cycles of a core have run, and return the refreshed ClusterQueues."""
    refresh = Refresh()
    manager = create_manager(core, refresh=refresh, **parts)
    async with running(manager.run()):
        await eventually(lambda: core.queries.cycles_run == CYCLES and not core.decided)
    return refresh.names


async def test_queue_that_changes_in_several_due_cycles_is_refreshed_once_after_them() -> None:
    assert await refreshes_of(BusyCore()) == ["a"]


@pytest.mark.parametrize(("cycles_a_second", "refreshes"), [(1, CYCLES), (2, CYCLES // 2), (4, CYCLES // 4)])
async def test_queue_is_refreshed_every_second_while_cycles_are_due(
    cycles_a_second: int, refreshes: int
) -> None:
    now = SECOND

    def advance() -> None:
        nonlocal now
        now += SECOND // cycles_a_second

    assert await refreshes_of(BusyCore(advance), clock=lambda: now) == ["a"] * refreshes
