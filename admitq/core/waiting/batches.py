"""Causes that are collected for a while: a burst is one retry (setting requeueBatchPeriod)."""

from collections.abc import Iterable

from admitq.core.model import Instant


class Batches:
    """ClusterQueues for which a cause occurred, and when their batch is due.

    Args:
        period: for how long causes are collected, in nanoseconds; 0: causes are not collected.
    """

    def __init__(self, period: Instant) -> None:
        self.period = period
        self._due: dict[str, Instant | None] = {}
        """None: the batch began at this instant, and is not dated yet."""

    def __contains__(self, cluster_queue: str) -> bool:
        return cluster_queue in self._due

    def due_at(self, cluster_queue: str) -> Instant | None:
        """Return when the batch of a ClusterQueue is due; None if it has none, or one that is not dated."""
        return self._due.get(cluster_queue)

    def collect(self, cluster_queues: Iterable[str]) -> None:
        """Begin batches for the ClusterQueues that have none."""
        for name in cluster_queues:
            self._due.setdefault(name, None)

    def date(self, now: Instant) -> None:
        """Date the batches that began at this instant: they are due when the period is over."""
        for name in [name for name, at in self._due.items() if at is None]:
            self._due[name] = now + self.period

    def next_at(self) -> Instant | None:
        """Return when the next batch is due; None if there is none."""
        return min((at for at in self._due.values() if at is not None), default=None)

    def take_due(self, now: Instant) -> list[str]:
        """Take the ClusterQueues with a due batch."""
        due = [name for name, at in self._due.items() if at is not None and at <= now]
        self.discard(due)
        return due

    def discard(self, cluster_queues: Iterable[str]) -> None:
        """Forget the batches of these ClusterQueues."""
        for name in cluster_queues:
            self._due.pop(name, None)

    def restore(self, due: Iterable[tuple[str, Instant]]) -> None:
        """Have the batches that a dump had, and no others."""
        self._due = dict(due)
