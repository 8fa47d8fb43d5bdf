"""Who must be preempted so that a workload fits (semantics, Preemption).

The search works on the live quota tree: workloads are taken off it and put back, and it is left exactly as
it was found. Nothing is woken by it and nothing is decided by it; whoever asks decides.

``policies`` tells who may be preempted, ``candidates`` who comes into question and in which order, ``room``
what must become free and who need not leave after all; ``classical`` and ``fair`` search by them.
"""

from collections.abc import Collection, Mapping

from admitq.core.amounts import FlavorResource
from admitq.core.model import ObjectKey
from admitq.core.preemption import classical, fair
from admitq.core.preemption.candidates import Preemptor, Search, Victim
from admitq.core.preemption.policies import never_preempts
from admitq.core.preemption.room import Room
from admitq.core.world import World

__all__ = ["Preemptor", "Victim", "find_victims", "never_preempts"]


def find_victims(
    world: World,
    preemptor: Preemptor,
    usage: Mapping[FlavorResource, int],
    contested: Collection[FlavorResource],
    gone: Collection[ObjectKey] = (),
) -> tuple[Victim, ...]:
    """Find whom to preempt for a workload.

    Args:
        world: where to look; by its settings shares decide, or quota alone.
        preemptor: for whom.
        usage: all that it would take.
        contested: the (flavor, resource) for which somebody has to be preempted; victims use at least one.
        gone: workloads that are not considered: the caller took them off the tree, or let them in just now.

    Returns:
        Victims, none of whom can be spared; nobody if not even all candidates would suffice, or if there is
        room without preempting anybody.
    """
    if never_preempts(preemptor.queue.spec.preemption) or Room(preemptor.queue.node, usage).is_free():
        return ()
    search = Search(world, preemptor, usage, frozenset(contested), frozenset(gone))
    fairness = world.settings.fair_sharing
    taken = classical.find(search) if fairness is None else fair.find(search, fairness)
    return tuple([Victim(candidate.entry, candidate.reason) for candidate in taken])
