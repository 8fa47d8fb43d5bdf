"""Assumed usage of a cohort tree, such as the usage without the victims of this cycle.

Only the cells in which usage differs from the tree are stored, and all cells above them. A change costs one
path to the root. To read the assumed usage instead of that of the tree, ``apply`` puts it into the cells of
one path, and ``restore`` restores these cells. So a read costs in proportion to the nodes on the path, and
not to all nodes that differ.
"""

from collections.abc import Mapping

from admitq.core.cohorts import Node
from admitq.core.quota import Cell


class SupposedUsage:
    """The assumed usage of the cells of one tree, where it differs from the usage in the cells."""

    def __init__(self) -> None:
        self._usage: dict[Cell, int] = {}
        self._entered: dict[Node, None] = {}
        self._replaced: list[tuple[Cell, int]] = []

    @property
    def differing(self) -> Mapping[Cell, int]:
        """The assumed usage by cell. For other cells, the usage in the cell counts.

        It is also valid between ``apply`` and ``restore``.
        """
        return self._usage

    def clear(self) -> None:
        """Remove all assumptions."""
        self._usage.clear()

    def add(self, cell: Cell, amount: int) -> None:
        """Assume additional usage (negative: less usage) at a ClusterQueue's cell."""
        usage = self._usage
        spill = amount
        current: Cell | None = cell
        while current is not None:
            used = usage.get(current, current.usage)
            usage[current] = used + spill
            spill = _spilled(current, used, spill)
            current = current.parent

    def add_where_differing(self, cell: Cell, amount: int) -> None:
        """Count an amount that the tree will count at a ClusterQueue's cell, where assumed usage differs."""
        usage = self._usage
        if not usage:
            return
        spill = amount
        current: Cell | None = cell
        while current is not None:
            used = usage.get(current)
            if used is None:
                used = current.usage
            else:
                usage[current] = used + spill
            spill = _spilled(current, used, spill)
            current = current.parent

    def apply(self, node: Node) -> None:
        """Put the assumed usage into the cells of a node and of the nodes above it."""
        usage = self._usage
        if not usage:
            return
        current: Node | None = node
        while current is not None and current not in self._entered:
            self._entered[current] = None
            for cell in current.cells.values():
                supposed = usage.get(cell)
                if supposed is not None:
                    self._replaced.append((cell, cell.usage))
                    cell.usage = supposed
            current = current.parent

    def restore(self) -> None:
        """Restore the usage of all cells that ``apply`` changed."""
        for cell, usage in self._replaced:
            cell.usage = usage
        self._replaced.clear()
        self._entered.clear()


def _spilled(cell: Cell, used: int, amount: int) -> int:
    """Return how much of an amount that is added to the usage of a cell comes from its parent."""
    local = cell.local
    return max(0, used + amount - local) - max(0, used - local)
