"""Process the entries of a cycle: refuse an entry by a list of steps, or reserve quota for it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from admitq.core import quota
from admitq.core.activity import flavor_names
from admitq.core.amounts import FlavorResource
from admitq.core.applicable_checks import applicable_checks, assigned_flavors
from admitq.core.assignments import Assignment
from admitq.core.charging import charge
from admitq.core.cohorts import Node
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.nominate import FlavorSearch, nominated_places
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.entries import Assumption
from admitq.core.instructions import FitMode, Preempt, Recomputation, ReserveQuota, TargetsRecomputed
from admitq.core.model import (
    Admission,
    CheckState,
    ClusterQueue,
    Workload,
)
from admitq.core.preemption import Victim, reserves_capacity
from admitq.core.refusals import (
    NoPreemptionTargets,
    OverlappingTargets,
    PodsNotReady,
    PreemptionGated,
    QuotaTakenInCycle,
    Refusal,
    WaitingForTargets,
)
from admitq.core.topology.topologies import room_of
from admitq.core.waiting.pending import PreemptionCounts
from admitq.core.world import World


def _refuse_as_nominated(_cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Return the refusal of the nomination: the head is inadmissible, or no flavor suffices."""
    return entry.refusal


def _refuse_without_original(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Refuse a replacement if its original released quota in this cycle: it must then request all quota."""
    if entry.original is None:
        return None
    is_unchanged = cycle.world.original_of(entry.queue.spec.name, entry.workload) is entry.original
    return None if is_unchanged else QuotaTakenInCycle()


def _assign_again_if_targets_overlap(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Assign flavors again to an entry after another head of the cycle preempted some of its targets.

    The entry may fit once these targets have left, or it may find other targets.
    """
    overlay = cycle.overlays.get(entry.root)
    gates = cycle.world.settings.gates
    if (
        overlay is None
        or entry.assignment is None
        or not gates.recompute_assignment_upon_preemption_targets_overlap
        or not overlay.has_any_victim(entry.victims)
    ):
        return None
    search = FlavorSearch(cycle.world, entry.queue, entry.workload, overlay)
    assignment = overlay.evaluate_without_victims(
        entry.node, (), partial(_assign_again, search, entry, entry.assignment)
    )
    if assignment is None:
        result = Recomputation.SKIPPED
    elif assignment.mode is FitMode.FIT:
        result = Recomputation.DEFERRED_FIT
        entry.assignment, entry.victims, entry.fits_after_others = assignment, (), True
        entry.nominated_places = nominated_places(cycle.world, search.places)
    else:
        result = Recomputation.NEW_TARGETS
        entry.assignment, entry.victims = assignment, search.victims
        entry.nominated_places = nominated_places(cycle.world, search.places)
    cycle.world.outbox.recomputations.append(TargetsRecomputed(entry.queue.spec.name, result))
    return None


def _assign_again(search: FlavorSearch, entry: CycleEntry, nominated: Assignment) -> Assignment | None:
    """Return a new assignment with the nominated flavors; None if it does not suffice."""
    lane = entry.pending.lane
    demands = () if lane is None else lane.key.demands
    counts = {part.name: part.count for part in nominated.pod_sets}
    assignment = search.assign(
        tuple(demand.for_pods(counts[demand.pod_set.name]) for demand in demands),
        restrict_to=nominated.pod_sets,
    )
    return assignment if search.suffices(assignment) else None


def _place_again_if_taken(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Find other places, in the topologies of the same flavors, for an entry that lost those it had."""
    world, nominated = cycle.world, entry.assignment
    if (
        not entry.places
        or nominated is None
        or _is_unchanged(cycle, entry)
        or world.topologies.placement is None
        or not world.topologies.placement.places_again
        or world.topologies.fit(entry.places)
    ):
        return None
    search = FlavorSearch(world, entry.queue, entry.workload, None)
    assignment = _assign_again(search, entry, nominated)
    if assignment is not None:
        entry.assignment = assignment
        entry.nominated_places = nominated_places(world, search.places)
    return None


def _refuse_without_targets(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Refuse an entry without targets. Reserve its capacity, unless it may reclaim from any workload."""
    assignment = entry.assignment
    if assignment is None or entry.fits_after_others or entry.victims or assignment.mode is FitMode.FIT:
        return None
    if reserves_capacity(entry.queue.spec.preemption):
        cycle.reserve_capacity(entry, _within_reach(entry, assignment))
    return NoPreemptionTargets(assignment.shortfall)


def _within_reach(entry: CycleEntry, assignment: Assignment) -> Iterator[tuple[FlavorResource, int]]:
    """Yield the capacity to reserve: up to the nominal quota, or up to the borrowing limit for a borrower."""
    for pair, amount in entry.usage:
        cell = entry.node.cells[pair]
        if not assignment.borrow_level:
            yield pair, max(0, min(amount, cell.nominal - cell.usage))
        elif cell.borrowing_limit is None:
            yield pair, amount
        else:
            yield pair, max(0, min(amount, cell.nominal + cell.borrowing_limit - cell.usage))


def _refuse_while_gated(_cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    return PreemptionGated() if entry.victims and entry.workload.has_closed_preemption_gate else None


def _refuse_until_others_have_left(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    if not entry.fits_after_others:
        return None
    cycle.reserve_capacity(entry, entry.usage)
    return OverlappingTargets(will_fit=True)


def _refuse_overlapping_targets(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    overlaps = cycle.overlay(entry).has_any_victim(entry.victims)
    return OverlappingTargets(will_fit=False) if overlaps else None


def _fits(cycle: Cycle, entry: CycleEntry) -> bool:
    cells = entry.node.cells
    for pair, amount in entry.usage:
        if amount > quota.available(cells[pair]):
            return False
    are_taken = bool(entry.places) and not cycle.world.topologies.fit(entry.places)
    entry.nominated_places = entry.nominated_places._replace(are_taken=are_taken)
    return not are_taken


def _refuse_if_no_longer_fitting(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Refuse an entry that would not fit once all targets of the cycle have left.

    An entry without targets must also fit while the targets of other heads still hold quota.
    """
    overlay = cycle.overlays.get(entry.root)
    if overlay is None or overlay.is_empty:
        fits = _is_unchanged(cycle, entry) or (
            _fits_without(cycle, entry) if entry.victims else _fits(cycle, entry)
        )
    else:
        fits = _fits_without(cycle, entry) and (
            bool(entry.victims)
            or overlay.evaluate_without_reserved_capacity(entry.node, partial(_fits, cycle, entry))
        )
    if fits:
        return None
    entry.causes.update(room_of(flavor) for place in entry.places for flavor in place.flavors)
    return QuotaTakenInCycle()


def _is_unchanged(cycle: Cycle, entry: CycleEntry) -> bool:
    """Whether usage of the tree did not change since the nomination, nor any topology if it needs places."""
    return entry.root.generation == entry.generation and (
        not entry.places or entry.nominated_places.generation == cycle.world.topologies.generation
    )


def _fits_without(cycle: Cycle, entry: CycleEntry) -> bool:
    fits = partial(_fits, cycle, entry)
    return cycle.overlay(entry).evaluate_without_victims(entry.node, entry.victims, fits)


def _preempt_targets(cycle: Cycle, entry: CycleEntry) -> Refusal:
    """Preempt the targets that are not leaving yet, and reserve the capacity of the entry."""
    assignment = entry.assignment
    assert assignment is not None  # noqa: S101 narrows the type
    preempted = [victim for victim in entry.victims if not victim.entry.is_leaving]
    cycle.note_leaving(entry, preempted)
    cycle.reserve_capacity(entry, entry.usage)
    cycle.overlay(entry).add_victims(entry.victims)
    for victim in preempted:
        cycle.world.preempt(_preemption(cycle.world, entry, victim))
    entry.pending.preemptions = PreemptionCounts(len(entry.victims), len(preempted))
    entry.pending.preempted_uids |= {victim.entry.workload.uid for victim in entry.victims}
    if preempted:
        cycle.count_progress(entry)
    return WaitingForTargets(len(entry.victims), assignment.shortfall)


def _path(node: Node) -> tuple[str, ...]:
    return (*reversed([above.name for above in node.ancestors]), node.name)


def _preemption(world: World, entry: CycleEntry, victim: Victim) -> Preempt:
    workload, held = victim.entry.workload, victim.entry.held
    victim_queue = None if held is None else world.cluster_queues.get(held.cluster_queue)
    return Preempt(
        workload.key,
        workload.uid,
        victim.reason,
        entry.workload.key,
        entry.workload.uid,
        _path(entry.node),
        () if victim_queue is None else _path(victim_queue.node),
    )


def _refuse_until_pods_are_ready(cycle: Cycle, _entry: CycleEntry) -> Refusal | None:
    """Refuse an entry while pods are not ready, if the configuration blocks admission then."""
    return PodsNotReady() if cycle.world.pods.halt_if_unready() else None


STEPS: Final[tuple[Callable[[Cycle, CycleEntry], Refusal | None], ...]] = (
    _refuse_as_nominated,
    _refuse_without_original,
    _assign_again_if_targets_overlap,
    _refuse_without_targets,
    _refuse_while_gated,
    _refuse_until_others_have_left,
    _refuse_overlapping_targets,
    _refuse_if_no_longer_fitting,
    _preempt_targets,
)
"""The steps for an entry that does not fit into unused quota (semantics, Cycle, Processing one entry).

The first refusal counts. An entry that reaches the last step preempts."""


STEPS_IF_FITTING: Final = (
    _refuse_without_original,
    _place_again_if_taken,
    _refuse_if_no_longer_fitting,
    _refuse_until_pods_are_ready,
)
"""The steps for an entry that fits into unused quota. If no step refuses the entry, it reserves quota."""


def refusal_of(cycle: Cycle, entry: CycleEntry) -> Refusal | None:
    """Return why an entry gets nothing; None if it may reserve quota."""
    assignment = entry.assignment
    fits = entry.refusal is None and assignment is not None and assignment.mode is FitMode.FIT
    for step in STEPS_IF_FITTING if fits and not (entry.victims or entry.fits_after_others) else STEPS:
        refusal = step(cycle, entry)
        if refusal is not None:
            return refusal
    return None


def are_checks_ready(spec: ClusterQueue, workload: Workload, admission: Admission) -> bool:
    """Whether the workload lists every check that applies to the assigned flavors, each in state Ready."""
    if not spec.admission_checks:
        return True
    assigned = assigned_flavors(admission.pod_set_assignments)
    states = dict(workload.admission_checks)
    applicable = applicable_checks(spec.admission_checks, flavor_names(spec), assigned)
    return all(states.get(name) is CheckState.READY for name in applicable)


def reserve(cycle: Cycle, entry: CycleEntry) -> None:
    """Count the reservation of an entry as if it were written, and add the instruction to write it."""
    world, workload, assignment = cycle.world, entry.workload, entry.assignment
    assert assignment is not None  # noqa: S101 narrows the type
    workload_entry = world.workloads[workload.key]
    admission = Admission(entry.queue.spec.name, assignment.pod_sets)
    lacks_places = any(part.lacks_topology_assignment for part in admission.pod_set_assignments)
    admit = not lacks_places and are_checks_ready(entry.queue.spec, workload, admission)
    world.dequeue(workload_entry)
    workload_entry.assumed = Assumption.decided(admission, cycle.now, admit=admit)
    cycle.reserved[workload.key] = None
    overlay = cycle.overlays.get(entry.root)
    if overlay is None:
        world.settle_reservation(workload_entry)
    else:
        overlay.settle_reservation(workload_entry, entry.node, entry.usage)
    charge(world, workload_entry, entry.usage)
    world.count_as_pending_in(workload_entry, None)
    world.outbox.reports.pop(workload.key, None)
    world.outbox.reservations.append(
        ReserveQuota(
            workload.key,
            workload.uid,
            admission,
            admit,
            assignment.considered_flavors,
            None if entry.original is None else entry.original.workload.key,
        )
    )
    cycle.count_progress(entry)
    cycle.usage_changed(entry)
