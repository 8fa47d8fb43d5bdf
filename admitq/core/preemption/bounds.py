"""Bounds by which a fair search skips children of a cohort that have no acceptable candidate.

A candidate is acceptable if the share of a node on its path is sufficient without the candidate. If shares
are nearly equal, almost all children have a sufficient share, but not without a candidate. A search without
bounds would evaluate each of these children and find nothing. There are two bounds:

- The *final share* of a child: its share without the least amounts that one of its candidates holds.
  Whichever of its candidates is removed, the share of the child is then at most this great. This bound counts
  if the share of the child itself is compared with the preemptor's side.
- The *amounts* of a child: the removal of any candidate reduces the usage of the cohort by at least these
  amounts. This bound counts if the share of the cohort, or of a cohort above it, is compared.

A bound may keep a child without acceptable candidate: the search then compares exactly. A bound never skips a
child with an acceptable candidate.
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
"""The number of children in a block after it was divided. It is small, because bounds are slow to compute."""


class FinalBounds:
    """An index for fair preemption, with the bounds of its nodes.

    A bound is computed when a search depends on it. Until then, an estimate counts that skips no child
    wrongly: the share of a child with all its candidates, or no amounts.
    """

    def __init__(self, index: ShareIndex) -> None:
        self.index: Final = index
        self._by_final_share: dict[Node, SortedBlocks[ShareKey, Node, Share]] = {}
        self._by_amounts: dict[Node, SortedBlocks[ShareKey, Node, Amounts]] = {}
        self._least: dict[Node, Amounts] = {}

    def next_by_final_share(
        self, cohort: Node, first_key: ShareKey, is_enough: Callable[[Share], bool], excluded_child: Node
    ) -> ShareKey | None:
        """Return the key of the first child that may have a sufficient share without one of its candidates.

        Args:
            cohort: the parent.
            first_key: the sort key at which the search begins. All children from there on, except for the
                excluded child, must have the usage of the index.
            is_enough: whether a share is sufficient. If a share is sufficient, every greater share must be.
            excluded_child: a child to skip.
        """
        blocks = self._by_final_share.get(cohort)
        if blocks is None:
            blocks = self._by_final_share[cohort] = SortedBlocks(max, _BLOCK)
            for key, node in self.index.children(cohort):
                blocks.add_estimate(key, node, share_from_key(key))
        entry = blocks.first(is_enough, first_key, self._final_share, excluded_child)
        return None if entry is None else entry.key

    def next_by_amounts(
        self, cohort: Node, first_key: ShareKey, are_small: Callable[[Amounts], bool]
    ) -> ShareKey | None:
        """Return the key of the first child with a candidate that may reduce usage by small amounts only.

        Args:
            cohort: the parent.
            first_key: the sort key at which the search begins.
            are_small: whether amounts are small enough. If amounts are, all smaller amounts must be.
        """
        blocks = self._by_amounts.get(cohort)
        if blocks is None:
            blocks = self._by_amounts[cohort] = SortedBlocks(_least_of_each, _BLOCK)
            for key, node in self.index.children(cohort):
                blocks.add_estimate(key, node, {})
        entry = blocks.first(are_small, first_key, self._least_amounts_at_parent)
        return None if entry is None else entry.key

    def least_amounts(self, node: Node) -> Amounts:
        """Return the least amounts by which the removal of a candidate reduces the usage of a listed node."""
        least = self._least.get(node)
        if least is None:
            amounts_of_each = (
                self._least_amounts_of_children(node) if node.is_cohort else self.index.held(node)
            )
            least = self._least[node] = reduce(_least_of_each, amounts_of_each)
        return least

    def amounts_at_parent(self, node: Node, amounts: Amounts) -> Amounts:
        """Return the least amounts by which the usage of the parent falls, if that of a borrowing node falls.

        The parent counts the usage of a node beyond its local quota, which the node does not lend. Without
        local quota, the usage of the parent falls by the same amount. A node with local quota that borrows
        the pair uses all of its local quota, all that it lends, and more. So the usage of the parent falls by
        the amount, or at least by the quota that the node lends. It is only certain that a node borrows a
        pair if no other pair is contested.

        Args:
            node: the node, which borrows one of the contested pairs.
            amounts: the amounts by which its usage falls.
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
        """Update the index and all bounds on the path of a ClusterQueue, after a change there."""
        former = {changed: self.index.sort_key(changed) for changed in (node, *node.ancestors)}
        self.index.update(node)
        for changed in former:
            self._least.pop(changed, None)
        for changed, key in former.items():
            if changed.parent is not None:
                self._move(changed, changed.parent, key)

    def _move(self, node: Node, cohort: Node, former: ShareKey | None) -> None:
        """Give a node its present key, and estimate its bounds again: they may change without the key."""
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
    """Return the least amount of each pair that both have."""
    if first == second:
        return first
    return {pair: min(amount, second[pair]) for pair, amount in first.items() if pair in second}
