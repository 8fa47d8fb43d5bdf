"""Which children of a cohort may have a sufficient share also without one of their candidates.

Where shares are nearly equal, as in a cohort at rest, almost all children have a sufficient share, but not
without a candidate. So each child has two bounds, by the least amounts that its candidates hold: without a
candidate its share is not greater than the one, and the usage of its cohort falls by the other at least.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import NO_SHARE, Share, supposed_share
from admitq.core.preemption.places import ShareKey, share_at
from admitq.core.preemption.ranking import Ranking
from admitq.core.quota import Cell

_Bound = TypeVar("_Bound")

Amounts = Mapping[FlavorResource, int]
"""By pair; none of what is missing."""


class FinalBounds:
    """The bounds of all nodes of an index; each is found when a search depends on it.

    Args:
        usage: by cell, where it differs from what the cell holds.
        contested: the contested pairs of the index.
        children: places and nodes of a cohort's children with candidates.
        held: what each candidate of a ClusterQueue holds.
    """

    def __init__(
        self,
        usage: Mapping[Cell, int],
        contested: frozenset[FlavorResource],
        children: Callable[[Node], list[tuple[ShareKey, Node]]],
        held: Callable[[Node], Iterator[Amounts]],
    ) -> None:
        self._usage = usage
        self._sole = next(iter(contested)) if len(contested) == 1 else None
        self._children = children
        self._held = held
        self._by_final_share: dict[Node, Ranking[ShareKey, Share]] = {}
        self._by_amounts: dict[Node, Ranking[ShareKey, Amounts]] = {}
        self._least: dict[Node, Amounts] = {}

    def next_by_final_share(
        self, cohort: Node, since: ShareKey, is_enough: Callable[[Share], bool], left_out: Node
    ) -> ShareKey | None:
        """The first child, from a place on, that may have enough of a share without one of its candidates.

        A greater share must be enough if a smaller one is. One child is left out. The usage of the others
        that come from the place on must be that of the index.
        """
        ranking = self._by_final_share.get(cohort)
        if ranking is None:
            ranking = self._by_final_share[cohort] = Ranking(self._final_share, max)
            for key, node in self._children(cohort):
                ranking.put(key, node, share_at(key))
        return ranking.next(since, is_enough, left_out)

    def next_by_amounts(
        self, cohort: Node, since: ShareKey, are_small: Callable[[Amounts], bool]
    ) -> ShareKey | None:
        """The first child, from a place on, with a candidate that may take only small amounts off the cohort.

        Smaller amounts must be small if greater ones are.
        """
        ranking = self._by_amounts.get(cohort)
        if ranking is None:
            ranking = self._by_amounts[cohort] = Ranking(self._passed_on_by, _least_of_each)
            for key, node in self._children(cohort):
                ranking.put(key, node, {})
        return ranking.next(since, are_small)

    def least_amounts(self, node: Node) -> Amounts:
        """The amounts by which the usage of a listed node falls at least, whichever candidate is removed."""
        least = self._least.get(node)
        if least is None:
            each = self._passed_on_below(node) if node.is_cohort else self._held(node)
            least = self._least[node] = reduce(_least_of_each, each, next(each, {}))
        return least

    def passed_on(self, node: Node, amounts: Amounts) -> Amounts:
        """The amounts by which a parent's usage falls at least, if that of a node falls by these.

        A node passes on what exceeds its local part. While it borrows, it uses more than its whole quota, so
        that it passes on at least what it lends. It is sure to borrow a pair only if no other is contested.
        """
        passed_on: dict[FlavorResource, int] = {}
        for pair, amount in amounts.items():
            cell = node.cells[pair]
            if not cell.local:
                passed_on[pair] = amount
            elif pair == self._sole:
                passed_on[pair] = min(amount, cell.lent)
        return passed_on

    def forget_amounts(self, node: Node) -> None:
        """Forget the amounts of a ClusterQueue whose candidates changed, and of all cohorts above."""
        self._least.pop(node, None)
        for cohort in node.ancestors:
            self._least.pop(cohort, None)

    def move(self, node: Node, parent: Node, former: ShareKey | None, place: ShareKey | None) -> None:
        """Give a node its present place and find its bounds anew: they may differ although that does not."""
        by_final_share, by_amounts = self._by_final_share.get(parent), self._by_amounts.get(parent)
        if by_final_share is not None:
            share = NO_SHARE if place is None else share_at(place)
            _move(by_final_share, node, former, place, share)
        if by_amounts is not None:
            _move(by_amounts, node, former, place, {})

    def _final_share(self, node: Node) -> Share:
        usage, least = self._usage, self.least_amounts(node)
        return supposed_share(
            node,
            {cell: usage.get(cell, cell.usage) - least.get(pair, 0) for pair, cell in node.cells.items()},
        )

    def _passed_on_by(self, node: Node) -> Amounts:
        return self.passed_on(node, self.least_amounts(node))

    def _passed_on_below(self, cohort: Node) -> Iterator[Amounts]:
        for _, child in self._children(cohort):
            yield self._passed_on_by(child)


def _move(
    ranking: Ranking[ShareKey, _Bound],
    node: Node,
    former: ShareKey | None,
    place: ShareKey | None,
    bound: _Bound,
) -> None:
    if former is not None:
        ranking.remove(former)
    if place is not None:
        ranking.put(place, node, bound)


def _least_of_each(some: Amounts, others: Amounts) -> Amounts:
    """The least amount of each pair; none where a pair is missing."""
    if some == others:
        return some
    return {pair: min(amount, others[pair]) for pair, amount in some.items() if pair in others}
