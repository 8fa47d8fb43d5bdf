"""When workloads that are held back until an instant may be evaluated again."""

import heapq

from admitq.core.model import Instant, ObjectKey
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.transitions import ends_at

_Timer = tuple[Instant, ObjectKey, int, str, PendingEntry]
"""When, of which workload, a number that makes the timer unique, and in which ClusterQueue."""


class Timers:
    """Workloads in states with an instant, ``until``, that ends them."""

    def __init__(self) -> None:
        self._timers: list[_Timer] = []
        self._added = 0

    def add(self, cluster_queue: str, pending: PendingEntry) -> None:
        """Add a workload of a ClusterQueue that is held back, if an instant ends that."""
        until = ends_at(pending.state)
        if until is not None:
            self._added += 1
            heapq.heappush(self._timers, (until, pending.workload.key, self._added, cluster_queue, pending))

    def next_at(self) -> Instant | None:
        """Return the earliest instant at which a state ends; None if there is none."""
        while self._timers:
            until, _, _, _, pending = self._timers[0]
            if ends_at(pending.state) == until:
                return until
            heapq.heappop(self._timers)
        return None

    def pop_due(self, now: Instant) -> tuple[str, PendingEntry] | None:
        """Take the next due workload, with its ClusterQueue; None if there is none."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, _, cluster_queue, pending = heapq.heappop(self._timers)
        return cluster_queue, pending
