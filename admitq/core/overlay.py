"""The assumptions of a cycle about one cohort tree, until the cycle ends.

There are two assumptions:

- *Reserved capacity* is withheld for heads that get nothing yet. It counts as usage in the tree.
- *Victims* are workloads that heads of this cycle preempt. They hold quota until their jobs have stopped, so
  their usage stays in the tree. It is removed only to evaluate what will be available when they have left.

The usage without victims and the usage without reserved capacity are stored for the paths on which they
differ from the tree. So an evaluation costs in proportion to the nodes that it concerns, and not to the
number of victims.

An overlay changes only cells. It ends no waiting, and changes no generation. At the end of a cycle, it is
undone exactly.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.cohorts import Node
from admitq.core.entries import WorkloadEntry
from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey
from admitq.core.preemption import ExcludedWorkloads, TreeIndexes, Victim
from admitq.core.quota import Cell
from admitq.core.supposed_usage import SupposedUsage
from admitq.core.topology.topologies import Place
from admitq.core.world import World

_Result = TypeVar("_Result")

_UNKNOWN: Final = -1
"""No generation of a tree."""


def _usage_of(entry: WorkloadEntry) -> Usage:
    assert entry.held is not None  # noqa: S101 narrows the type
    return entry.held.usage


def _node_of(world: World, entry: WorkloadEntry) -> Node:
    assert entry.held is not None  # noqa: S101 narrows the type
    return world.cluster_queues[entry.held.cluster_queue].node


def evaluate_without(
    world: World, holders: Iterable[WorkloadEntry], evaluate: Callable[[], _Result]
) -> _Result:
    """Return a result as if these workloads, which hold quota in the tree, held nothing."""
    holders = list(holders)
    places = _places_of(holders)
    world.topologies.release(places)
    result = _evaluate_without_usage(
        [
            (_node_of(world, holder).cells[pair], amount)
            for holder in holders
            for pair, amount in _usage_of(holder)
        ],
        evaluate,
    )
    world.topologies.hold(places)
    return result


def _places_of(holders: Iterable[WorkloadEntry]) -> list[Place]:
    return [place for holder in holders if holder.held is not None for place in holder.held.places]


def _evaluate_without_usage(removed: Sequence[tuple[Cell, int]], evaluate: Callable[[], _Result]) -> _Result:
    for cell, amount in removed:
        quota.remove_usage(cell, amount)
    result = evaluate()
    for cell, amount in removed:
        quota.add_usage(cell, amount)
    return result


def assign_replacement(
    world: World, original: WorkloadEntry, assign: Callable[..., Assignment]
) -> Assignment:
    """Return the assignment of a replacement, with the flavors of its original, as if the original had left.

    Later attempts do not try other flavors either, so there are no flavors left to try.
    """
    admission = original.admission
    assert admission is not None  # noqa: S101 narrows the type
    assign_flavors = partial(assign, original=admission.pod_set_assignments)
    return evaluate_without_original(world, original, assign_flavors)._replace(scan_stops=())


def evaluate_without_original(
    world: World, original: WorkloadEntry, evaluate: Callable[[], _Result]
) -> _Result:
    """Return a result as if an original had left with all usage that it was assigned.

    This includes usage that the original took over from a workload which has not finished.
    """
    admission = original.admission
    assert admission is not None  # noqa: S101 narrows the type
    cells = world.cluster_queues[admission.cluster_queue].node.cells
    return _evaluate_without_usage(
        [(cells[pair], amount) for pair, amount in world.assigned(original)], evaluate
    )


class Overlay:
    """The assumptions of a cycle about one tree.

    Args:
        world: the world of the tree.
        root: the root of the tree.
        admitted: the workloads that were admitted in this cycle. The cycle adds to this container.
    """

    def __init__(self, world: World, root: Node, admitted: Container[ObjectKey] = ()) -> None:
        self._world = world
        self._root = root
        self._reserved: dict[Cell, int] = {}
        self._reserved_places: list[Place] = []
        self._victims: dict[ObjectKey, WorkloadEntry] = {}
        self._without_victims = SupposedUsage()
        self._without_reserved = SupposedUsage()
        self._generation = root.generation
        self.excluded: Final = ExcludedWorkloads(self._victims, admitted)
        """Workloads that are no longer candidates in this cycle."""
        self._indexes = TreeIndexes(world, self._without_victims, self.excluded)

    @property
    def is_empty(self) -> bool:
        """Whether there are no assumptions."""
        return not (self._reserved or self._reserved_places or self._victims)

    @property
    def indexes(self) -> TreeIndexes:
        """The indexes of candidates for preemption."""
        self._rebuild_if_changed()
        return self._indexes

    def has_any_victim(self, victims: Iterable[Victim]) -> bool:
        """Whether one of these is a victim of this cycle already."""
        ours = self._victims
        return bool(ours) and any(victim.entry.workload.key in ours for victim in victims)

    def reserve_capacity(
        self, node: Node, usage: Iterable[tuple[FlavorResource, int]], places: Iterable[Place] = ()
    ) -> None:
        """Count the usage of a head that gets nothing yet, so that later heads do not get this capacity."""
        self._rebuild_if_changed()
        taken = tuple(places)
        self._reserved_places += taken
        self._world.topologies.hold(taken)
        for pair, amount in usage:
            cell = node.cells[pair]
            self._reserved[cell] = self._reserved.get(cell, 0) + amount
            self._without_reserved.add(cell, 0)
            self._without_victims.add_where_differing(cell, amount)
            quota.add_usage(cell, amount)
        self._indexes.update(node)

    def add_victims(self, victims: Iterable[Victim]) -> None:
        """Assume for later heads that these workloads will leave."""
        self._rebuild_if_changed()
        nodes: dict[Node, None] = {}
        for victim in victims:
            self._victims[victim.entry.workload.key] = victim.entry
            node = _node_of(self._world, victim.entry)
            nodes[node] = None
            for pair, amount in _usage_of(victim.entry):
                self._without_victims.add(node.cells[pair], -amount)
        for node in nodes:
            self._indexes.update(node)

    def settle_reservation(
        self, entry: WorkloadEntry, node: Node, expected: Iterable[tuple[FlavorResource, int]]
    ) -> None:
        """Count the quota of a head that reserved it.

        Args:
            entry: the head.
            node: the node of its ClusterQueue.
            expected: the expected usage of the head. If its usage differs, or if more changes in the tree,
                all assumed usage is computed again when it is needed.
        """
        self._rebuild_if_changed()
        usage = [(pair, amount) for pair, amount in expected if amount]
        changes = self._world.cohort_trees.changes
        for pair, amount in usage:
            self._without_victims.add_where_differing(node.cells[pair], amount)
            self._without_reserved.add_where_differing(node.cells[pair], amount)
        self._world.settle_reservation(entry)
        if self._root.generation == changes + 1 and sorted(usage) == list(_usage_of(entry)):
            self._generation = self._root.generation
            self._indexes.update(node)
        else:
            self._generation = _UNKNOWN

    def evaluate_without_victims(
        self, node: Node, further_victims: Iterable[Victim], evaluate: Callable[[], _Result]
    ) -> _Result:
        """Return a result for a head at a node as if all victims, and these victims of the head, had left."""
        self._rebuild_if_changed()
        self._without_victims.apply(node)
        own_victims = [
            victim.entry for victim in further_victims if victim.entry.workload.key not in self._victims
        ]
        for entry in own_victims:
            self._without_victims.apply(_node_of(self._world, entry))
        places = _places_of(self._victims.values())
        self._world.topologies.release(places)
        result = evaluate_without(self._world, own_victims, evaluate)
        self._world.topologies.hold(places)
        self._without_victims.restore()
        return result

    def evaluate_without_reserved_capacity(self, node: Node, evaluate: Callable[[], _Result]) -> _Result:
        """Return a result for a head at a node by real usage: with victims, without reserved capacity."""
        self._rebuild_if_changed()
        self._without_reserved.apply(node)
        self._world.topologies.release(self._reserved_places)
        result = evaluate()
        self._world.topologies.hold(self._reserved_places)
        self._without_reserved.restore()
        return result

    def undo(self) -> None:
        """Remove reserved capacity from the tree and from topologies."""
        self._world.topologies.release(self._reserved_places)
        self._reserved_places.clear()
        for cell, amount in self._reserved.items():
            quota.remove_usage(cell, amount)
        self._reserved.clear()

    def _rebuild_if_changed(self) -> None:
        """Compute the assumed usage again, if usage changed other than through this object."""
        if self._root.generation == self._generation:
            return
        self._generation = self._root.generation
        self._indexes.clear()
        self._without_victims.clear()
        self._without_reserved.clear()
        for entry in self._victims.values():
            cells = _node_of(self._world, entry).cells
            for pair, amount in _usage_of(entry):
                self._without_victims.add(cells[pair], -amount)
        for cell, amount in self._reserved.items():
            self._without_reserved.add(cell, -amount)
