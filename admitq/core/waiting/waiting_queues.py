"""End the waiting of the lanes that a change concerns.

No other module ends waiting because of changes outside of the own workloads of a ClusterQueue.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry
from admitq.core.ledger import Usage
from admitq.core.model import Instant
from admitq.core.waiting.batches import Batches
from admitq.core.waiting.concerned_queues import ConcernedQueues, namespace_cause
from admitq.core.waiting.heads import Heads
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.outdated_refusals import OutdatedRefusals
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.timers import Timers
from admitq.core.waiting.transitions import Cause, HeldBack, WaitEvent
from admitq.core.waiting.wait_states import (
    BATCH_DUE,
    CANDIDATE_LEAVES,
    CLUSTER_QUEUE_CHANGED,
    CONSTRAINT_CHANGED,
    HEAD_CHANGED,
    HOLDING_BACK,
    PROGRESS_MADE,
    QUOTA_RETURNED,
    RETRY_REQUESTED,
    TREE_EDITED,
    Backoff,
    Blocking,
    NamespaceNotSelected,
    QueueUnusable,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex


class WaitingQueues:
    """The pending workloads of all ClusterQueues, and the indexes that find them when something changes."""

    def __init__(
        self,
        cluster_queues: dict[str, ClusterQueueEntry],
        touched: set[str],
        *,
        batch_period: Instant,
    ) -> None:
        """Begin without ClusterQueues.

        Args:
            cluster_queues: all ClusterQueues by name.
            touched: receives the names of ClusterQueues with a status that may have changed.
            batch_period: how long changes of a cohort tree are collected, in nanoseconds; 0: not at all.
        """
        self.heads = Heads(cluster_queues, touched)
        self.batches = Batches(batch_period)
        self.timers = Timers()
        self.concerned = ConcernedQueues(cluster_queues)
        self._cluster_queues = cluster_queues
        self._outdated_trees: dict[Node, None] = {}
        """Roots of trees in which lanes still wait after a return of quota."""
        self._outdated = OutdatedRefusals()

    # --- heads ------------------------------------------------------------------------------------

    def take_heads(self) -> list[tuple[ClusterQueueEntry, PendingEntry]]:
        """Take the heads of the next cycle out of their lanes, and return them."""
        return self.heads.take(self.progress_made)

    def queue_changed(self, entry: ClusterQueueEntry) -> None:
        """Record that a workload entered, left or moved in a ClusterQueue."""
        self.heads.note_empty_lanes(entry.spec.name)
        self.heads.touch(entry)
        self.settle_blocking(entry)

    # --- changes of a cohort tree -----------------------------------------------------------------

    def quota_returned(self, node: Node, usage: Usage) -> None:
        """End the waiting of lanes that may be admitted after quota returned at a ClusterQueue's node."""
        index = node.root.wake_index
        if index.is_empty:
            return
        registrations = {
            registration.name: registration
            for pair, _ in usage
            for registration in self._find_met_needs(node, pair, index)
        }
        if index.with_needs:
            self._outdated_trees[node.root] = None
        self.candidates_changed(node)
        if self.batches.period:
            self.batches.collect(registrations)
            return
        for name in sorted(registrations):
            self.heads.touch(self._cluster_queues[name])

    @staticmethod
    def _find_met_needs(node: Node, pair: FlavorResource, index: WakeIndex) -> list[TreeRegistration]:
        ancestor: Node | None = node
        # A node may have no cell of the pair any more: cells without quota and usage are dropped.
        while ancestor is not None and pair not in ancestor.cells:
            ancestor = ancestor.parent
        return [] if ancestor is None else index.met_by_return(ancestor.cells[pair])

    def candidates_changed(self, node: Node) -> None:
        """End the waiting of lanes that may preempt, after a change of the candidates for preemption."""
        index = node.root.wake_index
        if self.batches.period:
            self.batches.collect(index.waiting_for_any_return)
        else:
            self._end_waiting(index.waiting_for_any_return.values(), QUOTA_RETURNED)

    def candidates_leave(self, root: Node, leaving: Mapping[FlavorResource, AbstractSet[str]]) -> None:
        """End the waiting of blocking heads that may find other targets, after workloads began to leave.

        Workloads that are leaving come first among the candidates. Parked lanes still wait: neither a
        preemption nor an eviction ends waiting for quota (semantics, Events that retry inadmissible
        workloads).

        Args:
            root: the root of the tree.
            leaving: the (flavor, resource) pairs of the workloads that began to leave. For each pair, the
                ClusterQueues with a head that preempted them and would find the same targets again. If there
                is only one such ClusterQueue, the waiting of its blocking head does not end because of this
                pair.
        """
        for name in sorted(root.wake_index.with_blocking_head):
            entry = self._cluster_queues[name]
            state, cells = entry.queue.blocking_state, entry.node.cells
            if (
                state is not None
                and state.needs is None
                and any(pair in cells and satisfied != {name} for pair, satisfied in leaving.items())
            ):
                entry.queue.registration.set_blocking(blocks=False)
                entry.queue.end_blocking(CANDIDATE_LEAVES)
                self.heads.touch(entry)

    def capacity_given_up(self, node: Node) -> None:
        """End the waiting of lanes that may get the capacity which a blocking head gave up."""
        self.candidates_changed(node)
        if self.batches.period:
            self.batches.collect(node.root.wake_index.waiting_for_progress)
        else:
            self.progress_made(node.root)

    def progress_made(self, root: Node) -> None:
        """End the waiting of lanes in state ``RetryOnProgress``, because a head of the tree made progress."""
        for registration in _sorted(root.wake_index.waiting_for_progress.values()):
            entry = self._cluster_queues[registration.name]
            entry.queue.end_waiting(PROGRESS_MADE)
            self.heads.touch(entry)

    def tree_edited(self, node: Node) -> None:
        """End all waiting in a tree. Call this before and after a change of its quota, weights or shape."""
        if self.batches.period:
            self._outdated_trees.pop(node.root, None)
            self.batches.collect(node.root.wake_index.names)
        else:
            self._end_all(node, TREE_EDITED)

    def end_due_batches(self, now: Instant) -> None:
        """End all waiting in the trees of ClusterQueues with a due batch."""
        for name in self.batches.take_due(now):
            entry = self._cluster_queues.get(name)
            if entry is not None:
                self._end_all(entry.node, BATCH_DUE)

    def _end_all(self, node: Node, event: WaitEvent) -> None:
        self._outdated_trees.pop(node.root, None)
        names = node.root.wake_index.names
        self.batches.discard(names)
        self._end_waiting([self._cluster_queues[name].queue.registration for name in names], event)

    def _end_waiting(self, registrations: Iterable[TreeRegistration], event: WaitEvent) -> None:
        for registration in _sorted(registrations):
            entry = self._cluster_queues[registration.name]
            entry.queue.end_waiting(event)
            registration.set_blocking(blocks=entry.queue.blocking_state is not None)
            self.heads.touch(entry)

    # --- changes of a ClusterQueue ----------------------------------------------------------------

    def cluster_queue_changed(self, entry: ClusterQueueEntry) -> None:
        """End all waiting in a ClusterQueue, because the ClusterQueue or one of its flavors changed."""
        if self.batches.period and entry.queue.is_waiting:
            self.batches.collect([entry.spec.name])
            self.heads.touch(entry)
        else:
            self._end_in_queue(entry, CLUSTER_QUEUE_CHANGED)

    def constraint_changed(self, cause: Cause) -> None:
        """End the waiting of lanes that a constraint refused, because one of its causes changed."""
        for entry in self.concerned.take(cause):
            if not self.batches.period:
                self._end_in_queue(entry, CONSTRAINT_CHANGED, cause)
            elif entry.queue.is_waiting:
                self.batches.collect([entry.spec.name])

    def retry_all(self) -> None:
        """End all waiting, for tests and safeguards: the next cycles evaluate all workloads."""
        for entry in self._cluster_queues.values():
            self._end_in_queue(entry, RETRY_REQUESTED)
            for namespace in entry.queue.held_back.namespaces:
                entry.queue.namespace_selected(namespace)

    def _end_in_queue(self, entry: ClusterQueueEntry, event: WaitEvent, cause: Cause | None = None) -> None:
        entry.queue.end_waiting(event, cause)
        self.heads.touch(entry)
        self.settle_blocking(entry)

    def hold_back(self, entry: ClusterQueueEntry, pending: PendingEntry, state: HeldBack) -> None:
        """Hold a workload back out of the lanes of its ClusterQueue."""
        entry.queue.hold_back(pending, state)
        self._note_held_back(entry, pending, state)

    def _note_held_back(self, entry: ClusterQueueEntry, pending: PendingEntry, state: HeldBack) -> None:
        if isinstance(state, NamespaceNotSelected):
            self.concerned.add(entry, (namespace_cause(pending.workload.key.namespace),))
        elif isinstance(state, QueueUnusable):
            self.concerned.add(entry, state.causes)
        self.timers.add(entry.spec.name, pending)

    def hold_back_until_due(
        self, entry: ClusterQueueEntry, pending: PendingEntry, due: Instant, now: Instant
    ) -> bool:
        """Hold a workload back if it must not be evaluated yet. Return whether it is held back.

        Args:
            entry: the ClusterQueue.
            pending: the workload.
            due: the instant before which it must not be evaluated.
            now: the present instant.
        """
        is_blocked = pending.workload.requeue_blocked
        if not is_blocked and due <= now:
            return False
        self.hold_back(entry, pending, Backoff(None if is_blocked else due))
        return True

    def end_due_timers(self, now: Instant) -> None:
        """Queue the workloads that were held back until now or an earlier instant."""
        while (due := self.timers.pop_due(now)) is not None:
            name, pending = due
            entry = self._cluster_queues[name]
            entry.queue.enter(pending, HOLDING_BACK[type(pending.state)].ends)
            self.heads.touch(entry)

    # --- blocking heads ---------------------------------------------------------------------------

    def requeue_blocking(self, entry: ClusterQueueEntry, pending: PendingEntry, state: Blocking) -> None:
        """Queue a head again as the blocking head of its ClusterQueue.

        Its waiting also ends when its namespace is no longer selected.
        """
        entry.queue.requeue_waiting(pending, state)
        entry.queue.registration.set_blocking(blocks=True)
        self.concerned.add(entry, state.causes)
        self.concerned.add(entry, (namespace_cause(pending.workload.key.namespace),))

    def settle_blocking(self, entry: ClusterQueueEntry) -> None:
        """If the head of a ClusterQueue no longer blocks, give up the capacity that it reserved."""
        registration = entry.queue.registration
        if registration.has_blocking_head and entry.queue.blocking_state is None:
            registration.set_blocking(blocks=False)
            self.capacity_given_up(entry.node)

    def end_blocking(self, entry: ClusterQueueEntry) -> None:
        """End the waiting of the blocking head of a ClusterQueue, because something that it needs changed."""
        entry.queue.end_blocking(HEAD_CHANGED)
        self.heads.touch(entry)
        self.settle_blocking(entry)

    # --- restoring --------------------------------------------------------------------------------

    def has_outdated_refusals_in(self, entry: ClusterQueueEntry) -> bool:
        """Whether refusals of a ClusterQueue may be outdated."""
        return entry.node.root in self._outdated_trees or self._outdated.concerns(entry.queue)

    def restore_held_back(self, entry: ClusterQueueEntry, pending: PendingEntry, state: HeldBack) -> None:
        """Restore from a dump that a workload is held back."""
        entry.queue.restore_held_back(pending, state)
        self._note_held_back(entry, pending, state)

    def restore(self, entry: ClusterQueueEntry, *, has_outdated_refusals: bool) -> None:
        """Restore from a dump how a ClusterQueue waits. Its lanes and workloads must be restored already."""
        registration, head = entry.queue.registration, entry.queue.blocking_head
        registration.set_blocking(blocks=head is not None)
        if head is not None:
            self.concerned.add(entry, (namespace_cause(head.workload.key.namespace),))
        self.concerned.add(entry, entry.queue.lanes.waiting.by_cause)
        if has_outdated_refusals:
            self._outdated_trees[entry.node.root] = None
        self.heads.note_empty_lanes(entry.spec.name)

    # --- outdated refusals ------------------------------------------------------------------------

    @property
    def has_outdated_refusals(self) -> bool:
        """Whether refusals of waiting lanes may be outdated."""
        return bool(self._outdated_trees or self._outdated)

    def take_outdated_refusals(self, limit: int | None) -> list[tuple[ClusterQueueEntry, Lane]]:
        """Remove and return the next lanes with refusals that may be outdated, at most ``limit``."""
        for root in sorted(self._outdated_trees, key=_name):
            registrations = _sorted(root.wake_index.with_needs.values())
            self._outdated.add(
                self._cluster_queues[registration.name].queue for registration in registrations
            )
        self._outdated_trees.clear()
        lanes = self._outdated.take(limit)
        return [(self._cluster_queues[name], lane) for name, lane in lanes if name in self._cluster_queues]


def _name(node: Node) -> str:
    return node.name


def _sorted(registrations: Iterable[TreeRegistration]) -> list[TreeRegistration]:
    return sorted(registrations, key=_registered_name)


def _registered_name(registration: TreeRegistration) -> str:
    return registration.name
