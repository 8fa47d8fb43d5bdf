"""The room that a workload needs on the live tree, and the smallest set of those who must leave it."""

from collections.abc import Callable, Iterable, Mapping

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.preemption.candidates import Candidate
from admitq.core.quota import Cell


class Room:
    """What a workload would take at its ClusterQueue. Who asks for nothing of a pair needs no room there."""

    def __init__(self, node: Node, usage: Mapping[FlavorResource, int]) -> None:
        self._pairs = [pair for pair, amount in usage.items() if amount > 0]
        self._needed = [(node.cells[pair], usage[pair]) for pair in self._pairs]

    def is_free(self) -> bool:
        """Whether it fits, borrowing if need be."""
        return all(quota.available(cell) >= amount for cell, amount in self._needed)

    def is_free_within_nominal(self) -> bool:
        """Whether it fits and its ClusterQueue would borrow none of what it asks for."""
        borrows = any(quota.borrowing_with(cell, amount) for cell, amount in self._needed)
        return not borrows and self.is_free()

    def used_at(self, nodes: Iterable[Node]) -> list[tuple[Cell, int]]:
        """What is in use at these ClusterQueues of what it asks for."""
        return [
            (cell, cell.usage)
            for node in nodes
            for pair in self._pairs
            if (cell := node.cells.get(pair)) is not None
        ]

    def occupy(self) -> None:
        """Count the workload at its ClusterQueue."""
        for cell, amount in self._needed:
            quota.add_usage(cell, amount)

    def vacate(self) -> None:
        """Undo ``occupy``."""
        for cell, amount in self._needed:
            quota.remove_usage(cell, amount)


def fill_back(taken: list[Candidate], is_enough: Callable[[], bool]) -> None:
    """Put back whoever need not go, beginning with who was taken last but one.

    Who was taken last is needed: nothing sufficed before. It stands in the place of each who is put back,
    so that the order changes (semantics, Preemption).

    Where all of several may stay, each of them may: so they are tried together, more of them each time.
    """
    spared: list[int] = []
    end, together = len(taken) - 1, 1
    while end > 0:
        start = max(0, end - together)
        for candidate in taken[start:end]:
            candidate.put_back()
        if is_enough():
            spared.extend(reversed(range(start, end)))
            end, together = start, 2 * together
            continue
        for candidate in taken[start:end]:
            candidate.take()
        if together == 1:
            end = start
        together = 1
    for index in spared:
        taken[index] = taken[-1]
        taken.pop()
