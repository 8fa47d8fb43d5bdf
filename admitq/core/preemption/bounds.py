"""Which children of a cohort may have a sufficient share also without one of their candidates.

Where shares are nearly equal, almost all children have a sufficient share, but not without a candidate. A
search that compares final shares would go to each of them and find nothing. Two bounds rule such children
out together:

- The *final share* of a child: its share without the least amounts that a candidate of it holds. Without any
  candidate, its share is not greater, since it then holds less of every pair. This decides where the child
  itself is compared with the preemptor's side.
- The *amounts* of a child: the usage of its cohort falls at least by these, whichever candidate is
  removed. This decides where the cohort, or one above it, is compared.

Both may rule out too little, never too much: what is left is compared exactly.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Final

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share, supposed_share
from admitq.core.preemption.index import Amounts, ShareIndex
from admitq.core.preemption.sort_keys import ShareKey, share_from_key
from admitq.core.sorted_blocks import SortedBlocks

_BLOCK: Final = 16
"""Children in a block when it was divided: fewer than usual, because a question about a bound takes long."""


class FinalBounds:
    """An index for fair preemption with the bounds of its nodes.

    A bound is found when a search depends on it. Until then, an estimate counts that rules nothing out
    wrongly: the share of a child with all its candidates, and no amounts.
    """

    def __init__(self, index: ShareIndex) -> None:
        self.index: Final = index
        self._by_final_share: dict[Node, SortedBlocks[ShareKey, Node, Share]] = {}
        self._by_amounts: dict[Node, SortedBlocks[ShareKey, Node, Amounts]] = {}
        self._least: dict[Node, Amounts] = {}

    def next_by_final_share(
        self, cohort: Node, since: ShareKey, is_enough: Callable[[Share], bool], excluded_child: Node
    ) -> ShareKey | None:
        """Return the place of the first child that may have enough of a share without one of its candidates.

        Args:
            cohort: the parent.
            since: the place at which the search begins. The usage of all children from there on, except for
                the one left out, must be that of the index.
            is_enough: whether a share is. If one is, every greater share must be.
            excluded_child: a child that is passed over.
        """
        blocks = self._by_final_share.get(cohort)
        if blocks is None:
            blocks = self._by_final_share[cohort] = SortedBlocks(max, _BLOCK)
            for key, node in self.index.children(cohort):
                blocks.add_estimate(key, node, share_from_key(key))
        entry = blocks.first(is_enough, since, self._final_share, excluded_child)
        return None if entry is None else entry.key

    def next_by_amounts(
        self, cohort: Node, since: ShareKey, are_small: Callable[[Amounts], bool]
    ) -> ShareKey | None:
        """Return the place of the first child with a candidate that may reduce the cohort by small amounts.

        Args:
            cohort: the parent.
            since: the place at which the search begins.
            are_small: whether amounts are. If some are, all lesser ones must be.
        """
        blocks = self._by_amounts.get(cohort)
        if blocks is None:
            blocks = self._by_amounts[cohort] = SortedBlocks(_least_of_each, _BLOCK)
            for key, node in self.index.children(cohort):
                blocks.add_estimate(key, node, {})
        entry = blocks.first(are_small, since, self._least_amounts_at_parent)
        return None if entry is None else entry.key

    def least_amounts(self, node: Node) -> Amounts:
        """Return the least amounts by which the removal of any candidate reduces a listed node's usage."""
        least = self._least.get(node)
        if least is None:
            amounts_of_each = (
                self._least_amounts_of_children(node) if node.is_cohort else self.index.held(node)
            )
            least = self._least[node] = reduce(_least_of_each, amounts_of_each)
        return least

    def amounts_at_parent(self, node: Node, amounts: Amounts) -> Amounts:
        """Return the least amounts by which a parent's usage falls if a borrowing node's falls by these.

        A parent counts what a node uses beyond its local part: the quota that it does not lend. Without a
        local part, the parent's usage falls by the same amount. With one, a node that borrows the pair uses
        its local part, what it lends, and more. So the parent's usage falls by the amount, or at least by
        what the node lends. Such a node is known to borrow a pair only if no other pair is contested.
        """
        contested = self.index.contested
        at_parent: dict[FlavorResource, int] = {}
        for pair, amount in amounts.items():
            cell = node.cells[pair]
            if not cell.local:
                at_parent[pair] = amount
            elif len(contested) == 1 and pair in contested:
                at_parent[pair] = min(amount, cell.lent)
        return at_parent

    def update(self, node: Node) -> None:
        """Correct the index and all bounds on the path of a ClusterQueue."""
        former = {at: self.index.sort_key(at) for at in (node, *node.ancestors)}
        self.index.update(node)
        for at in former:
            self._least.pop(at, None)
        for at, key in former.items():
            if at.parent is not None:
                self._move(at, at.parent, key)

    def _move(self, node: Node, cohort: Node, former: ShareKey | None) -> None:
        """Give a node its present place, and estimate its bounds again: they may differ at the same place."""
        key = self.index.sort_key(node)
        shares, amounts = self._by_final_share.get(cohort), self._by_amounts.get(cohort)
        if former is not None:
            if shares is not None:
                shares.remove(former)
            if amounts is not None:
                amounts.remove(former)
        if key is not None:
            if shares is not None:
                shares.add_estimate(key, node, share_from_key(key))
            if amounts is not None:
                amounts.add_estimate(key, node, {})

    def _final_share(self, node: Node) -> Share:
        usage, least = self.index.usage, self.least_amounts(node)
        return supposed_share(
            node,
            {cell: usage.get(cell, cell.usage) - least.get(pair, 0) for pair, cell in node.cells.items()},
        )

    def _least_amounts_at_parent(self, node: Node) -> Amounts:
        return self.amounts_at_parent(node, self.least_amounts(node))

    def _least_amounts_of_children(self, cohort: Node) -> Iterator[Amounts]:
        for _, child in self.index.children(cohort):
            yield self._least_amounts_at_parent(child)


def _least_of_each(first: Amounts, second: Amounts) -> Amounts:
    """Return the least amount of each pair; none where a pair is missing."""
    if first == second:
        return first
    return {pair: min(amount, second[pair]) for pair, amount in first.items() if pair in second}
