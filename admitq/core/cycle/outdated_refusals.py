"""Refreshing refusals of lanes that go on waiting: quota returned that does not suffice for them.

Each would be refused if a cycle evaluated it, and its message states what is missing now.
"""

from dataclasses import replace
from functools import partial

from admitq.core.assignments import Assignment
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.nominate import refused_for_checks
from admitq.core.entries import ClusterQueueEntry
from admitq.core.flavors import assign
from admitq.core.instructions import FitMode
from admitq.core.overlay import replacing
from admitq.core.refusals import NoFlavorFits, NoPreemptionTargets, TooManyChecks
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.wait_states import PARKED, REFUSAL_REFRESHED
from admitq.core.world import World


def refresh_outdated_refusals(world: World, limit: int | None = None) -> None:
    """Refresh refusals that may be outdated.

    Args:
        world: the state.
        limit: how many lanes at most; None: all.
    """
    if world.is_halted:
        return
    for entry, lane in world.waiting.take_outdated_refusals(limit):
        _refresh(world, entry, lane)
    world.deciding = None


def _refresh(world: World, entry: ClusterQueueEntry, lane: Lane) -> None:
    first = entry.queue.lanes.first_of(lane)
    if first is None or lane.indexed_at is None:
        return
    pending = entry.queue.members[first.key]
    world.deciding = first.key
    refused = inadmissibility(world, entry, pending.workload)
    if isinstance(refused, TooManyChecks):
        return  # No quota helps.
    if refused is not None:
        # It is to be held back instead of waiting in a lane.
        world.waiting.cluster_queue_changed(entry)
        return
    look = partial(assign, lane.key.demands, entry.flavor_options)
    original = world.original_of(entry.spec.name, pending.workload)
    assignment = look() if original is None else replacing(world, original, look)
    if assignment.mode is FitMode.FIT:
        return  # A cycle will take the head of the lane.
    refusal = refused_for_checks(entry, assignment) or _shortfall(assignment)
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
