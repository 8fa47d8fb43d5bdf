"""The ClusterQueues that may have a head, and the heads of the next cycle."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.wait_states import HEAD_OVERTAKEN, TREE_CYCLE_BEGUN


@dataclass(frozen=True, slots=True)
class Pause:
    """ClusterQueues that are excluded from cycles.

    Attributes:
        cluster_queues: names of excluded ClusterQueues.
        cohorts: names of cohorts; all ClusterQueues of their cohort trees are excluded.
        trees_of: names of ClusterQueues; all ClusterQueues of their cohort trees are excluded.
    """

    cluster_queues: frozenset[str] = frozenset()
    cohorts: frozenset[str] = frozenset()
    trees_of: frozenset[str] = frozenset()

    @property
    def has_trees(self) -> bool:
        """Whether whole cohort trees are excluded."""
        return bool(self.cohorts or self.trees_of)

    def covers(self, entry: ClusterQueueEntry) -> bool:
        """Whether a ClusterQueue is excluded from cycles."""
        if entry.spec.name in self.cluster_queues:
            return True
        if not self.has_trees:
            return False
        below = entry.node.root.cluster_queues_below()
        above = entry.node.root.cohorts_below()
        return any(node.name in self.trees_of for node in below) or any(
            node.name in self.cohorts for node in above
        )


class Heads:
    """The ClusterQueues that may have a head for the next cycle."""

    def __init__(self, cluster_queues: dict[str, ClusterQueueEntry], touched: set[str]) -> None:
        """Begin without ClusterQueues.

        Args:
            cluster_queues: all ClusterQueues by name.
            touched: receives the names of ClusterQueues with a status that may have changed.
        """
        self.queues: set[str] = set()
        """ClusterQueues that may have a head: all that have one, and possibly others."""
        self.paused = Pause()
        self.overtaken: list[ClusterQueueEntry] = []
        """ClusterQueues of the running cycle with a workload that overtook the blocking head."""
        self._cluster_queues = cluster_queues
        self._touched = touched
        self._with_empty_lanes: set[str] = set()

    def touch(self, entry: ClusterQueueEntry) -> None:
        """Record that a ClusterQueue may have a head, and that its status may have changed."""
        self._touched.add(entry.spec.name)
        self.queues.add(entry.spec.name)

    def has_any(self) -> bool:
        """Whether a cycle would evaluate a workload. Forget ClusterQueues without head on the way."""
        paused = self.paused.cluster_queues
        # The manager asks often, and mostly finds a head at once: a copy costs less than a difference.
        for name in self.queues - paused if paused else tuple(self.queues):
            entry = self._cluster_queues.get(name)
            if entry is not None and entry.is_active and entry.queue.head() is not None:
                if self._is_tree_paused(entry):
                    continue
                return True
            self._drop_queue(name)
        return False

    def take(self, on_overtaken: Callable[[Node], None]) -> list[tuple[ClusterQueueEntry, PendingEntry]]:
        """Take the head of each active ClusterQueue into a cycle.

        Args:
            on_overtaken: called with the root of a tree in which a workload overtakes a blocking head. The
                blocking head may then reserve less capacity, or none.
        """
        self.overtaken.clear()
        heads: dict[str, tuple[ClusterQueueEntry, PendingEntry]] = {}
        for name in sorted(self.queues - self.paused.cluster_queues):
            entry = self._cluster_queues.get(name)
            if entry is not None and self._is_tree_paused(entry):
                continue
            pending = entry.queue.pop() if entry is not None and entry.is_active else None
            if entry is None or pending is None:
                self._drop_queue(name)
                continue
            if entry.queue.registration.has_blocking_head:
                entry.queue.registration.set_blocking(blocks=False)
                entry.queue.end_blocking(HEAD_OVERTAKEN)
                self.overtaken.append(entry)
                on_overtaken(entry.node.root)
            heads[name] = (entry, pending)
        return self._record_taken(heads)

    def take_blocking(self, names: Iterable[str]) -> list[tuple[ClusterQueueEntry, PendingEntry]]:
        """Take the blocking heads of ClusterQueues into the running cycle.

        Args:
            names: the ClusterQueues. Each has a blocking head.
        """
        heads: dict[str, tuple[ClusterQueueEntry, PendingEntry]] = {}
        for name in names:
            if name in self.paused.cluster_queues:
                continue
            entry = self._cluster_queues[name]
            entry.blocking_state_before_cycle = entry.queue.blocking_state
            entry.queue.registration.set_blocking(blocks=False)
            entry.queue.end_blocking(TREE_CYCLE_BEGUN)
            pending = entry.queue.pop()
            assert pending is not None, "a blocking head is the head"  # noqa: S101 narrows the type
            heads[name] = (entry, pending)
        return self._record_taken(heads)

    def _record_taken(
        self, heads: dict[str, tuple[ClusterQueueEntry, PendingEntry]]
    ) -> list[tuple[ClusterQueueEntry, PendingEntry]]:
        self._touched.update(heads)
        self.queues.update(heads)
        return list(heads.values())

    def _is_tree_paused(self, entry: ClusterQueueEntry) -> bool:
        return self.paused.has_trees and self.paused.covers(entry)

    def _drop_queue(self, name: str) -> None:
        self.queues.discard(name)
        entry = self._cluster_queues.get(name)
        if entry is not None:
            entry.queue.registration.rearm()

    # --- empty lanes ------------------------------------------------------------------------------

    def note_empty_lanes(self, cluster_queue: str) -> None:
        """Record that a ClusterQueue may have empty lanes, for ``drop_empty_lanes``."""
        self._with_empty_lanes.add(cluster_queue)

    def drop_empty_lanes(self) -> None:
        """Forget parked lanes without workloads."""
        for name in self._with_empty_lanes:
            entry = self._cluster_queues.get(name)
            if entry is not None:
                entry.queue.lanes.drop_emptied()
        self._with_empty_lanes.clear()
