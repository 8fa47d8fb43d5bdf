"""The handler that runs admission cycles."""

from admitq.core import charging
from admitq.core.cycle import heads, is_second_pass_due, run_cycle, tell_again
from admitq.core.events import CyclesRequested
from admitq.core.model import Instant
from admitq.core.world import World


def run_requested_cycles(world: World, event: CyclesRequested, now: Instant) -> None:
    """Do what is due by now, then run cycles until no head is left, or as many as were asked for.

    Where another program decides, no cycle runs and only the rest is done.
    """
    charging.settle_admissions(world)
    charging.take_samples(world, now)
    world.let_in_due(now)
    world.requeue_due(now)
    for name in world.with_empty_lanes:
        entry = world.cluster_queues.get(name)
        if entry is not None:
            entry.queue.drop_empty_lanes()
    world.with_empty_lanes.clear()
    if not world.driver.runs_cycles:
        return
    if world.driver.writes_statuses and world.untold:
        tell_again(world)
    cycles = 0
    while (event.limit is None or cycles < event.limit) and (
        (of := heads(world)) or is_second_pass_due(world, now)
    ):
        run_cycle(world, of, now)
        cycles += 1
