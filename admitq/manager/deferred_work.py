"""Work that needs the state between two cycles: it waits, in order, while a cycle runs in steps."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from admitq.manager.event_loop_blocking import BlockingTimer
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors


class DeferredWork:
    """Runs work at once, or once the cycle that runs has ended.

    Args:
        blocking: when to give the event loop a turn.
        errors: where exceptions of work that was deferred are reported.
    """

    def __init__(self, blocking: BlockingTimer, errors: UnexpectedErrors) -> None:
        self._blocking = blocking
        self._errors = errors
        self._queue: deque[Callable[[], None]] = deque()
        self._is_deferring = False

    def run_between_cycles(self, work: Callable[[], None]) -> None:
        """Run work at once; or after all that waits, if a cycle runs or earlier work waits."""
        if self._is_deferring or self._queue:
            self._queue.append(work)
            return
        with self._blocking.measure():
            work()

    @contextmanager
    def defer_all(self) -> Generator[None]:
        """Have all work wait until ``run_deferred``: a cycle runs meanwhile."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False

    async def run_deferred(self) -> None:
        """Run all work that waits, and whatever is added meanwhile; the event loop gets its turns."""
        if not self._queue:
            return
        while self._queue:
            # It stays in the queue until it is done: what it causes comes after it.
            with self._errors.contain(ErrorPart.OBSERVATION, "deferred"):
                self._queue[0]()
            self._queue.popleft()
            if self._blocking.should_yield:
                await self._blocking.yield_to_loop()
        # Tasks that wait for the state read it before the next cycle begins.
        await self._blocking.yield_to_loop()

    async def wait_for_cycle_end(self) -> None:
        """Wait until no cycle runs and all work of before has been done.

        The state stays as it is until the caller awaits something else.
        """
        if not (self._is_deferring or self._queue):
            return
        while True:
            done = asyncio.get_running_loop().create_future()
            self._queue.append(partial(_finish, done))
            await done
            if not self._is_deferring:
                return


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
