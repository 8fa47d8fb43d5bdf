"""Requeue the heads of a cycle that got nothing, and give their lanes a wait state."""

from collections.abc import Iterator
from dataclasses import replace

from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.flavor_options import RequestOptions
from admitq.core.model import QueueingStrategy
from admitq.core.partial_admission import may_shrink
from admitq.core.preemption import never_preempts
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    OverlappingTargets,
    PodsNotReady,
    PreemptionGated,
    QuotaTakenInCycle,
    Refusal,
    TooManyChecks,
    WaitingForTargets,
)
from admitq.core.topology.topologies import is_room
from admitq.core.waiting.pending import ScanProgress
from admitq.core.waiting.transitions import Causes, HeldBack
from admitq.core.waiting.wait_states import (
    HOLDING_BACK,
    NEEDS_KNOWN,
    Blocking,
    FirstOfStrictQueue,
    InvalidWorkload,
    LostInCycle,
    NamespaceNotSelected,
    Needs,
    QueueUnusable,
    Ready,
    RetryOnProgress,
    WaitingForPreemption,
    WaitingForQuota,
)
from admitq.core.world import World


def _held_back_by(refusal: Refusal) -> HeldBack | None:
    """Return the state in which a refusal holds a workload back; None if its lane waits instead."""
    match refusal:
        case AdmissionChecksFailed() | InvalidResources():
            return InvalidWorkload()
        case ClusterQueueInactive() | ClusterQueueNotFound():
            return QueueUnusable()
        case NamespaceMismatch():
            return NamespaceNotSelected()
        case _:
            return None


def _is_lost(refusal: Refusal) -> bool:
    """Whether only other heads of the same cycle took or hold what the head needs."""
    return isinstance(refusal, QuotaTakenInCycle) or (
        isinstance(refusal, OverlappingTargets) and not refusal.will_fit
    )


def _waits_for_preemption(refusal: Refusal) -> bool:
    """Whether the head will fit once targets have left."""
    return isinstance(refusal, WaitingForTargets) or (
        isinstance(refusal, OverlappingTargets) and refusal.will_fit
    )


def _scan_to_keep(world: World, entry: CycleEntry, refusal: Refusal) -> ScanProgress | None:
    """Return the scan that the next attempt continues (semantics, Cycle); None if it starts a new scan."""
    if isinstance(refusal, (PreemptionGated, PodsNotReady)) or _waits_for_preemption(refusal):
        return None
    if entry.scan is None:
        return None
    scan = replace(entry.scan, causes=_causes(entry)) if entry.causes else entry.scan
    if not _is_lost(refusal):
        return scan
    if entry.nominated_places.are_taken and _were_places_taken(world, entry):
        return None  # The same flavor may have another place.
    preserve = world.settings.gates.flavor_fungibility_preserve_scan_progress
    return replace(scan, has_lost=True) if preserve else None


def _were_places_taken(world: World, entry: CycleEntry) -> bool:
    """Whether workloads took or left places since those of the head were found."""
    return bool(entry.places) and entry.nominated_places.moves != world.topologies.moves


def _causes(entry: CycleEntry) -> Causes:
    return tuple(sorted(entry.causes))


def requeue(cycle: Cycle, entry: CycleEntry, refusal: Refusal) -> None:
    """Requeue a head that got nothing, or leave it to ``requeue_undecided`` at the end of the cycle."""
    world, pending, queue = cycle.world, entry.pending, entry.queue.queue
    world.report(pending, refusal)
    pending.scan = _scan_to_keep(world, entry, refusal)
    held_back = _held_back_by(refusal)
    is_strict = queue.positions.strategy is QueueingStrategy.STRICT_FIFO
    if held_back is not None and (HOLDING_BACK[type(held_back)].in_strict_queue or not is_strict):
        world.waiting.hold_back(entry.queue, pending, held_back)
    elif _is_lost(refusal):
        cycle.lost.append(entry)
    elif _waits_for_preemption(refusal):
        queue.set_preemptor(pending)
        cycle.blocking.append((entry, WaitingForPreemption(pending.position)))
    elif pending.scan is not None and isinstance(entry.blocking_state_before_cycle, FirstOfStrictQueue):
        # All flavors were tried before the head blocked. Two such heads would start cycles alternately
        # forever.
        pending.scan = None
        entry.causes.update(entry.blocking_state_before_cycle.causes)
        cycle.blocking.append((entry, FirstOfStrictQueue(pending.position)))
    elif isinstance(refusal, PodsNotReady) or pending.scan is not None:
        queue.requeue(pending)
    elif entry.changed_during_scan:
        queue.requeue(pending)
        _give_up_reserved_capacity(cycle, entry)
    elif entry.lost_before:
        cycle.out_of_flavors.append((entry, refusal))
    else:
        _park(cycle, entry, refusal)


def _concerns_assigned_flavors_alone(refusal: Refusal) -> bool:
    """Whether only the assigned flavors are refused, so that other workloads of the queue may be admitted."""
    return isinstance(refusal, TooManyChecks) and bool(refusal.flavors)


def _park(cycle: Cycle, entry: CycleEntry, refusal: Refusal) -> None:
    """Park the lane of a head, and give up the capacity that is reserved for the head.

    The head of a StrictFIFO queue becomes a blocking head instead. It is held back if only the assigned
    flavors have too many checks.
    """
    pending, queue = entry.pending, entry.queue
    if queue.queue.positions.strategy is QueueingStrategy.STRICT_FIFO:
        if not _concerns_assigned_flavors_alone(refusal):
            cycle.parked.append(entry)
            cycle.blocking.append((entry, FirstOfStrictQueue(pending.position)))
            return
        cycle.world.waiting.hold_back(queue, pending, QueueUnusable(_causes(entry)))
    else:
        cycle.parked.append(entry)
        kind = RetryOnProgress if entry.lost_before else WaitingForQuota
        state = kind(refusal, pending.workload.queued_at, causes=_causes(entry))
        queue.queue.requeue_waiting(pending, state)
        cycle.world.waiting.concerned.add(queue, state.causes)
    _give_up_reserved_capacity(cycle, entry)


def _give_up_reserved_capacity(cycle: Cycle, entry: CycleEntry) -> None:
    """Count progress if capacity may have been reserved for a head that all flavors refuse.

    A head that lost a flavor to another head does not end the waiting of lanes in ``RetryOnProgress``.
    Otherwise two such lanes could end the waiting of each other forever.
    """
    if not (entry.has_reserved_capacity or entry.scan_continued):
        return
    if entry.lost_before:
        cycle.world.cohort_trees.count_progress(entry.root)
    else:
        cycle.count_progress(entry)


def requeue_undecided(cycle: Cycle) -> Iterator[None]:
    """Requeue the heads with a wait state that depends on the whole cycle. Yield after each."""
    world = cycle.world
    for entry, refusal in cycle.out_of_flavors:
        world.deciding = entry.workload.key
        if entry.progress_at_start != entry.root.progress:
            entry.queue.queue.requeue(entry.pending)
        else:
            _park(cycle, entry, refusal)
        yield
    for entry in cycle.lost:
        world.deciding = entry.workload.key
        # A blocking head does not continue its scan at once: two of them could start cycles alternately
        # forever.
        continues_scan = entry.pending.scan is not None and entry.blocking_state_before_cycle is None
        is_ready = (
            continues_scan
            or entry.progress_at_start != entry.root.progress
            or _were_places_taken(world, entry)
        )
        _requeue_or_block(world, entry, LostInCycle(entry.pending.position), is_ready=is_ready)
        yield
    for entry, state in cycle.blocking:
        world.deciding = entry.workload.key
        # A head that may run with fewer pods may have preempted for more pods than can fit now. A head that
        # continued with another flavor may fit the first one, which may no longer be withheld.
        changed = entry.changed_during_scan or entry.generation != entry.root.generation
        withheld_no_longer = entry.lost_before and entry.progress_at_start != entry.root.progress
        _requeue_or_block(world, entry, state, is_ready=changed or withheld_no_longer)
        yield
    world.deciding = None


def _requeue_or_block(world: World, entry: CycleEntry, state: Blocking, *, is_ready: bool) -> None:
    if is_ready:
        entry.queue.queue.requeue(entry.pending)
    else:
        state = replace(state, causes=_causes(entry)) if entry.causes else state
        world.waiting.requeue_blocking(entry.queue, entry.pending, state)


def note_needs(world: World, entry: CycleEntry) -> None:
    """Give the lane of a refused head its needs, if only unused quota and free places decide."""
    lane = entry.pending.lane
    if lane is None or isinstance(lane.state, (Ready, WaitingForPreemption, LostInCycle)):
        return
    if not all(map(is_room, entry.causes)):
        return
    if not never_preempts(entry.queue.spec.preemption) or lane.key.original is not None:
        return
    if world.settings.gates.partial_admission and may_shrink(lane.key.demands):
        return
    options = entry.queue.flavor_options.options_for(lane.key.demands)
    needs = _needs_without_room(options) if entry.causes else options.shortage
    if needs is not None:
        entry.queue.queue.lanes.change_state(lane, NEEDS_KNOWN, replace(lane.state, needs=needs))


def _needs_without_room(options: RequestOptions) -> Needs | None:
    """Return the needs of a head that lacks room: none if it has quota in all flavors."""
    return () if options.has_quota_in_all_flavors else None


def requeue_unprocessed(world: World, entry: CycleEntry) -> None:
    """Requeue a head that was not processed. Its wait state stays, unless quota was taken or returned."""
    if entry.blocking_state_before_cycle is not None and entry.generation == entry.root.generation:
        world.waiting.requeue_blocking(entry.queue, entry.pending, entry.blocking_state_before_cycle)
    else:
        entry.queue.queue.requeue(entry.pending)
