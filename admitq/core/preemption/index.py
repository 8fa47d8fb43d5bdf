"""Indexes of the candidates of one cohort tree, shared by all searches of a cycle.

For each cohort, an index lists the children that borrow a contested (flavor, resource) and have candidates:
ClusterQueues and cohorts. A search reads a list from the beginning, as far as it needs candidates.

The order of a list is the same for every preemptor. The sort key of a child is that of its first workload
that any preemptor could preempt. This workload may not be a candidate for the present preemptor. So the key
is a lower bound, and a search computes the exact key when it reaches the child.

The usage in an index is that of the tree without the victims of the cycle so far. A search that removes
candidates does not change the index. Usage only falls during a search: no child has to be added, and the
search tests whether a child still borrows. After a lasting change, ``update`` corrects the path of one node.
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
from admitq.core.preemption.bulk import CandidatesBelow
from admitq.core.preemption.candidates import STAGES, Candidate, Stage, contested_cells, uses_any
from admitq.core.preemption.sort_keys import OrderKey, ShareKey, candidate_key, share_key
from admitq.core.quota_holders import PreemptionOrder
from admitq.core.supposed_usage import SupposedUsage
from admitq.core.world import World

_Key = TypeVar("_Key", bound=tuple[Any, ...])

Contested = frozenset[FlavorResource]
Amounts = Mapping[FlavorResource, int]
"""Amounts by pair; 0 for a pair that is missing."""

BEFORE_ALL: Final = -(1 << 63)
"""An instant before all others. Negated, it is an instant after all others."""


class SearchedTree:
    """A cohort tree as the searches of one cycle see it.

    Args:
        world: the world with the workloads that hold quota.
        usage: the usage without the victims of the cycle.
        excluded: workloads that are not candidates: victims of the cycle, and workloads admitted in it.
    """

    def __init__(self, world: World, usage: SupposedUsage, excluded: Container[ObjectKey]) -> None:
        self.world = world
        self.usage = usage
        self.excluded = excluded
        self.queues_without_candidate = 0
        """How often a search reached a listed ClusterQueue that had no candidate for its preemptor."""


class CandidateIndex(ABC, Generic[_Key]):
    """For each cohort, the children with candidates, in order, for one set of contested pairs.

    A list is built when it is first read. Most lists are never read: a search does not look below a cohort
    that is within its quota.
    """

    _LISTS = 1
    """The number of lists of each cohort."""

    def __init__(self, tree: SearchedTree, contested: Contested) -> None:
        self._tree = tree
        self.usage: Final = tree.usage.differing
        """The usage of the index, where it differs from the usage in a cell."""
        self.contested: Final = contested
        self._lists: dict[Node, tuple[list[tuple[_Key, Node]], ...]] = {}
        self._keys_of: dict[Node, tuple[_Key | None, ...]] = {}
        self._first_orders_of: dict[Node, tuple[PreemptionOrder | None, ...]] = {}
        self._usage_without_listed: dict[FlavorResource, _UsageWithoutListed] = {}

    def prepare(self, node: Node) -> None:
        """Build the lists of all cohorts above a preemptor's node, before a search changes their usage."""
        for cohort in node.ancestors:
            self._lists_of(cohort)

    def children(self, cohort: Node, number: int = 0) -> list[tuple[_Key, Node]]:
        """Return one list of a cohort: the sort keys and nodes of children with candidates."""
        return self._lists_of(cohort)[number]

    def first_order(self, node: Node, stage: Stage) -> PreemptionOrder | None:
        """Return the sort key of the first workload of a listed ClusterQueue that can be preempted."""
        return self._first_orders_of[node][stage]

    def is_listed(self, node: Node) -> bool:
        """Whether a node is in a list of its parent. The lists of the parent must be built already."""
        return node in self._keys_of

    def write_usage_to_cells(self, node: Node) -> None:
        """Write the usage of the index into the cells of a node and of the nodes above it."""
        self._tree.usage.apply(node)

    def record_queue_without_candidate(self) -> None:
        """Count that a listed ClusterQueue had no candidate for a preemptor."""
        self._tree.queues_without_candidate += 1

    def usage_without_listed(self, cohort: Node, child_on_path: Node, pair: FlavorResource) -> int:
        """Return the usage of a cohort without one child, if listed ClusterQueues used nothing."""
        totals = self._usage_without_listed.get(pair)
        if totals is None:
            totals = self._usage_without_listed[pair] = _UsageWithoutListed(pair)
        return totals.total(self, cohort) - totals.part(child_on_path)

    def update(self, node: Node) -> None:
        """Update the lists on the path of a ClusterQueue, after a change there."""
        child = node
        while (parent := child.parent) is not None:
            if parent in self._lists:
                self._update_lists(child, parent)
            for totals in self._usage_without_listed.values():
                totals.update(self, child, parent)
            child = parent

    def usage_in_parent(self, node: Node, pair: FlavorResource) -> int:
        """Return the usage of a pair at the parent that comes from a node."""
        cell = node.cells.get(pair)
        return 0 if cell is None else max(0, self.usage.get(cell, cell.usage) - cell.local)

    @abstractmethod
    def _compute_sort_keys(self, node: Node) -> tuple[_Key | None, ...]:
        """Return the sort keys of a borrowing node in the lists of its parent; None without candidates."""

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
        """Return the sort keys of a node in the lists of its parent; None if it is in no list."""
        usage = self.usage
        for cell in contested_cells(node, self.contested):
            if usage.get(cell, cell.usage) > cell.subtree_quota:
                break
        else:
            return None
        if not node.is_cohort and not self._tree.world.cluster_queues[node.name].is_active:
            return None
        keys = self._compute_sort_keys(node)
        return keys if any(key is not None for key in keys) else None

    def _first_orders(self, node: Node) -> tuple[PreemptionOrder | None, ...]:
        """Return the first sort keys in a ClusterQueue, by stage. In a cycle, no candidate is added."""
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
    """The index for classical preemption: one list for each stage, in the order of first candidates."""

    _LISTS = len(STAGES)

    def __init__(self, tree: SearchedTree, contested: Contested) -> None:
        super().__init__(tree, contested)
        self.excluded: Final = tree.excluded
        """Workloads that are not candidates."""
        self._candidates: dict[Node, dict[tuple[Stage, int], tuple[Candidate, ...]]] = {}
        self.below_cohorts: Final[
            dict[tuple[Node, Node | None, int, int], tuple[CandidatesBelow, CandidatesBelow] | None]
        ] = {}
        """The candidates below cohorts that searches have read, for each stage, by what decides on them.

        Searches add to this mapping. It is empty after a change in the tree."""

    def candidates_of(self, node: Node) -> dict[tuple[Stage, int], tuple[Candidate, ...]]:
        """Return the candidates of a ClusterQueue that searches have read, by stage and highest priority.

        Searches add to this mapping. It is empty after a change at the ClusterQueue.
        """
        return self._candidates.setdefault(node, {})

    def update(self, node: Node) -> None:
        """Update the lists on the path of a ClusterQueue, and forget its candidates, after a change there."""
        self._candidates.pop(node, None)
        self.below_cohorts.clear()
        super().update(node)

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
    """The index for fair preemption: one list, by share, of nodes with candidates up to a priority.

    The order does not depend on priority. So a list of all nodes could be long and have no candidate.
    """

    def __init__(self, tree: SearchedTree, contested: Contested, highest: int) -> None:
        super().__init__(tree, contested)
        self.highest: Final = highest

    def sort_key(self, node: Node) -> ShareKey | None:
        """Return the sort key of a node in the list of its parent; None if it is not listed."""
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
        """Yield the distinct usages of the candidates of a ClusterQueue."""
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
    """For each cohort, its usage of a pair if the listed ClusterQueues below it used nothing.

    Callers pass the index to each method. If this object referred to the index, the two would form a
    reference cycle, and only a garbage collection would free them.
    """

    def __init__(self, pair: FlavorResource) -> None:
        self._pair = pair
        self._totals: dict[Node, int] = {}
        self._parts: dict[Node, int] = {}

    def total(self, index: CandidateIndex[Any], cohort: Node) -> int:
        """Return this usage of a cohort."""
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
        """Return the part of a node in the total of its parent. The total must be computed already."""
        return self._parts[node]

    def update(self, index: CandidateIndex[Any], node: Node, parent: Node) -> None:
        """Update the part of a node in the total of its parent, after a change at the node."""
        if parent in self._totals:
            part = self._usage_in_parent(index, node)
            self._totals[parent] += part - self._parts[node]
            self._parts[node] = part

    def _usage_in_parent(self, index: CandidateIndex[Any], node: Node) -> int:
        """Return the usage at the parent that would come from a node."""
        if not index.is_listed(node):
            return index.usage_in_parent(node, self._pair)
        cell = node.cells.get(self._pair)
        return 0 if cell is None or not node.is_cohort else max(0, self.total(index, node) - cell.local)
