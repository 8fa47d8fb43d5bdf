"""The handler that runs admission cycles."""

from collections.abc import Iterator
from typing import Final

from admitq.core import charging
from admitq.core.cycle import (
    is_second_pass_due,
    refresh_outdated_refusals,
    run_cycle,
    take_heads,
    try_second_passes,
)
from admitq.core.events import CyclesRequested
from admitq.core.model import Instant
from admitq.core.world import World

_REFRESHED_AT_ONCE: Final = 8
"""The number of refusals that one call refreshes when no head is left. Decisions must not wait for them."""


def run_requested_cycles(world: World, event: CyclesRequested, now: Instant) -> None:
    """Do all work that is due, then run cycles until no head is left or the requested number has run.

    If another program decides, this runs no cycles.
    """
    for _ in requested_cycles(world, event, now):
        pass


def requested_cycles(world: World, event: CyclesRequested, now: Instant) -> Iterator[None]:
    """As ``run_requested_cycles``, in steps. Between two steps, no other code may change the world."""
    charging.settle_admissions(world)
    charging.take_samples(world, now)
    world.waiting.end_due_timers(now)
    world.waiting.end_due_batches(now)
    world.waiting.heads.drop_empty_lanes()
    if not world.driver.runs_cycles:
        return
    cycles = 0
    while event.limit is None or cycles < event.limit:
        has_second_passes = is_second_pass_due(world, now)
        # Places that second passes leave wake workloads, which then take part in the same cycle.
        yield from try_second_passes(world, now)
        heads = take_heads(world)
        if not (heads or has_second_passes):
            break
        yield from run_cycle(world, heads, now)
        cycles += 1
    if world.driver.writes_statuses and not world.waiting.heads.has_any():
        refresh_outdated_refusals(world, _REFRESHED_AT_ONCE)
