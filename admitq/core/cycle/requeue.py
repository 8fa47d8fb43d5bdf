"""Requeueing: where somebody goes who got nothing, so that the next chance finds it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from admitq.core.cycle.entry import Entry
from admitq.core.cycle.turns import Cycle
from admitq.core.model import QueueingStrategy
from admitq.core.partial_admission import may_shrink
from admitq.core.preemption import never_preempts
from admitq.core.queues import Aside, ScanProgress
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    OverlappingVictims,
    PodsNotReady,
    PreemptionGated,
    Refusal,
    TakenInThisCycle,
    TooManyChecks,
    WaitingForVictims,
)
from admitq.core.world import World

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
    if isinstance(refusal, (PreemptionGated, PodsNotReady)) or _waits_for_others(refusal):
        return None
    if entry.scan is None or not _is_beaten(refusal):
        return entry.scan
    preserve = world.settings.gates.flavor_fungibility_preserve_scan_progress
    return replace(entry.scan, beaten=True) if preserve else None


def requeue(cycle: Cycle, entry: Entry, refusal: Refusal) -> None:
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
    elif _waits_for_others(refusal):
        queue.claim(pending)
        cycle.waiting.append(entry)
    elif isinstance(refusal, PodsNotReady) or pending.progress is not None:
        queue.enter(pending)
    elif entry.disturbed:
        queue.enter(pending)
        _gave_up_what_was_kept(cycle, entry)
    elif entry.was_beaten:
        cycle.out_of_flavors.append((entry, refusal))
    else:
        _park(cycle, entry, refusal)


def _is_for_its_flavors_alone(refusal: Refusal) -> bool:
    """Whether others of the queue may be admitted although quota does for the one that is refused."""
    return isinstance(refusal, TooManyChecks) and bool(refusal.flavors)


def _park(cycle: Cycle, entry: Entry, refusal: Refusal) -> None:
    """Stop trying an entry, and so give up what was kept for it; the first of a StrictFIFO queue stands.

    An entry is not kept first if only its own flavors have too many checks: it does not block the queue.
    """
    strict = entry.queue.queue.strategy is QueueingStrategy.STRICT_FIFO
    if strict and _is_for_its_flavors_alone(refusal):
        cycle.world.set_aside(entry.queue, entry.pending, Aside.TREE)
        cycle.world.sleep_if_parked(entry.queue)
        _gave_up_what_was_kept(cycle, entry)
        return
    cycle.parked.append(entry)
    if strict:
        cycle.waiting.append(entry)
        return
    entry.queue.queue.park(entry.pending, refusal, hopeful=entry.was_beaten)
    if entry.was_beaten:
        entry.root.sleepers.hopeful[entry.queue.spec.name] = None
    cycle.world.sleep_if_parked(entry.queue, entry.pending.lane)
    _gave_up_what_was_kept(cycle, entry)


def _gave_up_what_was_kept(cycle: Cycle, entry: Entry) -> None:
    """Those who were beaten by an entry that is refused by all flavors may fare better now.

    Who hopes himself wakes none of those who hope, or two might do so in turn for ever.
    """
    if not (entry.keeps or entry.looked_further):
        return
    if entry.was_beaten:
        cycle.world.forest.got_somewhere(entry.root)
    else:
        cycle.got_somewhere(entry)


def settle_undecided(cycle: Cycle) -> None:
    """Put those back of whom only the whole cycle tells whether the next can differ from it."""
    world = cycle.world
    for entry, refusal in cycle.out_of_flavors:
        world.deciding = entry.workload.key
        if entry.since != entry.root.progress:
            entry.queue.queue.enter(entry.pending)
        else:
            _park(cycle, entry, refusal)
    for entry in cycle.beaten:
        world.deciding = entry.workload.key
        # Who was only taken along goes on with other flavors when it is next: two might wake each other so.
        goes_on = entry.pending.progress is not None and not entry.stood
        _try_again_or_stand(world, entry, again=goes_on or entry.since != entry.root.progress)
    for entry in cycle.waiting:
        world.deciding = entry.workload.key
        # Who may do with fewer pods may have preempted for more than is left to be had, and who went on to
        # another flavor may fit the first, which is kept for nobody any more.
        changed = entry.disturbed or entry.generation != entry.root.generation
        kept_no_more = entry.was_beaten and entry.since != entry.root.progress
        _try_again_or_stand(world, entry, again=changed or kept_no_more)
    world.deciding = None


def calm(world: World, entry: Entry) -> None:
    """Leave who was parked asleep until that is available which it needs, if quota alone decides over it."""
    lane = entry.pending.lane
    if lane is None or not never_preempts(entry.queue.spec.preemption):
        return
    if lane.shape.original is not None:
        return
    if world.settings.gates.partial_admission and may_shrink(lane.shape.demands):
        return
    needs = entry.queue.offer.plan(lane.shape.demands).shortage
    if needs is not None:
        entry.root.sleepers.calm(lane, needs)


def _try_again_or_stand(world: World, entry: Entry, *, again: bool) -> None:
    if again:
        entry.queue.queue.enter(entry.pending)
    else:
        world.stand(entry.queue, entry.pending)


def put_back(world: World, entry: Entry) -> None:
    """Leave an entry whose turn did not come as it was, unless the quota of its tree was taken or freed."""
    if entry.stood and entry.generation == entry.root.generation:
        world.stand(entry.queue, entry.pending)
    else:
        entry.queue.queue.enter(entry.pending)
