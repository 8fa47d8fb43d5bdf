"""Reports of a controller that wait until the API server has time for them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Generic, TypeVar

from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.write_scheduler import WriteScheduler, WriteSlot

KeyT = TypeVar("KeyT", bound=Hashable)


class PostponedReports(Generic[KeyT]):
    """The keys of a controller that must be reconciled in a slot for reports.

    Args:
        scheduler: grants the slots.
        add: queues a key, which is then reconciled in its slot.
    """

    def __init__(self, scheduler: WriteScheduler, add: Callable[[KeyT], None]) -> None:
        self._scheduler = scheduler
        self._add = add
        self._waiting: OrderedDict[KeyT, CallPriority] = OrderedDict()
        self._granted: dict[KeyT, WriteSlot] = {}
        self._is_any_waiting = asyncio.Event()

    def is_postponed(self, key: KeyT) -> bool:
        """Whether a key waits for a slot."""
        return key in self._waiting

    def postpone(self, key: KeyT, priority: CallPriority) -> None:
        """Have a key reconciled in the next free slot of a class."""
        self._waiting.setdefault(key, priority)
        self._is_any_waiting.set()

    @contextmanager
    def granted_slot(self, key: KeyT) -> Generator[None]:
        """Reconcile a key in the block, in the slot that was granted for it, if any."""
        slot = self._granted.pop(key, None)
        if slot is None:
            yield
            return
        with self._scheduler.use(slot):
            yield

    async def run(self) -> None:
        """Grant slots to keys in the order of their arrival, until cancelled."""
        try:
            while True:
                await self._is_any_waiting.wait()
                slot = await self._scheduler.take(next(iter(self._waiting.values())))
                key, _ = self._waiting.popitem(last=False)
                if not self._waiting:
                    self._is_any_waiting.clear()
                if key in self._granted:
                    self._scheduler.release(slot)
                    continue
                self._granted[key] = slot
                self._add(key)
        finally:
            for slot in self._granted.values():
                self._scheduler.release(slot)
            self._granted.clear()
