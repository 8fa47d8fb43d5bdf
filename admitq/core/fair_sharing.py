"""Fair sharing: the dominant resource shares of nodes, and the order of heads in a cycle by shares.

For each resource, a node has a ratio: its usage beyond its quota, divided by the amount that its cohort could
lend, in thousandths. The *dominant resource share* of the node is the greatest of these ratios, divided by
its weight. Shares are compared as exact fractions, and rounded only in statuses.

The lendable amounts depend only on quotas and on the shape of the tree. They are cached at the cohort until
one of these changes.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from admitq.core import quota
from admitq.core.amounts import UNLIMITED, FlavorResource, add
from admitq.core.cohorts import Lendable, Node
from admitq.core.model import ONE, Instant
from admitq.core.quota import Cell
from admitq.core.settings import Gates

_THOUSANDTHS: Final = 1000


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """A dominant resource share. A node that borrows more for its weight has a greater share.

    A node that borrows and has weight 0 has an infinite share. Two such shares compare by ``amount``, which
    is then the ratio without weight. ``resource`` is the dominant resource: of several, the first by name.
    """

    infinite: bool
    amount: Fraction
    resource: str = field(default="", compare=False)

    @property
    def weighted_share(self) -> int:
        """The share as statuses show it: rounded up, UNLIMITED if infinite."""
        return UNLIMITED if self.infinite else min(UNLIMITED, ceil(self.amount))


NO_SHARE: Final = Share(infinite=False, amount=Fraction(0))
"""The share of a node that borrows nothing, or has no cohort to borrow from."""


def _lendable(cohort: Node) -> Lendable:
    """Return the amounts of all quota at the root that a cohort could lend to its children, by resource."""
    root = cohort.root
    cached = cohort.lendable
    if cached is not None and cached.generation == root.quota_generation:
        return cached
    by_resource: dict[str, int] = {}
    for pair in root.cells:
        # A cohort without a cell of the pair can lend the quota of the cohort above it.
        node = cohort
        while pair not in node.cells and node.parent is not None:
            node = node.parent
        amount = quota.potential_available(node.cells[pair])
        by_resource[pair.resource] = add(by_resource.get(pair.resource, 0), amount)
    cohort.lendable = Lendable(root.quota_generation, by_resource)
    return cohort.lendable


def share(node: Node) -> Share:
    """Return the dominant resource share of a ClusterQueue or cohort; ``NO_SHARE`` for a root.

    A resource of which the cohort can lend nothing does not count.
    """
    borrowed: dict[str, int] = {}
    for pair, cell in node.cells.items():
        if cell.usage > cell.subtree_quota:
            borrowed[pair.resource] = borrowed.get(pair.resource, 0) + cell.usage - cell.subtree_quota
    return _share_of(node, borrowed)


def supposed_share(node: Node, usage: Mapping[Cell, int]) -> Share:
    """Return the share that a node would have if some of its cells had another usage."""
    borrowed: dict[str, int] = {}
    for pair, cell in node.cells.items():
        excess = usage.get(cell, cell.usage) - cell.subtree_quota
        if excess > 0:
            borrowed[pair.resource] = borrowed.get(pair.resource, 0) + excess
    return _share_of(node, borrowed)


def _share_of(node: Node, borrowed: Mapping[str, int]) -> Share:
    """Return the share of a node that borrows these amounts, by resource."""
    parent = node.parent
    if not borrowed or parent is None:
        return NO_SHARE
    lendable = _lendable(parent).by_resource
    ratios = [
        (Fraction(_THOUSANDTHS * amount, lendable[resource]), resource)
        for resource, amount in sorted(borrowed.items())
        if lendable.get(resource, 0) > 0
    ]
    if not ratios:
        return NO_SHARE
    ratio, resource = max(ratios, key=lambda ratio_and_resource: ratio_and_resource[0])
    weight = node.fair_weight
    if weight <= 0:
        return Share(infinite=True, amount=ratio, resource=resource)
    return Share(infinite=False, amount=ratio if weight == ONE else ratio / weight, resource=resource)


# --- the order of heads -----------------------------------------------------------------------------


class TournamentEntry(Protocol):
    """The head of a ClusterQueue in a cycle: the properties that decide its order."""

    @property
    def node(self) -> Node:
        """The node of its ClusterQueue."""
        ...

    @property
    def usage(self) -> Iterable[tuple[FlavorResource, int]]:
        """The usage that it would add; empty if it was refused."""
        ...

    @property
    def priority(self) -> int:
        """Its effective priority."""
        ...

    @property
    def queued_at(self) -> Instant:
        """Its queue-order timestamp."""
        ...

    @property
    def uid(self) -> str:
        """Its uid."""
        ...

    @property
    def is_preemptor(self) -> bool:
        """Whether it waits for workloads that were preempted for it."""
        ...


C = TypeVar("C", bound=TournamentEntry)


class TournamentOrder(NamedTuple):
    """The sort key of a nominee among the nominees of siblings. A disabled criterion is equal for all."""

    no_preemptor: bool
    borrowing: bool
    infinite: bool
    share: Fraction
    priority_descending: int
    queued_at: Instant
    uid: str


class _TournamentNode(Generic[C]):
    """A node of the tournament: a ClusterQueue with its head, or a cohort with its children's best nominee.

    ``ranking`` is a heap of the sort keys of its children. An entry is outdated if its version differs from
    the ``version`` of the child.
    """

    __slots__ = ("nominee", "ranking", "version")

    def __init__(self) -> None:
        self.nominee: C | None = None
        self.version = 0
        self.ranking: list[tuple[TournamentOrder, int, _TournamentNode[C]]] = []

    def best(self) -> C | None:
        """Return the best nominee of the children."""
        ranking = self.ranking
        while ranking:
            _, version, child = ranking[0]
            if version == child.version:
                return child.nominee
            heapq.heappop(ranking)
        return None


class Tournament(Generic[C]):
    """The order of the heads of a cycle, tree by tree: each cohort compares the nominees of its children.

    The comparison uses the share of the child from which a nominee comes, as if the request of the nominee
    counted as usage already. A head that would not borrow comes first, then the smaller share, the higher
    priority, and the earlier queue-order timestamp (semantics, Fair sharing ordering). Each pop compares only
    the nominees again that depend on changed usage.

    Args:
        heads: the heads, at most one of each ClusterQueue.
        gates: whether preemptors, and heads that do not borrow, come first.
    """

    def __init__(self, heads: Iterable[C], gates: Gates) -> None:
        self._gates = gates
        self._tournament_nodes: dict[Node, _TournamentNode[C]] = {}
        self._roots: dict[Node, None] = {}
        self._changed: dict[Node, None] = {}
        self._remaining = 0
        for head in sorted(heads, key=lambda entry: entry.node.name):
            self.add(head)

    def add(self, head: C) -> None:
        """Add the head of another ClusterQueue."""
        node = head.node
        self._remaining += 1
        self._roots[node.root] = None
        self._changed[node] = None
        tournament_node = self._tournament_nodes[node] = _TournamentNode[C]()
        tournament_node.nominee = head
        for cohort in node.ancestors:
            self._tournament_nodes.setdefault(cohort, _TournamentNode[C]())

    def __len__(self) -> int:
        """Return the number of heads that are left."""
        return self._remaining

    def usage_changed(self, node: Node) -> None:
        """Record that usage at a ClusterQueue changed.

        Callers must report every ClusterQueue with a change of usage during the cycle.
        """
        self._changed[node] = None

    def pop(self) -> C:
        """Remove and return the next head, by the present usage of the tree.

        Raises:
            IndexError: no head is left.
        """
        for node in self._changed:
            self._compare_path(node)
        self._changed.clear()
        while self._roots:
            root = next(iter(self._roots))
            head = self._tournament_nodes[root].nominee
            if head is not None:
                self._remaining -= 1
                self._tournament_nodes[head.node].nominee = None
                self._changed[head.node] = None
                return head
            del self._roots[root]
        raise IndexError("no head is left")

    def _compare_path(self, node: Node) -> None:
        """Compare the nominees again, from a ClusterQueue up to the root."""
        current: Node | None = node
        while current is not None:
            tournament_node = self._tournament_nodes.get(current)
            parent = current.parent
            if tournament_node is not None:
                if current.is_cohort:
                    tournament_node.nominee = tournament_node.best()
                tournament_node.version += 1
                if parent is not None and tournament_node.nominee is not None:
                    sort_key = self._order(tournament_node.nominee, current)
                    heapq.heappush(
                        self._tournament_nodes[parent].ranking,
                        (sort_key, tournament_node.version, tournament_node),
                    )
            current = parent

    def _order(self, head: C, node: Node) -> TournamentOrder:
        """Return the sort key of a nominee at a node."""
        usage = [(pair, amount) for pair, amount in head.usage if amount > 0]
        cells = head.node.cells
        for pair, amount in usage:
            quota.add_usage(cells[pair], amount)
        try:
            share_with_request = share(node)
            borrowing = any(node.cells[pair].usage > node.cells[pair].subtree_quota for pair, _ in usage)
        finally:
            for pair, amount in usage:
                quota.remove_usage(cells[pair], amount)
        gates = self._gates
        return TournamentOrder(
            gates.prioritize_preemptor_workloads and not head.is_preemptor,
            gates.fair_sharing_prioritize_non_borrowing and borrowing,
            share_with_request.infinite,
            share_with_request.amount,
            -head.priority,
            head.queued_at,
            head.uid,
        )
