"""Hypothetical usage of a cohort tree, such as usage without the victims of this cycle.

Only cells with usage that differs from the tree, and all cells above them, are stored here. A change costs
one path to the root. Code that reads the tree can read the supposed usage instead: ``enter`` puts it into the
cells of one path, and ``leave`` restores all cells that were entered. So a reader pays for the nodes that it
reads, not for all nodes that differ.
"""

from collections.abc import Mapping

from admitq.core.cohorts import Node
from admitq.core.quota import Cell


class SupposedUsage:
    """Usage of the cells of one tree where it differs from what the cells hold."""

    def __init__(self) -> None:
        self._usage: dict[Cell, int] = {}
        self._entered: dict[Node, None] = {}
        self._replaced: list[tuple[Cell, int]] = []

    @property
    def differing(self) -> Mapping[Cell, int]:
        """The supposed usage by cell; a cell that is missing has the usage that it holds.

        Valid also while nodes are entered.
        """
        return self._usage

    def clear(self) -> None:
        """Suppose nothing."""
        self._usage.clear()

    def add(self, cell: Cell, amount: int) -> None:
        """Suppose an additional usage (negative: less) at a ClusterQueue's cell."""
        usage = self._usage
        spill = amount
        at: Cell | None = cell
        while at is not None:
            used = usage.get(at, at.usage)
            usage[at] = used + spill
            spill = _spilled(at, used, spill)
            at = at.parent

    def add_where_differing(self, cell: Cell, amount: int) -> None:
        """Count an amount that the tree is about to count at a ClusterQueue's cell, too."""
        usage = self._usage
        if not usage:
            return
        spill = amount
        at: Cell | None = cell
        while at is not None:
            used = usage.get(at)
            if used is None:
                used = at.usage
            else:
                usage[at] = used + spill
            spill = _spilled(at, used, spill)
            at = at.parent

    def apply(self, node: Node) -> None:
        """Put the supposed usage into the cells of a node and of the nodes above it."""
        usage = self._usage
        if not usage:
            return
        at: Node | None = node
        while at is not None and at not in self._entered:
            self._entered[at] = None
            for cell in at.cells.values():
                supposed = usage.get(cell)
                if supposed is not None:
                    self._replaced.append((cell, cell.usage))
                    cell.usage = supposed
            at = at.parent

    def restore(self) -> None:
        """Restore the usage of all cells of the entered nodes."""
        for cell, usage in self._replaced:
            cell.usage = usage
        self._replaced.clear()
        self._entered.clear()


def _spilled(cell: Cell, used: int, amount: int) -> int:
    """Return what of an amount that is added to a cell's usage is taken from its parent."""
    local = cell.local
    return max(0, used + amount - local) - max(0, used - local)
