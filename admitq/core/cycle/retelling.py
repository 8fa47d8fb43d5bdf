"""Telling those who wait what they lack now, without a turn."""

from functools import partial
from operator import attrgetter

from admitq.core.assignments import Assignment, Mode
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.nominate import refused_for_checks
from admitq.core.flavors import assign
from admitq.core.overlay import replacing
from admitq.core.queues import Pending
from admitq.core.refusals import NobodyToPreempt, NoFlavorFits, TooManyChecks
from admitq.core.world import ClusterQueueEntry, World


def tell_again(world: World) -> None:
    """Tell those who wait what they lack now, where quota was given back that lets none of them in.

    Each would be refused if it was tried, and is told for what; only the turns are spared.
    """
    for root in [] if world.is_halted else sorted(world.untold, key=attrgetter("name")):
        for name in sorted(root.sleepers.names):
            queue = world.cluster_queues[name]
            for pending in queue.queue.first_refused() if queue.is_active else ():
                world.deciding = pending.workload.key
                _refuse_again(world, queue, pending)
        world.untold.pop(root, None)
    world.deciding = None


def _refuse_again(world: World, queue: ClusterQueueEntry, pending: Pending) -> None:
    lane = pending.lane
    refused = inadmissibility(world, queue, pending.workload)
    if isinstance(refused, TooManyChecks):
        return  # No quota helps.
    if lane is None or refused is not None:
        # It is to be kept elsewhere than in a lane.
        world.wake_tree(queue.node)
        return
    look = partial(assign, lane.shape.demands, queue.offer)
    original = world.original_of(queue.spec.name, pending.workload)
    assignment = look() if original is None else replacing(world, original, look)
    refusal = refused_for_checks(queue, assignment) or _shortfall(assignment)
    queue.queue.refuse_again(pending, refusal)
    world.report(pending, refusal)


def _shortfall(assignment: Assignment) -> NoFlavorFits | NobodyToPreempt:
    shortfall = assignment.shortfall
    return NobodyToPreempt(shortfall) if assignment.mode is Mode.NO_PREEMPTION_CANDIDATES else shortfall
