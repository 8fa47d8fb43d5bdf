"""What a cycle supposes of one cohort tree beyond what is so, until the cycle ends.

Two things are supposed: capacity that is *kept* for heads which do not get it yet, counted as usage in the
live tree; and *victims*, whom heads of this cycle preempt. Victims hold their quota until their jobs have
stopped, so they stay in the tree, and are taken out only while somebody asks what would be without them.

Only cells are touched: nobody is woken, no generation moves on, and all is undone exactly.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.cohorts import Node
from admitq.core.entries import WorkloadEntry
from admitq.core.model import ObjectKey
from admitq.core.quota import Cell
from admitq.core.world import World

_Answer = TypeVar("_Answer")

_Amounts = dict[Cell, int]


def _held(world: World, entry: WorkloadEntry) -> Iterator[tuple[Cell, int]]:
    held = entry.held
    assert held is not None  # noqa: S101 narrows the type
    cells = world.cluster_queues[held.cluster_queue].node.cells
    for pair, amount in held.usage:
        yield cells[pair], amount


def without(world: World, holders: Iterable[WorkloadEntry], ask: Callable[[], _Answer]) -> _Answer:
    """The answer as it would be if these workloads, who hold quota in queues of the tree, held nothing."""
    return _without([each for holder in holders for each in _held(world, holder)], ask)


def _without(taken: Sequence[tuple[Cell, int]], ask: Callable[[], _Answer]) -> _Answer:
    for cell, amount in taken:
        quota.remove_usage(cell, amount)
    answer = ask()
    for cell, amount in taken:
        quota.add_usage(cell, amount)
    return answer


def replacing(world: World, original: WorkloadEntry, assign: Callable[..., Assignment]) -> Assignment:
    """The assignment of who replaces a workload: of its flavors alone, as if that one was gone.

    Other flavors are not tried later either, so that no scan of them is to go on.
    """
    admission = original.admission
    assert admission is not None  # noqa: S101 narrows the type
    look = partial(assign, original=admission.pod_set_assignments)
    return without_original(world, original, look)._replace(tried=())


def without_original(world: World, original: WorkloadEntry, ask: Callable[[], _Answer]) -> _Answer:
    """The answer as it would be if a workload was gone with all that it was assigned.

    Also with what it took over itself from one that is not finished yet: nobody else may have that.
    """
    admission = original.admission
    assert admission is not None  # noqa: S101 narrows the type
    cells = world.cluster_queues[admission.cluster_queue].node.cells
    return _without([(cells[pair], amount) for pair, amount in world.assigned(original)], ask)


class Overlay:
    """What is supposed of one tree."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: _Amounts = {}
        self.victims: dict[ObjectKey, WorkloadEntry] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is supposed, so that the tree is what it seems."""
        return not (self._kept or self.victims)

    def keep(self, node: Node, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Count usage of a head that gets nothing yet, so that those behind it leave it alone."""
        for pair, amount in usage:
            cell = node.cells[pair]
            self._kept[cell] = self._kept.get(cell, 0) + amount
            quota.add_usage(cell, amount)

    def without_victims(self, more: Iterable[WorkloadEntry], ask: Callable[[], _Answer]) -> _Answer:
        """The answer as it would be with all victims gone, and these of the asking head too."""
        gone = {**self.victims, **{entry.workload.key: entry for entry in more}}
        return without(self._world, gone.values(), ask)

    def with_nothing_kept(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer as things are in truth, with the victims still there."""
        for cell, amount in self._kept.items():
            quota.remove_usage(cell, amount)
        answer = ask()
        for cell, amount in self._kept.items():
            quota.add_usage(cell, amount)
        return answer

    def undo(self) -> None:
        """Leave the tree as it is in truth."""
        for cell, amount in self._kept.items():
            quota.remove_usage(cell, amount)
        self._kept.clear()
