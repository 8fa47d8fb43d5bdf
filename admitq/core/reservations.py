"""The quota that workloads hold, and the order in which they would be preempted.

The quota that a workload holds follows from its value, from the ClusterQueue of its admission, and from the
workload that it replaces. ``Reservations`` computes it after each change and compares it with what was
counted. So there is one rule, and no rule for each transition.
"""

from collections.abc import Callable, Mapping
from typing import Final

from admitq.core.amounts import Amounts, amounts
from admitq.core.cohorts import CohortTrees, Node
from admitq.core.entries import AssumedPlaces, ClusterQueueEntry, WorkloadEntry
from admitq.core.indexes import discard
from admitq.core.instructions import Preempt
from admitq.core.ledger import Ledger, Reservation, Usage, is_void, usage_of
from admitq.core.lifecycle import Phase
from admitq.core.model import Admission, ObjectKey, PodSetAssignment, Workload
from admitq.core.outbox import Outbox
from admitq.core.pod_readiness import PodReadiness
from admitq.core.quota_holders import QuotaHolders
from admitq.core.replacing import Original, Replacements, usage_beyond
from admitq.core.request_rules import RequestRulesByNamespace
from admitq.core.requests import requests_on_node
from admitq.core.settings import CoreSettings
from admitq.core.topology.topologies import Place, RoomGains, Topologies, places_beyond, places_of

_STAYING: Final = (Phase.ADMITTED, Phase.RESERVED)


def _may_get_places(workload: Workload, places: AssumedPlaces) -> bool:
    """Whether the write of topology assignments may still succeed: the reservation is the same as before."""
    return workload.admission == places.former and not (workload.finished or workload.evicted)


def _average_usage(part: PodSetAssignment) -> Amounts:
    """Return what a pod takes of the usage of its podset, for a quarantined workload: its pods still run."""
    pods = 0 if part.topology is None else part.topology.pod_count
    return amounts((resource, -(-amount // pods)) for resource, amount in part.resource_usage if pods)


class Reservations:
    """Counts the quota that workloads hold: in the ledger, in the cohort trees, and in preemption order.

    Args:
        settings: for the gate of reclaimable pods, and whether admission waits for pods.
        cluster_queues: all ClusterQueues by name.
        workloads: all workloads by key.
        cohort_trees: all cohort trees.
        outbox: receives preemptions, and the names of queues with statuses that may have changed.
        pods: is updated when the quota that a workload holds changes.
        topologies: where pods run. Places count there.
        request_rules: for what a pod takes from its node.
        quota_returned: called after usage was removed from a node.
        room_changed: called with what leaves gained after places were left.
        demand_changed: called when a pending workload may need more or less quota than before, because the
            workload that it replaces changed.
    """

    def __init__(
        self,
        settings: CoreSettings,
        cluster_queues: Mapping[str, ClusterQueueEntry],
        workloads: Mapping[ObjectKey, WorkloadEntry],
        cohort_trees: CohortTrees,
        outbox: Outbox,
        pods: PodReadiness,
        topologies: Topologies,
        request_rules: RequestRulesByNamespace,
        *,
        on_quota_returned: Callable[[Node, Usage], None],
        on_room_changed: Callable[[RoomGains], None],
        on_demand_changed: Callable[[WorkloadEntry], None],
    ) -> None:
        self.ledger = Ledger()
        self.quota_holders = QuotaHolders[WorkloadEntry]()
        self.replacements = Replacements[WorkloadEntry]()
        self.inactive_in: dict[str, dict[ObjectKey, WorkloadEntry]] = {}
        """Evicted, inactive workloads that still have a reservation, by ClusterQueue."""
        self._circles: dict[ObjectKey, None] = {}
        """Workloads of circles of replacements that were closed or broken. They must be counted again."""
        self._settings = settings
        self._cluster_queues = cluster_queues
        self._workloads = workloads
        self._cohort_trees = cohort_trees
        self._outbox = outbox
        self._pods = pods
        self._topologies = topologies
        self._request_rules = request_rules
        self._on_quota_returned = on_quota_returned
        self._on_room_changed = on_room_changed
        self._on_demand_changed = on_demand_changed

    # --- changes ----------------------------------------------------------------------------------

    def settle(self, entry: WorkloadEntry) -> None:
        """Count the quota that a workload holds now."""
        workload, assumed = entry.workload, entry.assumed
        if assumed is not None and (workload.admission is not None or workload.finished):
            entry.assumed = None
        if entry.assumed_places is not None and not _may_get_places(workload, entry.assumed_places):
            entry.assumed_places = None
        self._index_inactive(entry)
        reservation = self._reservation_of(entry)
        if reservation is None or (workload.evicted and workload.admission is not None):
            entry.preempting = None
        self._hold(entry, reservation)
        self.holding_changed(entry)
        if self._settings.block_admission:
            self._pods.update(entry)

    def release(self, entry: WorkloadEntry) -> None:
        """Return all quota that a deleted workload holds."""
        self._index_inactive(entry, is_deleted=True)
        self._hold(entry, None)
        self.holding_changed(entry)
        self._pods.update(entry)

    def settle_cluster_queue(self, cluster_queue: str) -> None:
        """Count the quota of workloads again that depends on a ClusterQueue, after the ClusterQueue changed.

        The change may decide whether inactive workloads are charged to it, and whether admission waits for
        pods.
        """
        for entry in list(self.inactive_in.get(cluster_queue, {}).values()):
            self._hold(entry, self._reservation_of(entry))
            self.holding_changed(entry)
            if self._settings.block_admission:
                self._pods.update(entry)
        if self._settings.block_admission:
            for holders in (self.quota_holders.staying, self.quota_holders.leaving):
                for _, entry in list(holders(cluster_queue)):
                    self._pods.update(entry)

    def preempt(self, instruction: Preempt) -> None:
        """Add the instruction to preempt a workload. The workload counts as leaving from now on."""
        entry = self._workloads[instruction.key]
        entry.preempting = instruction
        self.holding_changed(entry)
        self._outbox.preemptions.append(instruction)

    def _index_inactive(self, entry: WorkloadEntry, *, is_deleted: bool = False) -> None:
        """Index a workload if the existence of its ClusterQueue decides whether it is charged."""
        workload, key = entry.workload, entry.workload.key
        is_held_back = not workload.active and workload.evicted and not (workload.finished or is_deleted)
        admission = workload.admission if is_held_back else None
        name = None if admission is None else admission.cluster_queue
        if name == entry.inactive_in:
            return
        if entry.inactive_in is not None:
            discard(self.inactive_in, entry.inactive_in, key)
        if name is not None:
            self.inactive_in.setdefault(name, {})[key] = entry
        entry.inactive_in = name

    def _hold(self, entry: WorkloadEntry, reservation: Reservation | None) -> None:
        held = entry.held
        if reservation == held:
            return
        entry.held = reservation
        if held is not None:
            self.ledger.count(held, -1)
        if reservation is not None:
            self.ledger.count(reservation, 1)
        moved = (
            held is None
            or reservation is None
            or held.cluster_queue != reservation.cluster_queue
            or held.usage != reservation.usage
        )
        if held is not None:
            self._count_in_tree(held, add=False, count_usage=moved)
        if reservation is not None:
            self._count_in_tree(reservation, add=True, count_usage=moved)
        left = () if held is None else held.places
        taken = () if reservation is None else reservation.places
        self._on_room_changed(self._topologies.move(left, taken))
        if held is not None and moved:
            queue = self._cluster_queues.get(held.cluster_queue)
            if queue is not None:
                self._on_quota_returned(queue.node, held.usage)

    def _count_in_tree(self, reservation: Reservation, *, add: bool, count_usage: bool) -> None:
        self._outbox.touched_local_queues.add(reservation.local_queue)
        queue = self._cluster_queues.get(reservation.cluster_queue)
        if queue is None:
            return
        self._outbox.touched_cluster_queues.add(reservation.cluster_queue)
        if count_usage:
            change = self._cohort_trees.add_usage if add else self._cohort_trees.remove_usage
            change(queue.node, reservation.usage)

    # --- the quota of one workload ----------------------------------------------------------------

    def is_void(self, entry: WorkloadEntry) -> bool:
        """Whether the reservation in the status of a workload is void: charged to no ClusterQueue."""
        admission = entry.workload.admission
        queue = None if admission is None else self._cluster_queues.get(admission.cluster_queue)
        return queue is not None and is_void(entry.workload, queue.spec)

    def assigned(self, entry: WorkloadEntry) -> Usage:
        """Return the usage of a workload's assignment, including the part that counts for its original."""
        return () if entry.admission is None else self._usage_of(entry.workload, entry.admission)

    def assigned_places(self, entry: WorkloadEntry) -> tuple[Place, ...]:
        """Return the places of a workload, including those that count for its original."""
        return () if entry.admission is None else self._places_of(entry.workload, entry.admission)

    def _reservation_of(self, entry: WorkloadEntry) -> Reservation | None:
        workload, assumed = entry.workload, entry.assumed
        if workload.finished or self.is_void(entry):
            return None
        admission, admitted = entry.admission, workload.admitted
        if admission is None:
            return None
        if workload.admission is None and assumed is not None:
            admitted = assumed.admit
        usage, places = self._usage_of(workload, admission), self._places_of(workload, admission)
        original = self.find_original(entry)
        if original is not None:
            usage = usage_beyond(usage, self.assigned(original))
            places = places_beyond(places, self.assigned_places(original))
        return Reservation(admission.cluster_queue, entry.local_queue, usage, admitted, places)

    def _places_of(self, workload: Workload, admission: Admission) -> tuple[Place, ...]:
        placed = [part for part in admission.pod_set_assignments if part.topology is not None]
        if not placed:
            return ()
        rules = self._request_rules.rules_of(workload.key.namespace)
        by_name = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        return places_of(
            (part, None, _average_usage(part))
            if (pod_set := by_name.get(part.name)) is None
            else (part, pod_set.group, requests_on_node(pod_set.template, rules))
            for part in placed
        )

    def _usage_of(self, workload: Workload, admission: Admission) -> Usage:
        return usage_of(workload, admission, reclaimable_pods=self._settings.gates.reclaimable_pods)

    # --- replacements -----------------------------------------------------------------------------

    def add_replacement(self, entry: WorkloadEntry) -> None:
        """Index a workload that has not finished by the workload that it replaces, if it replaces one."""
        self.replacements.add(entry)
        self._mark_circle(entry.workload.key)

    def remove_replacement(self, entry: WorkloadEntry) -> None:
        """Undo ``add_replacement``."""
        self._mark_circle(entry.workload.key)
        self.replacements.remove(entry)

    def original_of(self, cluster_queue: str, workload: Workload) -> WorkloadEntry | None:
        """Return the workload from which a pending workload would take quota over now; None without one."""
        original = self._original(workload)
        if original is None or original.is_leaving or original.phase not in _STAYING:
            return None
        if self.replacements.find_circle(workload.key):
            return None  # In a circle, the workload counts with all quota that it was assigned.
        held = original.held
        if held is None or held.cluster_queue != cluster_queue:
            return None
        return original if self.replacements.find_successor(original) is None else None

    def original_to_take_over(self, cluster_queue: str, workload: Workload) -> Original | None:
        """Return the result of ``original_of`` as an immutable value."""
        original = self.original_of(cluster_queue, workload)
        if original is None or original.admission is None:
            return None
        return Original(original.workload.key, original.admission, self.assigned(original))

    def holding_changed(self, entry: WorkloadEntry) -> None:
        """Sort a workload again among the holders of quota, and count its replacements again.

        Call this after each change of the quota that a workload holds, or of whether it is leaving.
        """
        self.quota_holders.put(entry)
        workload = entry.workload
        self.recount_replacements(workload.key)
        if workload.replaces is not None:
            self.recount_replacements(workload.replaces, excluded=entry)
        circles, self._circles = self._circles, {}
        for key in circles:
            self.recount_replacements(key, excluded=entry)

    def recount_replacements(self, original: ObjectKey, excluded: WorkloadEntry | None = None) -> None:
        """Count workloads again that replace ``original``, and report that their demand may have changed."""
        for replacement in self.replacements.of_original(original):
            if replacement is excluded:
                continue
            self._hold(replacement, self._reservation_of(replacement))
            self.quota_holders.put(replacement)
            self._on_demand_changed(replacement)

    def _original(self, workload: Workload) -> WorkloadEntry | None:
        key = workload.replaces
        return None if key is None or key == workload.key else self._workloads.get(key)

    def find_original(self, entry: WorkloadEntry) -> WorkloadEntry | None:
        """Return the workload beyond which a replacement counts, while both hold quota; None without one."""
        original = self._original(entry.workload)
        if original is None or self.replacements.find_successor(original) is not entry:
            return None
        return None if self.is_void(original) else original

    def _mark_circle(self, key: ObjectKey) -> None:
        """Mark the workloads of a circle of replacements: they must be counted again."""
        self._circles.update(dict.fromkeys(self.replacements.find_circle(key)))
