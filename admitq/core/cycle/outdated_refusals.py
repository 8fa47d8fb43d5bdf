"""Refresh the refusals of lanes that still wait after quota returned.

A cycle would refuse these lanes again. Their messages state how much is missing now.
"""

from dataclasses import replace
from functools import partial

from admitq.core.assignments import Assignment
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.nominate import refuse_too_many_checks
from admitq.core.entries import ClusterQueueEntry
from admitq.core.flavors import assign
from admitq.core.instructions import FitMode
from admitq.core.overlay import assign_replacement
from admitq.core.refusals import NoFlavorFits, NoPreemptionTargets, TooManyChecks
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.wait_states import PARKED, REFUSAL_REFRESHED
from admitq.core.world import World


def refresh_outdated_refusals(world: World, limit: int | None = None) -> None:
    """Refresh refusals that may be outdated.

    Args:
        world: the state.
        limit: the greatest number of lanes; None: all lanes.
    """
    if world.is_halted:
        return
    for entry, lane in world.waiting.take_outdated_refusals(limit):
        _refresh(world, entry, lane)
    world.deciding = None


def _refresh(world: World, entry: ClusterQueueEntry, lane: Lane) -> None:
    head = entry.queue.lanes.first_of(lane)
    if head is None or lane.indexed_at is None:
        return
    pending = entry.queue.members[head.key]
    world.deciding = head.key
    inadmissible = inadmissibility(world, entry, pending.workload)
    if isinstance(inadmissible, TooManyChecks):
        return  # No quota helps.
    if inadmissible is not None:
        # The next cycle holds the workload back instead.
        world.waiting.cluster_queue_changed(entry)
        return
    assign_flavors = partial(assign, lane.key.demands, entry.flavor_options)
    original = world.original_of(entry.spec.name, pending.workload)
    assignment = assign_flavors() if original is None else assign_replacement(world, original, assign_flavors)
    if assignment.mode is FitMode.FIT:
        return  # A cycle will take the head of the lane.
    refusal = refuse_too_many_checks(entry, assignment) or _shortfall(assignment)
    state = lane.state
    if isinstance(state, PARKED):
        refreshed = replace(state, refusal=refusal, refused_at=pending.workload.queued_at)
        entry.queue.lanes.change_state(lane, REFUSAL_REFRESHED, refreshed)
    world.report(pending, refusal)


def _shortfall(assignment: Assignment) -> NoFlavorFits | NoPreemptionTargets:
    shortfall = assignment.shortfall
    return (
        NoPreemptionTargets(shortfall) if assignment.mode is FitMode.NO_PREEMPTION_CANDIDATES else shortfall
    )
