"""Fair sharing: how much of what it may borrow a node has borrowed, and who goes first by that.

The *dominant resource share* of a node is the greatest ratio, over resources, of what it uses beyond its
quota to what its cohort could lend it, in thousandths, divided by its weight. All of it is exact: shares are
compared as fractions and rounded only where they are shown.

What may be lent depends on quotas and the shape of the tree alone, so it is kept at the cohort until one of
them changes.
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
    """A dominant resource share. More borrowed, for the weight, is greater.

    Who borrows with no weight has an infinite share; two such compare by ``amount``, which is the ratio
    without weight then. ``resource`` is the dominant one, the first by name of several.
    """

    infinite: bool
    amount: Fraction
    resource: str = field(default="", compare=False)

    @property
    def weighted_share(self) -> int:
        """As statuses show it: rounded up, UNLIMITED if infinite."""
        return UNLIMITED if self.infinite else min(UNLIMITED, ceil(self.amount))


NO_SHARE: Final = Share(infinite=False, amount=Fraction(0))
"""Of who borrows nothing, and of who has nobody to borrow from."""


def _lendable(cohort: Node) -> Lendable:
    """What could be lent to the children of a cohort, by resource: of all that is known at the root."""
    root = cohort.root
    known = cohort.lendable
    if known is not None and known.generation == root.quota_generation:
        return known
    by_resource: dict[str, int] = {}
    for pair in root.cells:
        # A cohort that says nothing of a pair hands on what there is above it.
        node = cohort
        while pair not in node.cells and node.parent is not None:
            node = node.parent
        amount = quota.potential_available(node.cells[pair])
        by_resource[pair.resource] = add(by_resource.get(pair.resource, 0), amount)
    cohort.lendable = Lendable(root.quota_generation, by_resource)
    return cohort.lendable


def share(node: Node) -> Share:
    """The dominant resource share of a ClusterQueue or cohort; none for a root.

    A resource of which nothing can be lent does not count.
    """
    borrowed: dict[str, int] = {}
    for pair, cell in node.cells.items():
        if cell.usage > cell.subtree:
            borrowed[pair.resource] = borrowed.get(pair.resource, 0) + cell.usage - cell.subtree
    return _share_of(node, borrowed)


def supposed_share(node: Node, usage: Mapping[Cell, int]) -> Share:
    """The share that a node would have if some of its cells had another usage."""
    borrowed: dict[str, int] = {}
    for pair, cell in node.cells.items():
        excess = usage.get(cell, cell.usage) - cell.subtree
        if excess > 0:
            borrowed[pair.resource] = borrowed.get(pair.resource, 0) + excess
    return _share_of(node, borrowed)


def _share_of(node: Node, borrowed: Mapping[str, int]) -> Share:
    """The share of a node that borrows these amounts, by resource."""
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
    ratio, resource = max(ratios, key=lambda each: each[0])
    weight = node.fair_weight
    if weight <= 0:
        return Share(infinite=True, amount=ratio, resource=resource)
    return Share(infinite=False, amount=ratio if weight == ONE else ratio / weight, resource=resource)


# --- whose turn it is -------------------------------------------------------------------------------


class TournamentEntry(Protocol):
    """The head of a ClusterQueue in a cycle, as far as its turn depends on it."""

    @property
    def node(self) -> Node:
        """Its ClusterQueue's node."""
        ...

    @property
    def usage(self) -> Iterable[tuple[FlavorResource, int]]:
        """What it would take; nothing if it was refused."""
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
    """Place of a nominee among those of a cohort's children. What a gate turns off is equal for all."""

    no_preemptor: bool
    borrowing: bool
    infinite: bool
    share: Fraction
    priority_descending: int
    queued_at: Instant
    uid: str


class _TournamentNode(Generic[C]):
    """A node of the tournament: a ClusterQueue with its contender, or a cohort with the best from below.

    ``standings`` are the places of its children, the best first; those of a former ``turn`` of a child are
    void.
    """

    __slots__ = ("nominee", "ranking", "turn")

    def __init__(self) -> None:
        self.nominee: C | None = None
        self.turn = 0
        self.ranking: list[tuple[TournamentOrder, int, _TournamentNode[C]]] = []

    def best(self) -> C | None:
        """The best nominee of the children."""
        ranking = self.ranking
        while ranking:
            _, turn, seat = ranking[0]
            if turn == seat.turn:
                return seat.nominee
            heapq.heappop(ranking)
        return None


class Tournament(Generic[C]):
    """Lets the heads of a cycle take turns, tree by tree: at each cohort the nominees of its children meet.

    A nominee is judged at the child through which it comes, as if it had taken already what it asks for:
    who does not borrow what he asks for comes first, then the smaller share, the higher priority, who is
    queued for longer (semantics, Fair sharing ordering). After each pop all that depends on usage that
    changed is judged anew, and nothing else.

    Args:
        contenders: the heads, at most one of a ClusterQueue.
        gates: whether preemptors, and those who do not borrow, come first.
    """

    def __init__(self, contenders: Iterable[C], gates: Gates) -> None:
        self._gates = gates
        self._seats: dict[Node, _TournamentNode[C]] = {}
        self._roots: dict[Node, None] = {}
        self._changed: dict[Node, None] = {}
        self._left = 0
        for contender in sorted(contenders, key=lambda each: each.node.name):
            self.enter(contender)

    def enter(self, contender: C) -> None:
        """Let the head of another ClusterQueue take part."""
        node = contender.node
        self._left += 1
        self._roots[node.root] = None
        self._changed[node] = None
        seat = self._seats[node] = _TournamentNode[C]()
        seat.nominee = contender
        for cohort in node.ancestors:
            self._seats.setdefault(cohort, _TournamentNode[C]())

    def __len__(self) -> int:
        """How many are left."""
        return self._left

    def usage_changed(self, node: Node) -> None:
        """Note that usage at a ClusterQueue differs from when the contenders were last compared.

        To be called for every ClusterQueue where usage was added to the tree or taken off it in the cycle.
        """
        self._changed[node] = None

    def pop(self) -> C:
        """Whose turn it is, as the tree stands now; he is out of the tournament then.

        Raises:
            IndexError: no contender is left.
        """
        for node in self._changed:
            self._judge_path(node)
        self._changed.clear()
        while self._roots:
            root = next(iter(self._roots))
            winner = self._seats[root].nominee
            if winner is not None:
                self._left -= 1
                self._seats[winner.node].nominee = None
                self._changed[winner.node] = None
                return winner
            del self._roots[root]
        raise IndexError("no contender is left")

    def _judge_path(self, node: Node) -> None:
        """Judge the nominees from a ClusterQueue up to the root."""
        at: Node | None = node
        while at is not None:
            seat = self._seats.get(at)
            parent = at.parent
            if seat is not None:
                if at.is_cohort:
                    seat.nominee = seat.best()
                seat.turn += 1
                if parent is not None and seat.nominee is not None:
                    place = self._order(seat.nominee, at)
                    heapq.heappush(self._seats[parent].ranking, (place, seat.turn, seat))
            at = parent

    def _order(self, contender: C, node: Node) -> TournamentOrder:
        """The place of a nominee as judged at a node."""
        usage = [(pair, amount) for pair, amount in contender.usage if amount > 0]
        cells = contender.node.cells
        for pair, amount in usage:
            quota.add_usage(cells[pair], amount)
        try:
            taken = share(node)
            borrowing = any(node.cells[pair].usage > node.cells[pair].subtree for pair, _ in usage)
        finally:
            for pair, amount in usage:
                quota.remove_usage(cells[pair], amount)
        gates = self._gates
        return TournamentOrder(
            gates.prioritize_preemptor_workloads and not contender.is_preemptor,
            gates.fair_sharing_prioritize_non_borrowing and borrowing,
            taken.infinite,
            taken.amount,
            -contender.priority,
            contender.queued_at,
            contender.uid,
        )
