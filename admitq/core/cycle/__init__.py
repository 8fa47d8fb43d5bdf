"""One admission cycle: the head of every ClusterQueue that has one, in order, against quota as it is now.

0. *Second passes*: those who hold quota already and are tried once more come before all others.
1. *Nominate*: each head is refused, or assigned flavors against the quota at the beginning of the cycle;
   where unused quota does not suffice, those are sought whom it may preempt.
2. *Process* in the order of cycles, by the steps below: who still fits takes its quota at once, who preempts
   keeps the capacity that it will have, so that those behind see what is left. Who does not fit any more was
   beaten within this cycle.
3. *Requeue* whoever got nothing, by the table below.

Rules of this file
- Cycles run until nobody is left to be tried, so every cycle must bring the end nearer. Whoever is refused
  leaves the heads, or goes on with other flavors, or was beaten. Who was beaten, by all flavors or by one, is
  tried again if anybody of the tree got somewhere since it began: took quota, had victims told, or gave up
  what was kept for it, as who goes on with other flavors has not. Who found nothing at last, though it was
  beaten over one flavor, is *hopeful*: it is parked, and woken by the next who gets somewhere.
- Whose turn would end as it did before *stands* (``queues``): those who wait for others to leave, and whom
  they beat, and the first of a StrictFIFO queue, whatever it was refused for. Who waits for others, or is the
  first of a StrictFIFO queue, is tried again first, from the first flavor on, if quota was taken since its
  scan began, or if it was beaten since then and anybody got somewhere. Who stands does not ask for a cycle,
  but takes part in every one of its tree.
- A head that finds no workload to preempt reserves capacity for the cycle only. So the first of a StrictFIFO
  queue keeps its capacity from borrowers all the time, and that of a BestEffortFIFO queue only in the cycles
  in which it is tried. A head that no flavor could ever suffice for reserves nothing.
- What is supposed in a cycle (``overlay``) is undone at its end.
"""

from collections.abc import Iterable

from admitq.core.cycle.entry import Entry
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.nominate import nominate
from admitq.core.cycle.process import refusal_of, reserve
from admitq.core.cycle.requeue import calm, put_back, requeue, settle_undecided
from admitq.core.cycle.retelling import tell_again
from admitq.core.cycle.second_pass import is_second_pass_due, try_second_passes
from admitq.core.cycle.turns import Cycle
from admitq.core.model import Instant
from admitq.core.queues import Pending
from admitq.core.world import ClusterQueueEntry, World

__all__ = ["heads", "inadmissibility", "is_second_pass_due", "run_cycle", "tell_again"]


def heads(world: World) -> list[tuple[ClusterQueueEntry, Pending]]:
    """Take the head of each active ClusterQueue that has one into flight, and of their trees those who stand.

    Empty while admission is halted.
    """
    result: dict[str, tuple[ClusterQueueEntry, Pending]] = {}
    for name in () if world.is_halted else sorted(world.candidates - world.paused):
        queue = world.cluster_queues.get(name)
        pending = queue.queue.pop() if queue is not None and queue.is_active else None
        if queue is None or pending is None:
            world.candidates.discard(name)
            continue
        if world.is_standing(queue):
            world.overtake(queue)
            # The workload that came before the first may reserve less, or nothing.
            world.wake_hopeful(queue.node.root)
        result[name] = (queue, pending)
    roots = {queue.node.root: None for queue, _ in result.values()}
    if any(root.sleepers.standing for root in roots):
        for root in roots:
            for queue in world.take_along(root):
                pending = queue.queue.pop()
                assert pending is not None, "a blocked queue has a first"  # noqa: S101 narrows the type
                result[queue.spec.name] = (queue, pending)
        result = dict(sorted(result.items()))
    world.touched_cluster_queues.update(result)
    world.candidates.update(result)
    return list(result.values())


def run_cycle(world: World, of: Iterable[tuple[ClusterQueueEntry, Pending]], now: Instant) -> None:
    """Decide over second passes that are due, and the heads in flight."""
    world.cycle += 1
    try_second_passes(world, now)
    cycle = Cycle(world, now)
    entries: list[Entry] = []
    for queue, pending in of:
        world.deciding = pending.workload.key
        entries.append(nominate(cycle, queue, pending))
    world.deciding = None
    for entry in cycle.turns(entries):
        world.deciding = entry.workload.key
        if world.is_halted:
            put_back(world, entry)
            continue
        refusal = refusal_of(cycle, entry)
        if refusal is None:
            reserve(cycle, entry)
        else:
            requeue(cycle, entry, refusal)
    world.deciding = None
    for overlay in cycle.overlays.values():
        overlay.undo()
    settle_undecided(cycle)
    world.settle_outdated()
    for root in cycle.advanced:
        world.wake_hopeful(root)
    for entry in cycle.parked:
        world.deciding = entry.workload.key
        calm(world, entry)
    world.deciding = None
