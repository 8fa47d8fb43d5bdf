"""Defers work that needs the state between two cycles: it runs, in order, after the running cycle."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from admitq.manager.event_loop_blocking import BlockingTimer
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors


class DeferredWork:
    """Runs work at once, or after the running cycle.

    Args:
        blocking: decides when to yield to the event loop.
        errors: reports exceptions of deferred work.
    """

    def __init__(self, blocking: BlockingTimer, errors: UnexpectedErrors) -> None:
        self._blocking = blocking
        self._errors = errors
        self._queue: deque[Callable[[], None]] = deque()
        self._is_deferring = False

    def run_between_cycles(self, work: Callable[[], None]) -> None:
        """Run work at once. If a cycle runs or earlier work waits, run it after the cycle and that work."""
        if self._is_deferring or self._queue:
            self._queue.append(work)
            return
        with self._blocking.measure():
            work()

    @contextmanager
    def defer_all(self) -> Generator[None]:
        """Defer all work until ``run_deferred``, because a cycle runs in this context."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False

    async def run_deferred(self) -> None:
        """Run all deferred work, and work that is added meanwhile; yield to the event loop in between."""
        if not self._queue:
            return
        while self._queue:
            # The work stays in the queue until it is done, so that further work from it is queued after it.
            with self._errors.contain(ErrorPart.OBSERVATION, "deferred"):
                self._queue[0]()
            self._queue.popleft()
            if self._blocking.should_yield:
                await self._blocking.yield_to_loop()
        # Tasks that wait for the state read it before the next cycle begins.
        await self._blocking.yield_to_loop()

    async def wait_for_cycle_end(self) -> None:
        """Wait until no cycle runs and all earlier work is done.

        The state does not change until the caller's next await.
        """
        if not (self._is_deferring or self._queue):
            return
        while True:
            cycle_end = asyncio.get_running_loop().create_future()
            self._queue.append(partial(_finish, cycle_end))
            await cycle_end
            if not self._is_deferring:
                return


def _finish(cycle_end: "asyncio.Future[None]") -> None:
    if not cycle_end.done():
        cycle_end.set_result(None)
