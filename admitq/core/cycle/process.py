"""Processing: what is asked of an entry when its turn comes, and the reservation of who passes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from admitq.core import quota
from admitq.core.activity import flavor_names
from admitq.core.amounts import FlavorResource
from admitq.core.applicable_checks import applicable_checks, assigned_flavors
from admitq.core.assignments import Assignment, Mode
from admitq.core.charging import charge
from admitq.core.cohorts import Node
from admitq.core.cycle.entry import Entry
from admitq.core.cycle.nominate import Search
from admitq.core.cycle.turns import Cycle
from admitq.core.entries import Assumption
from admitq.core.instructions import Preempt, Recomputation, ReserveQuota, TargetsRecomputed
from admitq.core.model import (
    READY,
    Admission,
    ClusterQueue,
    Workload,
)
from admitq.core.preemption import Victim, reserves_capacity
from admitq.core.refusals import (
    NobodyToPreempt,
    OverlappingVictims,
    PodsNotReady,
    PreemptionGated,
    Refusal,
    TakenInThisCycle,
    WaitingForVictims,
)
from admitq.core.waiting.pending import Preemptions
from admitq.core.world import World


def _is_refused(_cycle: Cycle, entry: Entry) -> Refusal | None:
    """What nominating found: it is inadmissible, or no flavor fits and none could be made to."""
    return entry.refusal


def _lost_its_original(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Who was to take over quota that another makes free in this cycle has to ask for all of it."""
    if entry.original is None:
        return None
    stands = cycle.world.original_of(entry.queue.spec.name, entry.workload) is entry.original
    return None if stands else TakenInThisCycle()


def _spares_others_victims(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Whose victims are preempted for others already looks whether it will fit then, or finds others."""
    overlay = cycle.overlays.get(entry.root)
    gates = cycle.world.settings.gates
    if (
        overlay is None
        or entry.assignment is None
        or not gates.recompute_assignment_upon_preemption_targets_overlap
        or not overlay.are_victims(entry.victims)
    ):
        return None
    search = Search(cycle.world, entry.queue, entry.workload, overlay)
    found = overlay.without_victims(
        entry.node, (), partial(_assign_once_more, search, entry, entry.assignment)
    )
    if found is None:
        result = Recomputation.SKIPPED
    elif found.mode is Mode.FIT:
        result = Recomputation.DEFERRED_FIT
        entry.assignment, entry.victims, entry.deferred = found, (), True
    else:
        result = Recomputation.NEW_TARGETS
        entry.assignment, entry.victims = found, search.victims
    cycle.world.outbox.recomputations.append(TargetsRecomputed(entry.queue.spec.name, result))
    return None


def _assign_once_more(search: Search, entry: Entry, nominated: Assignment) -> Assignment | None:
    """An assignment of the flavors that were nominated, from the first on; None if it does not suffice."""
    lane = entry.pending.lane
    demands = () if lane is None else lane.key.demands
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
    if reserves_capacity(entry.queue.spec.preemption):
        cycle.keep(entry, _within_reach(entry, assignment))
    return NobodyToPreempt(assignment.shortfall)


def _within_reach(entry: Entry, assignment: Assignment) -> Iterator[tuple[FlavorResource, int]]:
    """What may be kept of its usage: up to the nominal quota, or where it borrows as far as it may borrow."""
    for pair, amount in entry.usage:
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
    overlaps = cycle.overlay(entry).are_victims(entry.victims)
    return OverlappingVictims(will_fit=False) if overlaps else None


def _fits(entry: Entry) -> bool:
    cells = entry.node.cells
    for pair, amount in entry.usage:  # noqa: SIM110 a generator would cost as much as it is asked
        if amount > quota.available(cells[pair]):
            return False
    return True


def _no_longer_fits(cycle: Cycle, entry: Entry) -> Refusal | None:
    """It has to fit once all victims have left; and one that takes quota at once while they have not, too."""
    overlay = cycle.overlays.get(entry.root)
    if overlay is None or overlay.is_empty:
        unchanged = entry.root.generation == entry.generation
        fits = unchanged or (_fits_without(cycle, entry) if entry.victims else _fits(entry))
    else:
        fits = _fits_without(cycle, entry) and (
            bool(entry.victims) or overlay.without_reserved_capacity(entry.node, partial(_fits, entry))
        )
    return None if fits else TakenInThisCycle()


def _fits_without(cycle: Cycle, entry: Entry) -> bool:
    return cycle.overlay(entry).without_victims(entry.node, entry.victims, partial(_fits, entry))


def _preempts(cycle: Cycle, entry: Entry) -> Refusal:
    """Tell the victims, except those who leave already, and keep what it will have."""
    assignment = entry.assignment
    assert assignment is not None  # noqa: S101 narrows the type
    told = [victim for victim in entry.victims if not victim.entry.is_leaving]
    cycle.note_leaving(entry, told)
    cycle.keep(entry, entry.usage)
    cycle.overlay(entry).add_victims(entry.victims)
    for victim in told:
        cycle.world.preempt(_preemption(cycle.world, entry, victim))
    entry.pending.preemptions = Preemptions(len(entry.victims), len(told))
    entry.pending.displaced |= {victim.entry.workload.uid for victim in entry.victims}
    if told:
        cycle.count_progress(entry)
    return WaitingForVictims(len(entry.victims), assignment.shortfall)


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
    return PodsNotReady() if cycle.world.pods.halt_if_unready() else None


STEPS: Final[tuple[Callable[[Cycle, Entry], Refusal | None], ...]] = (
    _is_refused,
    _lost_its_original,
    _spares_others_victims,
    _finds_nobody_to_preempt,
    _may_not_preempt,
    _fits_after_others,
    _overlaps,
    _no_longer_fits,
    _preempts,
)
"""What is asked of an entry that was not found to fit, when its turn comes (semantics, Cycle, Processing one
entry). The first refusal counts; whoever gets to the last step has victims to wait for."""


STEPS_OF_WHO_FITS: Final = (_lost_its_original, _no_longer_fits, _waits_for_pods)
"""What is asked of who was found to fit without preempting; who passes is admitted."""


def refusal_of(cycle: Cycle, entry: Entry) -> Refusal | None:
    """Why an entry whose turn has come gets nothing; None if it may reserve."""
    assignment = entry.assignment
    fits = entry.refusal is None and assignment is not None and assignment.mode is Mode.FIT
    for step in STEPS_OF_WHO_FITS if fits and not (entry.victims or entry.deferred) else STEPS:
        refusal = step(cycle, entry)
        if refusal is not None:
            return refusal
    return None


def needs_no_check(spec: ClusterQueue, workload: Workload, admission: Admission) -> bool:
    """Whether every admission check that applies with the assigned flavors is listed and ready."""
    if not spec.admission_checks:
        return True
    assigned = assigned_flavors(admission.pod_set_assignments)
    states = dict(workload.admission_checks)
    applicable = applicable_checks(spec.admission_checks, flavor_names(spec), assigned)
    return all(states.get(name) == READY for name in applicable)


def reserve(cycle: Cycle, entry: Entry) -> None:
    """Count the reservation as if it were written, and have it written."""
    world, workload, assignment = cycle.world, entry.workload, entry.assignment
    assert assignment is not None  # noqa: S101 narrows the type
    record = world.workloads[workload.key]
    admission = Admission(entry.queue.spec.name, assignment.pod_sets)
    admit = needs_no_check(entry.queue.spec, workload, admission)
    world.dequeue(record)
    record.assumed = Assumption.decided(admission, cycle.now, admit=admit)
    cycle.reserved[workload.key] = None
    overlay = cycle.overlays.get(entry.root)
    if overlay is None:
        world.settle_reservation(record)
    else:
        overlay.settle_reservation(record, entry.node, entry.usage)
    charge(world, record, entry.usage)
    world.list_pending(record, None)
    world.outbox.reports.pop(workload.key, None)
    world.outbox.reservations.append(
        ReserveQuota(
            workload.key,
            workload.uid,
            admission,
            admit,
            assignment.attempts,
            None if entry.original is None else entry.original.workload.key,
        )
    )
    cycle.count_progress(entry)
    cycle.usage_changed(entry)
