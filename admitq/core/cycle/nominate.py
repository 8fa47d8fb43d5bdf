"""Nominate: refuse each head, or assign flavors to it against the quota at the beginning of the cycle.

If unused quota is not enough, a search finds workloads that the head may preempt.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from admitq.core import quota
from admitq.core.activity import flavor_names
from admitq.core.amounts import FlavorResource
from admitq.core.applicable_checks import assigned_flavors, too_many_checks
from admitq.core.assignments import Assignment, FlavorFit, ScanStop
from admitq.core.cycle.entry import NO_PLACES, CycleEntry, NominatedPlaces
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.placing import Placing
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.cycle.waiting_for_room import causes_of_lacking_room
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.flavors import PreemptionQuestion, answer_without_preemption, assign
from admitq.core.instructions import FitMode
from admitq.core.model import PodSetAssignment, Workload
from admitq.core.overlay import Overlay, assign_replacement, evaluate_without, evaluate_without_original
from admitq.core.partial_admission import assign_partially, may_shrink
from admitq.core.preemption import ExcludedWorkloads, Preemptor, Victim, find_victims, never_preempts
from admitq.core.refusals import TooManyChecks
from admitq.core.requests import PodSetDemand
from admitq.core.topology.topologies import Place, is_room
from admitq.core.waiting.pending import PendingEntry, ScanProgress
from admitq.core.world import World

_LONGEST_SCAN: Final = 64
"""The greatest number of attempts of a scan, even if it has not tried all combinations of flavors. It is the
maximum number of flavors of a resource group."""


def valid_scan(world: World, scan: ScanProgress, generation: int) -> ScanProgress | None:
    """Return the scan if this attempt continues it; None if the attempt starts with the first flavor.

    A scan continues in the next cycle, or while the cohort tree is unchanged. Without gate
    FlavorFungibilityPreserveScanProgress, it continues only while the tree is unchanged.
    """
    if scan.generation == generation:
        return scan
    preserve = world.settings.gates.flavor_fungibility_preserve_scan_progress
    return scan if preserve and world.cycle - scan.cycle <= 1 else None


_SearchedUsage = tuple[frozenset[tuple[FlavorResource, int]], frozenset[FlavorResource], bool]
"""A usage, its contested (flavor, resource) pairs, and whether pods need places in a topology."""


class FlavorSearch:
    """The search for flavors and victims for one head, while the tree does not change.

    Victims are cached: a search for one flavor is often the same as the search for the whole usage. A
    workload that replaces an original is evaluated as if the original had left.

    Args:
        world: the world to search.
        queue: the ClusterQueue of the head.
        workload: the head.
        overlay: the overlay of the tree in this cycle, which has the indexes of candidates. None if the
            ClusterQueue never preempts.
    """

    __slots__ = (
        "_original",
        "_overlay",
        "_place_now",
        "_victims_by_question",
        "flavor_options",
        "places",
        "queue",
        "victims",
        "workload",
        "world",
    )

    def __init__(
        self, world: World, queue: ClusterQueueEntry, workload: Workload, overlay: Overlay | None
    ) -> None:
        self.world = world
        self.queue = queue
        self.flavor_options = queue.flavor_options
        self.workload = workload
        self._overlay = overlay
        self.victims: tuple[Victim, ...] = ()
        """The victims of the last assignment for which ``suffices`` returned True."""
        self.places: tuple[Place, ...] = ()
        """The places of this assignment once these victims have left."""
        self._place_now: Callable[[], tuple[Place, ...]] | None = None
        """Places the pods of the last assignment; None if these have no places."""
        self._original = world.original_of(queue.spec.name, workload)
        self._victims_by_question: dict[_SearchedUsage, tuple[Victim, ...]] = {}

    def _find_victims(
        self,
        usage: dict[FlavorResource, int],
        contested: Iterable[FlavorResource],
        has_room: Callable[[], object] | None = None,
    ) -> tuple[Victim, ...]:
        searched = (frozenset(usage.items()), frozenset(contested), has_room is not None)
        victims = self._victims_by_question.get(searched)
        if victims is None:
            preemptor = Preemptor(self.queue, self.workload)
            overlay, original = self._overlay, self._original
            assert overlay is not None, "the ClusterQueue preempts"  # noqa: S101 narrows the type
            excluded = overlay.excluded
            if original is not None:
                excluded = ExcludedWorkloads(excluded, (original.workload.key,))
            victims = find_victims(
                self.world, preemptor, usage, searched[1], excluded, overlay.indexes, has_room
            )
            self._victims_by_question[searched] = victims
        return victims

    def answer(self, question: PreemptionQuestion) -> FlavorFit:
        """Return what preemption for this (flavor, resource) alone could achieve."""
        pair, cell, amount = question
        victims = self._find_victims({pair: amount}, (pair,))
        level = partial(quota.borrow_level, cell, amount)
        if not victims:
            return FlavorFit(FitMode.NO_PREEMPTION_CANDIDATES, level().level)
        holders = [victim.entry for victim in victims]
        is_any_in_own_queue = any(_holds_in(holder, self.queue.spec.name) for holder in holders)
        return FlavorFit(
            FitMode.PREEMPT if is_any_in_own_queue else FitMode.RECLAIM,
            evaluate_without(self.world, holders, level).level,
        )

    def assign(
        self,
        demands: tuple[PodSetDemand, ...],
        *,
        scan_stops: tuple[ScanStop, ...] = (),
        restrict_to: tuple[PodSetAssignment, ...] | None = None,
    ) -> Assignment:
        """Assign flavors against the present quota."""
        # The oracle is not stored in an attribute: a bound method would create a reference cycle.
        oracle = answer_without_preemption if self._overlay is None else self.answer
        assign_flavors = partial(
            assign,
            demands,
            self.flavor_options,
            scan_stops=scan_stops,
            oracle=oracle,
            restrict_to=restrict_to,
        )
        if self._original is None:
            assignment = assign_flavors()
        else:
            assignment = assign_replacement(self.world, self._original, assign_flavors)
            self._update_indexes()
        if assignment.mode is FitMode.NO_FIT or not self.flavor_options.topologies:
            return assignment
        original = self._original
        placing = Placing(
            self.world.topologies,
            self.flavor_options,
            demands,
            assignment,
            None if original is None else original.admission,
            () if original is None else self.world.reservations.assigned_places(original),
        )
        assignment = placing.place()
        self._place_now = placing.place_now if assignment.places else None
        return assignment

    def suffices(self, assignment: Assignment) -> bool:
        """Whether the workload fits with the last assignment, now or once its victims have left."""
        if assignment.mode is FitMode.FIT:
            self.victims, self.places = (), assignment.places
            return True
        if assignment.mode is FitMode.NO_FIT or self._overlay is None:
            return False
        find_targets = partial(
            self._find_victims, dict(assignment.usage), assignment.contested, self._place_now
        )
        if self._original is None:
            victims = find_targets()
        else:
            victims = evaluate_without_original(self.world, self._original, find_targets)
            self._update_indexes()
        if victims:
            self.victims, self.places = victims, ()
            if self._place_now is not None:
                holders = [victim.entry for victim in victims]
                self.places = evaluate_without(self.world, holders, self._place_now)
        return bool(victims)

    def _update_indexes(self) -> None:
        """Update indexes that may have been built while the original was removed from the tree."""
        if self._overlay is not None:
            self._overlay.indexes.update(self.queue.node)

    def with_fewer_pods(
        self, demands: tuple[PodSetDemand, ...], scan_stops: tuple[ScanStop, ...]
    ) -> Assignment | None:
        """Return the assignment with the most pods that suffices, from the flavors after the stops on."""
        if self._original is not None or not (
            self.world.settings.gates.partial_admission and may_shrink(demands)
        ):
            return None
        return assign_partially(demands, partial(self.assign, scan_stops=scan_stops), self.suffices)


def _holds_in(entry: WorkloadEntry, cluster_queue: str) -> bool:
    return entry.held is not None and entry.held.cluster_queue == cluster_queue


def refuse_too_many_checks(queue: ClusterQueueEntry, assignment: Assignment) -> TooManyChecks | None:
    """Return a refusal if more checks apply to the assigned flavors than a workload can have; else None."""
    spec = queue.spec
    if assignment.mode is FitMode.NO_FIT or not spec.admission_checks:
        return None
    assigned = assigned_flavors(assignment.pod_sets)
    return too_many_checks(spec.name, spec.admission_checks, flavor_names(spec), assigned)


def nominated_places(world: World, places: tuple[Place, ...]) -> NominatedPlaces:
    """Return places that a head gets, with the present generation of the topologies."""
    topologies = world.topologies
    return NominatedPlaces(places, topologies.generation, topologies.moves) if places else NO_PLACES


def nominate(cycle: Cycle, queue: ClusterQueueEntry, pending: PendingEntry) -> CycleEntry:
    """Refuse a head, or assign flavors to it against the present quota."""
    world = cycle.world
    root = queue.node.root
    generation = root.generation
    entry = CycleEntry(
        queue,
        pending,
        root,
        generation,
        is_preemptor=queue.queue.positions.is_preemptor(pending.workload),
        blocking_state_before_cycle=queue.blocking_state_before_cycle,
        progress_at_start=root.progress,
    )
    queue.blocking_state_before_cycle = None
    entry.original = world.original_of(queue.spec.name, pending.workload)
    if entry.original is not None:
        entry.taken_over = world.assigned(entry.original)
    entry.refusal = inadmissibility(world, queue, pending.workload)
    lane = pending.lane
    if entry.refusal is not None or lane is None:
        return entry
    scan = None if pending.scan is None else valid_scan(world, pending.scan, generation)
    overlay = None if never_preempts(queue.spec.preemption) else cycle.overlay(entry)
    search, demands = FlavorSearch(world, queue, pending.workload, overlay), lane.key.demands
    scan_stops = () if scan is None else scan.scan_stops
    assignment = search.assign(demands, scan_stops=scan_stops)
    if not search.suffices(assignment):
        assignment = search.with_fewer_pods(demands, scan_stops) or assignment
    entry.refusal = refuse_too_many_checks(queue, assignment)
    if entry.refusal is None:
        entry.assignment, entry.victims = assignment, search.victims
        entry.nominated_places = nominated_places(world, search.places or assignment.places)
        if assignment.mode is FitMode.NO_FIT:
            entry.refusal = assignment.refusal
    if assignment.lacks_room:
        entry.causes.update(causes_of_lacking_room(world.topologies, entry, demands))
    generation_at_start, gains_at_start, attempts = generation, world.topologies.gains, 1
    if scan is not None:
        generation_at_start, gains_at_start = scan.generation_at_start, scan.gains_at_start
        attempts = scan.attempts + 1
        entry.progress_at_start, entry.lost_before = scan.progress_at_start, scan.has_lost
        entry.scan_continued = True
        entry.causes.update(scan.causes)
    has_gained_room = gains_at_start != world.topologies.gains and any(map(is_room, entry.causes))
    entry.changed_during_scan = generation_at_start != generation or has_gained_room
    if assignment.scan_stops and attempts < _LONGEST_SCAN:
        entry.scan = ScanProgress(
            assignment.scan_stops,
            world.cycle,
            generation,
            generation_at_start,
            entry.progress_at_start,
            attempts,
            entry.lost_before,
            gains_at_start=gains_at_start,
        )
    return entry
