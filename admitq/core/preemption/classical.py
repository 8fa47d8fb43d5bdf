"""Preemption by quota: take back what was lent, then what priority lets.

*Reclaiming* goes from the preemptor's cohort to the root. Once what is asked for fits within the quota of
the ClusterQueue or of a cohort that was passed, everything borrowed further away may be reclaimed: the
preemptor has the *advantage* of the hierarchy. Without it, ``borrowWithinCohort`` decides who of lower
priority may be preempted even though the preemptor then borrows.

Hence two kinds of attempt: in one the preemptor may borrow, in the other it may not. The first that makes
room counts (semantics, Preemption, Classical).
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from admitq.core.cohorts import Node
from admitq.core.holders import PreemptionOrder
from admitq.core.instructions import PreemptionReason
from admitq.core.model import BorrowWithinCohort
from admitq.core.preemption.candidates import Candidate, Search, in_debt
from admitq.core.preemption.policies import NEVER
from admitq.core.preemption.room import Room, fill_back
from admitq.core.quota import Cell
from admitq.core.world import ClusterQueueEntry


class _Source(NamedTuple):
    """A ClusterQueue in which there may be candidates.

    ``debts`` are the contested cells of it and of each cohort below the common ancestor: candidates may be
    taken while each of these nodes is in debt. The preemptor's own ClusterQueue has none to look at.
    """

    queue: ClusterQueueEntry
    debts: tuple[tuple[Cell, ...], ...] = ()


class _Option(NamedTuple):
    """A candidate, whose debts allow to take it, and whether it may be while the preemptor borrows."""

    candidate: Candidate
    debts: tuple[tuple[Cell, ...], ...]
    while_borrowing: bool


class _Options:
    """Options in order, looked for one by one and only once, however often they are gone through."""

    def __init__(self, streams: Iterable[Iterator[_Option]]) -> None:
        self._found: list[_Option] = []
        self._rest = heapq.merge(*streams, key=_order)

    def __iter__(self) -> Iterator[_Option]:
        yield from self._found
        for option in self._rest:
            self._found.append(option)
            yield option

    def __bool__(self) -> bool:
        """Whether there is any."""
        return next(iter(self), None) is not None


def _order(option: _Option) -> PreemptionOrder:
    return option.candidate.order


# --- where candidates are ---------------------------------------------------------------------------


def levels(search: Search, node: Node) -> Iterator[tuple[Node, Node, bool]]:
    """Each cohort above the node, what of it was visited before, and whether there is the advantage."""
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


def _sources(
    search: Search, cohort: Node, visited: Node, above: tuple[tuple[Cell, ...], ...] = ()
) -> Iterator[_Source]:
    """The ClusterQueues in debt below a cohort that no cohort within its quota stands before."""
    for node in chain(cohort.cluster_queues.values(), cohort.cohorts.values()):
        if node is visited or not in_debt(cells := search.cells(node)):
            continue
        debts = (*above, cells)
        if node.is_cohort:
            yield from _sources(search, node, visited, debts)
        elif (queue := search.active(node)) is not None:
            yield _Source(queue, debts)


# --- on which terms ---------------------------------------------------------------------------------


class _Terms(NamedTuple):
    """For what reason a candidate may be preempted, and whether the preemptor may borrow then."""

    reason: PreemptionReason
    while_borrowing: bool


_OWN: Final = _Terms(PreemptionReason.IN_CLUSTER_QUEUE, while_borrowing=True)
_WITH_ADVANTAGE: Final = _Terms(PreemptionReason.IN_COHORT_RECLAMATION, while_borrowing=True)
_WITHOUT_BORROWING: Final = _Terms(PreemptionReason.IN_COHORT_RECLAMATION, while_borrowing=False)
_WHILE_BORROWING: Final = _Terms(PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING, while_borrowing=True)


def _without_advantage(rule: BorrowWithinCohort, preemptor: int, candidate: int) -> _Terms:
    """The terms for a candidate elsewhere by the two priorities."""
    threshold = rule.max_priority_threshold
    if rule.policy == NEVER or candidate >= preemptor or (threshold is not None and candidate > threshold):
        return _WITHOUT_BORROWING
    return _WHILE_BORROWING


class _Group(NamedTuple):
    """Candidates that stand together in the order."""

    sources: list[_Source]
    policy: str
    terms: Callable[[Candidate], _Terms]

    def options(self, candidates: Callable[[ClusterQueueEntry, str], Iterator[Candidate]]) -> _Options:
        """Its options among these candidates of a ClusterQueue by a policy."""
        return _Options(self._of(source, candidates(source.queue, self.policy)) for source in self.sources)

    def _of(self, source: _Source, candidates: Iterator[Candidate]) -> Iterator[_Option]:
        for candidate in candidates:
            candidate.reason, while_borrowing = self.terms(candidate)
            yield _Option(candidate, source.debts, while_borrowing)


def _groups(search: Search) -> tuple[_Group, _Group, _Group]:
    """The groups of candidates: reclaimed with the advantage, without it, and the preemptor's own."""
    queue, priority = search.preemptor.queue, search.preemptor.workload.priority
    policy = queue.spec.preemption
    far: list[_Source] = []
    near: list[_Source] = []
    if policy.reclaim_within_cohort != NEVER:
        for cohort, visited, advantage in levels(search, queue.node):
            (far if advantage else near).extend(_sources(search, cohort, visited))
    return (
        _Group(far, policy.reclaim_within_cohort, lambda _: _WITH_ADVANTAGE),
        _Group(
            near,
            policy.reclaim_within_cohort,
            lambda candidate: _without_advantage(
                policy.borrow_within_cohort, priority, candidate.order.priority
            ),
        ),
        _Group([_Source(queue)], policy.within_cluster_queue, lambda _: _OWN),
    )


# --- attempts ---------------------------------------------------------------------------------------


def attempts(
    rule: BorrowWithinCohort, *, below_nominal: bool, elsewhere: bool, reclaim: bool
) -> tuple[bool, ...]:
    """Whether the preemptor may borrow, attempt by attempt.

    Args:
        rule: of the preemptor's ClusterQueue.
        below_nominal: whether that is strictly below its nominal quota in all that is contested.
        elsewhere: whether there are candidates in other ClusterQueues.
        reclaim: whether there are any with the advantage of the hierarchy.
    """
    never = rule.policy == NEVER
    if not elsewhere or (never and not below_nominal):
        return (True,)
    return (False, True) if never and not reclaim else (True, False)


def _attempt(options: Iterable[_Option], room: Room, *, may_borrow: bool) -> list[Candidate]:
    if not may_borrow and room.exceeds_nominal():
        return []
    is_enough = room.is_free if may_borrow else room.is_free_within_nominal
    taken: list[Candidate] = []
    try:
        for candidate, debts, while_borrowing in options:
            if (while_borrowing or not may_borrow) and all(map(in_debt, debts)):
                taken.append(candidate)
                candidate.take()
                if is_enough():
                    fill_back(taken, is_enough)
                    return taken
        return []
    finally:
        for candidate in taken:
            candidate.put_back()


def find(search: Search) -> list[Candidate]:
    """Whom to preempt, in the order in which the search ends; nobody if nothing suffices."""
    queue = search.preemptor.queue
    room = Room(queue.node, search.usage)
    groups = _groups(search)
    far, near, own = (group.options(search.leaving) for group in groups)
    far_staying, near_staying, own_staying = (group.options(search.staying) for group in groups)
    reclaim = bool(far or far_staying)
    for may_borrow in attempts(
        queue.spec.preemption.borrow_within_cohort,
        below_nominal=all(cell.usage < cell.subtree for cell in search.cells(queue.node)),
        elsewhere=reclaim or bool(near or near_staying),
        reclaim=reclaim,
    ):
        options = chain(far, near, own, far_staying, near_staying, own_staying)
        taken = _attempt(options, room, may_borrow=may_borrow)
        if taken:
            return taken
    return []
