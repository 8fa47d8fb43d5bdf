"""The rate limit of calls to the API server: one token bucket, in which calls wait by priority."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextvars import ContextVar
from enum import IntEnum
from typing import Final

MAX_OVERTAKES: Final = 9
"""How many calls in a row may be sent before the call that has waited longest."""

_ROUNDING: Final = 1e-6
"""A token may lack this much. Times are rounded, and a timer for such a small rest would be useless."""


class CallPriority(IntEnum):
    """The order in which calls that wait for the rate limit are sent: the lowest number first."""

    AHEAD = 0
    """The call never waits. It takes its token at once, and other calls wait longer. This is for the stop of
    a job that uses more than its workload was granted."""
    WATCH = 1
    """Watches, and the lists that fill the stores. All decisions depend on the stores, and a write that
    results from an old object ends in a conflict. These calls are few: a watch lasts for minutes, and a list
    reads one page after the other."""
    RESERVATION = 2
    """Reservations of quota, admissions, and the starts of jobs."""
    EVICTION = 3
    """Evictions, the stops of jobs and pods, and the release of the quota that was reserved for them."""
    LIFECYCLE = 4
    """The creation of Workloads, their end, and deletions. New workloads and unused quota depend on them."""
    READ = 5
    """All other reads. A decision depends on each, such as the stop of a job. Decided writes come first,
    since reads can be many: each of many deleted jobs is read once."""
    STATUS = 6
    """All other writes, such as the reasons why workloads wait."""
    QUEUE_STATUS = 7
    """Statuses of queues and cohorts. One write replaces any number of earlier ones."""
    EVENT = 8
    """Kubernetes events. Nothing depends on them, and their queue is bounded."""


_priority: ContextVar[CallPriority | None] = ContextVar("priority of calls", default=None)


@contextlib.contextmanager
def call_priority(priority: CallPriority) -> Generator[None]:
    """Set the priority of the calls in the block, and in tasks that are created in it.

    In nested blocks the higher priority applies: a call on behalf of an urgent call is as urgent.
    """
    outer = _priority.get()
    token = _priority.set(priority if outer is None else min(outer, priority))
    try:
        yield
    finally:
        _priority.reset(token)


def current_priority(default: CallPriority) -> CallPriority:
    """Return the priority of the enclosing :func:`call_priority`, or the default without one."""
    priority = _priority.get()
    return default if priority is None else priority


class TokenBucket:
    """Sends ``burst`` calls at once, and after that ``qps`` a second. With a negative qps no call waits.

    Calls that wait are sent by priority, and within one priority in the order of their arrival. No call waits
    forever: at most ``MAX_OVERTAKES`` calls in a row are sent before the call that has waited longest. So
    every tenth token goes to that call, whatever its priority. Calls of priority ``AHEAD`` do not count.

    With this share, statuses are written under any load of reservations, since users rely on them. A time
    limit would not do: after it, a long queue of statuses would be sent before every new reservation.
    """

    def __init__(self, qps: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self._burst)
        self._refilled_at = clock()
        self._waiting = {
            priority: OrderedDict[int, asyncio.Future[None]]() for priority in sorted(CallPriority)
        }
        """The calls of each priority, by the number of their arrival."""
        self._arrivals = 0
        self._overtakes = 0
        """How many calls in a row were sent before the call that has waited longest."""
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, priority: CallPriority = CallPriority.STATUS) -> None:
        """Wait for a token and take it. If cancelled while it waits, take none."""
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
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._qps)
        self._refilled_at = now

    def _grant(self) -> None:
        """Give the available tokens to calls that wait, and set the timer for the next token."""
        self._refill()
        while self._tokens >= 1 - _ROUNDING and (granted := self._pop_next()) is not None:
            if not granted.done():  # A cancelled call stays in the queue until its task runs.
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

    def _pop_next(self) -> asyncio.Future[None] | None:
        """Remove and return the next call to send; None if none waits."""
        firsts = [(next(iter(calls)), calls) for calls in self._waiting.values() if calls]
        if not firsts:
            return None
        oldest = min(number for number, _ in firsts)
        may_overtake = self._overtakes < MAX_OVERTAKES
        number, calls = next(first for first in firsts if may_overtake or first[0] == oldest)
        self._overtakes = 0 if number == oldest else self._overtakes + 1
        return calls.pop(number)
