"""Batches of changes: one retry follows all changes of a period (setting requeueBatchPeriod)."""

from collections.abc import Iterable

from admitq.core.model import Instant


class Batches:
    """ClusterQueues with a change that ends waiting, and the instants at which their batches are due.

    Args:
        period: how long changes are collected, in nanoseconds; 0: changes are not collected.
    """

    def __init__(self, period: Instant) -> None:
        self.period = period
        self._due: dict[str, Instant | None] = {}
        """The instant at which the batch is due; None until ``date`` sets it."""

    def __contains__(self, cluster_queue: str) -> bool:
        return cluster_queue in self._due

    def due_at(self, cluster_queue: str) -> Instant | None:
        """Return the instant at which the batch of a ClusterQueue is due; None if there is none yet."""
        return self._due.get(cluster_queue)

    def collect(self, cluster_queues: Iterable[str]) -> None:
        """Begin batches for the ClusterQueues that have none."""
        for name in cluster_queues:
            self._due.setdefault(name, None)

    def date(self, now: Instant) -> None:
        """Set the instant at which batches that began now are due: when the period has ended."""
        for name in [name for name, at in self._due.items() if at is None]:
            self._due[name] = now + self.period

    def next_at(self) -> Instant | None:
        """Return the instant at which the next batch is due; None if there is none."""
        return min((at for at in self._due.values() if at is not None), default=None)

    def take_due(self, now: Instant) -> list[str]:
        """Remove and return the ClusterQueues with a due batch."""
        due = [name for name, at in self._due.items() if at is not None and at <= now]
        self.discard(due)
        return due

    def discard(self, cluster_queues: Iterable[str]) -> None:
        """Forget the batches of these ClusterQueues."""
        for name in cluster_queues:
            self._due.pop(name, None)

    def restore(self, due: Iterable[tuple[str, Instant]]) -> None:
        """Restore the batches of a dump."""
        self._due = dict(due)
