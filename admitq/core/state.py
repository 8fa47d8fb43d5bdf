"""The decision core as one object: events in, instructions out.

``AdmissionState`` is driven by a shell, be it the manager on a cluster, the simulator, or a what-if. It
reads no clock and draws no chance: the same events with the same instants give the same instructions.
Between two calls everything is settled; a cycle runs only when it is asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from admitq.core import charging, dump, invariants
from admitq.core import events as happened
from admitq.core.cohorts import Node, declared_quotas
from admitq.core.cycle import heads, inadmissibility, is_second_pass_due, run_cycle, tell_again
from admitq.core.events import Event
from admitq.core.fair_sharing import Share, share
from admitq.core.instructions import Instruction, RefreshCohort, ReserveQuota
from admitq.core.invariants import InvariantViolated
from admitq.core.ledger import Usage
from admitq.core.lifecycle import Phase
from admitq.core.model import Instant, ObjectKey, QueueingStrategy
from admitq.core.offers import Offer
from admitq.core.queues import PendingQueue
from admitq.core.refusals import Refusal
from admitq.core.selectors import selects_namespace
from admitq.core.settings import Settings
from admitq.core.statuses import (
    ClusterQueueMark,
    ClusterQueueStatus,
    CohortStatus,
    LocalQueueMark,
    LocalQueueReason,
    LocalQueueStatus,
    Waiting,
    cluster_queue_status,
    cohort_status,
    local_queue_reason,
    local_queue_status,
)
from admitq.core.world import Assumption, ClusterQueueEntry, LocalQueueEntry, WorkloadEntry, World

__all__ = ["AdmissionState", "InvariantViolated"]

_NOTHING_OFFERED = Offer()


class AdmissionState:
    """All queues, quotas and workloads, and the decisions over them.

    Args:
        settings: what the configuration decides.
        statuses: whether the driver writes statuses. One that writes none is told only what was decided, for
            less work: neither why workloads wait, nor which statuses to refresh.
        cycles: whether cycles run here. If somebody else decides, all that time brings about still happens
            when a cycle is asked for, but for the cycle.
    """

    def __init__(
        self, settings: Settings | None = None, *, statuses: bool = True, cycles: bool = True
    ) -> None:
        self._world = World(settings if settings is not None else Settings())
        self._statuses = statuses
        self._cycles = cycles
        self._handlers: Mapping[type[Event], Callable[[Any, Instant], None]] = {
            happened.ClusterQueueChanged: self._cluster_queue_changed,
            happened.ClusterQueueDeleted: self._cluster_queue_deleted,
            happened.CohortChanged: self._cohort_changed,
            happened.CohortDeleted: self._cohort_deleted,
            happened.LocalQueueChanged: self._local_queue_changed,
            happened.LocalQueueDeleted: self._local_queue_deleted,
            happened.ResourceFlavorChanged: self._flavor_changed,
            happened.ResourceFlavorDeleted: self._flavor_deleted,
            happened.AdmissionCheckChanged: self._check_changed,
            happened.AdmissionCheckDeleted: self._check_deleted,
            happened.TopologyChanged: self._topology_changed,
            happened.TopologyDeleted: self._topology_deleted,
            happened.NamespaceChanged: self._namespace_changed,
            happened.NamespaceDeleted: self._namespace_deleted,
            happened.WorkloadChanged: self._workload_changed,
            happened.WorkloadDeleted: self._workload_deleted,
            happened.ReservationFailed: self._reservation_failed,
            happened.PreemptionFailed: self._preemption_failed,
            happened.LimitRangeChanged: self._limit_range_changed,
            happened.LimitRangeDeleted: self._limit_range_deleted,
            happened.RuntimeClassChanged: self._runtime_class_changed,
            happened.RuntimeClassDeleted: self._runtime_class_deleted,
            happened.CyclesRequested: self._cycles_requested,
        }

    # --- the one way in, and the one way out ------------------------------------------------------

    def handle(self, event: Event, *, now: Instant) -> list[Instruction]:
        """Take in what happened, and tell at once what is to be done: ``observe``, then ``instructions``."""
        self.observe(event, now=now)
        return self.instructions()

    def observe(self, event: Event, *, now: Instant) -> None:
        """Take in what happened; decide if cycles were asked for.

        Args:
            event: what happened.
            now: the present instant, in nanoseconds since the Unix epoch.
        """
        if self._world.seen_admitted:
            charging.settle_admissions(self._world, before=now)
        self._handlers[type(event)](event, now)
        if self._world.requeues:
            self._world.date_requeues(now)

    def next_wakeup(self, now: Instant) -> Instant | None:
        """The earliest instant at which a cycle would have something to do; None if it takes an event."""
        world = self._world
        runs = self._cycles and not world.is_halted
        for name in world.candidates - world.paused if runs else ():
            entry = world.cluster_queues.get(name)
            if entry is not None and entry.is_active and entry.queue.first() is not None:
                return now
            world.candidates.discard(name)
        if world.seen_admitted or (self._statuses and world.untold and runs):
            return now
        timer = world.next_timer()
        passes = world.second_passes.next_at() if runs else None
        woken = world.next_requeue() if runs else None
        times = (timer and timer.at, passes, woken, charging.next_sample(world))
        due = [each for each in times if each is not None]
        return max(now, min(due)) if due else None

    def retry_everything(self) -> None:
        """Forget that anybody was found not to fit, so that the next cycles try all who wait again.

        Never needed: every change wakes whom it concerns. It is there so that this can be checked, in tests
        and as a safeguard of a running system, where it must not find anything to admit.
        """
        for entry in self._world.cluster_queues.values():
            self._world.wake_at_once(entry)
            for namespace in entry.queue.namespaces_aside():
                entry.queue.wake_namespace(namespace)

    def tell_again(self) -> list[Instruction]:
        """Bring up to date what those lack who wait untried, as cycles do where statuses are written.

        Returns:
            As ``handle`` does.
        """
        tell_again(self._world)
        return self.instructions()

    # --- after a defect ---------------------------------------------------------------------------

    @property
    def deciding(self) -> ObjectKey | None:
        """The workload over which a call decided that raised; None if it raised elsewhere."""
        return self._world.deciding

    def trees(self) -> list[tuple[str, ...]]:
        """The names of the ClusterQueues of each cohort tree."""
        trees: dict[Node, list[str]] = {}
        for name, entry in sorted(self._world.cluster_queues.items()):
            trees.setdefault(entry.node.root, []).append(name)
        return [tuple(names) for names in trees.values()]

    def pause(self, cluster_queues: frozenset[str]) -> None:
        """Have the heads of these ClusterQueues take no part in cycles, and those of all others do so."""
        self._world.paused = cluster_queues

    def empty(self) -> "AdmissionState":
        """A state that has observed nothing, for the same driver."""
        return AdmissionState(self._world.settings, statuses=self._statuses, cycles=self._cycles)

    def become(self, other: "AdmissionState") -> None:
        """Go on as another state would, of which nothing else may be made use of from now on."""
        cycles, self._world = self._world.cycle, other._world  # noqa: SLF001 - of the same class
        self._world.cycle += cycles

    def assume(self, instruction: ReserveQuota, *, now: Instant) -> None:
        """Count a reservation that an earlier state decided and that is being written.

        Nothing is counted if the workload is gone, or was observed with a reservation or with its end.
        """
        world = self._world
        entry = world.workloads.get(instruction.key)
        if entry is None or entry.workload.uid != instruction.uid:
            return
        if entry.workload.admission is not None or entry.workload.finished:
            return
        entry.assumed = Assumption.decided(instruction.admission, now, admit=instruction.admit)
        world.settle(entry, now)
        charging.charge(world, entry, world.assigned(entry))

    # --- queries ----------------------------------------------------------------------------------

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        """Numbers and conditions of a ClusterQueue; None if there is none of the name."""
        entry = self._world.cluster_queues.get(name)
        return None if entry is None else self._cluster_queue_status(entry)

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        """Numbers and conditions of a LocalQueue; None if there is none of the name."""
        entry = self._world.local_queues.get(key)
        return None if entry is None else self._local_queue_status(entry)

    def waiting(self) -> Iterator[Waiting]:
        """All workloads that wait, also where the LocalQueue has no ClusterQueue and counts nothing."""
        world = self._world
        for entry in world.workloads.values():
            if entry.listed_in is None:
                continue
            queue = None if entry.queued_in is None else world.cluster_queues.get(entry.queued_in)
            parked = (
                queue is None
                or entry.pending is None
                or not queue.is_active
                or queue.queue.is_parked(entry.pending)
            )
            name = "" if queue is None else queue.spec.name
            yield Waiting(entry.workload.key, entry.listed_in, name, parked)

    def cohort_status(self, name: str) -> CohortStatus | None:
        """Numbers of a cohort, implicit ones too; None if nothing speaks of it."""
        node = self._world.forest.cohorts.get(name)
        return None if node is None else self._cohort_status(node)

    def workload_phase(self, key: ObjectKey) -> Phase | None:
        """The phase of a workload, reservations that are being written included; None if unknown."""
        entry = self._world.workloads.get(key)
        return None if entry is None else entry.phase

    def usage_of_workload(self, key: ObjectKey) -> Usage:
        """What is counted as used by a workload, reservations that are being written included."""
        entry = self._world.workloads.get(key)
        return () if entry is None or entry.held is None else entry.held.usage

    def is_flavor_in_use(self, name: str) -> bool:
        """Whether a ClusterQueue refers to the flavor."""
        return name in self._world.users_of_flavor

    def is_admission_check_in_use(self, name: str) -> bool:
        """Whether a ClusterQueue refers to the admission check."""
        return name in self._world.users_of_check

    def is_topology_in_use(self, name: str) -> bool:
        """Whether a flavor refers to the topology."""
        return any(flavor.topology_name == name for flavor in self._world.flavors.values())

    def cluster_queue_has_reservations(self, name: str) -> bool:
        """Whether workloads hold quota in the ClusterQueue, existing or not."""
        return self._world.ledger.of_cluster_queue(name).reserving > 0

    def parked_refusal(self, key: ObjectKey) -> Refusal | None:
        """Why a pending workload was last refused, itself or in the person of an equal one."""
        queue = self._queue_of(key)
        return None if queue is None else queue.refusal_of(key)

    def pending_shapes(self, cluster_queue: str) -> tuple[int, int]:
        """How many distinct shapes of workloads wait in a ClusterQueue: to be tried, and inadmissible.

        While the queue is not active, all are inadmissible.
        """
        entry = self._world.cluster_queues.get(cluster_queue)
        if entry is None:
            return 0, 0
        active, inadmissible = entry.queue.shapes
        return (len(active), len(inadmissible)) if entry.is_active else (0, len(active | inadmissible))

    def pending_requests(self, cluster_queue: str) -> Mapping[str, int]:
        """What the workloads that wait in a ClusterQueue request, by resource."""
        entry = self._world.cluster_queues.get(cluster_queue)
        return {} if entry is None else entry.queue.requests

    @property
    def cycles_run(self) -> int:
        """How many cycles have run since the state was made."""
        return self._world.cycle

    def is_bypassed(self, key: ObjectKey) -> bool:
        """Whether a pending workload is parked because an equal one was refused, untried itself."""
        queue = self._queue_of(key)
        return queue is not None and queue.is_bypassed(key)

    def admissibility(self, key: ObjectKey) -> Refusal | None:
        """Why a workload that waits, queued or held, would be refused whatever quota there is.

        None if nothing is known, or if its queues do not take it in.
        """
        world = self._world
        entry = world.workloads.get(key)
        if entry is None or entry.phase not in {Phase.PENDING, Phase.HELD}:
            return None
        local_queue = world.local_queues.get(entry.local_queue)
        if local_queue is None or not local_queue.is_open:
            return None
        queue = world.cluster_queues.get(local_queue.spec.cluster_queue)
        return None if queue is None else inadmissibility(world, queue, entry.workload)

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """The ClusterQueue that a workload's LocalQueue leads to, whether it exists or not."""
        entry = self._world.workloads.get(key)
        local_queue = None if entry is None else self._world.local_queues.get(entry.local_queue)
        return None if local_queue is None else local_queue.spec.cluster_queue

    def queueing_strategy(self, cluster_queue: str) -> QueueingStrategy | None:
        """How a ClusterQueue takes turns; None if there is none of the name."""
        entry = self._world.cluster_queues.get(cluster_queue)
        return None if entry is None else entry.spec.queueing_strategy

    def held_up_by(self, cluster_queue: str) -> ObjectKey | None:
        """The workload that a ClusterQueue does not go on without; None if it is not held up."""
        entry = self._world.cluster_queues.get(cluster_queue)
        blocked = None if entry is None else entry.queue.blocked
        return None if blocked is None else blocked.key

    def _queue_of(self, key: ObjectKey) -> PendingQueue | None:
        entry = self._world.workloads.get(key)
        queue = None if entry is None else self._world.cluster_queues.get(entry.queued_in or "")
        return None if queue is None else queue.queue

    # --- dump, restore, check ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All of the state as JSON values; ``from_dict`` makes an equal state of it."""
        return cast("dict[str, Any]", dump.encode(self.taken()))

    def taken(self) -> dump.Dump:
        """All of the state as it is now, in values that do not change with it."""
        return dump.take(self._world)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "AdmissionState":
        """A state that decides from here on as the dumped one would.

        Raises:
            dump.DumpError: the dump is not one of this version.
        """
        return cls._restored(dump.decode(raw))

    def fork(self) -> "AdmissionState":
        """An independent copy, for hypothetical events."""
        state = self._restored(dump.take(self._world))
        state.pause(self._world.paused)
        return state

    def started_anew(self) -> "AdmissionState":
        """A state to which only that was shown which the API tells, as that of a manager that starts now."""
        taken = dump.take(self._world)
        state = AdmissionState(taken.settings)
        for event in dump.observations(taken):
            state._handlers[type(event)](event, 0)
        state.pause(self._world.paused)
        state.instructions()
        return state

    @classmethod
    def _restored(cls, taken: object) -> "AdmissionState":
        if not isinstance(taken, dump.Dump):
            raise dump.DumpError("not the dump of an AdmissionState")
        state = cls(taken.settings)
        for event in dump.observations(taken):
            state._handlers[type(event)](event, 0)
        dump.restore_volatile(state._world, taken)
        state._world.reservations.clear()
        state._world.preemptions.clear()
        state.instructions()
        return state

    def validate(self) -> None:
        """Check every invariant against a recomputation from scratch. Slow.

        Raises:
            InvariantViolated: something does not hold, which is a defect of the core.
        """
        invariants.check(self._world)

    # --- ClusterQueues and cohorts ----------------------------------------------------------------

    def _cluster_queue_changed(self, event: happened.ClusterQueueChanged, now: Instant) -> None:
        world, spec = self._world, event.cluster_queue
        entry = world.cluster_queues.get(spec.name)
        if entry is not None and entry.spec == spec:
            return
        if entry is not None:
            world.tree_edited(entry.node)
            world.unindex_cluster_queue(entry.spec)
        node = world.forest.put_cluster_queue(
            spec.name, spec.cohort, declared_quotas(spec.resource_groups), spec.fair_weight
        )
        world.index_cluster_queue(spec)
        if entry is None:
            queue = PendingQueue(
                spec.queueing_strategy,
                world.rules_of,
                partial(world.what_to_take_over, spec.name),
                equals_share_a_lane=world.settings.gates.scheduling_equivalence_hashing,
            )
            entry = ClusterQueueEntry(spec, node, queue, _NOTHING_OFFERED)
            world.cluster_queues[spec.name] = entry
            world.forest.add_usage(node, world.ledger.of_cluster_queue(spec.name).reserved_usage.items())
            self._settle_workloads_of(spec.name, now)
        entry.spec = spec
        world.settle_inactive_in(spec.name)
        world.settle_pods_in(spec.name)
        entry.queue.change_strategy(spec.queueing_strategy)
        entry.queue.go_by_usage(world.local_queue_usage if spec.usage_based_admission else None)
        world.with_empty_lanes.add(spec.name)
        for key in world.local_queues_of.get(spec.name, ()):
            charging.schedule_sample(world, key)
        world.lay_out_offer(entry)
        world.touch_local_queues_of(spec.name)
        world.settle_activity(entry)
        for namespace in entry.queue.namespaces_aside():
            self._let_in_namespace(entry, namespace)
        world.wake(entry)
        world.tree_edited(node)

    def _cluster_queue_deleted(self, event: happened.ClusterQueueDeleted, now: Instant) -> None:
        world = self._world
        entry = world.cluster_queues.get(event.name)
        if entry is None:
            return
        world.tree_edited(entry.node)
        world.unindex_cluster_queue(entry.spec)
        del world.cluster_queues[event.name]
        world.forest.drop_cluster_queue(event.name)
        world.settle_inactive_in(event.name)
        world.settle_pods_in(event.name)
        self._settle_workloads_of(event.name, now)
        world.touch_local_queues_of(event.name)

    def _settle_workloads_of(self, cluster_queue: str, now: Instant) -> None:
        world = self._world
        for key in world.local_queues_of.get(cluster_queue, ()):
            self._settle_workloads_in(key, now)

    def _cohort_changed(self, event: happened.CohortChanged, _now: Instant) -> None:
        world, cohort = self._world, event.cohort
        if world.cohorts.get(cohort.name) == cohort:
            return
        world.cohorts[cohort.name] = cohort
        self._wake_tree_of(cohort.name)
        world.forest.put_cohort(
            cohort.name, cohort.parent, declared_quotas(cohort.resource_groups), cohort.fair_weight
        )
        self._wake_tree_of(cohort.name)

    def _cohort_deleted(self, event: happened.CohortDeleted, _now: Instant) -> None:
        world = self._world
        if world.cohorts.pop(event.name, None) is not None:
            self._wake_tree_of(event.name)
            world.forest.drop_cohort(event.name)
            self._wake_tree_of(event.name)

    def _wake_tree_of(self, cohort: str) -> None:
        """Whoever waits in a cohort's tree, before or after a change to it, has reason to try again."""
        node = self._world.forest.cohorts.get(cohort)
        if node is not None:
            self._world.tree_edited(node)

    # --- LocalQueues ------------------------------------------------------------------------------

    def _local_queue_changed(self, event: happened.LocalQueueChanged, now: Instant) -> None:
        world, spec = self._world, event.local_queue
        entry = world.local_queues.get(spec.key)
        if entry is None:
            entry = world.local_queues[spec.key] = LocalQueueEntry(spec)
        elif entry.spec == spec:
            return
        else:
            self._unindex_local_queue(entry)
            entry.spec = spec
        world.local_queues_of.setdefault(spec.cluster_queue, {})[spec.key] = None
        world.touched_local_queues.add(spec.key)
        charging.open_account(world, spec, now)
        self._settle_workloads_in(spec.key, now)

    def _local_queue_deleted(self, event: happened.LocalQueueDeleted, now: Instant) -> None:
        entry = self._world.local_queues.pop(event.key, None)
        if entry is not None:
            self._unindex_local_queue(entry)
            self._settle_workloads_in(event.key, now)
            charging.close_account(self._world, event.key)

    def _unindex_local_queue(self, entry: LocalQueueEntry) -> None:
        index = self._world.local_queues_of
        keys = index[entry.spec.cluster_queue]
        del keys[entry.spec.key]
        if not keys:
            del index[entry.spec.cluster_queue]

    def _settle_workloads_in(self, key: ObjectKey, now: Instant) -> None:
        for entry in self._world.workloads_of.get(key, {}).values():
            self._world.settle_place(entry, now)

    # --- what ClusterQueues refer to --------------------------------------------------------------

    def _flavor_changed(self, event: happened.ResourceFlavorChanged, _now: Instant) -> None:
        flavor = event.flavor
        if self._world.flavors.get(flavor.name) != flavor:
            self._world.flavors[flavor.name] = flavor
            self._reconsider(self._world.users_of_flavor.get(flavor.name, ()))

    def _flavor_deleted(self, event: happened.ResourceFlavorDeleted, _now: Instant) -> None:
        if self._world.flavors.pop(event.name, None) is not None:
            self._reconsider(self._world.users_of_flavor.get(event.name, ()))

    def _check_changed(self, event: happened.AdmissionCheckChanged, _now: Instant) -> None:
        check = event.admission_check
        if self._world.checks.get(check.name) != check:
            self._world.checks[check.name] = check
            self._settle_activity_of(self._world.users_of_check.get(check.name, ()))

    def _check_deleted(self, event: happened.AdmissionCheckDeleted, _now: Instant) -> None:
        if self._world.checks.pop(event.name, None) is not None:
            self._settle_activity_of(self._world.users_of_check.get(event.name, ()))

    def _topology_changed(self, event: happened.TopologyChanged, _now: Instant) -> None:
        if event.name not in self._world.topologies:
            self._world.topologies[event.name] = None
            self._reconsider(self._users_of_topology(event.name))

    def _topology_deleted(self, event: happened.TopologyDeleted, _now: Instant) -> None:
        if event.name in self._world.topologies:
            del self._world.topologies[event.name]
            self._reconsider(self._users_of_topology(event.name))

    def _users_of_topology(self, name: str) -> list[str]:
        world = self._world
        return [
            user
            for flavor in world.flavors.values()
            if flavor.topology_name == name
            for user in world.users_of_flavor.get(flavor.name, ())
        ]

    def _settle_activity_of(self, names: "Mapping[str, None] | list[str] | tuple[()]") -> None:
        for name in list(names):
            self._world.settle_activity(self._world.cluster_queues[name])

    def _reconsider(self, names: "Mapping[str, None] | list[str] | tuple[()]") -> None:
        self._settle_activity_of(names)
        for name in list(names):
            entry = self._world.cluster_queues[name]
            self._world.lay_out_offer(entry)
            self._world.wake(entry)

    # --- what decides over requests ---------------------------------------------------------------

    def _limit_range_changed(self, event: happened.LimitRangeChanged, _now: Instant) -> None:
        ranges = self._world.limit_ranges.setdefault(event.key.namespace, {})
        if ranges.get(event.key.name) != event.limit_range:
            ranges[event.key.name] = event.limit_range
            self._world.limit_ranges_changed(event.key.namespace)

    def _limit_range_deleted(self, event: happened.LimitRangeDeleted, _now: Instant) -> None:
        ranges = self._world.limit_ranges.get(event.key.namespace, {})
        if ranges.pop(event.key.name, None) is not None:
            if not ranges:
                del self._world.limit_ranges[event.key.namespace]
            self._world.limit_ranges_changed(event.key.namespace)

    def _runtime_class_changed(self, event: happened.RuntimeClassChanged, _now: Instant) -> None:
        if self._world.overheads.get(event.name) != event.overhead:
            self._world.overheads[event.name] = event.overhead
            self._world.runtime_class_changed(event.name)

    def _runtime_class_deleted(self, event: happened.RuntimeClassDeleted, _now: Instant) -> None:
        if self._world.overheads.pop(event.name, None) is not None:
            self._world.runtime_class_changed(event.name)

    # --- namespaces -------------------------------------------------------------------------------

    def _namespace_changed(self, event: happened.NamespaceChanged, _now: Instant) -> None:
        world = self._world
        labels = dict(event.labels)
        if world.namespaces.get(event.name) == labels:
            return
        world.namespaces[event.name] = labels
        self._reconsider_namespace(event.name)

    def _namespace_deleted(self, event: happened.NamespaceDeleted, _now: Instant) -> None:
        if self._world.namespaces.pop(event.name, None) is not None:
            self._reconsider_namespace(event.name)

    def _reconsider_namespace(self, namespace: str) -> None:
        world = self._world
        for name in sorted(world.attentive_to_namespace.pop(namespace, ())):
            entry = world.cluster_queues.get(name)
            if entry is None:
                continue
            blocked = entry.queue.blocked
            if blocked is not None and blocked.key.namespace == namespace:
                entry.queue.unblock()
                world.touch(entry)
                world.settle_standing(entry)
            if not self._let_in_namespace(entry, namespace):
                world.attend_to_namespace(namespace, entry)

    def _let_in_namespace(self, entry: ClusterQueueEntry, namespace: str) -> bool:
        world = self._world
        if not selects_namespace(entry.spec.namespace_selector, world.namespaces.get(namespace)):
            return False
        entry.queue.wake_namespace(namespace)
        world.touch(entry)
        return True

    # --- workloads --------------------------------------------------------------------------------

    def _workload_changed(self, event: happened.WorkloadChanged, now: Instant) -> None:
        world, workload = self._world, event.workload
        entry = world.workloads.get(workload.key)
        if entry is not None and entry.workload.uid != workload.uid:
            self._forget(entry, now)
            entry = None
        if entry is None:
            entry = world.workloads[workload.key] = WorkloadEntry(workload)
            world.index_workload(entry)
            world.settle(entry, now)
            return
        former = entry.workload
        if not world.confirm(entry, workload):
            if former == workload:
                return
            world.observe_workload(entry, workload)
            may_be_preempted_by_others = (
                former.priority != workload.priority or former.queued_at != workload.queued_at
            )
            if may_be_preempted_by_others and entry.held is not None:
                world.wake_holders_tree(entry)
            world.settle(entry, now)
        charging.follow(world, entry, former, now)

    def _workload_deleted(self, event: happened.WorkloadDeleted, now: Instant) -> None:
        entry = self._world.workloads.get(event.key)
        if entry is not None and entry.workload.uid == event.uid:
            self._forget(entry, now)

    def _forget(self, entry: WorkloadEntry, now: Instant) -> None:
        """A workload that is gone is one that holds nothing and waits nowhere."""
        world = self._world
        world.unindex_workload(entry)
        del world.workloads[entry.workload.key]
        world.dequeue(entry)
        world.list_pending(entry, None)
        world.release(entry)
        world.second_passes.settle(entry.workload.key, now, needed=False)
        charging.discharge(world, entry)

    def _reservation_failed(self, event: happened.ReservationFailed, now: Instant) -> None:
        entry = self._world.workloads.get(event.key)
        if entry is not None and entry.workload.uid == event.uid and entry.assumed is not None:
            entry.assumed = None
            self._world.settle(entry, now)
            charging.discharge(self._world, entry)

    def _preemption_failed(self, event: happened.PreemptionFailed, _now: Instant) -> None:
        entry = self._world.workloads.get(event.key)
        if entry is not None and entry.workload.uid == event.uid:
            self._world.preemption_failed(entry)

    # --- cycles -----------------------------------------------------------------------------------

    def _cycles_requested(self, event: happened.CyclesRequested, now: Instant) -> None:
        world = self._world
        charging.settle_admissions(world)
        charging.take_samples(world, now)
        world.let_in_due(now)
        world.requeue_due(now)
        for name in world.with_empty_lanes:
            entry = world.cluster_queues.get(name)
            if entry is not None:
                entry.queue.drop_empty_lanes()
        world.with_empty_lanes.clear()
        if self._statuses and self._cycles and world.untold:
            tell_again(world)
        cycles = 0
        while (self._cycles and (event.limit is None or cycles < event.limit)) and (
            (of := heads(world)) or is_second_pass_due(world, now)
        ):
            run_cycle(world, of, now)
            cycles += 1

    # --- instructions -----------------------------------------------------------------------------

    def instructions(self) -> list[Instruction]:
        """What is to be done since this was last asked for.

        Where many events come at once, it costs less to ask after all of them than after each.

        Returns:
            Reservations in the order of decision, likewise preemptions and what besides is decided in cycles,
            then refusals to report (at most one a workload), then statuses to refresh; the last two only
            where the state was made to tell of statuses.
        """
        world = self._world
        result: list[Instruction] = []
        for decided in (
            world.reservations,
            world.preemptions,
            world.recomputations,
            world.second_pass_reports,
        ):
            if decided:
                result += decided
                decided.clear()
        if not self._statuses:
            world.reports.clear()
            world.touched_cluster_queues.clear()
            world.touched_local_queues.clear()
            world.forest.changed_cohorts.clear()
            return result
        if world.reports:
            result += world.reports.values()
            world.reports.clear()
        # Most events touch few statuses, or none.
        if world.touched_cluster_queues:
            self._refresh_cluster_queues(result)
        if world.touched_local_queues:
            self._refresh_local_queues(result)
        if world.forest.changed_cohorts:
            self._refresh_cohorts(result)
        return result

    def _refresh_cluster_queues(self, result: list[Instruction]) -> None:
        world = self._world
        tells_shares = world.settings.fair_sharing is not None
        for name in sorted(world.touched_cluster_queues):
            entry = world.cluster_queues.get(name)
            if entry is None:
                continue
            queue = entry.queue
            mark: ClusterQueueMark = (
                entry.spec,
                entry.causes,
                world.ledger.of_cluster_queue(name).age,
                len(queue.members),
                queue.inadmissible,
                entry.node.root.quota_generation if tells_shares else 0,
            )
            if mark != entry.shown:
                entry.shown = mark
                result.append(entry.refresh)
        world.touched_cluster_queues.clear()

    def _refresh_local_queues(self, result: list[Instruction]) -> None:
        world = self._world
        for key in sorted(world.touched_local_queues):
            entry = world.local_queues.get(key)
            if entry is None:
                continue
            queue = world.cluster_queues.get(entry.spec.cluster_queue)
            mark: LocalQueueMark = (
                _local_queue_reason(entry, queue),
                None if queue is None else queue.spec,
                world.ledger.of_local_queue(key).age,
                entry.pending,
                0 if world.books is None else world.books.age(key),
            )
            if mark != entry.shown:
                entry.shown = mark
                result.append(entry.refresh)
        world.touched_local_queues.clear()

    def _refresh_cohorts(self, result: list[Instruction]) -> None:
        changed = self._world.forest.changed_cohorts
        result += [RefreshCohort(name) for name in sorted(changed)]
        changed.clear()

    def _cluster_queue_status(self, entry: ClusterQueueEntry) -> ClusterQueueStatus:
        return cluster_queue_status(
            entry.spec,
            entry.node,
            entry.causes,
            self._world.ledger.of_cluster_queue(entry.spec.name),
            len(entry.queue.members),
            entry.queue.inadmissible,
            share=self._share(entry.node),
        )

    def _cohort_status(self, node: Node) -> CohortStatus:
        return cohort_status(node, share=self._share(node))

    def _share(self, node: Node) -> Share | None:
        return None if self._world.settings.fair_sharing is None else share(node)

    def _local_queue_status(self, entry: LocalQueueEntry) -> LocalQueueStatus:
        world = self._world
        queue = world.cluster_queues.get(entry.spec.cluster_queue)
        return local_queue_status(
            _local_queue_reason(entry, queue),
            None if queue is None else queue.spec,
            world.ledger.of_local_queue(entry.spec.key),
            entry.pending,
            charging.past_use(world, entry.spec.key),
        )


def _local_queue_reason(entry: LocalQueueEntry, queue: ClusterQueueEntry | None) -> LocalQueueReason:
    return local_queue_reason(
        entry.spec,
        cluster_queue_exists=queue is not None,
        cluster_queue_active=queue is not None and queue.is_active,
    )
