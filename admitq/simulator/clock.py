"""The virtual clock: a queue of actions, each scheduled for an instant."""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from admitq.core.model import SECOND, Instant
from admitq.simulator.schema import Nanoseconds

Action = Callable[[Any, int], None]
"""A function of a subject and of the epoch for which it was scheduled."""

START: Instant = 946_684_800 * 1_000_000_000
"""The instant of the start of every run: 2000-01-01T00:00:00Z, a whole second like timestamps of objects."""


class VirtualClock:
    """The time since the start of the run, and the scheduled actions.

    Attributes:
        now: the current time in nanoseconds since the start.
    """

    def __init__(self) -> None:
        self.now: Nanoseconds = 0
        self._heap: list[tuple[Nanoseconds, int, Action, Any, int]] = []
        self._order = 0

    @property
    def instant(self) -> Instant:
        """The current time as an instant of the core."""
        return START + self.now

    @property
    def whole_second(self) -> Instant:
        """The current time in whole seconds, as timestamps of API objects have it."""
        instant = START + self.now
        return instant - instant % SECOND

    @property
    def next(self) -> Nanoseconds | None:
        """The time of the next action; None if no action is scheduled."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, at: Nanoseconds, act: Action, subject: object, epoch: int = 0) -> None:
        """Schedule an action. Actions of the same instant run in the order of scheduling."""
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, act, subject, epoch))

    def take_due(self) -> Iterator[tuple[Action, Any, int]]:
        """Remove and return the actions that are due now, also those that are added meanwhile."""
        heap, now = self._heap, self.now
        while heap and heap[0][0] == now:
            _, _, act, subject, epoch = heapq.heappop(heap)
            yield act, subject, epoch
