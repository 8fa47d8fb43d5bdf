"""One admission cycle: the head of every ClusterQueue that has one, in order, against quota as it is now.

1. *Nominate*: each head is refused, or assigned flavors against the quota at the beginning of the cycle.
2. *Process* in the order of cycles: who still fits takes its quota at once, so that those behind it see
   what is left; who does not fit any more was beaten within this cycle and is tried again in the next.
3. *Requeue* whoever got nothing, by the table below.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from admitq.core import quota
from admitq.core.flavors import Assignment, Mode, assign
from admitq.core.instructions import ReportPending, ReserveQuota
from admitq.core.model import Admission, ClusterQueue, QueueingStrategy, Workload
from admitq.core.ordering import CycleOrder, cycle_order
from admitq.core.queues import Aside, Pending, ScanProgress
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    Refusal,
    TakenInThisCycle,
)
from admitq.core.requests import resolve
from admitq.core.selectors import selects_namespace
from admitq.core.world import Assumption, ClusterQueueEntry, World

CHECK_READY: Final = "Ready"
_FAILED_CHECKS: Final = ("Retry", "Rejected")

_LONGEST_SCAN: Final = 64
"""Attempts after which a scan of flavors ends although some are untried in combination with others: as many
as a resource group may have flavors."""


# --- nominate -------------------------------------------------------------------------------------------


def _checks_failed(_world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    failed = any(state in _FAILED_CHECKS for _, state in workload.admission_checks)
    return AdmissionChecksFailed() if failed else None


def _inactive(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return None if queue.is_active else ClusterQueueInactive(queue.spec.name)


def _in_cyclic_tree(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return ClusterQueueNotFound(queue.spec.name) if queue.node.is_cyclic else None


def _namespace_not_selected(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    labels = world.namespaces.get(workload.key.namespace)
    return None if selects_namespace(queue.spec.namespace_selector, labels) else NamespaceMismatch()


def _resources_invalid(_world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    problems = (
        workload.resource_problems or resolve(workload.pod_sets, workload.reclaimable_pods).problems
    )
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
    order: CycleOrder
    generation: int
    """Of the cohort tree, when the assignment was made."""
    scan: ScanProgress | None = None
    """Where the scan stands after this attempt."""
    disturbed: bool = False
    """Whether the tree changed since the scan started from the first flavor."""
    assignment: Assignment | None = None
    refusal: Refusal | None = None


def _valid_progress(pending: Pending, cycle: int, generation: int) -> ScanProgress | None:
    """Progress counts in the next cycle, or for as long as nothing changed in the cohort tree."""
    progress = pending.progress
    if progress is None or (cycle - progress.cycle > 1 and progress.generation != generation):
        return None
    return progress


def nominate(world: World, queue: ClusterQueueEntry, pending: Pending) -> Entry:
    """Refuse a head or assign it flavors, as quota stands."""
    workload = pending.workload
    generation = queue.node.root.generation
    refusal = inadmissibility(world, queue, workload)
    if refusal is not None or pending.lane is None:
        return Entry(queue, pending, cycle_order(workload, 0), generation, refusal=refusal)
    progress = _valid_progress(pending, world.cycle, generation)
    assignment = assign(
        pending.lane.demands,
        queue.offer,
        tried=() if progress is None else progress.tried,
    )
    begun = generation if progress is None else progress.begun
    attempts = 1 if progress is None else progress.attempts + 1
    scan = (
        ScanProgress(assignment.tried, world.cycle, generation, begun, attempts)
        if assignment.tried and attempts < _LONGEST_SCAN
        else None
    )
    return Entry(
        queue,
        pending,
        cycle_order(workload, assignment.borrow_level),
        generation,
        scan,
        begun != generation,
        assignment,
        assignment.refusal,
    )


# --- process --------------------------------------------------------------------------------------------


def _still_fits(entry: Entry, assignment: Assignment) -> bool:
    if entry.queue.node.root.generation == entry.generation:
        return True
    cells = entry.queue.node.cells
    return all(amount <= quota.available(cells[pair]) for pair, amount in assignment.usage)


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


def _reserve(world: World, entry: Entry, assignment: Assignment) -> None:
    """Count the reservation as if it were written, and have it written."""
    workload = entry.pending.workload
    record = world.workloads[workload.key]
    admission = Admission(entry.queue.spec.name, assignment.pod_sets)
    admit = needs_no_check(entry.queue.spec, workload, admission)
    world.dequeue(record)
    record.assumed = Assumption(admission, admit)
    world.settle_reservation(record)
    world.list_pending(record, None)
    world.reports.pop(workload.key, None)
    world.reservations.append(ReserveQuota(workload.key, workload.uid, admission, admit, assignment.attempts))


# --- requeue --------------------------------------------------------------------------------------------

_ASIDE: Final[Mapping[type[Refusal], Aside]] = {
    AdmissionChecksFailed: Aside.OWN,
    InvalidResources: Aside.OWN,
    ClusterQueueInactive: Aside.TREE,
    ClusterQueueNotFound: Aside.TREE,
    NamespaceMismatch: Aside.NAMESPACE,
}
"""Refusals that concern a workload for itself, whatever its equals meet."""


def _report(world: World, pending: Pending, refusal: Refusal) -> None:
    """Have the refusal written, if it is not what the status tells already."""
    if pending.refusal == refusal:
        return
    pending.refusal = refusal
    workload = pending.workload
    demands = pending.lane.demands if pending.lane is not None else ()
    world.reports[workload.key] = ReportPending(
        workload.key,
        workload.uid,
        refusal,
        tuple((demand.pod_set.name, demand.totals) for demand in demands),
    )


def _requeue(world: World, entry: Entry, refusal: Refusal) -> None:
    """Put a head that got nothing where the next chance finds it."""
    pending, queue = entry.pending, entry.queue.queue
    _report(world, pending, refusal)
    pending.progress = entry.scan
    reason = _ASIDE.get(type(refusal))
    strict = queue.strategy is QueueingStrategy.STRICT_FIFO
    if reason is Aside.NAMESPACE or (reason is not None and not strict):
        world.set_aside(entry.queue, pending, reason)
    elif isinstance(refusal, TakenInThisCycle) or entry.scan is not None or entry.disturbed:
        queue.enter(pending)
    else:
        queue.park(pending, refusal)
    world.sleep_if_parked(entry.queue)


# --- the cycle ------------------------------------------------------------------------------------------


def heads(world: World) -> list[tuple[ClusterQueueEntry, Pending]]:
    """Take the head of each active ClusterQueue that has one into flight."""
    result: list[tuple[ClusterQueueEntry, Pending]] = []
    for name in sorted(world.candidates):
        queue = world.cluster_queues.get(name)
        pending = queue.queue.pop() if queue is not None and queue.is_active else None
        if queue is None or pending is None:
            world.candidates.discard(name)
            continue
        world.touched_cluster_queues.add(name)
        result.append((queue, pending))
    return result


def run_cycle(world: World, of: Iterable[tuple[ClusterQueueEntry, Pending]]) -> None:
    """Decide over the heads in flight."""
    world.cycle += 1
    entries = [nominate(world, queue, pending) for queue, pending in of]
    entries.sort(key=lambda entry: entry.order)
    for entry in entries:
        assignment = entry.assignment
        if entry.refusal is not None or assignment is None or assignment.mode is not Mode.FIT:
            _requeue(world, entry, entry.refusal or TakenInThisCycle())
        elif _still_fits(entry, assignment):
            _reserve(world, entry, assignment)
        else:
            _requeue(world, entry, TakenInThisCycle())
