"""The instants at which workloads that are held back may be evaluated again."""

import heapq

from admitq.core.model import Instant, ObjectKey
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.transitions import ends_at

_Timer = tuple[Instant, ObjectKey, int, str, PendingEntry]
"""The instant, the key of the workload, a unique number, the ClusterQueue, and the entry of the workload."""


class Timers:
    """Workloads in states that an instant ends (field ``until``)."""

    def __init__(self) -> None:
        self._timers: list[_Timer] = []
        self._added = 0

    def add(self, cluster_queue: str, pending: PendingEntry) -> None:
        """Add a workload of a ClusterQueue that is held back, if an instant ends its state."""
        until = ends_at(pending.state)
        if until is not None:
            self._added += 1
            heapq.heappush(self._timers, (until, pending.workload.key, self._added, cluster_queue, pending))

    def next_at(self) -> Instant | None:
        """Return the earliest instant that ends a state; None if there is none."""
        while self._timers:
            until, _, _, _, pending = self._timers[0]
            if ends_at(pending.state) == until:
                return until
            heapq.heappop(self._timers)
        return None

    def pop_due(self, now: Instant) -> tuple[str, PendingEntry] | None:
        """Remove and return a due workload, with its ClusterQueue; None if no workload is due."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, _, cluster_queue, pending = heapq.heappop(self._timers)
        return cluster_queue, pending
