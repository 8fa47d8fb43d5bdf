"""One admission cycle: the heads of all ClusterQueues, in order, against the present quota.

0. *Second passes*: workloads that hold quota and need a topology assignment come before all heads.
1. *Nominate*: each head is refused, or is assigned flavors against the quota at the beginning of the cycle.
   If unused quota is not enough, a search finds targets to preempt. Blocking heads join the cycle if one of
   its heads may change their result (``blocking_heads``).
2. *Process* in the order of cycles, by the steps of ``process``: a head that still fits reserves quota. For a
   preemptor, the cycle reserves capacity, so that later heads see what is left. A head that no longer fits
   has lost in this cycle.
3. *Requeue* each head that got nothing, by the table of ``waiting.wait_states``.

Rules of this package

- Cycles run until no head is left. So each cycle must make progress towards this end: a refused head waits,
  or tries other flavors in the next cycle.
- A head that lost a flavor is evaluated again if another head of its tree made progress since its scan began.
  Progress is to reserve, to preempt, or to give up reserved capacity. A head that continues with other
  flavors makes no progress. A head that all flavors refuse, and that lost one of them to another head, waits
  in state ``RetryOnProgress``.
- A head that waits for preemption, or is the first of a StrictFIFO queue, may be evaluated again from its
  first flavor on. This is so if quota was taken since its scan began, or if it lost and a head made progress
  since then.
- A blocking head is also evaluated again after a cycle that preempted workloads for another head. This is so
  if the workloads belong to a ClusterQueue that borrows, and hold a (flavor, resource) that the blocking head
  needs. Such evaluations end, because each such cycle adds to the workloads that leave.
- A head without targets reserves capacity only until the cycle ends. So the first of a StrictFIFO queue
  always withholds its capacity from borrowers. The head of a BestEffortFIFO queue withholds it only in cycles
  that evaluate it. A head that would not fit any flavor without any usage reserves nothing.
- The end of a cycle undoes its overlays.
- A cycle is a generator: between two workloads, the caller may do work that does not use the state. One cycle
  decides on the heads of all cohort trees. Halted admission, past usage and the order of instructions concern
  all of them. A cycle pauses as often as cycles of single trees would.
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

__all__ = [
    "inadmissibility",
    "is_second_pass_due",
    "refresh_outdated_refusals",
    "run_cycle",
    "take_heads",
    "try_second_passes",
]

Heads = Iterable[tuple[ClusterQueueEntry, PendingEntry]]


def take_heads(world: World) -> Heads:
    """Take the heads of a cycle; none while admission is halted."""
    return [] if world.is_halted else world.waiting.take_heads()


def run_cycle(world: World, heads: Heads, now: Instant) -> Iterator[None]:
    """Decide on the heads of a cycle, after its second passes.

    Yields:
        At the beginning, and after each workload in each phase. Until the cycle has ended, no other
        code may change the world.
    """
    world.cycle += 1
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
