"""All that decisions are made from, and the steps by which it is kept consistent.

Handlers of events change what was observed and then *settle* what follows from it: what a workload holds
(``settle_reservation``) and where it waits (``settle_place``) are recomputed from its value and compared
with what is on the books, so that there is one rule for each and none for every transition.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from admitq.core.activity import InactiveCause, Surroundings, check_names, flavor_names, inactive_causes
from admitq.core.admission_fair_sharing import Books
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Forest, Node
from admitq.core.holders import Holders
from admitq.core.instructions import (
    Preempt,
    RefreshClusterQueue,
    RefreshLocalQueue,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
    TargetsRecomputed,
)
from admitq.core.ledger import Ledger, Reservation, Usage, is_void, usage_of
from admitq.core.lifecycle import Phase, phase_of
from admitq.core.limit_ranges import limits_of
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    ExactAmounts,
    Instant,
    LimitRange,
    LocalQueue,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    StopPolicy,
    Workload,
)
from admitq.core.offers import Offer, offer_of
from admitq.core.queues import Aside, Pending, PendingQueue, local_queue_of, new_pending
from admitq.core.refusals import PreemptionsFailed, Refusal, WaitingForVictims
from admitq.core.replacing import Original, Replacements, beyond
from admitq.core.requests import RequestRules, Resolved, resolve
from admitq.core.second_pass import SecondPasses, is_needed
from admitq.core.settings import Settings
from admitq.core.statuses import ClusterQueueMark, LocalQueueMark


@dataclass(slots=True, eq=False)
class ClusterQueueEntry:
    """A ClusterQueue with all that belongs to it."""

    spec: ClusterQueue
    node: Node
    queue: PendingQueue
    offer: Offer
    causes: tuple[InactiveCause, ...] = ()
    is_taken_along: bool = False
    """Whether its first was taken into the cycle that runs because it stood."""
    shown: ClusterQueueMark | None = None
    """The mark of the status that a refresh was last asked for."""
    refresh: RefreshClusterQueue = field(init=False)
    """What asks for one."""

    def __post_init__(self) -> None:
        """Name what is to be refreshed."""
        self.refresh = RefreshClusterQueue(self.spec.name)

    @property
    def is_active(self) -> bool:
        """Whether it admits."""
        return not self.causes


@dataclass(slots=True, eq=False)
class LocalQueueEntry:
    """A LocalQueue, and how many workloads wait in it."""

    spec: LocalQueue
    pending: int = 0
    shown: LocalQueueMark | None = None
    refresh: RefreshLocalQueue = field(init=False)

    def __post_init__(self) -> None:
        """Name what is to be refreshed."""
        self.refresh = RefreshLocalQueue(self.spec.key)

    @property
    def is_open(self) -> bool:
        """Whether its workloads are queued."""
        return self.spec.stop_policy is StopPolicy.NONE and not self.spec.terminating


class Assumption(NamedTuple):
    """A reservation that was decided and has not been observed yet."""

    admission: Admission
    admit: bool
    reserved_at: Instant = 0

    @classmethod
    def decided(cls, admission: Admission, now: Instant, *, admit: bool) -> "Assumption":
        """A reservation that was decided now, as it will be observed: the API counts whole seconds."""
        return cls(admission, admit, now // SECOND * SECOND)


@dataclass(slots=True, eq=False)
class WorkloadEntry:
    """A workload as observed, and what follows from it."""

    workload: Workload
    assumed: Assumption | None = None
    held: Reservation | None = None
    """What is on the books for it."""
    listed_in: ObjectKey | None = None
    """The LocalQueue that counts it as pending."""
    queued_in: str | None = None
    """The ClusterQueue it waits in."""
    pending: Pending | None = None
    inactive_in: str | None = None
    """The ClusterQueue in which it is indexed as one that is inactive and shows a reservation."""
    preempting: Preempt | None = None
    """What was asked for to preempt it, until it is observed evicted, or not to be done."""
    local_queue: ObjectKey = field(init=False)
    """The LocalQueue that it names."""

    def __post_init__(self) -> None:
        """Name its LocalQueue."""
        self.local_queue = local_queue_of(self.workload)

    def observe(self, workload: Workload) -> None:
        """Take the workload as it is now."""
        if workload.queue_name != self.workload.queue_name:
            self.local_queue = local_queue_of(workload)
        self.workload = workload

    @property
    def admission(self) -> Admission | None:
        """The reservation that it has or is about to have."""
        if self.workload.admission is not None:
            return self.workload.admission
        return None if self.assumed is None else self.assumed.admission

    @property
    def is_admitted(self) -> bool:
        """Whether it is admitted or about to be."""
        if self.workload.admission is not None:
            return self.workload.admitted
        return self.assumed is not None and self.assumed.admit

    @property
    def reserved_at(self) -> Instant:
        """Since when it has the reservation; 0 without."""
        if self.workload.admission is not None:
            return self.workload.reserved_at
        return 0 if self.assumed is None else self.assumed.reserved_at

    @property
    def is_leaving(self) -> bool:
        """Whether it holds quota only until its job has stopped: it is evicted or about to be.

        What it is evicted by before it gets a reservation is the past.
        """
        workload = self.workload
        return self.preempting is not None or (workload.evicted and workload.admission is not None)

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return phase_of(self.workload, reserved=self.admission is not None, admitted=self.is_admitted)


_DECIDED: Final = frozenset({"admission", "admitted", "reserved_at"})

_not_decided: Final[Callable[[Workload], object]] = attrgetter(
    *(each.name for each in fields(Workload) if each.name not in _DECIDED)
)
"""All of a workload that a reservation leaves as it is."""


@lru_cache(maxsize=4096)
def _runtime_classes(pod_sets: tuple[PodSet, ...]) -> frozenset[str]:
    """Those that podsets name. Kept, because it is asked for whenever a workload comes or goes."""
    names = [pod_set.template.runtime_class for pod_set in pod_sets]
    return frozenset(name for name in names if name is not None)


_STAYING: Final = (Phase.ADMITTED, Phase.RESERVED)

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")


def _discard(index: dict[_Key, dict[_Member, Any]], key: _Key, member: _Member) -> bool:
    """Take a member out of an index; whether that left nobody under the key."""
    members = index[key]
    del members[member]
    if members:
        return False
    del index[key]
    return True


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


class SampleTimer(NamedTuple):
    """The instant at which time is to be let pass for a LocalQueue."""

    at: Instant
    key: ObjectKey


class SeenAdmitted(NamedTuple):
    """That a workload was seen admitted, by the LocalQueue that is to be charged."""

    at: Instant
    local_queue: ObjectKey
    uid: str


@dataclass(eq=False)
class World:
    """The state of all queues. Everything here is changed by event handlers and cycles alone."""

    settings: Settings = field(default_factory=Settings)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict[str, ResourceFlavor])
    checks: dict[str, AdmissionCheck] = field(default_factory=dict[str, AdmissionCheck])
    topologies: dict[str, None] = field(default_factory=dict[str, None])
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    cohorts: dict[str, Cohort] = field(default_factory=dict[str, Cohort])
    cluster_queues: dict[str, ClusterQueueEntry] = field(default_factory=dict[str, ClusterQueueEntry])
    local_queues: dict[ObjectKey, LocalQueueEntry] = field(default_factory=dict[ObjectKey, LocalQueueEntry])
    workloads: dict[ObjectKey, WorkloadEntry] = field(default_factory=dict[ObjectKey, WorkloadEntry])
    forest: Forest = field(default_factory=Forest)
    ledger: Ledger = field(default_factory=Ledger)
    holders: Holders[WorkloadEntry] = field(default_factory=Holders[WorkloadEntry])
    books: Books | None = None
    """What LocalQueues used, by admission fair sharing; None where that is off."""
    local_queue_usage: Callable[[ObjectKey], Any] | None = None
    """The same of one LocalQueue, as a value that sorts."""
    seen_admitted: list[SeenAdmitted] = field(default_factory=list[SeenAdmitted])
    """Who was seen admitted at the present instant and is to be settled when it is over."""
    seen_leaving: set[str] = field(default_factory=set[str])
    """Uids of those of them whose charge is to be forgotten thereafter."""
    samples: list[SampleTimer] = field(default_factory=list[SampleTimer])
    limit_ranges: dict[str, dict[str, LimitRange]] = field(default_factory=dict[str, dict[str, LimitRange]])
    """By namespace and name."""
    overheads: dict[str, ExactAmounts] = field(default_factory=dict[str, ExactAmounts])
    """By RuntimeClass, what its pods need beside what their containers ask for."""
    cycle: int = 0
    """How many cycles have run."""
    deciding: ObjectKey | None = None
    """The workload that a cycle decides over at the moment."""
    replacements: Replacements[WorkloadEntry] = field(default_factory=Replacements[WorkloadEntry])
    outdated: list[WorkloadEntry] = field(default_factory=list[WorkloadEntry])
    """Who was in flight while what it is to take over changed."""
    circles: dict[ObjectKey, None] = field(default_factory=dict[ObjectKey, None])
    """Of circles of replacements that closed or broke, those who are to be counted anew."""
    unready: set[ObjectKey] = field(default_factory=set[ObjectKey])
    """Admitted workloads whose pods are not ready, where admission waits for that."""
    is_halted: bool = False
    """Whether a workload found admission blocked by them: no cycle runs until there are none."""
    _rules: dict[str, RequestRules] = field(default_factory=dict[str, RequestRules])

    # Indexes: who must be looked at when something changes.
    local_queues_of: dict[str, dict[ObjectKey, None]] = field(
        default_factory=dict[str, dict[ObjectKey, None]]
    )
    workloads_of: dict[ObjectKey, dict[ObjectKey, WorkloadEntry]] = field(
        default_factory=dict[ObjectKey, dict[ObjectKey, WorkloadEntry]]
    )
    users_of_flavor: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    users_of_check: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    local_queues_in: dict[str, dict[ObjectKey, None]] = field(
        default_factory=dict[str, dict[ObjectKey, None]]
    )
    """LocalQueues that workloads of the namespace name."""
    users_of_runtime_class: dict[str, dict[ObjectKey, WorkloadEntry]] = field(
        default_factory=dict[str, dict[ObjectKey, WorkloadEntry]]
    )
    attentive_to_namespace: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """ClusterQueues that may have somebody to try once a namespace is selected, or is not any more."""

    inactive_in: dict[str, dict[ObjectKey, WorkloadEntry]] = field(
        default_factory=dict[str, dict[ObjectKey, WorkloadEntry]]
    )
    """Inactive workloads that show a reservation and were evicted, by ClusterQueue."""

    untold: dict[Node, None] = field(default_factory=dict[Node, None])
    """Roots of trees in which quota was given back that lets nobody in: what they lack has changed."""

    # What is to be done.
    candidates: set[str] = field(default_factory=set[str])
    """ClusterQueues that may have somebody to try; a superset."""
    paused: frozenset[str] = frozenset()
    """ClusterQueues whose heads take no part in cycles."""
    with_empty_lanes: set[str] = field(default_factory=set[str])
    requeues: dict[str, Instant | None] = field(default_factory=dict[str, Instant | None])
    """ClusterQueues whose trees were woken and have to wait for their batch, and when that is due; None for
    those who were woken just now."""
    timers: list[Timer] = field(default_factory=list[Timer])
    second_passes: SecondPasses = field(default_factory=SecondPasses)
    """Those who hold quota and are to be tried once more."""
    reservations: list[ReserveQuota] = field(default_factory=list[ReserveQuota])
    preemptions: list[Preempt] = field(default_factory=list[Preempt])
    recomputations: list[TargetsRecomputed] = field(default_factory=list[TargetsRecomputed])
    second_pass_reports: list[ReportSecondPass] = field(default_factory=list[ReportSecondPass])
    reports: dict[ObjectKey, ReportPending] = field(default_factory=dict[ObjectKey, ReportPending])
    touched_cluster_queues: set[str] = field(default_factory=set[str])
    touched_local_queues: set[ObjectKey] = field(default_factory=set[ObjectKey])

    def __post_init__(self) -> None:
        """Keep books if the configuration says so."""
        sharing = self.settings.admission_fair_sharing
        if sharing is not None and self.settings.gates.admission_fair_sharing:
            self.books = Books(sharing)
            self.local_queue_usage = self.books.usage

    # --- noting what changed ----------------------------------------------------------------------

    def touch(self, entry: ClusterQueueEntry) -> None:
        """Note that a ClusterQueue's numbers may differ and that somebody may be to be tried."""
        self.touched_cluster_queues.add(entry.spec.name)
        self.candidates.add(entry.spec.name)

    def touch_local_queues_of(self, cluster_queue: str) -> None:
        """Note that what LocalQueues show of their ClusterQueue may differ."""
        self.touched_local_queues.update(self.local_queues_of.get(cluster_queue, ()))

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
        entries = [self.cluster_queues[name] for name in sorted(root.sleepers.standing.keys() - self.paused)]
        for entry in entries:
            self.overtake(entry)
            entry.is_taken_along = True
        return entries

    @staticmethod
    def _unlist_standing(entry: ClusterQueueEntry) -> None:
        entry.node.root.sleepers.standing.pop(entry.spec.name, None)

    # --- what decides over requests ---------------------------------------------------------------

    def rules_of(self, namespace: str) -> RequestRules:
        """What decides in a namespace what podsets ask for."""
        rules = self._rules.get(namespace)
        if rules is None:
            ranges = self.limit_ranges.get(namespace, {})
            rules = self._rules[namespace] = RequestRules(
                self.settings.resources,
                limits_of(ranges[name] for name in sorted(ranges)),
                tuple(sorted(self.overheads.items())),
                self.settings.gates.reclaimable_pods,
            )
        return rules

    def resolved(self, workload: Workload) -> Resolved:
        """What the podsets of a workload ask for, and whether that can be given at all."""
        return resolve(workload.pod_sets, workload.reclaimable_pods, self.rules_of(workload.key.namespace))

    def limit_ranges_changed(self, namespace: str) -> None:
        """Resolve anew what waits in a namespace."""
        self._rules.pop(namespace, None)
        for key in self.local_queues_in.get(namespace, ()):
            self._readjust(self.workloads_of[key])

    def runtime_class_changed(self, name: str) -> None:
        """Resolve anew what waits and names a RuntimeClass."""
        self._rules.clear()
        self._readjust(self.users_of_runtime_class.get(name, {}))

    def _readjust(self, workloads: Mapping[ObjectKey, WorkloadEntry]) -> None:
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

    # --- ClusterQueues ----------------------------------------------------------------------------

    @property
    def surroundings(self) -> Surroundings:
        """What ClusterQueues may refer to."""
        return Surroundings(self.flavors, self.checks, self.topologies, self.settings)

    def index_cluster_queue(self, spec: ClusterQueue) -> None:
        """Know whom to look at when a flavor or check changes."""
        for name in flavor_names(spec):
            self.users_of_flavor.setdefault(name, {})[spec.name] = None
        for name in check_names(spec):
            self.users_of_check.setdefault(name, {})[spec.name] = None

    def unindex_cluster_queue(self, spec: ClusterQueue) -> None:
        """Undo ``index_cluster_queue``."""
        for index, names in (
            (self.users_of_flavor, flavor_names(spec)),
            (self.users_of_check, check_names(spec)),
        ):
            for name in names:
                users = index[name]
                del users[spec.name]
                if not users:
                    del index[name]

    def lay_out_offer(self, entry: ClusterQueueEntry) -> None:
        """Lay out anew what a ClusterQueue gives."""
        entry.offer = offer_of(entry.spec, self.forest, entry.node, self.flavors, self.settings)

    def settle_activity(self, entry: ClusterQueueEntry) -> None:
        """Recompute whether a ClusterQueue admits, after it or what it refers to changed."""
        causes = inactive_causes(entry.spec, self.surroundings)
        if causes == entry.causes:
            return
        was_active, entry.causes = entry.is_active, causes
        self.touch(entry)
        if was_active == entry.is_active:
            return
        self.touch_local_queues_of(entry.spec.name)
        if entry.is_active:
            self.wake(entry)
        else:
            entry.queue.forget_refusals()
            entry.queue.unblock()
            self.settle_standing(entry)
        # Who holds quota in it may be preempted for others, or no more.
        self.wake_tree(entry.node)

    # --- workloads --------------------------------------------------------------------------------

    def index_workload(self, entry: WorkloadEntry) -> None:
        """Know the workload where something changes that concerns those of its LocalQueue or RuntimeClass."""
        workload = entry.workload
        if workload.finished:
            return
        queue = entry.local_queue
        of_queue = self.workloads_of.get(queue)
        if of_queue is None:
            of_queue = self.workloads_of[queue] = {}
            self.local_queues_in.setdefault(queue.namespace, {})[queue] = None
        of_queue[workload.key] = entry
        self.replacements.add(entry)
        self._note_circle(workload.key)
        for name in _runtime_classes(workload.pod_sets):
            self.users_of_runtime_class.setdefault(name, {})[workload.key] = entry

    def observe_workload(self, entry: WorkloadEntry, workload: Workload) -> None:
        """Take a workload as it is now, and index it anew where that makes a difference."""
        former = entry.workload
        if (
            former.finished == workload.finished
            and former.queue_name == workload.queue_name
            and former.pod_sets == workload.pod_sets
            and former.replaces == workload.replaces
        ):
            entry.observe(workload)
            return
        self.unindex_workload(entry)
        entry.observe(workload)
        self.index_workload(entry)
        if former.replaces is not None and former.replaces != workload.replaces:
            self._recount(former.replaces)

    def confirm(self, entry: WorkloadEntry, workload: Workload) -> bool:
        """Take a workload of which only that is new what was decided and is on the books already.

        That is what mostly happens: a reservation is written as it was decided, and then observed.

        Returns:
            Whether it is so; if not, nothing is done.
        """
        assumed = entry.assumed
        confirmed = (
            assumed is not None
            and workload.admitted == assumed.admit
            and workload.reserved_at == assumed.reserved_at
            and workload.admission == assumed.admission
            and not (workload.finished or workload.evicted or workload.admission_checks)
            and _not_decided(workload) == _not_decided(entry.workload)
        )
        if confirmed:
            entry.assumed, entry.workload = None, workload
            if self.settings.block_admission:
                self._watch_pods(entry)
        return confirmed

    def unindex_workload(self, entry: WorkloadEntry) -> None:
        """Undo ``index_workload``."""
        if entry.workload.finished:
            return
        key, queue = entry.workload.key, entry.local_queue
        self._note_circle(key)
        self.replacements.remove(entry)
        if _discard(self.workloads_of, queue, key):
            _discard(self.local_queues_in, queue.namespace, queue)
        for name in _runtime_classes(entry.workload.pod_sets):
            _discard(self.users_of_runtime_class, name, key)

    def settle(self, entry: WorkloadEntry, now: Instant) -> None:
        """Bring the books in line with the workload as it is now."""
        self.settle_reservation(entry)
        self.settle_place(entry, now)
        self.second_passes.settle(entry.workload.key, now, needed=is_needed(entry.workload))

    def settle_reservation(self, entry: WorkloadEntry) -> None:
        """Count what the workload holds, and wake who may have what it gave back."""
        workload, assumed = entry.workload, entry.assumed
        if assumed is not None and (workload.admission is not None or workload.finished):
            entry.assumed = None
        self._index_inactive(entry)
        reservation = self._reservation_of(entry)
        if reservation is None or (workload.evicted and workload.admission is not None):
            entry.preempting = None
        self._hold(entry, reservation)
        self._holds_otherwise(entry)
        if self.settings.block_admission:
            self._watch_pods(entry)

    def _index_inactive(self, entry: WorkloadEntry, *, is_gone: bool = False) -> None:
        """Find the workload where its ClusterQueue is created, if it may be charged to it or not then."""
        workload, key = entry.workload, entry.workload.key
        is_held_back = not workload.active and workload.evicted and not (workload.finished or is_gone)
        admission = workload.admission if is_held_back else None
        name = None if admission is None else admission.cluster_queue
        if name == entry.inactive_in:
            return
        if entry.inactive_in is not None:
            _discard(self.inactive_in, entry.inactive_in, key)
        if name is not None:
            self.inactive_in.setdefault(name, {})[key] = entry
        entry.inactive_in = name

    def settle_inactive_in(self, cluster_queue: str) -> None:
        """Charge inactive workloads, or do not, to a ClusterQueue that was created or is gone."""
        for entry in list(self.inactive_in.get(cluster_queue, {}).values()):
            self._hold(entry, self._reservation_of(entry))
            self._holds_otherwise(entry)
            if self.settings.block_admission:
                self._watch_pods(entry)

    def is_void(self, entry: WorkloadEntry) -> bool:
        """Whether the reservation that a workload shows is charged to nothing."""
        admission = entry.workload.admission
        queue = None if admission is None else self.cluster_queues.get(admission.cluster_queue)
        return queue is not None and is_void(entry.workload, queue.spec)

    def release(self, entry: WorkloadEntry) -> None:
        """Take what a workload that is gone has held."""
        self._index_inactive(entry, is_gone=True)
        self._hold(entry, None)
        self._holds_otherwise(entry)
        self._watch_pods(entry)

    def preempt(self, instruction: Preempt) -> None:
        """Have a workload preempted; it counts as leaving from now on."""
        entry = self.workloads[instruction.key]
        entry.preempting = instruction
        self._holds_otherwise(entry)
        self.preemptions.append(instruction)

    def preemption_failed(self, entry: WorkloadEntry) -> None:
        """A workload is not preempted after all: others must be found, or the same be told again.

        If that is so of all whom its preemptor waits for, that is told of the preemptor.
        """
        told, entry.preempting = entry.preempting, None
        if told is None:
            return
        self._holds_otherwise(entry)
        preemptor = self.workloads.get(told.preemptor)
        if preemptor is not None and preemptor.workload.uid == told.preemptor_uid:
            self._count_failure(preemptor.pending)
        self.wake_holders_tree(entry)

    def _count_failure(self, pending: Pending | None) -> None:
        if pending is None or pending.preemptions is None:
            return
        failed = pending.preemptions.failed + 1
        pending.preemptions = pending.preemptions._replace(failed=failed)
        if isinstance(pending.refusal, WaitingForVictims) and failed == pending.preemptions.victims:
            self.report(pending, PreemptionsFailed(failed, pending.refusal.refused))

    def wake_holders_tree(self, entry: WorkloadEntry) -> None:
        """Who may preempt a workload that holds quota may have changed."""
        queue = None if entry.held is None else self.cluster_queues.get(entry.held.cluster_queue)
        if queue is not None:
            self.wake_tree(queue.node)

    def report(self, pending: Pending, refusal: Refusal) -> None:
        """Have a refusal written, if it is not what the status tells already."""
        if pending.refusal is refusal or pending.refusal == refusal:
            return
        pending.refusal = refusal
        workload = pending.workload
        demands = pending.lane.shape.demands if pending.lane is not None else ()
        self.reports[workload.key] = ReportPending(
            workload.key,
            workload.uid,
            refusal,
            tuple((demand.pod_set.name, demand.totals) for demand in demands),
        )

    def settle_pods_in(self, cluster_queue: str) -> None:
        """Wait for pods of workloads admitted in a ClusterQueue that was created, or is gone, or do not."""
        if not self.settings.block_admission:
            return
        for of in (self.holders.staying, self.holders.leaving):
            for _, entry in list(of(cluster_queue)):
                self._watch_pods(entry)

    def awaits_pods(self, entry: WorkloadEntry) -> bool:
        """Whether the workload is admitted in a ClusterQueue that exists, and its pods are not ready."""
        held = entry.held
        is_charged = held is not None and held.admitted and held.cluster_queue in self.cluster_queues
        return is_charged and not entry.workload.pods_ready

    def _watch_pods(self, entry: WorkloadEntry) -> None:
        """Know whether admission has to wait for the workload's pods."""
        if self.awaits_pods(entry):
            self.unready.add(entry.workload.key)
            return
        self.unready.discard(entry.workload.key)
        if not self.unready:
            self.is_halted = False

    def halt_if_unready(self) -> bool:
        """Whether admission has to wait for pods; if so, no cycle runs until they are ready."""
        self.is_halted = bool(self.unready)
        return self.is_halted

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
            self._book(held, add=False, count_usage=moved)
        if reservation is not None:
            self._book(reservation, add=True, count_usage=moved)
        if held is not None and moved:
            queue = self.cluster_queues.get(held.cluster_queue)
            if queue is not None:
                self._released(queue.node, held.usage)

    def _released(self, node: Node, usage: Usage) -> None:
        if self.forest.may_let_in(node, usage):
            self.wake_tree(node)
        elif (root := node.root).sleepers.names:
            self.untold[root] = None

    def _reservation_of(self, entry: WorkloadEntry) -> Reservation | None:
        workload, assumed = entry.workload, entry.assumed
        if workload.finished or self.is_void(entry):
            return None
        admission, admitted = workload.admission, workload.admitted
        if admission is None:
            if assumed is None:
                return None
            admission, admitted = assumed.admission, assumed.admit
        usage = self._usage_of(workload, admission)
        if workload.replaces is not None:
            usage = self._counted(entry, usage)
        return Reservation(admission.cluster_queue, entry.local_queue, usage, admitted)

    def _usage_of(self, workload: Workload, admission: Admission) -> Usage:
        return usage_of(workload, admission, reclaimable_pods=self.settings.gates.reclaimable_pods)

    # --- replacements -----------------------------------------------------------------------------

    def _original(self, workload: Workload) -> WorkloadEntry | None:
        key = workload.replaces
        return None if key is None or key == workload.key else self.workloads.get(key)

    def _counted(self, entry: WorkloadEntry, usage: Usage) -> Usage:
        """What a replacement counts with: what its original, while it holds quota, does not count with."""
        original = self._original(entry.workload)
        if original is None or original.admission is None or self.replacements.heir(original) is not entry:
            return usage
        if self.is_void(original):
            return usage
        return beyond(usage, self._usage_of(original.workload, original.admission))

    def assigned(self, entry: WorkloadEntry) -> Usage:
        """What a workload was assigned, whether it counts with it or the one it replaces still does."""
        return () if entry.admission is None else self._usage_of(entry.workload, entry.admission)

    def original_of(self, cluster_queue: str, workload: Workload) -> WorkloadEntry | None:
        """Whose quota the workload takes over if it is let in now."""
        original = self._original(workload)
        if original is None or original.is_leaving or original.phase not in _STAYING:
            return None
        if self.replacements.circle(workload.key):
            return None  # It would count with all that it has.
        held = original.held
        if held is None or held.cluster_queue != cluster_queue:
            return None
        return original if self.replacements.heir(original) is None else None

    def what_to_take_over(self, cluster_queue: str, workload: Workload) -> Original | None:
        """The same as a value."""
        original = self.original_of(cluster_queue, workload)
        if original is None or original.admission is None:
            return None
        return Original(original.workload.key, original.admission, self.assigned(original))

    def _holds_otherwise(self, entry: WorkloadEntry) -> None:
        """Give who holds quota its place; and have those look again who are to take over the same quota."""
        self.holders.put(entry)
        workload = entry.workload
        self._recount(workload.key)
        if workload.replaces is not None:
            self._recount(workload.replaces, but=entry)
        circles, self.circles = self.circles, {}
        for key in circles:
            self._recount(key, but=entry)

    def _note_circle(self, key: ObjectKey) -> None:
        """In a circle nobody takes over anything: have all of it counted anew when one comes or goes."""
        self.circles.update(dict.fromkeys(self.replacements.circle(key)))

    def _recount(self, original: ObjectKey, but: WorkloadEntry | None = None) -> None:
        """Count those anew who are to replace a workload, or have them look again."""
        for each in self.replacements.of(original):
            if each is but:
                continue
            self._hold(each, self._reservation_of(each))
            self.holders.put(each)
            self._look_again(each)

    def _look_again(self, entry: WorkloadEntry) -> None:
        if entry.pending is not None and entry.pending.in_flight:
            self.outdated.append(entry)
        else:
            self._readjust({entry.workload.key: entry})

    def settle_outdated(self) -> None:
        """Look again at those who were in flight, now that they are not."""
        outdated, self.outdated = self.outdated, []
        for entry in outdated:
            self._look_again(entry)

    def _book(self, reservation: Reservation, *, add: bool, count_usage: bool) -> None:
        self.touched_local_queues.add(reservation.local_queue)
        queue = self.cluster_queues.get(reservation.cluster_queue)
        if queue is None:
            return
        self.touched_cluster_queues.add(reservation.cluster_queue)
        if count_usage:
            change = self.forest.add_usage if add else self.forest.remove_usage
            change(queue.node, reservation.usage)

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
        self.touched_local_queues.add(key)
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
