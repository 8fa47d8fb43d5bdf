"""Indexes of the candidates of one cohort tree, shared by all searches of a cycle.

An index lists, for each cohort, the children that borrow one of some contested (flavor, resource) pairs and
have candidates, ClusterQueues and cohorts alike. A search reads the lists from the beginning, only as far as
it needs candidates. The order of a list holds for every preemptor: it goes by the first workload that any
preemptor could preempt. For one preemptor, that workload may be no candidate. Therefore a key is a lower
bound of a child's place, and a search finds the place itself when it gets there.

The usage in an index is that of the tree without the victims of the cycle so far. While a search removes
candidates one by one, the index stays as it is: usage only falls, so that no child has to be added, and a
search tests whether a child still borrows. After a change that lasts, ``update`` corrects the path of one
node.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import supposed_share
from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey
from admitq.core.preemption.candidates import STAGES, Stage, contested_cells, uses_any
from admitq.core.preemption.sort_keys import OrderKey, ShareKey, candidate_key, share_key
from admitq.core.quota_holders import PreemptionOrder
from admitq.core.supposed_usage import SupposedUsage
from admitq.core.world import World

_Key = TypeVar("_Key", bound=tuple[Any, ...])

Contested = frozenset[FlavorResource]
Amounts = Mapping[FlavorResource, int]
"""By pair; none of what is missing."""

BEFORE_ALL: Final = -(1 << 63)
"""An instant before all others; negated, one after all others."""


class SearchedTree:
    """A cohort tree as the searches of one cycle see it.

    Args:
        world: where workloads hold quota.
        usage: the usage without the victims of the cycle.
        excluded: workloads that are no candidates: victims of the cycle, and workloads admitted in it.
    """

    def __init__(self, world: World, usage: SupposedUsage, excluded: Container[ObjectKey]) -> None:
        self.world = world
        self.usage = usage
        self.excluded = excluded
        self.reads_without_candidate = 0
        """How many times a listed ClusterQueue had no candidate for some preemptor."""


class CandidateIndex(ABC, Generic[_Key]):
    """Children with candidates of each cohort, in order, for one set of contested pairs.

    Lists are made when they are first read: a cohort within its quota hides what is below it.
    """

    _LISTS = 1
    """How many lists there are for each cohort."""

    def __init__(self, tree: SearchedTree, contested: Contested) -> None:
        self._tree = tree
        self.usage: Final = tree.usage.differing
        """The usage on which the index rests, by cell; a cell that is missing has the usage that it holds."""
        self.contested: Final = contested
        self._lists: dict[Node, tuple[list[tuple[_Key, Node]], ...]] = {}
        self._keys_of: dict[Node, tuple[_Key | None, ...]] = {}
        self._first_orders_of: dict[Node, tuple[PreemptionOrder | None, ...]] = {}
        self._usage_without_listed: dict[FlavorResource, _UsageWithoutListed] = {}

    def prepare(self, node: Node) -> None:
        """Make the lists of all cohorts above a preemptor's node, before a search changes their usage."""
        for cohort in node.ancestors:
            self._lists_of(cohort)

    def children(self, cohort: Node, number: int = 0) -> list[tuple[_Key, Node]]:
        """Return one list of a cohort: places and nodes of children with candidates."""
        return self._lists_of(cohort)[number]

    def first_order(self, node: Node, stage: Stage) -> PreemptionOrder | None:
        """Return the place of the first workload in a listed ClusterQueue that may be preempted."""
        return self._first_orders_of[node][stage]

    def is_listed(self, node: Node) -> bool:
        """Whether a node borrows and has candidates, for some preemptor; its parent's lists are made."""
        return node in self._keys_of

    def apply_usage(self, node: Node) -> None:
        """Have the cells of a node and of those above it show the usage on which the index rests."""
        self._tree.usage.apply(node)

    def count_read_without_candidate(self) -> None:
        """Note that a listed ClusterQueue had no candidate for some preemptor."""
        self._tree.reads_without_candidate += 1

    def usage_without_listed(self, cohort: Node, visited: Node, pair: FlavorResource) -> int:
        """Return the usage of a cohort from all children but one, if listed ClusterQueues used nothing."""
        totals = self._usage_without_listed.get(pair)
        if totals is None:
            totals = self._usage_without_listed[pair] = _UsageWithoutListed(pair)
        return totals.total(self, cohort) - totals.part(visited)

    def update(self, node: Node) -> None:
        """Correct the lists on the path of a ClusterQueue."""
        at = node
        while (parent := at.parent) is not None:
            if parent in self._lists:
                self._update_lists(at, parent)
            for totals in self._usage_without_listed.values():
                totals.update(self, at, parent)
            at = parent

    def usage_in_parent(self, node: Node, pair: FlavorResource) -> int:
        """Return what a node takes of a pair from its parent's capacity."""
        cell = node.cells.get(pair)
        return 0 if cell is None else max(0, self.usage.get(cell, cell.usage) - cell.local)

    @abstractmethod
    def _compute_sort_keys(self, node: Node) -> tuple[_Key | None, ...]:
        """Return the places of a borrowing node in its parent's lists; None where it has no candidates."""

    def _lists_of(self, cohort: Node) -> tuple[list[tuple[_Key, Node]], ...]:
        lists = self._lists.get(cohort)
        if lists is None:
            lists = self._lists[cohort] = tuple([] for _ in range(self._LISTS))
            for child in chain(cohort.cohorts.values(), cohort.cluster_queues.values()):
                keys = self._sort_keys(child)
                if keys is not None:
                    self._keys_of[child] = keys
                    for number, key in enumerate(keys):
                        if key is not None:
                            lists[number].append((key, child))
            for keys_in_order in lists:
                keys_in_order.sort()
        return lists

    def _update_lists(self, node: Node, parent: Node) -> None:
        former, keys = self._keys_of.get(node), self._sort_keys(node)
        if former == keys:
            return
        if keys is None:
            del self._keys_of[node]
        else:
            self._keys_of[node] = keys
        no_keys = (None,) * self._LISTS
        for number, keys_in_order in enumerate(self._lists[parent]):
            before, after = (former or no_keys)[number], (keys or no_keys)[number]
            if before != after:
                if before is not None:
                    del keys_in_order[bisect_left(keys_in_order, (before, node))]
                if after is not None:
                    insort(keys_in_order, (after, node))

    def _sort_keys(self, node: Node) -> tuple[_Key | None, ...] | None:
        """Return the places of a node in its parent's lists; None if it is in none of them."""
        usage = self.usage
        for cell in contested_cells(node, self.contested):
            if usage.get(cell, cell.usage) > cell.subtree:
                break
        else:
            return None
        if not node.is_cohort and not self._tree.world.cluster_queues[node.name].is_active:
            return None
        keys = self._compute_sort_keys(node)
        return keys if any(key is not None for key in keys) else None

    def _first_orders(self, node: Node) -> tuple[PreemptionOrder | None, ...]:
        """Return the first places in a ClusterQueue by stage. In a cycle, candidates only leave."""
        former = self._first_orders_of.get(node)
        orders = tuple(
            None if former is not None and former[stage] is None else self._next(node, stage, former)
            for stage in STAGES
        )
        self._first_orders_of[node] = orders
        return orders

    def _next(
        self, node: Node, stage: Stage, former: tuple[PreemptionOrder | None, ...] | None
    ) -> PreemptionOrder | None:
        quota_holders, excluded = self._tree.world.quota_holders, self._tree.excluded
        holders = quota_holders.leaving if stage is Stage.LEAVING else quota_holders.staying
        for order, entry in holders(node.name, None if former is None else former[stage]):
            held = entry.held
            if (
                held is not None
                and uses_any(held.usage, self.contested)
                and entry.workload.key not in excluded
            ):
                return order
        return None


class OrderIndex(CandidateIndex[OrderKey]):
    """For classical preemption: one list for each stage, by the order of first candidates."""

    _LISTS = len(STAGES)

    def _compute_sort_keys(self, node: Node) -> tuple[OrderKey | None, ...]:
        if node.is_cohort:
            lists = self._lists_of(node)
            orders = tuple(keys_in_order[0][0].order if keys_in_order else None for keys_in_order in lists)
        else:
            orders = self._first_orders(node)
        return tuple(
            None if order is None else OrderKey(order, node.name, node.is_cohort) for order in orders
        )


class ShareIndex(CandidateIndex[ShareKey]):
    """For fair preemption: one list, by share, of nodes with candidates up to a priority.

    The list does not go by priority. So a list of all nodes could be long without a candidate.
    """

    def __init__(self, tree: SearchedTree, contested: Contested, highest: int) -> None:
        super().__init__(tree, contested)
        self.highest: Final = highest

    def sort_key(self, node: Node) -> ShareKey | None:
        """Return the place of a node in the list of its parent; None if it is not listed."""
        keys = self._keys_of.get(node)
        return None if keys is None else keys[0]

    def _compute_sort_keys(self, node: Node) -> tuple[ShareKey | None, ...]:
        candidate: tuple[object, ...] = ()
        if not node.is_cohort:
            orders = self._first_orders(node)
            candidates = [
                candidate_key(order, is_leaving=stage is Stage.LEAVING, is_own=False)
                for stage in STAGES
                if (order := orders[stage]) is not None and order.priority <= self.highest
            ]
            if not candidates:
                return (None,)
            candidate = candidates[0]
        elif not self.children(node):
            return (None,)
        return (share_key(node, supposed_share(node, self.usage), candidate),)

    def held(self, node: Node) -> Iterator[Amounts]:
        """Yield what candidates of a ClusterQueue hold; those that hold the same once."""
        quota_holders, excluded = self._tree.world.quota_holders, self._tree.excluded
        seen: set[Usage] = set()
        for holders in (quota_holders.leaving, quota_holders.staying):
            for order, entry in holders(node.name):
                if order.priority > self.highest:
                    break
                held = entry.held
                if held is None or held.usage in seen or entry.workload.key in excluded:
                    continue
                if uses_any(held.usage, self.contested):
                    seen.add(held.usage)
                    yield dict(held.usage)


class _UsageWithoutListed:
    """What each cohort would use of a pair if the listed ClusterQueues below it used nothing.

    The index is passed to each method: if the two referred to each other, only a garbage collection would
    free them.
    """

    def __init__(self, pair: FlavorResource) -> None:
        self._pair = pair
        self._totals: dict[Node, int] = {}
        self._parts: dict[Node, int] = {}

    def total(self, index: CandidateIndex[Any], cohort: Node) -> int:
        """Return the usage of a cohort."""
        total = self._totals.get(cohort)
        if total is None:
            index.children(cohort)
            total = 0
            for child in chain(cohort.cohorts.values(), cohort.cluster_queues.values()):
                part = self._parts[child] = self._usage_in_parent(index, child)
                total += part
            self._totals[cohort] = total
        return total

    def part(self, node: Node) -> int:
        """Return the part of a node in the computed total of its parent."""
        return self._parts[node]

    def update(self, index: CandidateIndex[Any], node: Node, parent: Node) -> None:
        """Correct what is counted of a node in its parent."""
        if parent in self._totals:
            part = self._usage_in_parent(index, node)
            self._totals[parent] += part - self._parts[node]
            self._parts[node] = part

    def _usage_in_parent(self, index: CandidateIndex[Any], node: Node) -> int:
        """Return what a node would take from its parent's capacity."""
        if not index.is_listed(node):
            return index.usage_in_parent(node, self._pair)
        cell = node.cells.get(self._pair)
        return 0 if cell is None or not node.is_cohort else max(0, self.total(index, node) - cell.local)
