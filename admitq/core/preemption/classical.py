"""Classical preemption: the search for victims without fair sharing (semantics, Preemption, Classical).

Terms of this module:

- A *pair* is a flavor and a resource. A pair is *contested* if the preemptor lacks quota of it.
- A *cell* holds the quota and the usage of one node for one pair.
- A node *borrows* if its usage exceeds its subtree quota in at least one contested pair.
- The *path* is the preemptor's ClusterQueue and all cohorts above it, up to the root.
- A *level* is a cohort of the path. The cohort has one child that is also on the path. The candidates of the
  level are below the cohort, but not below this child. If the child is a cohort, lower levels have the
  candidates below the child.
- The *remaining request* at a node of the path is the request minus the unused local quota of the nodes of
  the path below this node. *Local quota* is quota that a node does not lend.
- The preemptor has the *advantage* at a level if some node of the path below the level's cohort has enough
  quota: usage + remaining request <= subtree quota, for each pair with a remaining request.

A search makes up to two *attempts*: one in which the preemptor may borrow, and one in which it may not. The
search uses the first attempt that frees enough. ``reclaimWithinCohort`` limits the candidates of other
ClusterQueues in every attempt. In an attempt in which the preemptor may borrow, ``borrowWithinCohort`` also
limits the candidates at levels without the advantage.

An attempt removes candidates in this order, until the preemptor fits:

1. candidates that are leaving already: first at levels with the advantage, then at levels without the
   advantage, then in the preemptor's own ClusterQueue;
2. the other candidates: levels and ClusterQueue in the same order.

Module ``candidates`` describes the order within each of these groups. At the end, the attempt drops the
candidates that the preemptor does not need (``drop_unneeded``).
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple

from admitq.core.cohorts import Node
from admitq.core.instructions import PreemptionReason
from admitq.core.model import BorrowWithinCohort, PreemptionPolicy
from admitq.core.preemption.bulk import CandidatesBelow, RemovedCandidates
from admitq.core.preemption.candidates import STAGES, Candidate, Stage, TargetSearch
from admitq.core.preemption.capacity import (
    Reachability,
    RequestedCapacity,
    drop_unneeded,
    estimate_reachability,
)
from admitq.core.preemption.index import OrderIndex
from admitq.core.preemption.policies import equals_must_be_newer, highest_priority
from admitq.core.preemption.sort_keys import OrderKey
from admitq.core.quota import Cell
from admitq.core.quota_holders import PreemptionOrder

_MustBorrow = tuple[tuple[Cell, ...], ...]
"""Nodes that must all borrow: for each node, a tuple of its contested cells.

The nodes are a ClusterQueue, and each cohort between the ClusterQueue and the cohort of the level. The
workloads of the ClusterQueue are candidates while all these nodes borrow."""


# --- where candidates are ---------------------------------------------------------------------------


def walk_path(search: TargetSearch, node: Node) -> Iterator[tuple[Node, Node, bool]]:
    """Yield each cohort of the path, its child on the path, and whether the preemptor has the advantage.

    Args:
        search: the preemptor, the usage that it requests, and the contested pairs.
        node: the preemptor's ClusterQueue.
    """
    # The remaining request at ``child_on_path``: only pairs of which an amount remains.
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
    """A cohort of the path, and its child on the path.

    The level has the candidates below the cohort, except those below the child.
    """

    cohort: Node
    child_on_path: Node


class LevelsByAdvantage(NamedTuple):
    """The levels at which the preemptor has the advantage, and the other levels."""

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
    """Whether each of the nodes borrows in at least one of its contested cells."""
    for cells in must_borrow:
        for cell in cells:
            if cell.usage > cell.subtree_quota:
                break
        else:
            return False
    return True


class _UnreachedChildren:
    """The listed children of a cohort that the search has not reached yet.

    The candidate index lists a child if the child borrows and has candidates.

    Args:
        children: the list of the index: all listed children with their sort keys, in order.
        child_on_path: the child to skip, because its candidates belong to lower levels. None if the cohort is
            not on the path.
        must_borrow: the nodes that must borrow while the search takes candidates below the cohort.
    """

    __slots__ = ("child_on_path", "children", "must_borrow", "position")

    def __init__(
        self, children: list[tuple[OrderKey, Node]], child_on_path: Node | None, must_borrow: _MustBorrow
    ) -> None:
        self.children = children
        self.child_on_path = child_on_path
        self.must_borrow = must_borrow
        self.position = 0

    def order(self) -> PreemptionOrder | None:
        """Return a lower bound for the sort keys of the remaining candidates; None if no child is left."""
        children = self.children
        return children[self.position][0].order if self.position < len(children) else None

    def pop(self) -> Node | None:
        """Remove and return the next child; None if it is the child to skip."""
        child = self.children[self.position][1]
        self.position += 1
        return None if child is self.child_on_path else child


class _OpenedQueue:
    """A ClusterQueue that the search has reached, with its candidates that the search has not taken yet."""

    __slots__ = ("_next", "_remaining", "must_borrow")

    def __init__(self, candidates: Iterator[Candidate], must_borrow: _MustBorrow) -> None:
        self.must_borrow = must_borrow
        self._next = next(candidates, None)
        self._remaining = candidates

    def order(self) -> PreemptionOrder | None:
        """Return the sort key of the next candidate; None if no candidate is left."""
        return None if self._next is None else self._next.order

    def pop(self) -> Candidate:
        """Remove and return the next candidate."""
        candidate = self._next
        assert candidate is not None  # noqa: S101 narrows the type: callers check ``order``
        self._next = next(self._remaining, None)
        return candidate


class _CandidateWalk:
    """Yields the candidates of other ClusterQueues at one stage, up to the priority ``highest``."""

    def __init__(self, search: TargetSearch, index: OrderIndex, stage: Stage, highest: int) -> None:
        self._search = search
        self._index = index
        self._stage = stage
        self._highest = highest
        self.highest_for_all: Final = self._find_highest_for_all()
        """The priority that alone decides on candidates; None if more of the preemptor decides."""

    def in_order(self, levels: Iterable[_Level]) -> Iterator[Candidate]:
        """Yield the candidates at some levels, in order.

        The caller must remove each candidate from the tree before it asks for the next candidate. If a node
        that must borrow does not borrow any more, this method drops all remaining candidates below the node.
        Usage only falls while this method yields candidates, so the node will not borrow again.
        """
        serial_number = count()
        # The sources of candidates. ``order()`` of a source is at most the sort key of its next candidate.
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
        """Yield the same candidates as ``in_order``.

        Here too, the caller must remove each candidate before it asks for the next candidate. Call this
        method only if ``can_order_by_one_sort`` returns true for the levels. One sort of all candidates
        costs less than a heap. But this method reads all candidates before it yields the first.
        """
        result: list[Candidate] = []
        for level in levels:
            result += self.below(level)
        result.sort(key=_ORDER)
        return iter(result)

    def below(self, level: _Level) -> list[Candidate]:
        """Return the candidates of ``in_order_by_one_sort`` at one level, unsorted."""
        result: list[Candidate] = []
        for key, child in self._index.children(level.cohort, self._stage):
            if key.order.priority > self._highest:
                break
            if child is not level.child_on_path:
                result += self._until_borrowing_ends(child)
        return result

    def can_order_by_one_sort(self, levels: Iterable[_Level]) -> bool:
        """Whether ``in_order_by_one_sort`` yields the same candidates as ``in_order``.

        The results can differ in two cases. Candidates below a listed cohort depend on each other:
        removals in one ClusterQueue can end the borrowing of the cohort. With admission fair sharing, the
        order of the candidates of a ClusterQueue can differ from the order of their sort keys.
        """
        return self._search.world.local_queue_usage is None and not any(
            key.is_cohort and child is not level.child_on_path
            for level in levels
            for key, child in self._index.children(level.cohort, self._stage)
        )

    def _open(self, node: Node, must_borrow_above: _MustBorrow) -> _UnreachedChildren | _OpenedQueue:
        """Return the children of a listed cohort, or the candidates of a listed ClusterQueue."""
        candidates = None if node.is_cohort else self._candidates(node)
        self._index.write_usage_to_cells(node)
        must_borrow = (*must_borrow_above, self._search.cells(node))
        if candidates is None:
            return _UnreachedChildren(self._index.children(node, self._stage), None, must_borrow)
        opened = _OpenedQueue(candidates, must_borrow)
        if opened.order() is None:
            self._index.record_queue_without_candidate()
        return opened

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        """Return the candidates of a ClusterQueue at this stage, whether it borrows or not."""
        queue = self._search.world.cluster_queues[node.name]
        first_key = self._index.first_order(node, self._stage)
        policy = self._search.preemptor.queue.spec.preemption.reclaim_within_cohort
        return self._search.in_stage(self._stage, queue, policy, self._highest, first_key)

    def _until_borrowing_ends(self, node: Node) -> Iterable[Candidate]:
        """Return candidates of a ClusterQueue until their removal ends its borrowing of contested pairs.

        Most preemptors of a cycle have the same candidates there. So the index keeps the candidates, unless
        they depend on more than the highest priority.
        """
        self._index.write_usage_to_cells(node)
        highest = self.highest_for_all
        if highest is None:
            return self._read_until_borrowing_ends(node)
        by_kind = self._index.candidates_of(node)
        candidates = by_kind.get((self._stage, highest))
        if candidates is None:
            candidates = by_kind[self._stage, highest] = tuple(self._read_until_borrowing_ends(node))
        return candidates

    def _find_highest_for_all(self) -> int | None:
        preemptor = self._search.preemptor
        policy = preemptor.queue.spec.preemption.reclaim_within_cohort
        if equals_must_be_newer(policy) or self._search.excluded is not self._index.excluded:
            return None
        return min(self._highest, highest_priority(policy, preemptor.workload.priority))

    def _read_until_borrowing_ends(self, node: Node) -> Iterator[Candidate]:
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
    """Return the attempts of a search in order: for each attempt, whether the preemptor may borrow.

    Args:
        rule: ``borrowWithinCohort`` of the preemptor's ClusterQueue.
        is_below_nominal: whether the preemptor's ClusterQueue uses less than its nominal quota in each
            contested pair.
        has_candidates_elsewhere: whether there are candidates in other ClusterQueues.
        has_candidates_with_advantage: whether there are candidates at levels with the advantage.
    """
    never = rule.policy is PreemptionPolicy.NEVER
    if not has_candidates_elsewhere or (never and not is_below_nominal):
        return (True,)
    return (False, True) if never and not has_candidates_with_advantage else (True, False)


def _highest_if_preemptor_borrows(search: TargetSearch) -> int:
    """Return the highest priority that ``borrowWithinCohort`` allows for candidates.

    This limit applies at levels without the advantage, in the attempt in which the preemptor may borrow.
    """
    rule = search.preemptor.queue.spec.preemption.borrow_within_cohort
    highest = highest_priority(rule.policy, search.preemptor.workload.priority)
    return highest if rule.max_priority_threshold is None else min(highest, rule.max_priority_threshold)


def _is_below_nominal(search: TargetSearch) -> bool:
    """Whether the preemptor's ClusterQueue uses less than its nominal quota in each contested pair."""
    return all(cell.usage < cell.subtree_quota for cell in search.cells(search.preemptor.queue.node))


def can_preempt_only_in_own_queue(search: TargetSearch, levels_by_advantage: LevelsByAdvantage) -> bool:
    """Whether only the preemptor's own ClusterQueue can have candidates.

    If this function returns true, the preemptor has the advantage at no level, and ``borrowWithinCohort``
    allows no candidates at any level. The only attempt is then one in which the preemptor may borrow (see
    ``attempts``). This function reads usage and quota only. It does not look for candidates.
    """
    policy = search.preemptor.queue.spec.preemption
    never = policy.borrow_within_cohort.policy is PreemptionPolicy.NEVER
    return never and not levels_by_advantage.with_advantage and not _is_below_nominal(search)


def find_in_own_queue(search: TargetSearch) -> list[Candidate]:
    """Return what ``find`` returns if only workloads of the preemptor's own ClusterQueue are candidates."""
    queue = search.preemptor.queue
    own = search.candidates(queue, queue.spec.preemption.within_cluster_queue)
    is_enough = RequestedCapacity(queue.node, search.usage, search.has_room).is_available
    return _remove_until_enough([(own, True)], is_enough)


def _remove_until_enough(
    groups: Iterable[tuple[Iterable[Candidate], bool]], is_enough: Callable[[], bool]
) -> list[Candidate]:
    """Remove candidates until the preemptor fits, and return those of them that it needs.

    At the end, this function restores all usage. The result is empty if the removal of all candidates is not
    enough. ``drop_unneeded`` defines the order of the result.

    Args:
        groups: groups of candidates, in order. Each group has a flag: whether this group, together with all
            groups before it, can be enough. From the first true flag on, ``is_enough`` is called after each
            removal.
        is_enough: whether the preemptor fits without the candidates that are removed now.
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
                    drop_unneeded(removed, is_enough)
                    return removed
        return []
    finally:
        for candidate in removed:
            candidate.restore()


class _ClassicalSearch:
    """One search. Candidates of other ClusterQueues have at most the priority ``highest``."""

    def __init__(
        self, search: TargetSearch, index: OrderIndex, levels_by_advantage: LevelsByAdvantage, highest: int
    ) -> None:
        self._search = search
        self._index = index
        self._levels_by_advantage = levels_by_advantage
        self._highest = highest
        self._queue = search.preemptor.queue
        self._capacity = RequestedCapacity(self._queue.node, search.usage, search.has_room)

    def find(self) -> list[Candidate]:
        """Return the victims of the first attempt that frees enough; an empty list if no attempt does."""
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
        """Whether there is a candidate at one of these levels."""
        walks = (_CandidateWalk(self._search, self._index, stage, self._highest) for stage in STAGES)
        return any(True for walk in walks for _ in walk.in_order(levels))

    def _attempt(self, *, may_borrow: bool) -> list[Candidate]:
        """Return the victims of one attempt; an empty list if the attempt does not free enough."""
        capacity = self._capacity
        if may_borrow:
            is_enough, is_quota_enough = capacity.is_available, capacity.is_quota_available
        else:
            is_enough = capacity.is_available_within_nominal
            is_quota_enough = capacity.is_quota_available_within_nominal
        reachability = estimate_reachability(self._search, self._index, capacity, is_quota_enough)
        if reachability is Reachability.IMPOSSIBLE:
            return []
        if reachability is Reachability.ONLY_WITH_OWN_CANDIDATES:
            found = self._find_in_bulk(is_enough, may_borrow=may_borrow)
            if found is not None:
                return found
        return _remove_until_enough(self._groups(reachability, may_borrow=may_borrow), is_enough)

    def _find_in_bulk(self, is_enough: Callable[[], bool], *, may_borrow: bool) -> list[Candidate] | None:
        """Return the same victims as ``_remove_until_enough``, if own candidates are needed.

        Candidates of other ClusterQueues alone are then not enough. None if they cannot be removed by sums.
        """
        levels = [*self._levels_by_advantage.with_advantage, *self._levels_by_advantage.without_advantage]
        if len(levels) != 1 or self._search.has_room is not None:
            return None
        highest = self._highest
        if may_borrow and self._levels_by_advantage.without_advantage:
            highest = min(highest, _highest_if_preemptor_borrows(self._search))
        below = self._candidates_below(levels[0], highest)
        if below is None or not all(each.is_exact for each in below):
            return None
        removed = RemovedCandidates(self._queue.node, self._capacity.pairs, is_enough)
        try:
            for stage in STAGES:
                if removed.add_bulk(below[stage]) or removed.add_own(self._search.own_in_stage(stage)):
                    drop_unneeded(removed.all, is_enough, removed)
                    return removed.all
            return []
        finally:
            removed.restore_all()

    def _candidates_below(
        self, level: _Level, highest: int
    ) -> tuple[CandidatesBelow, CandidatesBelow] | None:
        """Return the candidates of other ClusterQueues at the only level, for each stage.

        They are the same for most preemptors of a cycle, so the index keeps them. None if they are not, or if
        their order cannot be found by one sort.
        """
        leaving, staying = (_CandidateWalk(self._search, self._index, stage, highest) for stage in STAGES)
        highest_for_all = leaving.highest_for_all
        if highest_for_all is None:
            return None
        is_listed = self._index.is_listed(level.child_on_path)
        key = (level.cohort, level.child_on_path if is_listed else None, highest, highest_for_all)
        if key not in self._index.below_cohorts:
            self._index.below_cohorts[key] = self._read_candidates_below(level, leaving, staying)
        return self._index.below_cohorts[key]

    @staticmethod
    def _read_candidates_below(
        level: _Level, leaving: _CandidateWalk, staying: _CandidateWalk
    ) -> tuple[CandidatesBelow, CandidatesBelow] | None:
        if not (leaving.can_order_by_one_sort([level]) and staying.can_order_by_one_sort([level])):
            return None
        first = sorted(leaving.below(level), key=_ORDER)
        # Without these, some ClusterQueues no longer borrow. Their other candidates are not taken then.
        for candidate in first:
            candidate.remove()
        second = sorted(staying.below(level), key=_ORDER)
        for candidate in first:
            candidate.restore()
        return CandidatesBelow(level.cohort, first), CandidatesBelow(level.cohort, second)

    def _groups(
        self, reachability: Reachability, *, may_borrow: bool
    ) -> Iterator[tuple[Iterable[Candidate], bool]]:
        """Yield the groups of candidates of one attempt, with the flags for ``_remove_until_enough``."""
        search = self._search
        highest_with_advantage = highest_without_advantage = self._highest
        if may_borrow:
            highest_without_advantage = min(highest_without_advantage, _highest_if_preemptor_borrows(search))
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
            yield search.own_in_stage(stage), True

    def _give_reasons(self, victims: Iterable[Candidate]) -> None:
        """Set the reason of each victim that is not in the preemptor's own ClusterQueue."""
        without_advantage = {level.cohort for level in self._levels_by_advantage.without_advantage}
        cohorts = {*without_advantage, *(level.cohort for level in self._levels_by_advantage.with_advantage)}
        highest = _highest_if_preemptor_borrows(self._search)
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
    """Return the workloads to preempt; an empty list if no attempt frees enough.

    ``drop_unneeded`` defines the order of the result.

    Args:
        search: the preemptor, its usage, and the contested pairs.
        index: the index of the preemptor's tree.
        levels_by_advantage: the levels of the search, from ``find_levels``.
        highest: the highest priority that ``reclaimWithinCohort`` allows for candidates.
    """
    return _ClassicalSearch(search, index, levels_by_advantage, highest).find()
