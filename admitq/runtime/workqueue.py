"""A queue of keys, each of which one worker processes at a time.

A key that is added twice is queued once. A key that is added while a worker processes it is processed again
afterwards. The queue holds only keys, so that a worker uses the present state of the objects.
"""

import asyncio
import heapq
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

FIRST_RETRY_S = 0.005
LONGEST_RETRY_S = 1000.0


class WorkQueue(Generic[KeyT]):
    """Keys in order of arrival, de-duplicated, with delays and a backoff for each key.

    Urgent keys come before all others. ``clock`` gives monotonic seconds. For use in one event loop.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._waiting: OrderedDict[KeyT, float] = OrderedDict()
        self._urgent: OrderedDict[KeyT, float] = OrderedDict()
        self._working: set[KeyT] = set()
        self._readded: dict[KeyT, tuple[float, bool]] = {}
        """Keys that were added while a worker processes them: since when, and whether they are urgent."""
        self._delayed: dict[KeyT, float] = {}
        """When delayed keys are due."""
        self._heap: list[tuple[float, int, KeyT]] = []
        self._order = itertools.count()
        self._failures: dict[KeyT, int] = {}
        self._getters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._urgent_getters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._given_clock = clock

    def __len__(self) -> int:
        """Return how many keys are ready."""
        return len(self._waiting) + len(self._urgent)

    @property
    def delayed(self) -> int:
        """How many keys are delayed."""
        return len(self._delayed)

    @property
    def working(self) -> int:
        """How many keys are being processed."""
        return len(self._working)

    def is_waiting(self, key: KeyT) -> bool:
        """Whether a key is queued without a delay."""
        return key in self._waiting or key in self._urgent or key in self._readded

    def add(self, key: KeyT, *, urgent: bool = False) -> None:
        """Queue a key; urgent keys come before all others."""
        now = self._clock()
        self._delayed.pop(key, None)
        if key in self._working:
            since, was_urgent = self._readded.get(key, (now, False))
            self._readded[key] = since, urgent or was_urgent
        elif key not in self._urgent:
            self._put(key, now, urgent=urgent)

    def _put(self, key: KeyT, since: float, *, urgent: bool) -> None:
        if urgent:
            self._urgent[key] = self._waiting.pop(key, since)
            self._wake(urgent=True)
        elif key not in self._waiting:
            self._waiting[key] = since
            self._wake()

    def add_after(self, key: KeyT, seconds: float) -> None:
        """Queue a key after a delay. Of several delays the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock() + seconds
        if key in self._waiting or key in self._urgent or self._delayed.get(key, float("inf")) <= due:
            return
        self._delayed[key] = due
        entry = (due, next(self._order), key)
        heapq.heappush(self._heap, entry)
        if self._heap[0] is entry:  # Otherwise the timer is set for an earlier key.
            self._set_timer()

    def retry(self, key: KeyT, *, at_least: float = 0.0, at_most: float = LONGEST_RETRY_S) -> float:
        """Queue a key after a delay that doubles with each retry. Return the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        grown = min(FIRST_RETRY_S * 2 ** min(failures, 30), at_most)
        seconds = max(at_least, grown * random.uniform(0.8, 1.0))  # noqa: S311 - spreads retries
        self.add_after(key, seconds)
        return seconds

    def failures(self, key: KeyT) -> int:
        """Return the number of retries of a key since ``forget``."""
        return self._failures.get(key, 0)

    def forget(self, key: KeyT) -> None:
        """Reset the backoff of a key."""
        self._failures.pop(key, None)

    async def get(self) -> KeyT:
        """Wait for a key to process; :meth:`done` must follow."""
        key, _ = await self.get_timed()
        return key

    async def get_timed(self, *, urgent_only: bool = False) -> tuple[KeyT, float]:
        """Wait for a key. Return it with the seconds for which it was ready."""
        getters = self._urgent_getters if urgent_only else self._getters
        while not self._urgent and (urgent_only or not self._waiting):
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            getters[getter] = None
            try:
                await getter
            except asyncio.CancelledError:
                getters.pop(getter, None)
                if getter.done() and not getter.cancelled():
                    # This getter was woken for a key, but was cancelled. Another getter must take the key.
                    self._wake(urgent=bool(self._urgent))
                raise
        key, since = (self._urgent or self._waiting).popitem(last=False)
        self._working.add(key)
        return key, self._clock() - since

    def done(self, key: KeyT) -> None:
        """Report that the processing of a key has ended."""
        self._working.discard(key)
        if (readded := self._readded.pop(key, None)) is not None:
            since, urgent = readded
            self._put(key, since, urgent=urgent)

    def _wake(self, *, urgent: bool = False) -> None:
        for getters in (self._urgent_getters, self._getters) if urgent else (self._getters,):
            while getters:
                getter, _ = getters.popitem(last=False)
                if not getter.done():
                    getter.set_result(None)
                    return

    def _clock(self) -> float:
        return self._given_clock() if self._given_clock else asyncio.get_running_loop().time()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # The heap still contains entries of keys that were added meanwhile, or that got an earlier time.
        while self._heap and self._delayed.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            wait = max(0.0, self._heap[0][0] - self._clock())
            self._timer = asyncio.get_running_loop().call_later(wait, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._delayed.get(key) == due:
                self.add(key)
        self._set_timer()

    def close(self) -> None:
        """Drop all delayed keys, so that no timer outlives the queue."""
        self._delayed.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
