"""A clock that a test sets, and the timers of that clock."""

import asyncio
import heapq
from collections.abc import Callable

import pytest


class ScriptedTime:
    """Replaces the timers of the running event loop. ``now`` is the time in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], None]]] = []
        """All timers that were set and have not run, with cancelled ones, by their time."""
        self.timers_set = 0
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers_set += 1
        handle = asyncio.TimerHandle(self.now + seconds, callback, (), self._loop)
        heapq.heappush(self.timers, (handle.when(), self.timers_set, handle, callback))
        return handle

    async def pass_time(self, seconds: float) -> None:
        """Advance the clock, and run each due timer at its time."""
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, _, handle, callback = heapq.heappop(self.timers)
            if not handle.cancelled():
                callback()
                await run_woken_tasks()
        self.now = end


async def run_woken_tasks() -> None:
    """Run the tasks that a timer, or a granted or cancelled call, has woken."""
    for _ in range(5):
        await asyncio.sleep(0)
