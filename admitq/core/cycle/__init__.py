"""One admission cycle: the head of every ClusterQueue that has one, in order, against quota as it is now.

0. *Second passes*: workloads that hold quota and are evaluated once more come before all others.
1. *Nominate*: each head, and each standing head that one of them concerns (``standing_heads``), is refused or
   assigned flavors against the quota at the beginning of the cycle. If unused quota is not enough, a search
   finds targets to preempt.
2. *Process* in the order of cycles, by the steps of ``process``: a head that still fits reserves quota. The
   cycle reserves capacity for a preemptor, so that later heads see what is left. A head that no longer fits
   lost in this cycle.
3. *Requeue* each head that got nothing, by the table of ``waiting.wait_states``.

Rules of this package
- Cycles run until no head is left, so each cycle must make progress towards that. A refused head leaves the
  heads, or goes on with other flavors, or lost. A head that lost, by all flavors or by one, is evaluated
  again if another head of its tree made progress since it began: reserved, preempted, or gave reserved
  capacity up. A head that continues with other flavors makes no progress. A head that all flavors refuse,
  but that lost one of them to another head, waits in state ``RetryOnProgress``.
- A head that waits for preemption, or is the first of a StrictFIFO queue, is evaluated again from the first
  flavor on if quota was taken since its scan began, or if it lost since then and there was progress. So is
  a standing head after a cycle that preempted workloads for another head, of a ClusterQueue that borrows,
  if it looks at what they hold. Each such cycle adds to the workloads that leave.
- A head that finds no target reserves capacity for the cycle only. So the first of a StrictFIFO queue
  withholds its capacity from borrowers all the time, and that of a BestEffortFIFO queue only in cycles that
  evaluate it. A head that fits no flavor even without any usage reserves nothing.
- The overlay of a cycle is undone at its end.
- A cycle is a generator: between two workloads the caller may do work that does not use the state. One
  cycle decides on the heads of all cohort trees, because halted admission, past use and the order of
  instructions concern all of them; it pauses as often as a cycle of one tree would.
"""

from collections.abc import Iterable, Iterator

from admitq.core.cycle.blocking_heads import take_blocking_heads
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.nominate import nominate
from admitq.core.cycle.outdated_refusals import refresh_outdated_refusals
from admitq.core.cycle.process import refusal_of, reserve
from admitq.core.cycle.requeue import note_needs, requeue, requeue_undecided, requeue_unprocessed
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.cycle.second_pass import is_second_pass_due, try_second_passes
from admitq.core.entries import ClusterQueueEntry
from admitq.core.model import Instant
from admitq.core.waiting.pending import PendingEntry
from admitq.core.world import World

__all__ = ["inadmissibility", "is_second_pass_due", "refresh_outdated_refusals", "run_cycle", "take_heads"]

Heads = Iterable[tuple[ClusterQueueEntry, PendingEntry]]


def take_heads(world: World) -> Heads:
    """Take the heads of a cycle; none while admission is halted."""
    return [] if world.is_halted else world.waiting.take_heads()


def run_cycle(world: World, heads: Heads, now: Instant) -> Iterator[None]:
    """Decide on second passes that are due, and on the heads of the cycle.

    Yields:
        After the second passes and after each workload in each phase. Until the cycle has ended, nothing else
        may change the world.
    """
    world.cycle += 1
    yield from try_second_passes(world, now)
    cycle = Cycle(world, now)
    entries: list[CycleEntry] = []
    yield
    yield from _nominate_each(cycle, heads, entries)
    yield from _nominate_each(cycle, list(take_blocking_heads(world, entries)), entries)
    entries.sort(key=_cluster_queue_name)
    for entry in cycle.in_order(entries):
        world.deciding = entry.workload.key
        _process(cycle, entry)
        yield
    world.deciding = None
    for overlay in cycle.overlays.values():
        overlay.undo()
        yield
    yield from requeue_undecided(cycle)
    for root, leaving in cycle.leaving.items():
        world.waiting.candidates_leave(root, leaving)
        yield
    world.settle_outdated_replacements()
    for root in cycle.progressed:
        world.waiting.progress_made(root)
        yield
    for entry in cycle.parked:
        world.deciding = entry.workload.key
        note_needs(world, entry)
        yield
    world.deciding = None


def _cluster_queue_name(entry: CycleEntry) -> str:
    return entry.queue.spec.name


def _nominate_each(cycle: Cycle, heads: Heads, entries: list[CycleEntry]) -> Iterator[None]:
    for queue, pending in heads:
        cycle.world.deciding = pending.workload.key
        entries.append(nominate(cycle, queue, pending))
        yield
    cycle.world.deciding = None


def _process(cycle: Cycle, entry: CycleEntry) -> None:
    if cycle.world.is_halted:
        requeue_unprocessed(cycle.world, entry)
        return
    refusal = refusal_of(cycle, entry)
    if refusal is None:
        reserve(cycle, entry)
    else:
        requeue(cycle, entry, refusal)
