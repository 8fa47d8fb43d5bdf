"""Takes each cause to the lanes whose waiting it ends, and keeps which ClusterQueues may have a head.

This is the only module that ends waiting for a cause outside of a ClusterQueue's own workloads.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from admitq.core.cohorts import Forest, Node
from admitq.core.ledger import Usage
from admitq.core.model import Instant
from admitq.core.waiting.backoffs import Backoffs
from admitq.core.waiting.lanes import Lane
from admitq.core.waiting.pending import Pending
from admitq.core.waiting.wait_states import (
    BACKOFF_ENDED,
    BATCH_DUE,
    CLUSTER_QUEUE_CHANGED,
    HEAD_CHANGED,
    HEAD_OVERTAKEN,
    PROGRESS_MADE,
    QUOTA_RETURNED,
    RETRY_REQUESTED,
    TREE_CYCLE_BEGUN,
    TREE_EDITED,
    Backoff,
    HeldBack,
    NamespaceNotSelected,
    Standing,
    WaitEvent,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex

if TYPE_CHECKING:
    from admitq.core.world import ClusterQueueEntry


class WaitingQueues:
    """All ClusterQueues, by what their pending workloads wait for."""

    def __init__(
        self,
        cluster_queues: "dict[str, ClusterQueueEntry]",
        forest: Forest,
        touched: set[str],
        *,
        batch_period: Instant,
    ) -> None:
        """No ClusterQueues.

        Args:
            cluster_queues: all ClusterQueues by name.
            forest: their cohort trees.
            touched: ClusterQueues whose statuses may differ; names are added.
            batch_period: for how long causes of a cohort tree are collected, in nanoseconds; 0: not at all.
        """
        self.candidates: set[str] = set()
        """ClusterQueues that may have a head; a superset."""
        self.batches: dict[str, Instant | None] = {}
        """ClusterQueues for which causes are collected, and when their batch is due; None: not dated yet."""
        self.backoffs = Backoffs()
        self.outdated: dict[Node, None] = {}
        """Roots of trees to which quota returned that did not end all waiting: refusals may be outdated."""
        self._cluster_queues = cluster_queues
        self._forest = forest
        self._touched = touched
        self._batch_period = batch_period
        self._with_empty_lanes: set[str] = set()
        self._of_namespace: dict[str, set[str]] = {}
        """ClusterQueues with a workload that a change of the namespace concerns; a superset."""
        self._refreshes: OrderedDict[Lane, str] = OrderedDict()
        """Lanes whose refusals may be outdated, with their ClusterQueue, oldest first."""

    # --- heads ------------------------------------------------------------------------------------

    def touch(self, entry: "ClusterQueueEntry") -> None:
        """Note that a ClusterQueue may have a head, and that its status may differ."""
        self._touched.add(entry.spec.name)
        self.candidates.add(entry.spec.name)

    def queue_changed(self, entry: "ClusterQueueEntry") -> None:
        """Note that a workload entered, left or moved in a ClusterQueue."""
        self._with_empty_lanes.add(entry.spec.name)
        self.touch(entry)
        self.settle_standing(entry)

    def note_empty_lanes(self, entry: "ClusterQueueEntry") -> None:
        """Have ``drop_empty_lanes`` look at a ClusterQueue."""
        self._with_empty_lanes.add(entry.spec.name)

    def drop_empty_lanes(self) -> None:
        """Forget scheduling keys that no workload has any more."""
        for name in self._with_empty_lanes:
            entry = self._cluster_queues.get(name)
            if entry is not None:
                entry.queue.lanes.drop_emptied()
        self._with_empty_lanes.clear()

    def has_head(self) -> bool:
        """Whether a cycle would evaluate a workload; forgets candidates that have no head."""
        for name in list(self.candidates):
            entry = self._cluster_queues.get(name)
            if entry is not None and entry.is_active and entry.queue.head() is not None:
                return True
            self._drop_candidate(name)
        return False

    def take_heads(self) -> "list[tuple[ClusterQueueEntry, Pending]]":
        """Take the head of each active ClusterQueue into a cycle, and the standing heads of their trees."""
        heads: dict[str, tuple[ClusterQueueEntry, Pending]] = {}
        for name in sorted(self.candidates):
            entry = self._cluster_queues.get(name)
            pending = entry.queue.pop() if entry is not None and entry.is_active else None
            if entry is None or pending is None:
                self._drop_candidate(name)
                continue
            self._overtake_standing(entry)
            heads[name] = (entry, pending)
        roots = {entry.node.root: None for entry, _ in heads.values()}
        if any(root.waiting.standing for root in roots):
            for root in roots:
                heads.update(
                    {entry.spec.name: (entry, pending) for entry, pending in self._take_standing(root)}
                )
            heads = dict(sorted(heads.items()))
        self._touched.update(heads)
        self.candidates.update(heads)
        return list(heads.values())

    def _drop_candidate(self, name: str) -> None:
        self.candidates.discard(name)
        entry = self._cluster_queues.get(name)
        if entry is not None:
            entry.queue.registration.rearm()

    # --- causes in a cohort tree ------------------------------------------------------------------

    def quota_returned(self, node: Node, usage: Usage) -> None:
        """End the waiting of lanes that may be admitted since quota returned at a ClusterQueue's node."""
        index = node.root.waiting
        if index.is_empty:
            return
        met = {each.name: each for pair, _ in usage for each in self._met_by_return(node, pair, index)}
        if index.needing:
            self.outdated[node.root] = None
        if self._batch_period:
            self._collect([*index.any_return, *met])
            return
        self._end_waiting(index.any_return.values(), QUOTA_RETURNED)
        for name in sorted(met):
            self.touch(self._cluster_queues[name])

    @staticmethod
    def _met_by_return(node: Node, pair: "object", index: WakeIndex) -> list[TreeRegistration]:
        at: Node | None = node
        # A cell without quota and usage is dropped; what is above it goes on.
        while at is not None and pair not in at.cells:
            at = at.parent
        return [] if at is None else index.met_by_return(at.cells[pair])  # pyright: ignore[reportArgumentType]

    def candidates_changed(self, node: Node) -> None:
        """End the waiting of lanes that may preempt, since the candidates for preemption changed."""
        index = node.root.waiting
        if self._batch_period:
            self._collect(index.any_return)
        else:
            self._end_waiting(index.any_return.values(), QUOTA_RETURNED)

    def capacity_given_up(self, node: Node) -> None:
        """End the waiting of lanes that may be admitted since a standing head reserves none any more."""
        self.candidates_changed(node)
        index = node.root.waiting
        if self._batch_period:
            self._collect(index.progress)
        else:
            self.progress_made(node.root)

    def progress_made(self, root: Node) -> None:
        """End the waiting of lanes that wait for progress of another head of the tree."""
        for registration in _sorted(root.waiting.progress.values()):
            entry = self._cluster_queues[registration.name]
            entry.queue.end_waiting(PROGRESS_MADE)
            self.touch(entry)

    def tree_edited(self, node: Node) -> None:
        """End all waiting in a tree whose quota, weights or shape are about to change, or changed."""
        index = node.root.waiting
        self.outdated.pop(node.root, None)
        if self._batch_period:
            self._collect(index.names)
        else:
            self._end_all(node, TREE_EDITED)

    def _end_all(self, node: Node, event: WaitEvent) -> None:
        self.outdated.pop(node.root, None)
        names = node.root.waiting.names
        for name in names:
            self.batches.pop(name, None)
        self._end_waiting([self._cluster_queues[name].queue.registration for name in names], event)

    def _end_waiting(self, registrations: Iterable[TreeRegistration], event: WaitEvent) -> None:
        for registration in _sorted(registrations):
            entry = self._cluster_queues[registration.name]
            entry.queue.end_waiting(event)
            registration.set_standing(entry.queue.lanes.standing is not None)
            self.touch(entry)

    # --- causes at a ClusterQueue -----------------------------------------------------------------

    def cluster_queue_changed(self, entry: "ClusterQueueEntry") -> None:
        """End all waiting in a ClusterQueue, because what decides over its workloads changed."""
        if self._batch_period and entry.queue.is_waiting:
            self._collect([entry.spec.name])
            self.touch(entry)
        else:
            self._end_in_queue(entry, CLUSTER_QUEUE_CHANGED)

    def retry_all(self) -> None:
        """End all waiting, so that the next cycles evaluate all workloads. A check; causes never need it."""
        for entry in self._cluster_queues.values():
            self._end_in_queue(entry, RETRY_REQUESTED)
            for namespace in entry.queue.held_back.namespaces:
                entry.queue.namespace_selected(namespace)

    def _end_in_queue(self, entry: "ClusterQueueEntry", event: WaitEvent) -> None:
        entry.queue.end_waiting(event)
        self.touch(entry)
        self.settle_standing(entry)

    def hold_back(self, entry: "ClusterQueueEntry", pending: Pending, state: HeldBack) -> None:
        """Keep a workload out of the lanes of its ClusterQueue."""
        entry.queue.hold_back(pending, state)
        self._note_held_back(entry, pending, state)

    def _note_held_back(self, entry: "ClusterQueueEntry", pending: Pending, state: HeldBack) -> None:
        if isinstance(state, NamespaceNotSelected):
            self.attend_to_namespace(pending.workload.key.namespace, entry)
        elif isinstance(state, Backoff) and state.until is not None:
            self.backoffs.add(state.until, entry.spec.name, pending)

    def hold_back_until_due(self, entry: "ClusterQueueEntry", pending: Pending, now: Instant) -> bool:
        """Hold a workload back if it must not be evaluated yet; whether that is so."""
        workload = pending.workload
        due = workload.requeue_at
        if not workload.requeue_blocked and (due is None or due <= now):
            return False
        self.hold_back(entry, pending, Backoff(None if workload.requeue_blocked else due))
        return True

    def end_due_backoffs(self, now: Instant) -> None:
        """Queue the workloads whose backoff has ended."""
        while (due := self.backoffs.pop_due(now)) is not None:
            name, pending = due
            entry = self._cluster_queues[name]
            entry.queue.enter(pending, BACKOFF_ENDED)
            self.touch(entry)

    def attend_to_namespace(self, namespace: str, entry: "ClusterQueueEntry") -> None:
        """Have ``take_attentive`` name a ClusterQueue when the namespace changes."""
        self._of_namespace.setdefault(namespace, set()).add(entry.spec.name)

    def take_attentive(self, namespace: str) -> "list[ClusterQueueEntry]":
        """The ClusterQueues that a change of the namespace may concern; each is named once."""
        names = sorted(self._of_namespace.pop(namespace, ()))
        return [self._cluster_queues[name] for name in names if name in self._cluster_queues]

    # --- standing heads ---------------------------------------------------------------------------

    def stand(self, entry: "ClusterQueueEntry", pending: Pending, state: Standing) -> None:
        """Queue a head again, and have it take part in every cycle of its tree.

        It also goes on once its namespace is not selected any more.
        """
        entry.queue.requeue_waiting(pending, state)
        entry.queue.registration.set_standing(True)
        self.attend_to_namespace(pending.workload.key.namespace, entry)

    def settle_standing(self, entry: "ClusterQueueEntry") -> None:
        """If the head of a ClusterQueue stands no more, let others have the capacity that it reserved."""
        registration = entry.queue.registration
        if registration.has_standing_head and entry.queue.lanes.standing is None:
            registration.set_standing(False)
            self.capacity_given_up(entry.node)

    def end_standing(self, entry: "ClusterQueueEntry") -> None:
        """Have the head of a ClusterQueue take part in cycles as any other, because what it needs changed."""
        entry.queue.end_standing(HEAD_CHANGED)
        self.touch(entry)
        self.settle_standing(entry)

    def _overtake_standing(self, entry: "ClusterQueueEntry") -> None:
        registration = entry.queue.registration
        if not registration.has_standing_head:
            return
        registration.set_standing(False)
        entry.queue.end_standing(HEAD_OVERTAKEN)
        # The workload that came before the standing head may reserve less capacity, or none.
        self.progress_made(entry.node.root)

    def _take_standing(self, root: Node) -> "Iterable[tuple[ClusterQueueEntry, Pending]]":
        for registration in _sorted(root.waiting.standing.values()):
            entry = self._cluster_queues[registration.name]
            entry.stood = entry.queue.standing_state
            registration.set_standing(False)
            entry.queue.end_standing(TREE_CYCLE_BEGUN)
            pending = entry.queue.pop()
            assert pending is not None, "a standing head is the head"  # noqa: S101 narrows the type
            yield entry, pending

    # --- batches ----------------------------------------------------------------------------------

    def _collect(self, names: Iterable[str]) -> None:
        for name in names:
            self.batches.setdefault(name, None)

    def date_batches(self, now: Instant) -> None:
        """Date the batches that began at this instant: they are due when the period is over."""
        due = now + self._batch_period
        for name in [name for name, at in self.batches.items() if at is None]:
            self.batches[name] = due

    def next_batch(self) -> Instant | None:
        """When the next batch is due; None if there is none."""
        return min((at for at in self.batches.values() if at is not None), default=None)

    def end_due_batches(self, now: Instant) -> None:
        """End all waiting in the trees of ClusterQueues whose batch is due."""
        for name in [name for name, at in self.batches.items() if at is not None and at <= now]:
            entry = self._cluster_queues.get(name)
            if self.batches.pop(name, None) is not None and entry is not None:
                self._end_all(entry.node, BATCH_DUE)
                # Its lanes may wait for a change of the ClusterQueue alone, and are not in the tree's index.
                self._end_in_queue(entry, BATCH_DUE)

    # --- restoring --------------------------------------------------------------------------------

    def is_outdated(self, root: Node) -> bool:
        """Whether refusals in a tree may be outdated."""
        names = self._refreshes.values() if self._refreshes else ()
        return root in self.outdated or any(self._cluster_queues[name].node.root is root for name in names)

    def restore_held_back(self, entry: "ClusterQueueEntry", pending: Pending, state: HeldBack) -> None:
        """Hold a workload back as a dump had it."""
        entry.queue.restore_held_back(pending, state)
        self._note_held_back(entry, pending, state)

    def restore(
        self, entry: "ClusterQueueEntry", *, batch_at: Instant | None, has_outdated_refusals: bool
    ) -> None:
        """Have a ClusterQueue wait as a dump had it; its lanes and workloads are restored."""
        registration, head = entry.queue.registration, entry.queue.standing_head
        registration.set_standing(head is not None)
        if head is not None:
            self.attend_to_namespace(head.workload.key.namespace, entry)
        if batch_at is not None:
            self.batches[entry.spec.name] = batch_at
        if has_outdated_refusals:
            self.outdated[entry.node.root] = None
        self._with_empty_lanes.add(entry.spec.name)

    # --- outdated refusals ------------------------------------------------------------------------

    @property
    def has_outdated(self) -> bool:
        """Whether refusals of lanes that go on waiting may be outdated."""
        return bool(self.outdated or self._refreshes)

    def take_outdated(self, limit: int | None) -> "list[tuple[ClusterQueueEntry, Lane]]":
        """The next lanes whose refusals may be outdated; at most ``limit``, if that is set."""
        for root in sorted(self.outdated, key=_name):
            for registration in _sorted(root.waiting.needing.values()):
                entry = self._cluster_queues[registration.name]
                for lane in entry.queue.lanes.waiting_for_needs if entry.is_active else ():
                    self._refreshes[lane] = registration.name
        self.outdated.clear()
        taken: list[tuple[ClusterQueueEntry, Lane]] = []
        while self._refreshes and (limit is None or len(taken) < limit):
            lane, name = self._refreshes.popitem(last=False)
            entry = self._cluster_queues.get(name)
            if entry is not None and entry.queue.lanes.by_key.get(lane.key) is lane:
                taken.append((entry, lane))
        return taken


def _name(node: Node) -> str:
    return node.name


def _sorted(registrations: Iterable[TreeRegistration]) -> list[TreeRegistration]:
    return sorted(registrations, key=_registered_name)


def _registered_name(registration: TreeRegistration) -> str:
    return registration.name
