"""The arithmetic of quota: one cell for each node of the tree and each (flavor, resource).

A cell is linked to the cell of the node's parent. So each read and each change walks one path to the root.

=====================  ==========================================  ======================================
quantity               of a ClusterQueue                           of a cohort
=====================  ==========================================  ======================================
subtree_quota (S)      nominal                                     own nominal + Σ children lent
local (L)              not lent:          max(0, S - lendingLimit) if a limit is set, else 0
lent                   S - L: what the parent may count on
usage (U)              Σ usage of reserving workloads              Σ children spilled
spilled                max(0, U - L): what is taken from the parent's pool
=====================  ==========================================  ======================================

Amounts in cells are exact and not bounded. An unlimited amount is a number that no usage can reach. So
additions and subtractions with it are exact. Results are clamped to int64.

Decisions spend most of their time in this module. So its loops read fields instead of calling properties.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.core.amounts import LOWEST, UNLIMITED
from admitq.core.model import ResourceQuota

_UNREACHABLE: Final = 1 << 200

NO_QUOTA: Final = ResourceQuota(0)


def clamp_to_int64(amount: int) -> int:
    """Return the int64 that is nearest to the amount. An unlimited amount becomes ``UNLIMITED``."""
    if LOWEST <= amount <= UNLIMITED:
        return amount
    return UNLIMITED if amount > 0 else LOWEST


def _exact(amount: int) -> int:
    return _UNREACHABLE if amount >= UNLIMITED else amount


class BorrowLevel(NamedTuple):
    """How far up the cohort tree a request must go to find enough quota.

    ``level`` is 0 within the ClusterQueue's own quota, else the height of the nearest cohort with enough
    quota. ``may_reclaim``: whether the node with enough quota is below the root, so that other subtrees may
    borrow from it.
    """

    level: int
    may_reclaim: bool


_WITHIN_OWN_QUOTA: Final = BorrowLevel(0, may_reclaim=False)
_WITHIN_QUOTA_OF_MEMBER: Final = BorrowLevel(0, may_reclaim=True)


@dataclass(slots=True, eq=False)
class Height:
    """The height of a node, which its cells share: 0 for a ClusterQueue or a cohort without children."""

    value: int = 0


@dataclass(slots=True, eq=False)
class Cell:
    """Quota and usage of one (flavor, resource) at one node. Only the functions below change it."""

    height: Height
    parent: "Cell | None" = None
    links: int = 0
    """The number of cells of children that are linked to this one."""
    declared: bool = False
    """Whether the node's own specification names this (flavor, resource)."""
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    received: int = 0
    """The sum of what the children lend."""
    subtree_quota: int = 0
    local: int = 0
    usage: int = 0

    @property
    def lent(self) -> int:
        """The quota that the node lends to its parent."""
        return self.subtree_quota - self.local

    @property
    def spilled(self) -> int:
        """The part of the usage that comes from the quota of the parent."""
        return max(0, self.usage - self.local)

    @property
    def unused_local_quota(self) -> int:
        """The unused part of the quota that is not lent."""
        return max(0, self.local - self.usage)

    @property
    def idle(self) -> bool:
        """Whether the cell has no declared quota, no usage and no linked cells, so that it can be removed."""
        return not (self.declared or self.links or self.usage)


def _recompute(cell: Cell) -> None:
    cell.subtree_quota = cell.nominal + cell.received
    limit = cell.lending_limit
    cell.local = 0 if limit is None else max(0, cell.subtree_quota - limit)


def _pass_up(cell: Cell, lent_before: int, spilled_before: int) -> None:
    """Update the ancestors after a change of the amounts that this cell lends and takes."""
    child = cell
    while (parent := child.parent) is not None:
        lent, spilled = child.lent - lent_before, child.spilled - spilled_before
        if not lent and not spilled:
            return
        lent_before, spilled_before = parent.lent, parent.spilled
        parent.received += lent
        parent.usage += spilled
        _recompute(parent)
        child = parent


def set_quota(cell: Cell, quota: ResourceQuota, *, declared: bool) -> None:
    """Set the node's own quota of the cell."""
    lent, spilled = cell.lent, cell.spilled
    cell.declared = declared
    cell.nominal = _exact(quota.nominal)
    cell.borrowing_limit = None if quota.borrowing_limit is None else _exact(quota.borrowing_limit)
    cell.lending_limit = None if quota.lending_limit is None else _exact(quota.lending_limit)
    _recompute(cell)
    _pass_up(cell, lent, spilled)


def attach(cell: Cell, parent: Cell) -> None:
    """Link a cell to a parent. Its quota and usage count there from now on."""
    cell.parent = parent
    parent.links += 1
    _pass_up(cell, 0, 0)


def detach(cell: Cell) -> None:
    """Unlink a cell from its parent. Its quota and usage no longer count there."""
    parent = cell.parent
    if parent is None:
        return
    lent, spilled = parent.lent, parent.spilled
    parent.received -= cell.lent
    parent.usage -= cell.spilled
    parent.links -= 1
    _recompute(parent)
    _pass_up(parent, lent, spilled)
    cell.parent = None


def add_usage(cell: Cell, amount: int) -> None:
    """Count usage. Local quota covers it first, then the quota of ancestors."""
    spill = amount
    current: Cell | None = cell
    while current is not None and spill:
        before = current.usage - current.local
        after = before + spill
        current.usage += spill
        if before < 0 or after < 0:
            # Ancestors do not count the part that local quota covers.
            spill = max(0, after) - max(0, before)
        current = current.parent


def remove_usage(cell: Cell, amount: int) -> None:
    """Undo ``add_usage``."""
    add_usage(cell, -amount)


def available(cell: Cell) -> int:
    """Return the amount that is available now. It is negative if usage exceeds quota.

    The rule is recursive. The amount available at a node is its available local quota, plus an amount from
    its parent. The latter is the amount available at the parent, but at most what the borrowing limit leaves.
    The loop goes from the cell up to the root. Each node on the path gives a bound, which includes the
    available local quota of the nodes below it. The result is the least bound.
    """
    unused_local_quota = 0
    least_bound: int | None = None
    while (parent := cell.parent) is not None:
        own_available = cell.local - cell.usage
        limit = cell.borrowing_limit
        if own_available > 0:
            unused_local_quota += own_available
            own_available = 0
        if limit is not None:
            # The bound is lent - spilled + limit; spilled is -own_available here.
            bound = unused_local_quota + cell.subtree_quota - cell.local + own_available + limit
            if least_bound is None or bound < least_bound:
                least_bound = bound
        cell = parent
    result = unused_local_quota + cell.subtree_quota - cell.usage
    if least_bound is not None and least_bound < result:
        result = least_bound
    return result if LOWEST <= result <= UNLIMITED else clamp_to_int64(result)


def potential_available(cell: Cell) -> int:
    """Return the amount that would be available without any usage. The loop is that of ``available``."""
    local = 0
    least_bound: int | None = None
    while (parent := cell.parent) is not None:
        limit = cell.borrowing_limit
        if limit is not None:
            bound = local + cell.subtree_quota + limit
            if least_bound is None or bound < least_bound:
                least_bound = bound
        local += cell.local
        cell = parent
    result = local + cell.subtree_quota
    return clamp_to_int64(result if least_bound is None or result < least_bound else least_bound)


def find_binding_cell(cell: Cell, amount_of: Callable[[Cell], int] = available) -> Cell:
    """Return the cell of the path to the root that limits what is available at a cell.

    This is the nearest cell where more would be available without its own borrowing limit. Otherwise it is
    the cell of the root: all quota of the tree is used. Nearer limits may be reached as well: each of them
    alone would help only together with that of the returned cell.

    Args:
        cell: the cell of a ClusterQueue.
        amount_of: ``available``, or ``potential_available`` to ask for the limit without any usage.
    """
    while cell.parent is not None:
        limit = cell.borrowing_limit
        if limit is not None:
            limited = amount_of(cell)
            cell.borrowing_limit = None
            unlimited = amount_of(cell)
            cell.borrowing_limit = limit
            if limited < unlimited:
                return cell
        cell = cell.parent
    return cell


def borrowing_with(cell: Cell, amount: int) -> bool:
    """Whether the node would use more than its quota with this additional amount."""
    return cell.subtree_quota < cell.usage + amount


def borrow_level(cell: Cell, amount: int) -> BorrowLevel:
    """Return how far up the tree an additional amount at a ClusterQueue's cell must go to find quota."""
    ancestor: Cell | None = cell.parent
    if ancestor is None:
        return _WITHIN_OWN_QUOTA
    if cell.subtree_quota >= cell.usage + amount:
        return _WITHIN_QUOTA_OF_MEMBER
    remaining = amount - cell.unused_local_quota
    while True:
        if ancestor.parent is None:
            return BorrowLevel(ancestor.height.value, may_reclaim=False)
        if not borrowing_with(ancestor, remaining):
            return BorrowLevel(ancestor.height.value, may_reclaim=True)
        remaining -= ancestor.unused_local_quota
        ancestor = ancestor.parent


def borrowed(cell: Cell) -> int:
    """Return the usage of a ClusterQueue beyond its nominal quota; 0 without a cohort."""
    return 0 if cell.parent is None else clamp_to_int64(max(0, cell.usage - cell.nominal))
