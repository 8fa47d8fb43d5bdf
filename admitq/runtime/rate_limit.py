"""The rate limit of calls to the API server: one token bucket, in which calls wait by priority."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextvars import ContextVar
from enum import IntEnum
from typing import Final

MOST_OVERTAKES: Final = 9
"""How many calls of higher priority may overtake the call that has waited longest, before it goes itself."""

_ROUNDING: Final = 1e-6
"""What a token may lack, for times are rounded; a timer would otherwise be set again for next to nothing."""


class CallPriority(IntEnum):
    """In which order calls that wait for the rate limit are sent; the lowest number goes first."""

    AHEAD = 0
    """Never waits. The call takes its token at once, so that others wait longer: for the stop of a job that
    runs beyond its grant."""
    WATCH = 1
    """Watches, and the lists that fill the stores. All decisions are made from the stores, and a write that
    was decided from an old object ends in a conflict. These calls are few: a watch lasts for minutes, and a
    list reads its pages one after the other."""
    RESERVATION = 2
    """Reservations of quota, admissions, and the starts of jobs."""
    EVICTION = 3
    """Evictions, the stops of jobs and pods, and the release of the quota that was reserved for them."""
    READ = 4
    """All other reads. A decision waits for each, and that decision may be to stop a job. They do not go
    before writes that are already decided: each of many deleted jobs is read once."""
    STATUS = 5
    """All other writes."""
    EVENT = 6
    """Kubernetes events. Nothing waits for them, and their own queue is bounded."""


_priority: ContextVar[CallPriority | None] = ContextVar("priority of calls", default=None)


@contextlib.contextmanager
def call_priority(priority: CallPriority) -> Generator[None]:
    """Set the priority of the calls in the block, and in tasks that are created in it.

    In nested blocks the higher priority applies: what an urgent call needs is as urgent.
    """
    outer = _priority.get()
    token = _priority.set(priority if outer is None else min(outer, priority))
    try:
        yield
    finally:
        _priority.reset(token)


def current_priority(default: CallPriority) -> CallPriority:
    """The priority that is set for the calls made here; the default if none is set."""
    found = _priority.get()
    return default if found is None else found


class TokenBucket:
    """Lets ``burst`` calls through at once and ``qps`` a second after that; a negative qps lets all through.

    Calls that wait go by priority, and in the order of their arrival within one priority. No call waits for
    ever: at most ``MOST_OVERTAKES`` calls go before the one that has waited longest, not counting those of
    priority ``AHEAD``. So under any load one token of ten goes to the call that came first, whatever its
    priority. A status is what users go by, and must be written while reservations take all the rest. The
    share is counted and not a time: after a limit of seconds a long queue of statuses would go before every
    new reservation.
    """

    def __init__(self, qps: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()
        self._waiting = {one: OrderedDict[int, asyncio.Future[None]]() for one in sorted(CallPriority)}
        """The calls of each priority by the number of their arrival; the first priority goes first."""
        self._arrivals = 0
        self._overtakes = 0
        """How many calls in a row went before the one that has waited longest."""
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, priority: CallPriority = CallPriority.STATUS) -> None:
        """Wait for a token and take it. A call that is cancelled while it waits takes none."""
        if self._qps <= 0:
            return
        self._refill()
        if priority is CallPriority.AHEAD:
            self._tokens -= 1
            return
        loop, waiting = asyncio.get_running_loop(), self._waiting[priority]
        self._arrivals += 1
        number = self._arrivals
        waiting[number] = granted = loop.create_future()
        self._grant()
        if granted.done():
            return
        try:
            await granted
        except asyncio.CancelledError:
            waiting.pop(number, None)
            if granted.done() and not granted.cancelled():
                self._tokens += 1
            self._grant()
            raise

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now

    def _grant(self) -> None:
        """Give the tokens that there are to calls that wait, and set the timer for the next one."""
        self._refill()
        while self._tokens >= 1 - _ROUNDING and (granted := self._next()) is not None:
            if not granted.done():  # a cancelled call is still here until its task goes on
                self._tokens -= 1
                granted.set_result(None)
        if not any(self._waiting.values()):
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later((1 - self._tokens) / self._qps, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._grant()

    def _next(self) -> asyncio.Future[None] | None:
        """Take out the call that goes next; None if none waits."""
        firsts = [(next(iter(calls)), calls) for calls in self._waiting.values() if calls]
        if not firsts:
            return None
        oldest = min(number for number, _ in firsts)
        number, calls = next(one for one in firsts if self._overtakes < MOST_OVERTAKES or one[0] == oldest)
        self._overtakes = 0 if number == oldest else self._overtakes + 1
        return calls.pop(number)
