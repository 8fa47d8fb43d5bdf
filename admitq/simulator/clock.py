"""The virtual clock: actions that are scheduled for an instant, and taken in order."""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from admitq.core.model import SECOND, Instant
from admitq.simulator.course import START
from admitq.simulator.schema import Nanoseconds

Action = Callable[[Any, int], None]
"""Takes its subject, and the epoch for which it was scheduled."""


class VirtualClock:
    """Time since the start of the run, and what is scheduled.

    Attributes:
        now: the present, in nanoseconds since the start.
    """

    def __init__(self) -> None:
        self.now: Nanoseconds = 0
        self._heap: list[tuple[Nanoseconds, int, Action, Any, int]] = []
        self._order = 0

    @property
    def instant(self) -> Instant:
        """The present as the core counts time."""
        return START + self.now

    @property
    def whole_second(self) -> Instant:
        """The present as objects of the API state it, in whole seconds."""
        instant = START + self.now
        return instant - instant % SECOND

    @property
    def next(self) -> Nanoseconds | None:
        """When the next action is due; None if nothing is scheduled."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, at: Nanoseconds, act: Action, subject: object, epoch: int = 0) -> None:
        """Schedule an action. Actions of one instant are taken in the order in which they were scheduled."""
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, act, subject, epoch))

    def take_due(self) -> Iterator[tuple[Action, Any, int]]:
        """Remove actions that are due now, also those that are scheduled meanwhile."""
        heap, now = self._heap, self.now
        while heap and heap[0][0] == now:
            _, _, act, subject, epoch = heapq.heappop(heap)
            yield act, subject, epoch
