"""All indexes of one cohort tree in one cycle."""

from collections.abc import Container
from typing import Final

from admitq.core.cohorts import Node
from admitq.core.model import Instant, ObjectKey
from admitq.core.preemption.bounds import FinalBounds
from admitq.core.preemption.candidates import Preemptor
from admitq.core.preemption.index import BEFORE_ALL, Contested, OrderIndex, SearchedTree, ShareIndex
from admitq.core.preemption.policies import equals_must_be_newer, highest_priority
from admitq.core.quota_holders import PreemptionOrder
from admitq.core.supposed_usage import SupposedUsage
from admitq.core.world import World

_QUEUES_WITHOUT_CANDIDATE: Final = 16
"""How many ClusterQueues searches must read without a candidate, before the newest workload is found."""


class TreeIndexes:
    """All indexes of one cohort tree in one cycle. An index is built when it is first needed.

    No index refers to this object or to its own bounds. So Python frees all of them at the end of a cycle
    without a garbage collection.

    Args:
        world: the world with the workloads that hold quota.
        usage: the usage without the victims of the cycle.
        excluded: workloads that are not candidates: victims of the cycle, and workloads admitted in it.
    """

    def __init__(self, world: World, usage: SupposedUsage, excluded: Container[ObjectKey]) -> None:
        self._tree = SearchedTree(world, usage, excluded)
        self._by_order: dict[Contested, OrderIndex] = {}
        self._by_share: dict[tuple[Contested, int], FinalBounds] = {}
        self._newest: dict[int, Instant] = {}

    def by_order(self, contested: Contested) -> OrderIndex:
        """Return the index for classical preemption."""
        index = self._by_order.get(contested)
        if index is None:
            index = self._by_order[contested] = OrderIndex(self._tree, contested)
        return index

    def by_share(self, contested: Contested, highest: int) -> FinalBounds:
        """Return the index for fair preemption of candidates up to a priority, with its bounds."""
        bounds = self._by_share.get((contested, highest))
        if bounds is None:
            index = ShareIndex(self._tree, contested, highest)
            bounds = self._by_share[contested, highest] = FinalBounds(index)
        return bounds

    def highest_priority(self, preemptor: Preemptor) -> int:
        """Return the highest priority of candidates in other ClusterQueues.

        If workloads of the preemptor's own priority are candidates only when newer, a search must read each
        of them. After searches have read some ClusterQueues without a candidate, this method finds the newest
        of these workloads, once for all preemptors. An even newer preemptor has only candidates of lower
        priority.
        """
        queue, workload = preemptor
        policy, priority = queue.spec.preemption.reclaim_within_cohort, workload.priority
        if (
            not equals_must_be_newer(policy)
            or self._tree.queues_without_candidate < _QUEUES_WITHOUT_CANDIDATE
        ):
            return highest_priority(policy, priority)
        newest = self._newest.get(priority)
        if newest is None:
            newest = self._newest[priority] = self._find_newest(queue.node.root, priority)
        return priority if workload.queued_at < newest else priority - 1

    def _find_newest(self, root: Node, priority: int) -> Instant:
        """Return the latest queue-order timestamp of workloads of a priority that hold quota in a tree."""
        quota_holders = self._tree.world.quota_holders
        first_key = PreemptionOrder(priority, BEFORE_ALL, "")
        times = (
            entry.workload.queued_at
            for node in root.cluster_queues_below()
            for holders in (quota_holders.leaving, quota_holders.staying)
            for order, entry in holders(node.name, first_key)
            if order.priority == priority
        )
        return max(times, default=BEFORE_ALL)

    def update(self, node: Node) -> None:
        """Update all indexes after a change of usage or candidates at a ClusterQueue."""
        for index in self._by_order.values():
            index.update(node)
        for bounds in self._by_share.values():
            bounds.update(node)

    def clear(self) -> None:
        """Forget all indexes, after changes at unknown nodes."""
        self._by_order.clear()
        self._by_share.clear()
