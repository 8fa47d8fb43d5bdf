"""All that decisions are made from, and the steps by which it is kept consistent.

Handlers of events change what was observed and then *settle* what follows from it: what a workload holds
(``Reservations.settle``) and where it is queued (``settle_place``) are computed from its value and compared
with what was counted, so that there is one rule for each and none for every transition.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.catalog import Catalog
from admitq.core.charging_state import ChargingState
from admitq.core.cohorts import Forest, Node
from admitq.core.entries import ClusterQueueEntry, LocalQueueEntry, WorkloadEntry
from admitq.core.holders import Holders
from admitq.core.indexes import Indexes
from admitq.core.instructions import Preempt
from admitq.core.ledger import Usage
from admitq.core.lifecycle import Phase
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.core.outbox import Outbox
from admitq.core.pod_readiness import PodReadiness
from admitq.core.queues import Aside, Pending, new_pending
from admitq.core.refusals import Refusal
from admitq.core.request_rules import RequestRulesByNamespace
from admitq.core.reservations import Reservations
from admitq.core.second_pass import SecondPasses, is_needed
from admitq.core.settings import Settings


class DumpedSleep(NamedTuple):
    """How a ClusterQueue waits for changes in its tree, as a dump holds it."""

    waits: bool
    restless: bool
    needs: tuple[tuple[FlavorResource, int], ...]
    untold: bool
    hopeful: bool


class Timer(NamedTuple):
    """The instant before which a workload may not be tried."""

    at: Instant
    key: ObjectKey


class Driver(NamedTuple):
    """What the driver of a state does with it."""

    writes_statuses: bool = True
    runs_cycles: bool = True


@dataclass(eq=False)
class World:
    """The state of all queues. Only event handlers and cycles change it."""

    settings: Settings = field(default_factory=Settings)
    driver: Driver = field(default_factory=Driver)
    cluster_queues: dict[str, ClusterQueueEntry] = field(default_factory=dict[str, ClusterQueueEntry])
    local_queues: dict[ObjectKey, LocalQueueEntry] = field(default_factory=dict[ObjectKey, LocalQueueEntry])
    workloads: dict[ObjectKey, WorkloadEntry] = field(default_factory=dict[ObjectKey, WorkloadEntry])
    catalog: Catalog = field(default_factory=Catalog)
    indexes: Indexes = field(default_factory=Indexes)
    forest: Forest = field(default_factory=Forest)
    outbox: Outbox = field(default_factory=Outbox)
    second_passes: SecondPasses = field(default_factory=SecondPasses)
    cycle: int = 0
    """How many cycles have run."""
    request_rules: RequestRulesByNamespace = field(init=False)
    charging: ChargingState = field(init=False)
    pods: PodReadiness = field(init=False)
    reservations: Reservations = field(init=False)

    deciding: ObjectKey | None = None
    """The workload that a cycle decides over at the moment."""
    outdated: list[WorkloadEntry] = field(default_factory=list[WorkloadEntry])
    """Who was in flight while what it is to take over changed."""
    attentive_to_namespace: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """ClusterQueues that may have somebody to try once a namespace is selected, or is not any more."""

    untold: dict[Node, None] = field(default_factory=dict[Node, None])
    """Roots of trees in which quota was given back that lets nobody in: what they lack has changed."""

    # What is to be done.
    candidates: set[str] = field(default_factory=set[str])
    """ClusterQueues that may have somebody to try; a superset."""
    with_empty_lanes: set[str] = field(default_factory=set[str])
    requeues: dict[str, Instant | None] = field(default_factory=dict[str, Instant | None])
    """ClusterQueues whose trees were woken and have to wait for their batch, and when that is due; None for
    those who were woken just now."""
    timers: list[Timer] = field(default_factory=list[Timer])

    def __post_init__(self) -> None:
        """Connect the parts."""
        self.request_rules = RequestRulesByNamespace(self.settings)
        self.charging = ChargingState.of(self.settings)
        self.pods = PodReadiness(self.cluster_queues)
        self.reservations = Reservations(
            self.settings,
            self.cluster_queues,
            self.workloads,
            self.forest,
            self.outbox,
            self.pods,
            quota_returned=self._released,
            demand_changed=self._look_again,
        )

    # --- parts that decisions read ----------------------------------------------------------------

    @property
    def holders(self) -> Holders[WorkloadEntry]:
        """Workloads that hold quota, by ClusterQueue and in preemption order."""
        return self.reservations.holders

    @property
    def local_queue_usage(self) -> Callable[[ObjectKey], Any] | None:
        """What a LocalQueue used, as a value that sorts; None without admission fair sharing."""
        return self.charging.local_queue_usage

    @property
    def touched_cluster_queues(self) -> set[str]:
        """ClusterQueues whose statuses may have changed."""
        return self.outbox.touched_cluster_queues

    @property
    def is_halted(self) -> bool:
        """Whether no cycle runs until the pods of admitted workloads are ready."""
        return self.pods.is_halted

    def original_of(self, cluster_queue: str, workload: Workload) -> WorkloadEntry | None:
        """As ``Reservations.original_of``."""
        return self.reservations.original_of(cluster_queue, workload)

    def assigned(self, entry: WorkloadEntry) -> Usage:
        """As ``Reservations.assigned``."""
        return self.reservations.assigned(entry)

    # --- decisions --------------------------------------------------------------------------------

    def preempt(self, instruction: Preempt) -> None:
        """As ``Reservations.preempt``."""
        self.reservations.preempt(instruction)

    def report(self, pending: Pending, refusal: Refusal) -> None:
        """As ``Outbox.report``."""
        self.outbox.report(pending, refusal)

    # --- noting what changed ----------------------------------------------------------------------

    def touch(self, entry: ClusterQueueEntry) -> None:
        """Note that a ClusterQueue's numbers may differ and that somebody may be to be tried."""
        self.touched_cluster_queues.add(entry.spec.name)
        self.candidates.add(entry.spec.name)

    def touch_local_queues_of(self, cluster_queue: str) -> None:
        """Note that what LocalQueues show of their ClusterQueue may differ."""
        self.outbox.touched_local_queues.update(self.indexes.local_queues_of.get(cluster_queue, ()))

    # --- waking -----------------------------------------------------------------------------------

    def wake_tree(self, node: Node) -> None:
        """Quota may have become free somewhere in the node's tree, or more than quota changed.

        Those who wait are tried again at once or, where wakes are collected, with the batch of their tree.
        """
        if self.settings.requeue_batch_period:
            self._wake_later(node)
        else:
            self._wake_now(node)

    def _wake_now(self, node: Node) -> None:
        self.untold.pop(node.root, None)
        for name in self.forest.wake(node):
            self.requeues.pop(name, None)
            entry = self.cluster_queues[name]
            self._unlist_standing(entry)
            self.wake_at_once(entry)

    def _wake_later(self, node: Node) -> None:
        root = node.root
        self.untold.pop(root, None)
        for name in self.forest.wake(node):
            # It is known by now that their needs may be met: they sleep on, and need nothing in particular.
            root.sleepers.add(name, name)
            self.requeues.setdefault(name, None)

    def date_requeues(self, now: Instant) -> None:
        """Have those who were woken at this instant be tried when the period that begins with it is over."""
        due = now + self.settings.requeue_batch_period
        for name in [name for name, at in self.requeues.items() if at is None]:
            self.requeues[name] = due

    def next_requeue(self) -> Instant | None:
        """When the next batch of those who were woken is due; None if there is none."""
        return min((at for at in self.requeues.values() if at is not None), default=None)

    def requeue_due(self, now: Instant) -> None:
        """Try those again whose batch is due, and with them all who wait in their trees."""
        for name in [name for name, at in self.requeues.items() if at is not None and at <= now]:
            entry = self.cluster_queues.get(name)
            if self.requeues.pop(name, None) is not None and entry is not None:
                self._wake_now(entry.node)

    def wake_hopeful(self, root: Node) -> None:
        """Somebody of the tree got somewhere, by whom those may have been beaten who hope."""
        names = sorted(root.sleepers.hopeful)
        root.sleepers.hopeful.clear()
        for name in names:
            entry = self.cluster_queues[name]
            entry.queue.wake_hopeful()
            self.touch(entry)

    def tree_edited(self, node: Node) -> None:
        """Quota, weights or the shape of the node's tree are about to change, or did."""
        self.wake_tree(node)
        if self.settings.fair_sharing is not None:
            root = node.root
            self.touched_cluster_queues.update(each.name for each in root.cluster_queues_below())
            self.forest.changed_cohorts.update(each.name for each in root.cohorts_below())

    def wake(self, entry: ClusterQueueEntry) -> None:
        """Retry the workloads of one ClusterQueue, because something that decides over them changed.

        They are retried at once or, where wakes are collected, with the batch of their tree.
        """
        if self.settings.requeue_batch_period and entry.queue.is_asleep:
            entry.node.root.sleepers.add(entry.spec.name, entry.spec.name)
            self.requeues.setdefault(entry.spec.name, None)
            self.touch(entry)
        else:
            self.wake_at_once(entry)

    def wake_at_once(self, entry: ClusterQueueEntry) -> None:
        """Retry the workloads of one ClusterQueue in the next cycle."""
        entry.queue.wake()
        self.touch(entry)
        self.settle_standing(entry)

    def sleep_if_parked(self, entry: ClusterQueueEntry, cause: Hashable = None) -> None:
        """Have the tree wake this ClusterQueue at its next change, whatever that is.

        A queue that is blocked by a workload also goes on once the namespace of that is no longer selected.
        """
        if entry.queue.is_asleep:
            self.forest.fall_asleep(entry.node, entry.spec.name if cause is None else cause)
        self._attend_to_blocked(entry)

    def restore_sleep(self, entry: ClusterQueueEntry, sleep: DumpedSleep) -> None:
        """Have a ClusterQueue wait as a dump had it."""
        node = entry.node
        sleepers = node.root.sleepers
        if sleep.restless:
            sleepers.add(node.name, node.name)
        elif sleep.waits:
            sleepers.names[node.name] = None
        sleepers.need([(node.cells[pair], amount) for pair, amount in sleep.needs])
        if sleep.untold:
            self.untold[node.root] = None
        if sleep.hopeful:
            sleepers.hopeful[node.name] = None
        self._attend_to_blocked(entry)

    def sleep_of(self, entry: ClusterQueueEntry) -> DumpedSleep:
        """How a ClusterQueue waits."""
        node = entry.node
        sleepers = node.root.sleepers
        pairs = {cell: pair for pair, cell in node.cells.items()}
        return DumpedSleep(
            node.name in sleepers.names,
            node.name in sleepers.restless.values(),
            tuple(sorted((pairs[cell], amount) for cell, amount in sleepers.needs if cell in pairs)),
            node.root in self.untold,
            node.name in sleepers.hopeful,
        )

    def _attend_to_blocked(self, entry: ClusterQueueEntry) -> None:
        blocked = entry.queue.blocked
        if blocked is not None:
            self.attend_to_namespace(blocked.key.namespace, entry)

    def attend_to_namespace(self, namespace: str, entry: ClusterQueueEntry) -> None:
        """Have a change of the namespace looked at by this ClusterQueue."""
        self.attentive_to_namespace.setdefault(namespace, set()).add(entry.spec.name)

    # --- standing ---------------------------------------------------------------------------------

    def stand(self, entry: ClusterQueueEntry, pending: Pending) -> None:
        """Put one in flight back as the first of its queue, which takes part in every cycle of its tree."""
        entry.queue.block(pending)
        self._list_standing(entry)
        self.sleep_if_parked(entry, pending.lane)

    def restore_blocked(self, entry: ClusterQueueEntry, key: ObjectKey) -> None:
        """Block a queue as a dump had it."""
        entry.queue.restore_blocked(key)
        self._list_standing(entry)

    def _list_standing(self, entry: ClusterQueueEntry) -> None:
        entry.node.root.sleepers.standing[entry.spec.name] = None

    def settle_standing(self, entry: ClusterQueueEntry) -> None:
        """Wake the tree if the first of a queue stands no more: its reserved capacity may be free now."""
        if self.is_standing(entry) and entry.queue.blocked is None:
            self._unlist_standing(entry)
            self.wake_tree(entry.node)

    @staticmethod
    def is_standing(entry: ClusterQueueEntry) -> bool:
        """Whether the queue is listed as one that is blocked by its first."""
        return entry.spec.name in entry.node.root.sleepers.standing

    def overtake(self, entry: ClusterQueueEntry) -> None:
        """Unblock a queue, because its first takes part in a cycle, or another workload came before it."""
        entry.queue.unblock()
        self._unlist_standing(entry)

    def take_along(self, root: Node) -> list[ClusterQueueEntry]:
        """Unblock the blocked queues of a tree whose cycle is about to run, and return them."""
        entries = [self.cluster_queues[name] for name in sorted(root.sleepers.standing)]
        for entry in entries:
            self.overtake(entry)
            entry.is_taken_along = True
        return entries

    @staticmethod
    def _unlist_standing(entry: ClusterQueueEntry) -> None:
        entry.node.root.sleepers.standing.pop(entry.spec.name, None)

    # --- what Reservations report -----------------------------------------------------------------

    def _released(self, node: Node, usage: Usage) -> None:
        if self.forest.may_let_in(node, usage):
            self.wake_tree(node)
        elif (root := node.root).sleepers.names:
            self.untold[root] = None

    def _look_again(self, entry: WorkloadEntry) -> None:
        if entry.pending is not None and entry.pending.in_flight:
            self.outdated.append(entry)
        else:
            self.readjust({entry.workload.key: entry})

    def settle_outdated(self) -> None:
        """Look again at those who were in flight, now that they are not."""
        outdated, self.outdated = self.outdated, []
        for entry in outdated:
            self._look_again(entry)

    # --- places of pending workloads --------------------------------------------------------------

    def readjust(self, workloads: Mapping[ObjectKey, WorkloadEntry]) -> None:
        """Recompute what pending workloads request."""
        for entry in workloads.values():
            queue = self.cluster_queues.get(entry.queued_in or "")
            if queue is not None and entry.pending is not None:
                queue.queue.readjust(entry.pending)
                self._queue_changed(queue)

    def _queue_changed(self, entry: ClusterQueueEntry) -> None:
        """Note that somebody came into, left or moved in a queue."""
        self.with_empty_lanes.add(entry.spec.name)
        self.touch(entry)
        self.settle_standing(entry)

    def settle(self, entry: WorkloadEntry, now: Instant) -> None:
        """Count what a workload holds as it is now, and queue it where it belongs."""
        self.reservations.settle(entry)
        self.settle_place(entry, now)
        self.second_passes.settle(entry.workload.key, now, needed=is_needed(entry.workload))

    def settle_reservation(self, entry: WorkloadEntry) -> None:
        """As ``Reservations.settle``."""
        self.reservations.settle(entry)

    def settle_place(self, entry: WorkloadEntry, now: Instant) -> None:
        """Queue the workload where it belongs, or take it out of where it does not."""
        is_settled = entry.held is not None or entry.workload.finished
        if is_settled and entry.pending is None and entry.listed_in is None:
            return
        is_pending = entry.phase is Phase.PENDING
        local_queue = self.local_queues.get(entry.local_queue)
        listed = is_pending and local_queue is not None and local_queue.is_open
        came_from = entry.listed_in
        self.list_pending(entry, entry.local_queue if listed else None)
        target = (
            self.cluster_queues.get(local_queue.spec.cluster_queue)
            if listed and local_queue is not None
            else None
        )
        if entry.pending is not None and (
            target is None or entry.queued_in != target.spec.name or came_from != entry.listed_in
        ):
            # Also on the way from one LocalQueue to another of the same ClusterQueue: what is remembered of
            # a workload in its queue must not depend on whether the LocalQueue it left was closed meanwhile.
            self.dequeue(entry)
        if target is not None:
            self._enqueue(entry, target, now)

    def list_pending(self, entry: WorkloadEntry, key: ObjectKey | None) -> None:
        """Count the workload as pending in this LocalQueue, and in no other."""
        if entry.listed_in == key:
            return
        if entry.listed_in is not None:
            self._count_pending(entry.listed_in, -1)
        if key is not None:
            self._count_pending(key, 1)
        entry.listed_in = key

    def _count_pending(self, key: ObjectKey, change: int) -> None:
        self.outbox.touched_local_queues.add(key)
        local_queue = self.local_queues.get(key)
        if local_queue is not None:
            local_queue.pending += change

    def dequeue(self, entry: WorkloadEntry) -> None:
        """Take a workload out of the queue it waits in."""
        name, pending = entry.queued_in, entry.pending
        entry.queued_in = entry.pending = None
        queue = None if name is None else self.cluster_queues.get(name)
        if queue is not None and pending is not None:
            queue.queue.remove(pending.workload.key)
            self._queue_changed(queue)

    def _enqueue(self, entry: WorkloadEntry, target: ClusterQueueEntry, now: Instant) -> None:
        workload, pending = entry.workload, entry.pending
        self.touch(target)
        if pending is None:
            pending = entry.pending = new_pending(workload)
            entry.queued_in = target.spec.name
            if not self._keep_back(target, pending, now):
                target.queue.enter(pending)
        elif pending.workload is not workload:
            target.queue.update(pending, workload)
            self._keep_back(target, pending, now)
            self._queue_changed(target)

    def set_aside(self, queue: ClusterQueueEntry, pending: Pending, reason: Aside) -> None:
        """Keep a single workload out of the lanes of its ClusterQueue."""
        queue.queue.set_aside(pending, reason)
        if reason is Aside.NAMESPACE:
            self.attend_to_namespace(pending.workload.key.namespace, queue)

    def _keep_back(self, target: ClusterQueueEntry, pending: Pending, now: Instant) -> bool:
        workload = pending.workload
        due = workload.requeue_at
        if not workload.requeue_blocked and (due is None or due <= now):
            return False
        self.set_aside(target, pending, Aside.BACKOFF)
        if due is not None and not workload.requeue_blocked:
            heapq.heappush(self.timers, Timer(due, workload.key))
        return True

    # --- time -------------------------------------------------------------------------------------

    def next_timer(self) -> Timer | None:
        """The earliest instant at which a workload that is kept back may be tried."""
        while self.timers:
            timer = self.timers[0]
            entry = self.workloads.get(timer.key)
            pending = None if entry is None else entry.pending
            if (
                pending is not None
                and pending.aside is Aside.BACKOFF
                and not pending.workload.requeue_blocked
                and pending.workload.requeue_at == timer.at
            ):
                return timer
            heapq.heappop(self.timers)
        return None

    def let_in_due(self, now: Instant) -> None:
        """Queue those whose time has come."""
        while (timer := self.next_timer()) is not None and timer.at <= now:
            heapq.heappop(self.timers)
            entry = self.workloads[timer.key]
            queue = self.cluster_queues[entry.queued_in or ""]
            assert entry.pending is not None, "its timer ended with its wait"  # noqa: S101 narrows the type
            queue.queue.enter(entry.pending)
            self.touch(queue)
