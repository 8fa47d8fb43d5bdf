"""Classical preemption: reclaim lent quota, then preempt by priority.

*Reclaiming* goes from the preemptor's cohort to the root. Once the request fits within the quota of the
ClusterQueue or of a cohort below, everything that is borrowed further away can be reclaimed: the preemptor
has the *advantage* of the hierarchy. Without it, ``borrowWithinCohort`` decides which workloads of lower
priority can be preempted although the preemptor then borrows.

Hence there are two kinds of attempt: in one the preemptor may borrow, in the other it may not. The first
attempt that frees enough counts (semantics, Preemption, Classical).
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
from admitq.core.preemption.index import OrderIndex
from admitq.core.preemption.places import OrderKey
from admitq.core.preemption.policies import highest_priority
from admitq.core.preemption.room import Reachability, Room, estimate_reachability, restore_unneeded
from admitq.core.quota import Cell
from admitq.core.quota_holders import PreemptionOrder

_MustBorrow = tuple[tuple[Cell, ...], ...]
"""The contested cells of a ClusterQueue and of each cohort between it and the common ancestor. Candidates
can be preempted while each of these nodes borrows."""


# --- where candidates are ---------------------------------------------------------------------------


def levels(search: TargetSearch, node: Node) -> Iterator[tuple[Node, Node, bool]]:
    """Yield each cohort above the node, its child on the path, and whether there is the advantage."""
    remaining = {pair: amount for pair, amount in search.usage.items() if amount > 0}
    visited, advantage = node, False
    for ancestor in node.ancestors:
        cells = visited.cells
        advantage = advantage or all(
            cells[pair].usage + amount <= cells[pair].subtree for pair, amount in remaining.items()
        )
        yield ancestor, visited, advantage
        remaining = {
            pair: amount - cells[pair].local_available
            for pair, amount in remaining.items()
            if amount > cells[pair].local_available
        }
        visited = ancestor


class _Level(NamedTuple):
    """A cohort above the preemptor. There are no candidates in the visited child."""

    cohort: Node
    visited: Node


class Levels(NamedTuple):
    """The cohorts above the preemptor in which it reclaims with the advantage and without it."""

    far: list[_Level]
    near: list[_Level]


def find_levels(search: TargetSearch) -> Levels:
    """Return the levels of a search; none if the preemptor's ClusterQueue never reclaims."""
    queue = search.preemptor.queue
    found = Levels([], [])
    if queue.spec.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        for cohort, visited, advantage in levels(search, queue.node):
            (found.far if advantage else found.near).append(_Level(cohort, visited))
    return found


def _all_borrow(must_borrow: _MustBorrow) -> bool:
    for cells in must_borrow:
        for cell in cells:
            if cell.usage > cell.subtree:
                break
        else:
            return False
    return True


class _Listed:
    """The children of a cohort that are not reached yet, from a position of their list on."""

    __slots__ = ("children", "must_borrow", "position", "visited")

    def __init__(
        self, children: list[tuple[OrderKey, Node]], visited: Node | None, must_borrow: _MustBorrow
    ) -> None:
        self.children = children
        self.visited = visited
        self.must_borrow = must_borrow
        self.position = 0

    def order(self) -> PreemptionOrder | None:
        """Return a place before which there is no candidate; None if no child is left."""
        children = self.children
        return children[self.position][0].order if self.position < len(children) else None

    def pop(self) -> Node | None:
        """Return the next child; None if it is the visited one."""
        child = self.children[self.position][1]
        self.position += 1
        return None if child is self.visited else child


class _Queue:
    """The candidates of one ClusterQueue."""

    __slots__ = ("_next", "_others", "must_borrow")

    def __init__(self, candidates: Iterator[Candidate], must_borrow: _MustBorrow) -> None:
        self.must_borrow = must_borrow
        self._next = next(candidates, None)
        self._others = candidates

    def order(self) -> PreemptionOrder | None:
        """Return the place of the next candidate; None if there is none."""
        return None if self._next is None else self._next.order

    def pop(self) -> Candidate:
        """Return the next candidate."""
        candidate = self._next
        assert candidate is not None  # noqa: S101 narrows the type: its place is that of a candidate
        self._next = next(self._others, None)
        return candidate


class _Walk:
    """Goes through the candidates of other ClusterQueues at one stage, up to a priority."""

    def __init__(self, search: TargetSearch, index: OrderIndex, stage: Stage, highest: int) -> None:
        self._search = search
        self._index = index
        self._stage = stage
        self._highest = highest

    def in_turn(self, levels: Iterable[_Level]) -> Iterator[Candidate]:
        """Yield candidates in order, each if its ClusterQueue and the cohorts above it borrow at its turn.

        The caller removes each candidate, so that usage falls: what does not borrow has no more turns.
        """
        number = count()
        turns: list[tuple[PreemptionOrder, int, _Listed | _Queue]] = []

        def push(turn: _Listed | _Queue) -> None:
            order = turn.order()
            if order is not None and order.priority <= self._highest:
                heapq.heappush(turns, (order, next(number), turn))

        for level in levels:
            push(_Listed(self._index.children(level.cohort, self._stage), level.visited, ()))
        while turns:
            turn = turns[0][2]
            if _all_borrow(turn.must_borrow):
                if isinstance(turn, _Listed):
                    child = turn.pop()
                    if child is not None:
                        push(self._open(child, turn.must_borrow))
                else:
                    yield turn.pop()
                heapq.heappop(turns)
                push(turn)
            else:
                heapq.heappop(turns)

    def at_once(self, levels: Iterable[_Level]) -> Iterator[Candidate]:
        """As ``in_turn`` where all candidates are removed and all ClusterQueues are children of the levels.

        It takes one sort instead of a turn for each candidate, but goes through all before it yields.
        """
        result: list[Candidate] = []
        for level in levels:
            for key, child in self._index.children(level.cohort, self._stage):
                if key.order.priority > self._highest:
                    break
                if child is not level.visited:
                    result += self._while_borrowing(child)
        result.sort(key=_ORDER)
        return iter(result)

    def are_apart(self, levels: Iterable[_Level]) -> bool:
        """Whether ``at_once`` applies: removing from one ClusterQueue changes nothing for another."""
        return self._search.world.local_queue_usage is None and not any(
            key.is_cohort and child is not level.visited
            for level in levels
            for key, child in self._index.children(level.cohort, self._stage)
        )

    def _open(self, node: Node, above: _MustBorrow) -> _Listed | _Queue:
        """Return the candidates below a listed node."""
        candidates = None if node.is_cohort else self._candidates(node)
        self._index.enter(node)
        must_borrow = (*above, self._search.cells(node))
        if candidates is None:
            return _Listed(self._index.children(node, self._stage), None, must_borrow)
        found = _Queue(candidates, must_borrow)
        if found.order() is None:
            self._index.note_fruitless()
        return found

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        queue = self._search.world.cluster_queues[node.name]
        since = self._index.first(node, self._stage)
        policy = self._search.preemptor.queue.spec.preemption.reclaim_within_cohort
        return self._search.in_stage(self._stage, queue, policy, self._highest, since)

    def _while_borrowing(self, node: Node) -> Iterator[Candidate]:
        """Yield candidates of a ClusterQueue until, without them, it borrows nothing that is contested."""
        self._index.enter(node)
        borrowed = {
            pair: cell.usage - cell.subtree
            for pair in self._search.contested
            if (cell := node.cells.get(pair)) is not None and cell.usage > cell.subtree
        }
        for candidate in self._candidates(node) if borrowed else ():
            yield candidate
            for pair, amount in candidate.holds:
                if pair in borrowed:
                    borrowed[pair] -= amount
                    if borrowed[pair] <= 0:
                        del borrowed[pair]
            if not borrowed:
                return


_ORDER: Final = attrgetter("order")


# --- attempts ---------------------------------------------------------------------------------------


def attempts(
    rule: BorrowWithinCohort, *, below_nominal: bool, elsewhere: bool, reclaim: bool
) -> tuple[bool, ...]:
    """Whether the preemptor may borrow, attempt by attempt.

    Args:
        rule: of the preemptor's ClusterQueue.
        below_nominal: whether that is strictly below its nominal quota in all contested pairs.
        elsewhere: whether there are candidates in other ClusterQueues.
        reclaim: whether there are any with the advantage of the hierarchy.
    """
    never = rule.policy is PreemptionPolicy.NEVER
    if not elsewhere or (never and not below_nominal):
        return (True,)
    return (False, True) if never and not reclaim else (True, False)


def _highest_while_borrowing(search: TargetSearch) -> int:
    """Return the highest priority of candidates without the advantage for a borrowing preemptor."""
    rule = search.preemptor.queue.spec.preemption.borrow_within_cohort
    highest = highest_priority(rule.policy, search.preemptor.workload.priority)
    return highest if rule.max_priority_threshold is None else min(highest, rule.max_priority_threshold)


def _is_below_nominal(search: TargetSearch) -> bool:
    """Whether the preemptor's ClusterQueue is strictly below its nominal quota in all contested pairs."""
    return all(cell.usage < cell.subtree for cell in search.cells(search.preemptor.queue.node))


def has_candidates_in_own_queue_alone(search: TargetSearch, levels: Levels) -> bool:
    """Whether the preemptor must borrow, and may preempt nothing elsewhere while it does."""
    policy = search.preemptor.queue.spec.preemption
    never = policy.borrow_within_cohort.policy is PreemptionPolicy.NEVER
    return never and not levels.far and not _is_below_nominal(search)


def find_in_own_queue(search: TargetSearch) -> list[Candidate]:
    """As ``find``, where only workloads of the preemptor's ClusterQueue are candidates."""
    queue = search.preemptor.queue
    own = search.candidates(queue, queue.spec.preemption.within_cluster_queue)
    is_enough = Room(queue.node, search.usage).is_free
    return _remove_until_enough([(own, True)], is_enough)


def _remove_until_enough(
    groups: Iterable[tuple[Iterator[Candidate], bool]], is_enough: Callable[[], bool]
) -> list[Candidate]:
    """Return the candidates that were removed when that was enough, without those that need not leave.

    Args:
        groups: candidates group by group, and whether removals can be enough from a group on. Before such a
            group ``is_enough`` is not called.
        is_enough: whether what was removed is enough. The usage of all candidates is restored at the end.
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


class _Classical:
    """One search; candidates in other ClusterQueues have at most the ``highest`` priority."""

    def __init__(self, search: TargetSearch, index: OrderIndex, levels: Levels, highest: int) -> None:
        self._search = search
        self._index = index
        self._levels = levels
        self._highest = highest
        self._queue = search.preemptor.queue
        self._room = Room(self._queue.node, search.usage)

    def find(self) -> list[Candidate]:
        """Return the victims of the first attempt that frees enough."""
        spec = self._queue.spec.preemption
        reclaim = self._has_candidates(self._levels.far)
        for may_borrow in attempts(
            spec.borrow_within_cohort,
            below_nominal=_is_below_nominal(self._search),
            elsewhere=reclaim or self._has_candidates(self._levels.near),
            reclaim=reclaim,
        ):
            removed = self._attempt(may_borrow=may_borrow)
            if removed:
                self._give_reasons(removed)
                return removed
        return []

    def _has_candidates(self, levels: Iterable[_Level]) -> bool:
        walks = (_Walk(self._search, self._index, stage, self._highest) for stage in STAGES)
        return any(True for walk in walks for _ in walk.in_turn(levels))

    def _attempt(self, *, may_borrow: bool) -> list[Candidate]:
        is_enough = self._room.is_free if may_borrow else self._room.is_free_within_nominal
        found = estimate_reachability(self._search, self._index, self._room, is_enough)
        if found is Reachability.HOPELESS:
            return []
        return _remove_until_enough(self._groups(found, may_borrow=may_borrow), is_enough)

    def _groups(self, found: Reachability, *, may_borrow: bool) -> Iterator[tuple[Iterator[Candidate], bool]]:
        """Yield candidates group by group, and whether removals can be enough from a group on."""
        search, within = self._search, self._queue.spec.preemption.within_cluster_queue
        far = near = self._highest
        if may_borrow:
            near = min(near, _highest_while_borrowing(search))
        for stage in STAGES:
            for levels, highest in ((self._levels.far, far), (self._levels.near, near)):
                walk = _Walk(search, self._index, stage, highest)
                together = found is Reachability.ONLY_WITH_OWN and walk.are_apart(levels)
                yield walk.at_once(levels) if together else walk.in_turn(levels), found is Reachability.OPEN
            yield search.in_stage(stage, self._queue, within), True

    def _give_reasons(self, victims: Iterable[Candidate]) -> None:
        """Set the reason of each victim that is not in the preemptor's own ClusterQueue."""
        near = {level.cohort for level in self._levels.near}
        above = {*near, *(level.cohort for level in self._levels.far)}
        highest = _highest_while_borrowing(self._search)
        for victim in victims:
            if victim.node is self._queue.node:
                continue
            common = next(cohort for cohort in victim.node.ancestors if cohort in above)
            borrows = common in near and victim.order.priority <= highest
            victim.reason = (
                PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
                if borrows
                else PreemptionReason.IN_COHORT_RECLAMATION
            )


def find(search: TargetSearch, index: OrderIndex, levels: Levels, highest: int) -> list[Candidate]:
    """Return the workloads to preempt, in the order in which the search ends; none if nothing is enough.

    Args:
        search: what the search is for.
        index: of the preemptor's tree.
        levels: those of the search.
        highest: the highest priority of candidates in other ClusterQueues.
    """
    return _Classical(search, index, levels, highest).find()
