"""Schedules writes by class, so that writes of a lower class do not delay those of a higher class.

The CPU time of the API server is what limits a busy cluster. Each write that is in progress delays all
others, also those of other programs. Therefore each class of writes has a limit of its own, which follows
the load of the API server (``adaptive_limit``). The classes are those of ``CallPriority``. While a write of a
higher class waits, or a rejected call of a higher priority waits for its retry, a lower class has its
smallest limit. The smallest limit is greater than 0, so that no class waits forever.

A write takes a slot of its class for as long as it is in progress. A caller may take the slot before it
decides what to write, so that the write states what is true when it is sent.
"""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from admitq.runtime.adaptive_limit import AdaptiveLimit, LimitBounds
from admitq.runtime.api_server_load import ApiServerLoad
from admitq.runtime.rate_limit import CallPriority

BOUNDS: Final[Mapping[CallPriority, LimitBounds]] = {
    CallPriority.RESERVATION: LimitBounds(least=16, most=64, tolerance=20),
    CallPriority.EVICTION: LimitBounds(least=8, most=32, tolerance=20),
    CallPriority.LIFECYCLE: LimitBounds(least=4, most=16, tolerance=10),
    CallPriority.STATUS: LimitBounds(least=0.25, most=8, tolerance=4),
    CallPriority.QUEUE_STATUS: LimitBounds(least=0.1, most=4, tolerance=6),
    CallPriority.EVENT: LimitBounds(least=0.1, most=4, tolerance=6),
}
"""The bounds by class, from the highest class to the lowest. Writes of other priorities need no slot.

The three lowest classes report what others decided, so they get what the rest leaves."""

_OVERLOADED_STATUSES: Final = frozenset({0, 429, 503, 504})
"""Statuses of writes that the API server rejected because of its load; 0: it did not answer."""


class NoFreeSlotError(Exception):
    """A write needs a slot, and none of its class is free now."""

    def __init__(self, priority: CallPriority) -> None:
        super().__init__(f"no slot of class {priority.name} is free")
        self.priority = priority


@dataclass(slots=True, eq=False)
class WriteSlot:
    """A slot for writes of one class, one at a time. ``seconds`` is how long these took together."""

    priority: CallPriority
    is_held: bool = True
    seconds: float = 0.0


@dataclass(slots=True)
class _WriteClass:
    """The state of one class."""

    limit: AdaptiveLimit
    held: int = 0
    waiting: "OrderedDict[asyncio.Future[None], None]" = field(
        default_factory=OrderedDict["asyncio.Future[None]", None]
    )
    paused_until: float = float("-inf")


_used_slot: ContextVar[WriteSlot | None] = ContextVar("slot of writes", default=None)


class WriteScheduler:
    """Grants slots for writes to one API server. All methods run in one event loop."""

    def __init__(
        self,
        bounds: Mapping[CallPriority, LimitBounds] = BOUNDS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._load = ApiServerLoad(clock)
        self._classes = {
            priority: _WriteClass(AdaptiveLimit(bounds[priority])) for priority in sorted(bounds)
        }
        self._retries: Counter[CallPriority] = Counter()
        """How many rejected calls wait for their retry, by priority."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def slowness(self) -> float:
        """How many times slower the API server is than an idle one."""
        return self._load.slowness

    @property
    def write_classes(self) -> list[CallPriority]:
        """The classes with limits, from the highest to the lowest."""
        return list(self._classes)

    def limit(self, priority: CallPriority) -> float:
        """Return the present limit of concurrent writes of a class."""
        return self._classes[priority].limit.value

    def count_waiting(self, priority: CallPriority) -> int:
        """Return how many callers wait for a slot of a class."""
        return len(self._classes[priority].waiting)

    # --- slots ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def free_slot(self, priority: CallPriority) -> Generator[None]:
        """Hold a slot for the writes of the block: that of the enclosing block, or else a new one.

        Raises:
            NoFreeSlotError: no slot is free now. This method does not wait.
        """
        if slot_in_use() is not None:
            yield
            return
        slot = self.take_free(priority)
        if slot is None:
            raise NoFreeSlotError(priority)
        with self.use(slot):
            yield

    def take_free(self, priority: CallPriority) -> WriteSlot | None:
        """Take a slot. Return None if the limit of its class allows none now, or if others wait for it.

        The caller must release the slot.
        """
        write_class = self._classes.get(priority)
        if write_class is not None:
            if write_class.waiting or not self._is_free(priority, write_class):
                return None
            write_class.held += 1
        return WriteSlot(priority)

    async def take(self, priority: CallPriority) -> WriteSlot:
        """Wait for a slot of a class, and take it. The caller must release it."""
        slot = self.take_free(priority)
        if slot is not None:
            return slot
        write_class = self._classes[priority]
        granted = asyncio.get_running_loop().create_future()
        write_class.waiting[granted] = None
        self._set_timer()
        try:
            await granted
        except asyncio.CancelledError:
            write_class.waiting.pop(granted, None)
            if granted.done() and not granted.cancelled():
                write_class.held -= 1
            self._grant()
            raise
        return WriteSlot(priority)

    def release(self, slot: WriteSlot) -> None:
        """Release a slot."""
        slot.is_held = False
        write_class = self._classes.get(slot.priority)
        if write_class is None:
            return
        write_class.held -= 1
        value = self._effective_limit(slot.priority, write_class)
        if value < 1:
            write_class.paused_until = self._clock() + slot.seconds * (1 / value - 1)
        self._grant()

    @contextlib.contextmanager
    def use(self, slot: WriteSlot) -> Generator[None]:
        """Send the writes of the block in a slot, and release the slot at the end of the block."""
        token = _used_slot.set(slot)
        try:
            yield
        finally:
            _used_slot.reset(token)
            self.release(slot)

    @contextlib.asynccontextmanager
    async def slot(self, priority: CallPriority) -> AsyncGenerator[WriteSlot]:
        """Hold a slot for the writes of the block: that of the enclosing block, or else a new one."""
        enclosing = slot_in_use()
        if enclosing is not None:
            yield enclosing
            return
        slot = await self.take(priority)
        with self.use(slot):
            yield slot

    @contextlib.contextmanager
    def retry_of(self, priority: CallPriority) -> Generator[None]:
        """Wait in the block for the retry of a call that the API server rejected because of its load.

        Calls of any priority count, also reads: the retry must not be rejected because of lower writes.
        """
        self._retries[priority] += 1
        try:
            yield
        finally:
            self._retries[priority] -= 1
            self._grant()

    def record(self, slot: WriteSlot, operation: str, seconds: float, status: int) -> None:
        """Record a finished write, and adapt the limit of its class.

        A rejection also shrinks the limits of all lower classes.

        Args:
            slot: the slot of the write.
            operation: what was written, such as ``patch workloads/status``.
            seconds: the time from the request to the response.
            status: the HTTP status of the response; 0 without a response.
        """
        slot.seconds += seconds
        is_rejected = status in _OVERLOADED_STATUSES
        if 200 <= status < 300:  # An error is found before the write, so its time says nothing.
            self._load.record(operation, seconds)
        now = self._clock()
        write_class = self._classes.get(slot.priority)
        if write_class is not None:
            is_used = write_class.held >= write_class.limit.value
            write_class.limit.adapt(self._load.slowness, now, is_rejected=is_rejected, is_used=is_used)
        if is_rejected:
            for priority, lower in self._classes.items():
                if priority > slot.priority:
                    lower.limit.shrink_after_rejection(now)

    # --- granting ---------------------------------------------------------------------------------

    def _is_free(self, priority: CallPriority, write_class: _WriteClass) -> bool:
        if write_class.held >= max(1, self._effective_limit(priority, write_class)):
            return False
        return self._clock() >= write_class.paused_until

    def _effective_limit(self, priority: CallPriority, write_class: _WriteClass) -> float:
        """Return the limit, which is the smallest one while a higher class or a higher retry waits."""
        is_behind = any(each.waiting for above, each in self._classes.items() if above < priority) or any(
            count for above, count in self._retries.items() if above < priority
        )
        return write_class.limit.least if is_behind else write_class.limit.value

    def _grant(self) -> None:
        """Grant free slots to those that wait, the highest class first."""
        for priority, write_class in self._classes.items():
            while write_class.waiting and self._is_free(priority, write_class):
                granted, _ = write_class.waiting.popitem(last=False)
                if not granted.done():  # A cancelled caller waits until its task runs.
                    write_class.held += 1
                    granted.set_result(None)
        self._set_timer()

    def _set_timer(self) -> None:
        """Grant again when the next pause ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pauses = [each.paused_until for each in self._classes.values() if each.waiting and not each.held]
        if pauses:
            # A class that waits for nothing but its pause is granted a slot when the pause ends.
            seconds = max(0.0, min(pauses) - self._clock())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._grant()


def slot_in_use() -> WriteSlot | None:
    """Return the slot in which the present writes are sent; None if none was taken for them."""
    slot = _used_slot.get()
    return slot if slot is not None and slot.is_held else None
