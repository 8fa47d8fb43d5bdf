"""The world: all state of the core, and the steps that keep it consistent.

A handler records an observation, and then *settles* its consequences. These are the quota that a workload
holds (``Reservations.settle``), and the queue that it is in (``settle_queue``). Both are computed from the
value of the workload, and compared with what was counted before. So there is one rule for each, and no rule
for each transition.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admitq.core.catalog import Catalog
from admitq.core.charging_state import ChargingState
from admitq.core.cohorts import CohortTrees, Node
from admitq.core.entries import ClusterQueueEntry, LocalQueueEntry, WorkloadEntry
from admitq.core.indexes import Indexes
from admitq.core.instructions import Preempt
from admitq.core.ledger import Usage
from admitq.core.lifecycle import Phase
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.core.outbox import Outbox
from admitq.core.pod_readiness import PodReadiness
from admitq.core.quota_holders import QuotaHolders
from admitq.core.refusals import Refusal
from admitq.core.request_rules import RequestRulesByNamespace
from admitq.core.reservations import Reservations
from admitq.core.second_pass import SecondPasses, needs_second_pass
from admitq.core.settings import CoreSettings
from admitq.core.topology.topologies import RoomGains, Topologies, room_of
from admitq.core.waiting.pending import PendingEntry, new_pending
from admitq.core.waiting.wait_states import DEPARTED, DEQUEUED, ENQUEUED
from admitq.core.waiting.waiting_queues import WaitingQueues


class DriverOptions(NamedTuple):
    """What the driver of a state does: whether it writes statuses, and whether it runs cycles."""

    writes_statuses: bool = True
    runs_cycles: bool = True


@dataclass(eq=False)
class World:
    """The state of all queues. Only event handlers and cycles change it."""

    settings: CoreSettings = field(default_factory=CoreSettings)
    driver: DriverOptions = field(default_factory=DriverOptions)
    cluster_queues: dict[str, ClusterQueueEntry] = field(default_factory=dict[str, ClusterQueueEntry])
    local_queues: dict[ObjectKey, LocalQueueEntry] = field(default_factory=dict[ObjectKey, LocalQueueEntry])
    workloads: dict[ObjectKey, WorkloadEntry] = field(default_factory=dict[ObjectKey, WorkloadEntry])
    catalog: Catalog = field(default_factory=Catalog)
    indexes: Indexes = field(default_factory=Indexes)
    cohort_trees: CohortTrees = field(default_factory=CohortTrees)
    outbox: Outbox = field(default_factory=Outbox)
    second_passes: SecondPasses = field(default_factory=SecondPasses)
    topologies: Topologies = field(init=False)
    cycle: int = 0
    """The number of cycles that have run."""
    request_rules: RequestRulesByNamespace = field(init=False)
    charging: ChargingState = field(init=False)
    pods: PodReadiness = field(init=False)
    reservations: Reservations = field(init=False)
    waiting: WaitingQueues = field(init=False)

    is_in_cycle: bool = False
    """Whether a cycle that runs in steps has not ended: no other code may change the world."""
    deciding: ObjectKey | None = None
    """The workload on which a cycle decides at present."""
    outdated_replacements: list[WorkloadEntry] = field(default_factory=list[WorkloadEntry])
    """Heads of the running cycle that replace a workload which changed during the cycle."""

    def __post_init__(self) -> None:
        """Create the parts that depend on others."""
        self.topologies = Topologies(self.settings.placement)
        self.request_rules = RequestRulesByNamespace(self.settings)
        self.charging = ChargingState.of(self.settings)
        self.pods = PodReadiness(self.cluster_queues)
        self.waiting = WaitingQueues(
            self.cluster_queues,
            self.touched_cluster_queues,
            batch_period=self.settings.requeue_batch_period,
        )
        self.reservations = Reservations(
            self.settings,
            self.cluster_queues,
            self.workloads,
            self.cohort_trees,
            self.outbox,
            self.pods,
            self.topologies,
            self.request_rules,
            on_quota_returned=self.waiting.quota_returned,
            on_room_changed=self.room_changed,
            on_demand_changed=self._update_requests_of_replacement,
        )

    # --- parts that decisions read ----------------------------------------------------------------

    @property
    def quota_holders(self) -> QuotaHolders[WorkloadEntry]:
        """Workloads that hold quota, by ClusterQueue and in preemption order."""
        return self.reservations.quota_holders

    @property
    def local_queue_usage(self) -> Callable[[ObjectKey], Any] | None:
        """The past usage of a LocalQueue, as a sort key; None without admission fair sharing."""
        return self.charging.local_queue_usage

    @property
    def touched_cluster_queues(self) -> set[str]:
        """ClusterQueues with statuses that may have changed."""
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

    def report(self, pending: PendingEntry, refusal: Refusal) -> None:
        """As ``Outbox.report``."""
        self.outbox.report(pending, refusal)

    # --- consequences of changes ------------------------------------------------------------------

    def touch_local_queues_of(self, cluster_queue: str) -> None:
        """Record that the statuses of LocalQueues may have changed, because their ClusterQueue did."""
        self.outbox.touched_local_queues.update(
            self.indexes.local_queues_by_cluster_queue.get(cluster_queue, ())
        )

    def tree_edited(self, node: Node) -> None:
        """Retry all lanes of a tree. Call this before and after a change of its quota, weights or shape."""
        self.waiting.tree_edited(node)
        if self.settings.fair_sharing is not None:
            root = node.root
            self.touched_cluster_queues.update(node_below.name for node_below in root.cluster_queues_below())
            self.cohort_trees.changed_cohorts.update(node_below.name for node_below in root.cohorts_below())

    def room_changed(self, gained: RoomGains) -> None:
        """End the waiting for free capacity in the topologies of flavors."""
        self.topologies.gains += bool(gained)
        for flavor, leaves in gained.items():
            for cause in self.waiting.concerned.list_causes(room_of(flavor)):
                if self.topologies.has_changed(cause, leaves):
                    self.waiting.constraint_changed(cause)

    def _update_requests_of_replacement(self, entry: WorkloadEntry) -> None:
        if entry.pending is not None and entry.pending.is_in_cycle:
            self.outdated_replacements.append(entry)
        else:
            self.update_requests({entry.workload.key: entry})

    def settle_outdated_replacements(self) -> None:
        """After a cycle, compute the requests of heads again that replace a changed workload."""
        outdated, self.outdated_replacements = self.outdated_replacements, []
        for entry in outdated:
            self._update_requests_of_replacement(entry)

    # --- queues of pending workloads --------------------------------------------------------------

    def update_requests(self, workloads: Mapping[ObjectKey, WorkloadEntry]) -> None:
        """Compute the requests of pending workloads again."""
        for entry in workloads.values():
            queue = self.cluster_queues.get(entry.queued_in or "")
            if queue is not None and entry.pending is not None:
                queue.queue.update_requests(entry.pending)
                self.waiting.queue_changed(queue)

    def settle(self, entry: WorkloadEntry, now: Instant) -> None:
        """Count the quota that a workload holds, and queue it where it belongs, by its present value."""
        self.reservations.settle(entry)
        self.settle_queue(entry, now)
        needed = needs_second_pass(entry, self.settings.placement)
        self.second_passes.settle(entry.workload.key, now, needed=needed)

    def settle_reservation(self, entry: WorkloadEntry) -> None:
        """As ``Reservations.settle``."""
        self.reservations.settle(entry)

    def settle_queue(self, entry: WorkloadEntry, now: Instant) -> None:
        """Queue a workload in its ClusterQueue, or remove it from a queue in which it does not belong."""
        is_settled = entry.held is not None or entry.workload.finished
        if is_settled and entry.pending is None and entry.counted_in is None:
            return
        is_pending = entry.phase is Phase.PENDING
        local_queue = self.local_queues.get(entry.local_queue)
        is_counted = is_pending and local_queue is not None and local_queue.is_open
        former_local_queue = entry.counted_in
        self.count_as_pending_in(entry, entry.local_queue if is_counted else None)
        target = (
            self.cluster_queues.get(local_queue.spec.cluster_queue)
            if is_counted and local_queue is not None
            else None
        )
        if entry.pending is not None and (
            target is None or entry.queued_in != target.spec.name or former_local_queue != entry.counted_in
        ):
            # A workload is also dequeued if it moves to another LocalQueue of the same ClusterQueue. Its
            # entry must not depend on whether its former LocalQueue was stopped before or after the move.
            self.dequeue(entry)
        if target is not None:
            self._enqueue(entry, target, now)

    def count_as_pending_in(self, entry: WorkloadEntry, key: ObjectKey | None) -> None:
        """Count the workload as pending in this LocalQueue and in no other; None: in none."""
        if entry.counted_in == key:
            return
        if entry.counted_in is not None:
            self._count_pending(entry.counted_in, -1)
        if key is not None:
            self._count_pending(key, 1)
        entry.counted_in = key

    def _count_pending(self, key: ObjectKey, change: int) -> None:
        self.outbox.touched_local_queues.add(key)
        local_queue = self.local_queues.get(key)
        if local_queue is not None:
            local_queue.pending += change

    def dequeue(self, entry: WorkloadEntry) -> None:
        """Remove a workload from its queue."""
        name, pending = entry.queued_in, entry.pending
        entry.queued_in = entry.pending = None
        if pending is None:
            return
        queue = None if name is None else self.cluster_queues.get(name)
        if queue is not None:
            queue.queue.remove(pending.workload.key)
            self.waiting.queue_changed(queue)
        pending.change_state(DEQUEUED, DEPARTED)

    def _enqueue(self, entry: WorkloadEntry, target: ClusterQueueEntry, now: Instant) -> None:
        workload, pending = entry.workload, entry.pending
        self.waiting.heads.touch(target)
        if pending is None:
            pending = entry.pending = new_pending(workload)
            entry.queued_in = target.spec.name
            if not self.waiting.hold_back_until_due(target, pending, entry.not_before, now):
                target.queue.enter(pending, ENQUEUED)
        elif pending.workload is not workload:
            target.queue.update(pending, workload)
            self.waiting.hold_back_until_due(target, pending, entry.not_before, now)
            self.waiting.queue_changed(target)
