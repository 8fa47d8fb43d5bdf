"""Classical preemption: reclaim lent quota, then preempt by priority.

A search for quota to reclaim goes from the preemptor's ClusterQueue up to the root. This is the *path*. At a
cohort of the path, the preemptor has the *advantage* of the hierarchy if its request fits within the quota of
a lower node of the path. With the advantage, it may reclaim all quota that is borrowed there. Without it,
``borrowWithinCohort`` decides which workloads of lower priority it may preempt although it then borrows.

So there are two kinds of attempt: with and without permission to borrow. The first attempt that frees enough
counts (semantics, Preemption, Classical).
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple

from admitq.core.cohorts import Node
from admitq.core.instructions import PreemptionReason
from admitq.core.model import BorrowWithinCohort, PreemptionPolicy
from admitq.core.preemption.candidates import STAGES, Candidate, Stage, TargetSearch
from admitq.core.preemption.capacity import (
    Reachability,
    RequestedCapacity,
    estimate_reachability,
    restore_unneeded,
)
from admitq.core.preemption.index import OrderIndex
from admitq.core.preemption.policies import highest_priority
from admitq.core.preemption.sort_keys import OrderKey
from admitq.core.quota import Cell
from admitq.core.quota_holders import PreemptionOrder

_MustBorrow = tuple[tuple[Cell, ...], ...]
"""The contested cells of a ClusterQueue, and those of each cohort between it and the common ancestor with the
preemptor. Workloads of the ClusterQueue are candidates while each of these nodes borrows."""


# --- where candidates are ---------------------------------------------------------------------------


def walk_path(search: TargetSearch, node: Node) -> Iterator[tuple[Node, Node, bool]]:
    """Yield each cohort above a node, its child on the path, and whether there is the advantage."""
    remaining = {pair: amount for pair, amount in search.usage.items() if amount > 0}
    child_on_path, advantage = node, False
    for ancestor in node.ancestors:
        cells = child_on_path.cells
        advantage = advantage or all(
            cells[pair].usage + amount <= cells[pair].subtree_quota for pair, amount in remaining.items()
        )
        yield ancestor, child_on_path, advantage
        remaining = {
            pair: amount - cells[pair].unused_local_quota
            for pair, amount in remaining.items()
            if amount > cells[pair].unused_local_quota
        }
        child_on_path = ancestor


class _Level(NamedTuple):
    """A cohort above the preemptor. ``visited`` is its child on the path, which a lower level covers."""

    cohort: Node
    child_on_path: Node


class LevelsByAdvantage(NamedTuple):
    """The cohorts above the preemptor, by whether the preemptor has the advantage there."""

    with_advantage: list[_Level]
    without_advantage: list[_Level]


def find_levels(search: TargetSearch) -> LevelsByAdvantage:
    """Return the levels of a search; no levels if the preemptor's ClusterQueue never reclaims."""
    queue = search.preemptor.queue
    result = LevelsByAdvantage([], [])
    if queue.spec.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        for cohort, child_on_path, advantage in walk_path(search, queue.node):
            levels = result.with_advantage if advantage else result.without_advantage
            levels.append(_Level(cohort, child_on_path))
    return result


def _all_borrow(must_borrow: _MustBorrow) -> bool:
    for cells in must_borrow:
        for cell in cells:
            if cell.usage > cell.subtree_quota:
                break
        else:
            return False
    return True


class _UnreachedChildren:
    """The children of a cohort that the search has not reached yet: those from a position of the list on."""

    __slots__ = ("child_on_path", "children", "must_borrow", "position")

    def __init__(
        self, children: list[tuple[OrderKey, Node]], child_on_path: Node | None, must_borrow: _MustBorrow
    ) -> None:
        self.children = children
        self.child_on_path = child_on_path
        self.must_borrow = must_borrow
        self.position = 0

    def order(self) -> PreemptionOrder | None:
        """Return a sort key before which there is no candidate; None if no child is left."""
        children = self.children
        return children[self.position][0].order if self.position < len(children) else None

    def pop(self) -> Node | None:
        """Remove and return the next child; None if the next child is the visited one."""
        child = self.children[self.position][1]
        self.position += 1
        return None if child is self.child_on_path else child


class _OpenedQueue:
    """The candidates of one ClusterQueue that the search has reached."""

    __slots__ = ("_next", "_remaining", "must_borrow")

    def __init__(self, candidates: Iterator[Candidate], must_borrow: _MustBorrow) -> None:
        self.must_borrow = must_borrow
        self._next = next(candidates, None)
        self._remaining = candidates

    def order(self) -> PreemptionOrder | None:
        """Return the sort key of the next candidate; None if there is none."""
        return None if self._next is None else self._next.order

    def pop(self) -> Candidate:
        """Remove and return the next candidate."""
        candidate = self._next
        assert candidate is not None  # noqa: S101 narrows the type: callers check ``order``
        self._next = next(self._remaining, None)
        return candidate


class _CandidateWalk:
    """Goes through the candidates of other ClusterQueues at one stage, up to a highest priority."""

    def __init__(self, search: TargetSearch, index: OrderIndex, stage: Stage, highest: int) -> None:
        self._search = search
        self._index = index
        self._stage = stage
        self._highest = highest

    def in_order(self, levels: Iterable[_Level]) -> Iterator[Candidate]:
        """Yield candidates in order. Skip those with a ClusterQueue or cohort that does not borrow any more.

        The caller removes each candidate from the tree. Usage only falls, so a node that does not borrow will
        not borrow again.
        """
        serial_number = count()
        heap: list[tuple[PreemptionOrder, int, _UnreachedChildren | _OpenedQueue]] = []

        def push(source: _UnreachedChildren | _OpenedQueue) -> None:
            order = source.order()
            if order is not None and order.priority <= self._highest:
                heapq.heappush(heap, (order, next(serial_number), source))

        for level in levels:
            push(_UnreachedChildren(self._index.children(level.cohort, self._stage), level.child_on_path, ()))
        while heap:
            source = heap[0][2]
            if _all_borrow(source.must_borrow):
                if isinstance(source, _UnreachedChildren):
                    child = source.pop()
                    if child is not None:
                        push(self._open(child, source.must_borrow))
                else:
                    yield source.pop()
                heapq.heappop(heap)
                push(source)
            else:
                heapq.heappop(heap)

    def in_order_by_one_sort(self, levels: Iterable[_Level]) -> Iterator[Candidate]:
        """Yield the same as ``in_order``, if the caller removes all candidates of independent levels.

        It sorts all candidates once, which costs less than a heap. But it reads all of them before it yields.
        """
        result: list[Candidate] = []
        for level in levels:
            for key, child in self._index.children(level.cohort, self._stage):
                if key.order.priority > self._highest:
                    break
                if child is not level.child_on_path:
                    result += self._while_borrowing(child)
        result.sort(key=_ORDER)
        return iter(result)

    def can_order_by_one_sort(self, levels: Iterable[_Level]) -> bool:
        """Whether the removal of candidates of one ClusterQueue changes nothing for another ClusterQueue."""
        return self._search.world.local_queue_usage is None and not any(
            key.is_cohort and child is not level.child_on_path
            for level in levels
            for key, child in self._index.children(level.cohort, self._stage)
        )

    def _open(self, node: Node, above: _MustBorrow) -> _UnreachedChildren | _OpenedQueue:
        """Return the candidates below a listed node."""
        candidates = None if node.is_cohort else self._candidates(node)
        self._index.write_usage_to_cells(node)
        must_borrow = (*above, self._search.cells(node))
        if candidates is None:
            return _UnreachedChildren(self._index.children(node, self._stage), None, must_borrow)
        opened = _OpenedQueue(candidates, must_borrow)
        if opened.order() is None:
            self._index.count_queue_without_candidate()
        return opened

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        queue = self._search.world.cluster_queues[node.name]
        first_key = self._index.first_order(node, self._stage)
        policy = self._search.preemptor.queue.spec.preemption.reclaim_within_cohort
        return self._search.in_stage(self._stage, queue, policy, self._highest, first_key)

    def _while_borrowing(self, node: Node) -> Iterator[Candidate]:
        """Yield candidates of a ClusterQueue while it would borrow a contested pair without them."""
        self._index.write_usage_to_cells(node)
        borrowed = {
            pair: cell.usage - cell.subtree_quota
            for pair in self._search.contested
            if (cell := node.cells.get(pair)) is not None and cell.usage > cell.subtree_quota
        }
        for candidate in self._candidates(node) if borrowed else ():
            yield candidate
            for pair, amount in candidate.usage:
                if pair in borrowed:
                    borrowed[pair] -= amount
                    if borrowed[pair] <= 0:
                        del borrowed[pair]
            if not borrowed:
                return


_ORDER: Final = attrgetter("order")


# --- attempts ---------------------------------------------------------------------------------------


def attempts(
    rule: BorrowWithinCohort,
    *,
    is_below_nominal: bool,
    has_candidates_elsewhere: bool,
    has_candidates_with_advantage: bool,
) -> tuple[bool, ...]:
    """Return, for each attempt, whether the preemptor may borrow.

    Args:
        rule: the rule of the preemptor's ClusterQueue.
        is_below_nominal: whether this ClusterQueue is strictly below its nominal quota in all contested
            pairs.
        has_candidates_elsewhere: whether there are candidates in other ClusterQueues.
        has_candidates_with_advantage: whether some of them can be preempted with the advantage.
    """
    never = rule.policy is PreemptionPolicy.NEVER
    if not has_candidates_elsewhere or (never and not is_below_nominal):
        return (True,)
    return (False, True) if never and not has_candidates_with_advantage else (True, False)


def _highest_while_borrowing(search: TargetSearch) -> int:
    """Return the highest priority of candidates, if the preemptor borrows and has no advantage."""
    rule = search.preemptor.queue.spec.preemption.borrow_within_cohort
    highest = highest_priority(rule.policy, search.preemptor.workload.priority)
    return highest if rule.max_priority_threshold is None else min(highest, rule.max_priority_threshold)


def _is_below_nominal(search: TargetSearch) -> bool:
    """Whether the preemptor's ClusterQueue is strictly below its nominal quota in all contested pairs."""
    return all(cell.usage < cell.subtree_quota for cell in search.cells(search.preemptor.queue.node))


def can_preempt_only_in_own_queue(search: TargetSearch, levels_by_advantage: LevelsByAdvantage) -> bool:
    """Whether the preemptor must borrow, and so may preempt only in its own ClusterQueue."""
    policy = search.preemptor.queue.spec.preemption
    never = policy.borrow_within_cohort.policy is PreemptionPolicy.NEVER
    return never and not levels_by_advantage.with_advantage and not _is_below_nominal(search)


def find_in_own_queue(search: TargetSearch) -> list[Candidate]:
    """As ``find``, if only workloads of the preemptor's ClusterQueue are candidates."""
    queue = search.preemptor.queue
    own = search.candidates(queue, queue.spec.preemption.within_cluster_queue)
    is_enough = RequestedCapacity(queue.node, search.usage).is_available
    return _remove_until_enough([(own, True)], is_enough)


def _remove_until_enough(
    groups: Iterable[tuple[Iterator[Candidate], bool]], is_enough: Callable[[], bool]
) -> list[Candidate]:
    """Remove candidates until that is enough, and return those that must leave. Restore all usage at the end.

    Args:
        groups: candidates group by group, each with whether removals can be enough from this group on. Before
            such a group, ``is_enough`` is not called.
        is_enough: whether the removed candidates are enough.
    """
    removed: list[Candidate] = []
    can_be_enough = False
    try:
        for candidates, can_be_enough_here in groups:
            for candidate in candidates:
                removed.append(candidate)
                candidate.remove()
                can_be_enough = can_be_enough or can_be_enough_here
                if can_be_enough and is_enough():
                    restore_unneeded(removed, is_enough)
                    return removed
        return []
    finally:
        for candidate in removed:
            candidate.restore()


class _ClassicalSearch:
    """One search. Candidates in other ClusterQueues have at most the priority ``highest``."""

    def __init__(
        self, search: TargetSearch, index: OrderIndex, levels_by_advantage: LevelsByAdvantage, highest: int
    ) -> None:
        self._search = search
        self._index = index
        self._levels_by_advantage = levels_by_advantage
        self._highest = highest
        self._queue = search.preemptor.queue
        self._capacity = RequestedCapacity(self._queue.node, search.usage)

    def find(self) -> list[Candidate]:
        """Return the victims of the first attempt that frees enough."""
        spec = self._queue.spec.preemption
        has_candidates_with_advantage = self._has_candidates(self._levels_by_advantage.with_advantage)
        for may_borrow in attempts(
            spec.borrow_within_cohort,
            is_below_nominal=_is_below_nominal(self._search),
            has_candidates_elsewhere=has_candidates_with_advantage
            or self._has_candidates(self._levels_by_advantage.without_advantage),
            has_candidates_with_advantage=has_candidates_with_advantage,
        ):
            removed = self._attempt(may_borrow=may_borrow)
            if removed:
                self._give_reasons(removed)
                return removed
        return []

    def _has_candidates(self, levels: Iterable[_Level]) -> bool:
        walks = (_CandidateWalk(self._search, self._index, stage, self._highest) for stage in STAGES)
        return any(True for walk in walks for _ in walk.in_order(levels))

    def _attempt(self, *, may_borrow: bool) -> list[Candidate]:
        is_enough = self._capacity.is_available if may_borrow else self._capacity.is_available_within_nominal
        reachability = estimate_reachability(self._search, self._index, self._capacity, is_enough)
        if reachability is Reachability.IMPOSSIBLE:
            return []
        return _remove_until_enough(self._groups(reachability, may_borrow=may_borrow), is_enough)

    def _groups(
        self, reachability: Reachability, *, may_borrow: bool
    ) -> Iterator[tuple[Iterator[Candidate], bool]]:
        """Yield candidates group by group, and whether removals can be enough from a group on."""
        search, own_policy = self._search, self._queue.spec.preemption.within_cluster_queue
        highest_with_advantage = highest_without_advantage = self._highest
        if may_borrow:
            highest_without_advantage = min(highest_without_advantage, _highest_while_borrowing(search))
        for stage in STAGES:
            for levels, highest in (
                (self._levels_by_advantage.with_advantage, highest_with_advantage),
                (self._levels_by_advantage.without_advantage, highest_without_advantage),
            ):
                walk = _CandidateWalk(search, self._index, stage, highest)
                by_one_sort = (
                    reachability is Reachability.ONLY_WITH_OWN_CANDIDATES
                    and walk.can_order_by_one_sort(levels)
                )
                yield (
                    walk.in_order_by_one_sort(levels) if by_one_sort else walk.in_order(levels),
                    reachability is Reachability.POSSIBLE,
                )
            yield search.in_stage(stage, self._queue, own_policy), True

    def _give_reasons(self, victims: Iterable[Candidate]) -> None:
        """Set the reason of each victim that is not in the preemptor's own ClusterQueue."""
        without_advantage = {level.cohort for level in self._levels_by_advantage.without_advantage}
        cohorts = {*without_advantage, *(level.cohort for level in self._levels_by_advantage.with_advantage)}
        highest = _highest_while_borrowing(self._search)
        for victim in victims:
            if victim.node is self._queue.node:
                continue
            common_cohort = next(cohort for cohort in victim.node.ancestors if cohort in cohorts)
            is_reclaim_while_borrowing = (
                common_cohort in without_advantage and victim.order.priority <= highest
            )
            victim.reason = (
                PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
                if is_reclaim_while_borrowing
                else PreemptionReason.IN_COHORT_RECLAMATION
            )


def find(
    search: TargetSearch, index: OrderIndex, levels_by_advantage: LevelsByAdvantage, highest: int
) -> list[Candidate]:
    """Return the workloads to preempt, in the order in which the search ends; none if nothing is enough.

    Args:
        search: the input of the search.
        index: the index of the preemptor's tree.
        levels_by_advantage: the levels of the search.
        highest: the highest priority of candidates in other ClusterQueues.
    """
    return _ClassicalSearch(search, index, levels_by_advantage, highest).find()
