"""Find the workloads to preempt so that another workload fits (semantics, Preemption).

A search works on the live quota tree. It removes workloads, restores them, and leaves the tree exactly as it
was. It changes nothing else.

| module | content |
|---|---|
| ``policies`` | which workloads may be preempted |
| ``candidates`` | these workloads in one ClusterQueue, in order |
| ``index``, ``sort_keys`` | the ClusterQueues and cohorts of a tree that have candidates, in order |
| ``tree_indexes`` | all indexes of a tree in a cycle |
| ``capacity`` | whether the preemptor fits, and which victims it does not need |
| ``bulk`` | the removal of many candidates of other ClusterQueues at once, for a classical search |
| ``classical``, ``fair`` | the two kinds of search |
| ``targets``, ``bounds`` | for a fair search: the order of ClusterQueues, and which of them to skip |
"""

from collections.abc import Callable, Collection, Container, Mapping

from admitq.core.amounts import FlavorResource
from admitq.core.model import ObjectKey
from admitq.core.preemption import classical, fair
from admitq.core.preemption.candidates import ExcludedWorkloads, Preemptor, TargetSearch, Victim, is_borrowing
from admitq.core.preemption.capacity import RequestedCapacity
from admitq.core.preemption.policies import never_preempts, reserves_capacity
from admitq.core.preemption.tree_indexes import TreeIndexes
from admitq.core.supposed_usage import SupposedUsage
from admitq.core.world import World

__all__ = [
    "ExcludedWorkloads",
    "Preemptor",
    "TreeIndexes",
    "Victim",
    "find_victims",
    "is_borrowing",
    "never_preempts",
    "reserves_capacity",
]


def find_victims(
    world: World,
    preemptor: Preemptor,
    usage: Mapping[FlavorResource, int],
    contested: Collection[FlavorResource],
    excluded: Container[ObjectKey] = (),
    indexes: TreeIndexes | None = None,
    has_room: Callable[[], object] | None = None,
) -> tuple[Victim, ...]:
    """Find the workloads to preempt for a workload.

    Args:
        world: the world to search. Its settings decide between classical and fair preemption.
        preemptor: the workload that does not fit.
        usage: all usage that the workload would have.
        contested: the (flavor, resource) pairs for which workloads must be preempted. Each victim uses at
            least one of them.
        excluded: workloads that are not candidates: their usage is removed from the tree already, or they
            were admitted in this cycle.
        indexes: the indexes of the preemptor's tree in this cycle. With None, the search builds its own one.
        has_room: returns a false value while the pods have no place in a topology. With None, they need none.

    Returns:
        The victims; each of them is needed. Empty if not even all candidates would free enough, or if the
        workload fits without preemption.
    """
    node = preemptor.queue.node
    if (
        never_preempts(preemptor.queue.spec.preemption)
        or RequestedCapacity(node, usage, has_room).is_available()
    ):
        return ()
    pairs = frozenset(contested)
    search = TargetSearch(world, preemptor, usage, pairs, excluded, has_room)
    if indexes is None:
        indexes = TreeIndexes(world, SupposedUsage(), excluded)
    fairness = world.settings.fair_sharing
    if fairness is not None:
        bounds = indexes.by_share(pairs, indexes.highest_priority(preemptor))
        bounds.index.prepare(node)
        candidates = fair.find(search, bounds, fairness)
    else:
        levels_by_advantage = classical.find_levels(search)
        if classical.can_preempt_only_in_own_queue(search, levels_by_advantage):
            candidates = classical.find_in_own_queue(search)
        else:
            index = indexes.by_order(pairs)
            index.prepare(node)
            candidates = classical.find(
                search, index, levels_by_advantage, indexes.highest_priority(preemptor)
            )
    return tuple([Victim(candidate.entry, candidate.reason) for candidate in candidates])
