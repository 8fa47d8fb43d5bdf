"""One admission cycle: the head of every ClusterQueue that has one, in order, against quota as it is now.

1. *Nominate*: each head is refused, or assigned flavors against the quota at the beginning of the cycle;
   where unused quota does not suffice, those are sought whom it may preempt.
2. *Process* in the order of cycles, by the steps below: who still fits takes its quota at once, who preempts
   keeps the capacity that it will have, so that those behind see what is left. Who does not fit any more was
   beaten within this cycle.
3. *Requeue* whoever got nothing, by the table below.

Rules of this file
- Cycles run until nobody is left to be tried, so every cycle must bring the end nearer. Whoever is refused
  leaves the heads, or goes on with other flavors, or was beaten. Who was beaten is tried again if anybody of
  the tree got somewhere since it began: took quota, had victims told, or gave up what was kept for it.
- Whose turn would end as it did before *stands* (``queues``): those who wait for others to leave, and whom
  they beat. They do not ask for a cycle, but take part in every one of their tree. Who finds nobody to
  preempt does not stand, not even first in a StrictFIFO queue: what is kept for it is kept for one cycle, so
  that a queue that is held up does not hold up those who could borrow meanwhile.
- What is supposed in a cycle (``overlay``) is undone at its end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment, Mode, Prospect, TriedFlavor
from admitq.core.charging import charge
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Tournament
from admitq.core.flavors import PreemptionQuestion, assign, nobody_to_preempt
from admitq.core.instructions import Preempt, Recomputation, ReserveQuota, TargetsRecomputed
from admitq.core.model import (
    SECOND,
    Admission,
    ClusterQueue,
    Instant,
    ObjectKey,
    PodSetAssignment,
    QueueingStrategy,
    Workload,
)
from admitq.core.ordering import cycle_order
from admitq.core.overlay import Overlay, without
from admitq.core.partial_admission import assign_partially, may_shrink
from admitq.core.preemption import Preemptor, Victim, find_victims, never_preempts
from admitq.core.queues import Aside, Pending, Preemptions, ScanProgress
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    NobodyToPreempt,
    NoFlavorFits,
    OverlappingVictims,
    PodsNotReady,
    PreemptionGated,
    Refusal,
    TakenInThisCycle,
    WaitingForVictims,
)
from admitq.core.requests import PodSetDemand
from admitq.core.selectors import selects_namespace
from admitq.core.world import Assumption, ClusterQueueEntry, WorkloadEntry, World

CHECK_READY: Final = "Ready"
_FAILED_CHECKS: Final = ("Retry", "Rejected")

_LONGEST_SCAN: Final = 64
"""Attempts after which a scan of flavors ends although some are untried in combination with others: as many
as a resource group may have flavors."""

_RECLAIM_ALWAYS: Final = "Any"


# --- nominate -------------------------------------------------------------------------------------------


def _checks_failed(_world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    checks = workload.admission_checks
    failed = bool(checks) and any(state in _FAILED_CHECKS for _, state in checks)
    return AdmissionChecksFailed() if failed else None


def _inactive(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return None if queue.is_active else ClusterQueueInactive(queue.spec.name)


def _in_cyclic_tree(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return ClusterQueueNotFound(queue.spec.name) if queue.node.is_cyclic else None


def _namespace_not_selected(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    labels = world.namespaces.get(workload.key.namespace)
    return None if selects_namespace(queue.spec.namespace_selector, labels) else NamespaceMismatch()


def _resources_invalid(world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    problems = workload.resource_problems or world.resolved(workload).problems
    return InvalidResources(problems) if problems else None


_CHECKS: Final[tuple[Callable[[World, ClusterQueueEntry, Workload], Refusal | None], ...]] = (
    _checks_failed,
    _inactive,
    _in_cyclic_tree,
    _namespace_not_selected,
    _resources_invalid,
)
"""What is checked of a head before flavors are looked for; the first that refuses is told."""


def inadmissibility(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    """Why the workload would be refused whatever quota there is."""
    for check in _CHECKS:
        refusal = check(world, queue, workload)
        if refusal is not None:
            return refusal
    return None


@dataclass(slots=True, eq=False)
class Entry:
    """A head in its cycle."""

    queue: ClusterQueueEntry
    pending: Pending
    root: Node
    generation: int
    """Of the cohort tree, when the assignment was made."""
    is_preemptor: bool
    """Whether it waits for workloads that were preempted for it."""
    stood: bool
    """Whether it was only taken along."""
    scan: ScanProgress | None = None
    """Where the scan of flavors stands after this attempt."""
    since: int = 0
    """How far the tree had got when the scan started from the first flavor."""
    disturbed: bool = False
    """Whether the tree changed since then."""
    assignment: Assignment | None = None
    victims: tuple[Victim, ...] = ()
    refusal: Refusal | None = None
    deferred: bool = False
    """Whether it will fit once the victims of others have left."""
    keeps: bool = False
    """Whether capacity is kept for it in this cycle."""

    @property
    def workload(self) -> Workload:
        """The head."""
        return self.pending.workload

    @property
    def node(self) -> Node:
        """Its ClusterQueue's node."""
        return self.queue.node

    @property
    def usage(self) -> tuple[tuple[FlavorResource, int], ...]:
        """What it would take; nothing if it was refused."""
        return () if self.assignment is None else self.assignment.usage

    @property
    def priority(self) -> int:
        """Its effective priority."""
        return self.workload.priority

    @property
    def queued_at(self) -> Instant:
        """Its queue-order timestamp."""
        return self.workload.queued_at

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.workload.uid


def _valid_progress(world: World, pending: Pending, generation: int) -> ScanProgress | None:
    """Progress counts in the next cycle, or for as long as nothing changed in the cohort tree.

    Without gate FlavorFungibilityPreserveScanProgress only the latter counts.
    """
    progress = pending.progress
    if progress is None or progress.generation == generation:
        return progress
    preserve = world.settings.gates.flavor_fungibility_preserve_scan_progress
    return progress if preserve and world.cycle - progress.cycle <= 1 else None


_LookedFor = tuple[frozenset[tuple[FlavorResource, int]], frozenset[FlavorResource]]
"""A usage, and what of it is contested."""


class _Search:
    """The search of flavors and victims for one head, while nothing else happens.

    What was looked for once is remembered: mostly the question for one flavor is that for the whole usage.
    """

    def __init__(self, world: World, queue: ClusterQueueEntry, workload: Workload) -> None:
        self.world = world
        self.queue = queue
        self.preemptor = Preemptor(queue, workload)
        self.gone: tuple[ObjectKey, ...] = ()
        """Victims of others that were taken off the tree."""
        self.victims: tuple[Victim, ...] = ()
        """Whom to preempt for the assignment that was last found to suffice."""
        self._found: dict[_LookedFor, tuple[Victim, ...]] = {}
        self._oracle = nobody_to_preempt if never_preempts(queue.spec.preemption) else self.ask

    def _find(
        self, usage: dict[FlavorResource, int], contested: Iterable[FlavorResource]
    ) -> tuple[Victim, ...]:
        looked_for = (frozenset(usage.items()), frozenset(contested))
        found = self._found.get(looked_for)
        if found is None:
            found = find_victims(self.world, self.preemptor, usage, looked_for[1], self.gone)
            self._found[looked_for] = found
        return found

    def ask(self, question: PreemptionQuestion) -> Prospect:
        """What a flavor could be made to give by preempting for it alone."""
        pair, cell, amount = question
        victims = self._find({pair: amount}, (pair,))
        level = partial(quota.borrow_level, cell, amount)
        if not victims:
            return Prospect(Mode.NO_PREEMPTION_CANDIDATES, level().level)
        holders = [victim.entry for victim in victims]
        at_home = any(_holds_in(holder, self.queue.spec.name) for holder in holders)
        return Prospect(Mode.PREEMPT if at_home else Mode.RECLAIM, without(self.world, holders, level).level)

    def assign(
        self,
        demands: tuple[PodSetDemand, ...],
        *,
        tried: tuple[TriedFlavor, ...] = (),
        restrict_to: tuple[PodSetAssignment, ...] | None = None,
    ) -> Assignment:
        """Assign flavors as quota stands."""
        return assign(demands, self.queue.offer, tried=tried, oracle=self._oracle, restrict_to=restrict_to)

    def suffices(self, assignment: Assignment) -> bool:
        """Whether the workload gets what it was assigned, at once or when its victims have left."""
        if assignment.mode is Mode.FIT:
            self.victims = ()
            return True
        if assignment.mode is Mode.NO_FIT or never_preempts(self.queue.spec.preemption):
            return False
        victims = self._find(dict(assignment.usage), assignment.contested)
        if victims:
            self.victims = victims
        return bool(victims)

    def with_fewer_pods(self, demands: tuple[PodSetDemand, ...]) -> Assignment | None:
        """The most pods that suffice, where fewer than all will do."""
        if not (self.world.settings.gates.partial_admission and may_shrink(demands)):
            return None
        return assign_partially(demands, self.assign, self.suffices)


def _holds_in(entry: WorkloadEntry, cluster_queue: str) -> bool:
    return entry.held is not None and entry.held.cluster_queue == cluster_queue


def nominate(world: World, queue: ClusterQueueEntry, pending: Pending) -> Entry:
    """Refuse a head or assign it flavors, as quota stands."""
    root = queue.node.root
    generation = root.generation
    entry = Entry(
        queue,
        pending,
        root,
        generation,
        is_preemptor=queue.queue.is_claimant(pending),
        stood=queue.is_taken_along,
        since=root.progress,
    )
    queue.is_taken_along = False
    entry.refusal = inadmissibility(world, queue, pending.workload)
    lane = pending.lane
    if entry.refusal is not None or lane is None:
        return entry
    progress = _valid_progress(world, pending, generation)
    search, demands = _Search(world, queue, pending.workload), lane.shape.demands
    assignment = search.assign(demands, tried=() if progress is None else progress.tried)
    if not search.suffices(assignment):
        assignment = search.with_fewer_pods(demands) or assignment
    entry.assignment, entry.victims = assignment, search.victims
    if assignment.mode is Mode.NO_FIT:
        entry.refusal = assignment.refusal
    begun, attempts = generation, 1
    if progress is not None:
        begun, entry.since, attempts = progress.begun, progress.since, progress.attempts + 1
    entry.disturbed = begun != generation
    if assignment.tried and attempts < _LONGEST_SCAN:
        entry.scan = ScanProgress(assignment.tried, world.cycle, generation, begun, entry.since, attempts)
    return entry


# --- order ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Cycle:
    """A cycle that runs, and what it supposes of each cohort tree, by root."""

    world: World
    now: Instant
    tournament: Tournament[Entry] | None = None
    overlays: dict[Node, Overlay] = field(default_factory=dict[Node, Overlay])
    beaten: list[Entry] = field(default_factory=list[Entry])
    parked: list[Entry] = field(default_factory=list[Entry])

    def overlay(self, entry: Entry) -> Overlay:
        """What is supposed of the entry's tree."""
        found = self.overlays.get(entry.root)
        if found is None:
            found = self.overlays[entry.root] = Overlay(self.world)
        return found

    def turns(self, entries: list[Entry]) -> Iterator[Entry]:
        """The entries, in the order in which they are to be processed."""
        gates = self.world.settings.gates
        if len(entries) == 1:
            yield from entries
            return
        if self.world.settings.fair_sharing is None:
            yield from sorted(
                entries,
                key=lambda entry: cycle_order(
                    entry.workload,
                    0 if entry.assignment is None else entry.assignment.borrow_level,
                    gates,
                    preemptor=entry.is_preemptor,
                ),
            )
            return
        self.tournament = Tournament(entries, gates)
        while len(self.tournament):
            yield self.tournament.pop()

    def usage_changed(self, entry: Entry) -> None:
        """Have shares compared anew where the entry's usage counts."""
        if self.tournament is not None:
            self.tournament.usage_changed(entry.node)

    def keep(self, entry: Entry, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Leave capacity for an entry that gets nothing yet to those behind it no more, if there is any."""
        amounts = [(pair, amount) for pair, amount in usage if amount]
        if amounts:
            self.overlay(entry).keep(entry.node, amounts)
            entry.keeps = True
            self.usage_changed(entry)


# --- process --------------------------------------------------------------------------------------------


def _is_refused(_cycle: Cycle, entry: Entry) -> Refusal | None:
    """What nominating found: it is inadmissible, or no flavor fits and none could be made to."""
    return entry.refusal


def _spares_others_victims(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Whose victims are preempted for others already looks whether it will fit then, or finds others."""
    overlay = cycle.overlays.get(entry.root)
    gates = cycle.world.settings.gates
    if (
        overlay is None
        or entry.assignment is None
        or not gates.recompute_assignment_upon_preemption_targets_overlap
        or overlay.victims.keys().isdisjoint(victim.entry.workload.key for victim in entry.victims)
    ):
        return None
    search = _Search(cycle.world, entry.queue, entry.workload)
    search.gone = tuple(overlay.victims)
    found = overlay.without_victims((), partial(_assign_once_more, search, entry, entry.assignment))
    if found is None:
        result = Recomputation.SKIPPED
    elif found.mode is Mode.FIT:
        result = Recomputation.DEFERRED_FIT
        entry.assignment, entry.victims, entry.deferred = found, (), True
    else:
        result = Recomputation.NEW_TARGETS
        entry.assignment, entry.victims = found, search.victims
    cycle.world.recomputations.append(TargetsRecomputed(entry.queue.spec.name, result))
    return None


def _assign_once_more(search: _Search, entry: Entry, nominated: Assignment) -> Assignment | None:
    """An assignment of the flavors that were nominated, from the first on; None if it does not suffice."""
    lane = entry.pending.lane
    demands = () if lane is None else lane.shape.demands
    counts = {part.name: part.count for part in nominated.pod_sets}
    found = search.assign(
        tuple(demand.for_pods(counts[demand.pod_set.name]) for demand in demands),
        restrict_to=nominated.pod_sets,
    )
    return found if search.suffices(found) else None


def _finds_nobody_to_preempt(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Capacity is kept for it in this cycle, unless it can reclaim it whenever it likes."""
    assignment = entry.assignment
    if assignment is None or entry.deferred or entry.victims or assignment.mode is Mode.FIT:
        return None
    if entry.queue.spec.preemption.reclaim_within_cohort != _RECLAIM_ALWAYS:
        cycle.keep(entry, _within_reach(entry, assignment))
    return NobodyToPreempt(_refused(assignment))


def _within_reach(entry: Entry, assignment: Assignment) -> Iterator[tuple[FlavorResource, int]]:
    """What may be kept of its usage: up to the nominal quota, or where it borrows as far as it may borrow."""
    for pair, amount in assignment.usage:
        cell = entry.node.cells[pair]
        if not assignment.borrow_level:
            yield pair, max(0, min(amount, cell.nominal - cell.usage))
        elif cell.borrowing_limit is None:
            yield pair, amount
        else:
            yield pair, max(0, min(amount, cell.nominal + cell.borrowing_limit - cell.usage))


def _may_not_preempt(_cycle: Cycle, entry: Entry) -> Refusal | None:
    return PreemptionGated() if entry.victims and entry.workload.has_closed_preemption_gate else None


def _fits_after_others(cycle: Cycle, entry: Entry) -> Refusal | None:
    if not entry.deferred:
        return None
    cycle.keep(entry, entry.usage)
    return OverlappingVictims(will_fit=True)


def _overlaps(cycle: Cycle, entry: Entry) -> Refusal | None:
    if not entry.victims:
        return None
    taken = cycle.overlay(entry).victims.keys()
    if taken.isdisjoint(victim.entry.workload.key for victim in entry.victims):
        return None
    return OverlappingVictims(will_fit=False)


def _fits(entry: Entry) -> bool:
    cells = entry.node.cells
    return all(amount <= quota.available(cells[pair]) for pair, amount in entry.usage)


def _no_longer_fits(cycle: Cycle, entry: Entry) -> Refusal | None:
    """It has to fit once all victims have left; and one that takes quota at once while they have not, too."""
    overlay = cycle.overlays.get(entry.root)
    if overlay is None or overlay.is_empty:
        unchanged = entry.root.generation == entry.generation
        fits = unchanged or (_fits_without(cycle, entry) if entry.victims else _fits(entry))
    else:
        fits = _fits_without(cycle, entry) and (
            bool(entry.victims) or overlay.with_nothing_kept(partial(_fits, entry))
        )
    return None if fits else TakenInThisCycle()


def _fits_without(cycle: Cycle, entry: Entry) -> bool:
    overlay = cycle.overlay(entry)
    return overlay.without_victims((victim.entry for victim in entry.victims), partial(_fits, entry))


def _preempts(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Tell the victims, except those who leave already, and keep what it will have."""
    assignment = entry.assignment
    if not entry.victims or assignment is None:
        return None
    cycle.keep(entry, entry.usage)
    told = 0
    overlay = cycle.overlay(entry)
    for victim in entry.victims:
        overlay.victims[victim.entry.workload.key] = victim.entry
        if not victim.entry.is_leaving:
            cycle.world.preempt(_preemption(cycle.world, entry, victim))
            told += 1
    entry.pending.preemptions = Preemptions(len(entry.victims), told)
    if told:
        cycle.world.forest.got_somewhere(entry.root)
    return WaitingForVictims(len(entry.victims), _refused(assignment))


def _path(node: Node) -> tuple[str, ...]:
    return (*reversed([above.name for above in node.ancestors]), node.name)


def _preemption(world: World, entry: Entry, victim: Victim) -> Preempt:
    workload, held = victim.entry.workload, victim.entry.held
    of = None if held is None else world.cluster_queues.get(held.cluster_queue)
    return Preempt(
        workload.key,
        workload.uid,
        victim.reason,
        entry.workload.key,
        entry.workload.uid,
        _path(entry.node),
        () if of is None else _path(of.node),
    )


def _waits_for_pods(cycle: Cycle, _entry: Entry) -> Refusal | None:
    """Nothing is admitted while pods are not ready, where the configuration says so."""
    return PodsNotReady() if cycle.world.halt_if_unready() else None


_STEPS: Final[tuple[Callable[[Cycle, Entry], Refusal | None], ...]] = (
    _is_refused,
    _spares_others_victims,
    _finds_nobody_to_preempt,
    _may_not_preempt,
    _fits_after_others,
    _overlaps,
    _no_longer_fits,
    _preempts,
    _waits_for_pods,
)
"""What is asked of an entry when its turn comes (semantics, Cycle, Processing one entry). The first refusal
counts; who passes is admitted."""


_STEPS_OF_WHO_FITS: Final = (_no_longer_fits, _waits_for_pods)
"""Those of the steps that have anything to ask who was found to fit without preempting."""


def _refusal_of(cycle: Cycle, entry: Entry) -> Refusal | None:
    assignment = entry.assignment
    fits = entry.refusal is None and assignment is not None and assignment.mode is Mode.FIT
    for step in _STEPS_OF_WHO_FITS if fits and not (entry.victims or entry.deferred) else _STEPS:
        refusal = step(cycle, entry)
        if refusal is not None:
            return refusal
    return None


def _refused(assignment: Assignment) -> NoFlavorFits:
    """Why it does not fit as it is; every assignment that does not tells that."""
    assert assignment.refusal is not None  # noqa: S101 narrows the type
    return assignment.refusal


def needs_no_check(spec: ClusterQueue, workload: Workload, admission: Admission) -> bool:
    """Whether every admission check that applies with the assigned flavors is listed and ready."""
    if not spec.admission_checks:
        return True
    assigned = {flavor for part in admission.pod_set_assignments for _, flavor in part.flavors}
    states = dict(workload.admission_checks)
    return all(
        states.get(rule.name) == CHECK_READY
        for rule in spec.admission_checks
        if not rule.on_flavors or not assigned.isdisjoint(rule.on_flavors)
    )


def _reserve(cycle: Cycle, entry: Entry) -> None:
    """Count the reservation as if it were written, and have it written."""
    world, workload, assignment = cycle.world, entry.workload, entry.assignment
    assert assignment is not None  # noqa: S101 narrows the type
    record = world.workloads[workload.key]
    admission = Admission(entry.queue.spec.name, assignment.pod_sets)
    admit = needs_no_check(entry.queue.spec, workload, admission)
    world.dequeue(record)
    record.assumed = Assumption(admission, admit, cycle.now // SECOND * SECOND)
    world.settle_reservation(record)
    charge(world, record, admission)
    world.list_pending(record, None)
    world.reports.pop(workload.key, None)
    world.reservations.append(ReserveQuota(workload.key, workload.uid, admission, admit, assignment.attempts))
    world.forest.got_somewhere(entry.root)
    cycle.usage_changed(entry)


# --- requeue --------------------------------------------------------------------------------------------

_ASIDE: Final[Mapping[type[Refusal], Aside]] = {
    AdmissionChecksFailed: Aside.OWN,
    InvalidResources: Aside.OWN,
    ClusterQueueInactive: Aside.TREE,
    ClusterQueueNotFound: Aside.TREE,
    NamespaceMismatch: Aside.NAMESPACE,
}
"""Refusals that concern a workload for itself, whatever its equals meet."""


def _is_beaten(refusal: Refusal) -> bool:
    """Whether only others of the same cycle were in the way."""
    return isinstance(refusal, TakenInThisCycle) or (
        isinstance(refusal, OverlappingVictims) and not refusal.will_fit
    )


def _waits_for_others(refusal: Refusal) -> bool:
    """Whether it will fit once those have left who are told to."""
    return isinstance(refusal, WaitingForVictims) or (
        isinstance(refusal, OverlappingVictims) and refusal.will_fit
    )


def _scan_to_keep(world: World, entry: Entry, refusal: Refusal) -> ScanProgress | None:
    """Where the scan of flavors goes on, after an attempt that ended so (semantics, Cycle)."""
    if isinstance(refusal, PreemptionGated) or _waits_for_others(refusal):
        return None
    if _is_beaten(refusal) and not world.settings.gates.flavor_fungibility_preserve_scan_progress:
        return None
    return entry.scan


def _requeue(cycle: Cycle, entry: Entry, refusal: Refusal) -> None:
    """Put a head that got nothing where the next chance finds it."""
    world, pending, queue = cycle.world, entry.pending, entry.queue.queue
    world.report(pending, refusal)
    pending.progress = _scan_to_keep(world, entry, refusal)
    reason = _ASIDE.get(type(refusal))
    strict = queue.strategy is QueueingStrategy.STRICT_FIFO
    if reason is Aside.NAMESPACE or (reason is not None and not strict):
        world.set_aside(entry.queue, pending, reason)
        world.sleep_if_parked(entry.queue)
    elif _is_beaten(refusal):
        cycle.beaten.append(entry)
        return
    elif _waits_for_others(refusal):
        queue.claim(pending)
        world.stand(entry.queue, pending)
    elif isinstance(refusal, PodsNotReady) or pending.progress is not None or entry.disturbed:
        queue.enter(pending)
    else:
        queue.park(pending, refusal)
        cycle.parked.append(entry)
        world.sleep_if_parked(entry.queue, pending.lane)
    if entry.keeps and not queue.is_standing:
        world.forest.got_somewhere(entry.root)


def _calm(world: World, entry: Entry) -> None:
    """Leave who was parked asleep until that is available which it needs, if quota alone decides over it."""
    lane = entry.pending.lane
    if lane is None or not never_preempts(entry.queue.spec.preemption):
        return
    if world.settings.gates.partial_admission and may_shrink(lane.shape.demands):
        return
    needs = entry.queue.offer.plan(lane.shape.demands).shortage
    if needs is not None:
        entry.root.sleepers.calm(lane, needs)


def _try_again_or_stand(world: World, entry: Entry) -> None:
    """Who was beaten is worth another try if the next cycle can differ from this one."""
    if entry.pending.progress is None and entry.since == entry.root.progress:
        world.stand(entry.queue, entry.pending)
    else:
        entry.queue.queue.enter(entry.pending)


def _put_back(world: World, entry: Entry) -> None:
    """Leave an entry whose turn did not come as it was."""
    if entry.stood:
        world.stand(entry.queue, entry.pending)
    else:
        entry.queue.queue.enter(entry.pending)


# --- who is not tried -----------------------------------------------------------------------------------


def tell_again(world: World) -> None:
    """Tell those who wait what they lack now, where quota was given back that lets none of them in.

    Each would be refused if it was tried, and is told for what; only the turns are spared.
    """
    for root in [] if world.is_halted else sorted(world.untold, key=attrgetter("name")):
        for name in sorted(root.sleepers.names):
            queue = world.cluster_queues[name]
            for pending in queue.queue.first_refused() if queue.is_active else ():
                _refuse_again(world, queue, pending)
        world.untold.pop(root, None)


def _refuse_again(world: World, queue: ClusterQueueEntry, pending: Pending) -> None:
    lane = pending.lane
    if lane is None or inadmissibility(world, queue, pending.workload) is not None:
        # It is to be kept elsewhere than in a lane.
        world.wake_tree(queue.node)
        return
    assignment = assign(lane.shape.demands, queue.offer)
    no_candidates = assignment.mode is Mode.NO_PREEMPTION_CANDIDATES
    refusal = NobodyToPreempt(_refused(assignment)) if no_candidates else _refused(assignment)
    queue.queue.refuse_again(pending, refusal)
    world.report(pending, refusal)


# --- the cycle ------------------------------------------------------------------------------------------


def heads(world: World) -> list[tuple[ClusterQueueEntry, Pending]]:
    """Take the head of each active ClusterQueue that has one into flight, and of their trees those who stand.

    Empty while admission is halted.
    """
    result: dict[str, tuple[ClusterQueueEntry, Pending]] = {}
    for name in () if world.is_halted else sorted(world.candidates):
        queue = world.cluster_queues.get(name)
        pending = queue.queue.pop() if queue is not None and queue.is_active else None
        if queue is None or pending is None:
            world.candidates.discard(name)
            continue
        if queue.stands_under is not None:
            world.overtake(queue)
        result[name] = (queue, pending)
    if world.standing:
        for root in {queue.node.root: None for queue, _ in result.values()}:
            for queue in world.take_along(root):
                pending = queue.queue.pop()
                if pending is not None:
                    result[queue.spec.name] = (queue, pending)
    world.touched_cluster_queues.update(result)
    world.candidates.update(result)
    return [result[name] for name in sorted(result)]


def run_cycle(world: World, of: Iterable[tuple[ClusterQueueEntry, Pending]], now: Instant) -> None:
    """Decide over the heads in flight."""
    world.cycle += 1
    cycle = Cycle(world, now)
    entries = [nominate(world, queue, pending) for queue, pending in of]
    for entry in cycle.turns(entries):
        if world.is_halted:
            _put_back(world, entry)
            continue
        refusal = _refusal_of(cycle, entry)
        if refusal is None:
            _reserve(cycle, entry)
        else:
            _requeue(cycle, entry, refusal)
    for overlay in cycle.overlays.values():
        overlay.undo()
    for entry in cycle.beaten:
        _try_again_or_stand(world, entry)
    for entry in cycle.parked:
        _calm(world, entry)
