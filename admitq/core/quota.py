"""The arithmetic of quota: one cell for each node of the tree and each (flavor, resource).

A cell is linked to the cell of the node's parent, so that every question and every change walks one path
to the root and touches nothing else.

=====================  ==========================================  ======================================
quantity               of a ClusterQueue                           of a cohort
=====================  ==========================================  ======================================
subtree (S)            nominal                                     own nominal + Σ children lent
local (L)              kept from lending: max(0, S - lendingLimit) if a limit is set, else 0
lent                   S - L: what the parent may count on
usage (U)              Σ usage of reserving workloads              Σ children spilled
spilled                max(0, U - L): what is taken from the parent's pool
=====================  ==========================================  ======================================

Amounts inside are exact and unbounded; the unlimited amount stands as a number that no usage can reach,
so that it absorbs what is added or taken and yet can be taken out again exactly. What leaves the tree is
bounded to int64.

Every decision asks these questions several times and most of its arithmetic is done here: that is why the
walks are written out on the fields instead of calling the properties that name the quantities.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.core.amounts import LOWEST, UNLIMITED
from admitq.core.model import ResourceQuota

_UNREACHABLE: Final = 1 << 200

NO_QUOTA: Final = ResourceQuota(0)


def bounded(amount: int) -> int:
    """An amount as the rest of the world sees it: within int64, unlimited if it was unlimited."""
    if LOWEST <= amount <= UNLIMITED:
        return amount
    return UNLIMITED if amount > 0 else LOWEST


def _exact(amount: int) -> int:
    return _UNREACHABLE if amount >= UNLIMITED else amount


class BorrowLevel(NamedTuple):
    """How far up the tree quota has to come from.

    ``level`` is 0 within the own quota, else the height of the nearest cohort that has enough.
    ``may_reclaim`` tells that this is less than the whole tree, so that others there may be in debt.
    """

    level: int
    may_reclaim: bool


_WITHIN_OWN_QUOTA: Final = BorrowLevel(0, may_reclaim=False)
_WITHIN_QUOTA_OF_MEMBER: Final = BorrowLevel(0, may_reclaim=True)


@dataclass(slots=True, eq=False)
class Height:
    """Height of a node, shared by its cells: 0 for a ClusterQueue or a cohort without children."""

    value: int = 0


@dataclass(slots=True, eq=False)
class Cell:
    """Quota and usage of one (flavor, resource) at one node. Changed only by the functions below."""

    height: Height
    parent: "Cell | None" = None
    links: int = 0
    """How many children's cells are linked to this one."""
    declared: bool = False
    """Whether the node's own specification names this (flavor, resource)."""
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    received: int = 0
    """Σ of what the children lend."""
    subtree: int = 0
    local: int = 0
    usage: int = 0
    reserved: int = 0
    """All that is reserved below, also what is covered locally."""

    @property
    def lent(self) -> int:
        """What the parent may count on."""
        return self.subtree - self.local

    @property
    def spilled(self) -> int:
        """What of the usage is taken from the parent's pool."""
        return max(0, self.usage - self.local)

    @property
    def local_available(self) -> int:
        """What is left of the part that is not lent."""
        return max(0, self.local - self.usage)

    @property
    def idle(self) -> bool:
        """Whether nothing speaks of this cell, so that it may be dropped."""
        return not (self.declared or self.links or self.reserved)


def _recompute(cell: Cell) -> None:
    cell.subtree = cell.nominal + cell.received
    limit = cell.lending_limit
    cell.local = 0 if limit is None else max(0, cell.subtree - limit)


def _pass_up(cell: Cell, lent_before: int, spilled_before: int) -> None:
    """Tell the ancestors what changed in what this cell lends and takes."""
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
    """Give the cell the node's own quota."""
    lent, spilled = cell.lent, cell.spilled
    cell.declared = declared
    cell.nominal = _exact(quota.nominal)
    cell.borrowing_limit = None if quota.borrowing_limit is None else _exact(quota.borrowing_limit)
    cell.lending_limit = None if quota.lending_limit is None else _exact(quota.lending_limit)
    _recompute(cell)
    _pass_up(cell, lent, spilled)


def attach(cell: Cell, parent: Cell) -> None:
    """Link a root cell under a parent: its quota and usage count there from now on."""
    cell.parent = parent
    parent.links += 1
    _pass_up(cell, 0, 0)
    _count_reserved(parent, cell.reserved)


def detach(cell: Cell) -> None:
    """Take a cell from under its parent, with what it lent and took."""
    parent = cell.parent
    if parent is None:
        return
    lent, spilled = parent.lent, parent.spilled
    parent.received -= cell.lent
    parent.usage -= cell.spilled
    parent.links -= 1
    _recompute(parent)
    _pass_up(parent, lent, spilled)
    _count_reserved(parent, -cell.reserved)
    cell.parent = None


def _count_reserved(cell: Cell | None, amount: int) -> None:
    while cell is not None and amount:
        cell.reserved += amount
        cell = cell.parent


def add_usage(cell: Cell, amount: int) -> None:
    """Take an amount: the local part first, the rest from the ancestors."""
    spill = amount
    node: Cell | None = cell
    while node is not None:
        node.reserved += amount
        if spill:
            before = node.usage - node.local
            after = before + spill
            node.usage += spill
            if before < 0 or after < 0:
                # Some of it concerns the local part, which the ancestors do not see.
                spill = max(0, after) - max(0, before)
        node = node.parent


def remove_usage(cell: Cell, amount: int) -> None:
    """Give an amount back: to the ancestors first, to the local part last."""
    add_usage(cell, -amount)


def available(cell: Cell) -> int:
    """What can still be taken now. Negative where more is taken than there is.

    The rule is recursive from the root, local available + min(available of the parent, what the borrowing
    limit leaves). Unrolled from below it is the least of one bound for each node on the path, to which the
    local parts of all nodes up to there are added.
    """
    kept = 0
    least: int | None = None
    while (parent := cell.parent) is not None:
        own = cell.local - cell.usage
        limit = cell.borrowing_limit
        if own > 0:
            kept += own
            own = 0
        if limit is not None:
            # lent - spilled + limit, where -own is what is spilled.
            bound = kept + cell.subtree - cell.local + own + limit
            if least is None or bound < least:
                least = bound
        cell = parent
    free = kept + cell.subtree - cell.usage
    if least is not None and least < free:
        free = least
    return free if LOWEST <= free <= UNLIMITED else bounded(free)


def potential_available(cell: Cell) -> int:
    """What could be taken if nothing was in use. Unrolled from below like ``available``."""
    kept = 0
    least: int | None = None
    while (parent := cell.parent) is not None:
        limit = cell.borrowing_limit
        if limit is not None:
            bound = kept + cell.subtree + limit
            if least is None or bound < least:
                least = bound
        kept += cell.local
        cell = parent
    most = kept + cell.subtree
    return bounded(most if least is None or most < least else least)


def borrowing_with(cell: Cell, amount: int) -> bool:
    """Whether the node, having taken the amount too, would use more than its quota."""
    return cell.subtree < cell.usage + amount


def borrow_level(cell: Cell, amount: int) -> BorrowLevel:
    """How far up quota must come from to take the amount at this ClusterQueue's cell."""
    node: Cell | None = cell.parent
    if node is None:
        return _WITHIN_OWN_QUOTA
    if cell.subtree >= cell.usage + amount:
        return _WITHIN_QUOTA_OF_MEMBER
    remaining = amount - cell.local_available
    while True:
        if node.parent is None:
            return BorrowLevel(node.height.value, may_reclaim=False)
        if not borrowing_with(node, remaining):
            return BorrowLevel(node.height.value, may_reclaim=True)
        remaining -= node.local_available
        node = node.parent


def borrowed(cell: Cell) -> int:
    """What a ClusterQueue in a cohort uses beyond its nominal quota."""
    return 0 if cell.parent is None else bounded(max(0, cell.reserved - cell.nominal))
