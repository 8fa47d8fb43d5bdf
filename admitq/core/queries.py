"""Questions about the state. They change nothing. Reservations that are being written count."""

from collections.abc import Iterator, Mapping, Sequence

from admitq.core import charging
from admitq.core.cohorts import Node
from admitq.core.cycle import inadmissibility
from admitq.core.entries import LocalQueueEntry
from admitq.core.fair_sharing import Share, share
from admitq.core.ledger import Usage
from admitq.core.lifecycle import Phase
from admitq.core.model import Instant, ObjectKey, QueueingStrategy
from admitq.core.refreshes import reason_of
from admitq.core.refusals import Refusal
from admitq.core.statuses import (
    ClusterQueueStatus,
    CohortStatus,
    LocalQueueStatus,
    PendingWorkload,
    cluster_queue_status,
    cohort_status,
    local_queue_status,
)
from admitq.core.waiting import queue_numbers, queue_positions
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_positions import QueuedWorkload, Window
from admitq.core.world import World


class StateQueries:
    """Answers questions about a state.

    Args:
        world: the world to read. ``AdmissionState.replace_with`` sets another one.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    # --- queues -----------------------------------------------------------------------------------

    def is_cluster_queue_active(self, name: str) -> bool | None:
        """Whether a ClusterQueue is active; None if it does not exist."""
        entry = self.world.cluster_queues.get(name)
        return None if entry is None else entry.is_active

    def has_local_queue(self, key: ObjectKey) -> bool:
        """Whether a LocalQueue exists."""
        return key in self.world.local_queues

    # --- statuses ---------------------------------------------------------------------------------

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        """Return numbers and conditions of a ClusterQueue; None if it does not exist."""
        entry = self.world.cluster_queues.get(name)
        if entry is None:
            return None
        return cluster_queue_status(
            entry.spec,
            entry.node,
            entry.inactive_causes,
            self.world.reservations.ledger.of_cluster_queue(entry.spec.name),
            len(entry.queue.members),
            entry.queue.inadmissible,
            share=self._share(entry.node),
        )

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        """Return numbers and conditions of a LocalQueue; None if it does not exist."""
        world = self.world
        entry = world.local_queues.get(key)
        if entry is None:
            return None
        queue = world.cluster_queues.get(entry.spec.cluster_queue)
        return local_queue_status(
            reason_of(entry, queue),
            None if queue is None else queue.spec,
            world.reservations.ledger.of_local_queue(key),
            entry.pending,
            charging.past_usage(world, key),
        )

    def cohort_status(self, name: str) -> CohortStatus | None:
        """Return numbers of a cohort, with or without a Cohort object; None if no object names it."""
        node = self.world.cohort_trees.cohorts.get(name)
        return None if node is None else cohort_status(node, share=self._share(node))

    def _share(self, node: Node) -> Share | None:
        return None if self.world.settings.fair_sharing is None else share(node)

    # --- references -------------------------------------------------------------------------------

    def is_flavor_in_use(self, name: str) -> bool:
        """Whether a ClusterQueue refers to the flavor."""
        return name in self.world.catalog.cluster_queues_by_flavor

    def is_admission_check_in_use(self, name: str) -> bool:
        """Whether a ClusterQueue refers to the admission check."""
        return name in self.world.catalog.cluster_queues_by_check

    def is_topology_in_use(self, name: str) -> bool:
        """Whether a flavor refers to the topology."""
        return any(flavor.topology_name == name for flavor in self.world.catalog.flavors.values())

    def cluster_queue_has_reservations(self, name: str) -> bool:
        """Whether workloads hold quota in the ClusterQueue. It may no longer exist."""
        return self.world.reservations.ledger.of_cluster_queue(name).reserving > 0

    # --- one workload -----------------------------------------------------------------------------

    def workload_phase(self, key: ObjectKey) -> Phase | None:
        """Return the phase of a workload; None if it does not exist."""
        entry = self.world.workloads.get(key)
        return None if entry is None else entry.phase

    def usage_of_workload(self, key: ObjectKey) -> Usage:
        """Return the quota that a workload uses; empty if it holds none."""
        entry = self.world.workloads.get(key)
        return () if entry is None or entry.held is None else entry.held.usage

    def last_refusal(self, key: ObjectKey) -> Refusal | None:
        """Return the last refusal of a pending workload, or else of its lane; None without one."""
        queue = self._queue_of(key)
        return None if queue is None else queue_numbers.refusal_of(queue, key)

    def is_bypassed(self, key: ObjectKey) -> bool:
        """Whether a pending workload was never evaluated, because another one of its lane was refused."""
        queue = self._queue_of(key)
        return queue is not None and queue_numbers.is_bypassed(queue, key)

    def find_inadmissibility(self, key: ObjectKey) -> Refusal | None:
        """Return why a pending or held workload would be refused whatever quota there is.

        None if there is no such reason, or if the queues of the workload are stopped or do not exist.
        """
        world = self.world
        entry = world.workloads.get(key)
        if entry is None or entry.phase not in {Phase.PENDING, Phase.HELD}:
            return None
        local_queue = world.local_queues.get(entry.local_queue)
        if local_queue is None or not local_queue.is_open:
            return None
        queue = world.cluster_queues.get(local_queue.spec.cluster_queue)
        return None if queue is None else inadmissibility(world, queue, entry.workload)

    def retry_delay(self, key: ObjectKey) -> Instant:
        """Return the nanoseconds for which a workload is held back if its reservation cannot be written.

        0 if the workload does not exist.
        """
        entry = self.world.workloads.get(key)
        return 0 if entry is None else entry.retry_delay

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """Return the ClusterQueue that the LocalQueue of a workload names. It may not exist."""
        entry = self.world.workloads.get(key)
        local_queue = None if entry is None else self.world.local_queues.get(entry.local_queue)
        return None if local_queue is None else local_queue.spec.cluster_queue

    def _queue_of(self, key: ObjectKey) -> PendingQueue | None:
        entry = self.world.workloads.get(key)
        queue = None if entry is None else self.world.cluster_queues.get(entry.queued_in or "")
        return None if queue is None else queue.queue

    # --- pending workloads ------------------------------------------------------------------------

    def pending_workloads(self) -> Iterator[PendingWorkload]:
        """Yield every pending workload of an open LocalQueue. Its ClusterQueue may not exist."""
        world = self.world
        for entry in world.workloads.values():
            if entry.counted_in is None:
                continue
            queue = None if entry.queued_in is None else world.cluster_queues.get(entry.queued_in)
            is_inadmissible = (
                queue is None
                or entry.pending is None
                or not queue.is_active
                or queue_numbers.is_inadmissible(entry.pending)
            )
            name = "" if queue is None else queue.spec.name
            yield PendingWorkload(entry.workload.key, entry.counted_in, name, is_inadmissible)

    def list_cluster_queue(self, name: str, window: Window) -> Sequence[QueuedWorkload] | None:
        """Return pending workloads of a ClusterQueue in queue order; None if the ClusterQueue does not exist.

        The whole queue is sorted for each call. Workloads of LocalQueues that are stopped are not queued.
        """
        entry = self.world.cluster_queues.get(name)
        return None if entry is None else queue_positions.list_queue(entry.queue, window)

    def list_local_queue(self, key: ObjectKey, window: Window) -> Sequence[QueuedWorkload] | None:
        """Return pending workloads of a LocalQueue in queue order; None if the LocalQueue does not exist.

        The cost is that of its ClusterQueue. If the ClusterQueue does not exist, no workload has a position.
        """
        local_queue = self.world.local_queues.get(key)
        if local_queue is None:
            return None
        entry = self.world.cluster_queues.get(local_queue.spec.cluster_queue)
        return () if entry is None else queue_positions.list_local_queue(entry.queue, key, window)

    def inadmissible_by_local_queue(self) -> Mapping[ObjectKey, int]:
        """Return how many of its pending workloads are inadmissible, for each open LocalQueue.

        See ``PendingWorkload.is_inadmissible``.
        """
        inadmissible = {
            name: queue_numbers.count_inadmissible(entry.queue)
            for name, entry in self.world.cluster_queues.items()
            if entry.is_active
        }

        def count(key: ObjectKey, local_queue: LocalQueueEntry) -> int:
            in_cluster_queue = inadmissible.get(local_queue.spec.cluster_queue)
            return local_queue.pending if in_cluster_queue is None else in_cluster_queue[key]

        return {key: count(key, entry) for key, entry in self.world.local_queues.items() if entry.is_open}

    def count_scheduling_keys(self, cluster_queue: str) -> tuple[int, int]:
        """Return the numbers of equivalence classes of active and of inadmissible workloads.

        While the ClusterQueue is not active, all workloads are inadmissible.
        """
        entry = self.world.cluster_queues.get(cluster_queue)
        if entry is None:
            return 0, 0
        active, inadmissible = queue_numbers.equivalence_classes(entry.queue)
        return (len(active), len(inadmissible)) if entry.is_active else (0, len(active | inadmissible))

    def pending_requests(self, cluster_queue: str) -> Mapping[str, int]:
        """Return the sum of the requests of the pending workloads of a ClusterQueue, by resource."""
        entry = self.world.cluster_queues.get(cluster_queue)
        return {} if entry is None else queue_numbers.requests(entry.queue)

    def queueing_strategy(self, cluster_queue: str) -> QueueingStrategy | None:
        """Return the queueing strategy of a ClusterQueue; None if it does not exist."""
        entry = self.world.cluster_queues.get(cluster_queue)
        return None if entry is None else entry.spec.queueing_strategy

    def is_excluded(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue does not exist, is quarantined, or is excluded from cycles."""
        entry = self.world.cluster_queues.get(cluster_queue)
        return entry is None or entry.spec.quarantined or self.world.waiting.heads.paused.covers(entry)

    def blocking_head(self, cluster_queue: str) -> ObjectKey | None:
        """Return the blocking head of a ClusterQueue; None without one."""
        entry = self.world.cluster_queues.get(cluster_queue)
        head = None if entry is None else entry.queue.blocking_head
        return None if head is None else head.workload.key

    @property
    def cycles_run(self) -> int:
        """The number of cycles that have run since the state was created, including those before a defect."""
        return self.world.cycle
