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
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry
from admitq.core.holders import PreemptionOrder
from admitq.core.instructions import PreemptionReason
from admitq.core.model import BorrowWithinCohort
from admitq.core.preemption.candidates import Candidate, Search, in_debt
from admitq.core.preemption.policies import ABOVE_ALL, NEVER, highest_priority
from admitq.core.preemption.room import Room, fill_back
from admitq.core.quota import Cell


class _Source(NamedTuple):
    """A ClusterQueue in which there may be candidates.

    ``debts`` are the contested cells of it and of each cohort below the common ancestor: candidates may be
    taken while each of these nodes is in debt. The preemptor's own ClusterQueue has none to look at.
    """

    queue: ClusterQueueEntry
    debts: tuple[tuple[Cell, ...], ...] = ()


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


def _in_debt_below(
    search: Search, cohort: Node, visited: Node | None, above: tuple[tuple[Cell, ...], ...] = ()
) -> Iterator[_Source]:
    """The ClusterQueues in debt below a cohort that no cohort within its quota stands before.

    Of what was visited before there is nothing below the other children.
    """
    for node in chain(cohort.cluster_queues.values(), cohort.cohorts.values()):
        if node is visited or not in_debt(cells := search.cells(node)):
            continue
        debts = (*above, cells)
        if node.is_cohort:
            yield from _in_debt_below(search, node, None, debts)
        elif (queue := search.active(node)) is not None:
            yield _Source(queue, debts)


class _Sources(NamedTuple):
    """Where candidates are: elsewhere with the advantage, elsewhere without, and in the own ClusterQueue."""

    far: list[_Source]
    near: list[_Source]
    own: list[_Source]


def _find_sources(search: Search) -> _Sources:
    queue = search.preemptor.queue
    sources = _Sources([], [], [_Source(queue)])
    if queue.spec.preemption.reclaim_within_cohort != NEVER:
        for cohort, visited, advantage in levels(search, queue.node):
            into = sources.far if advantage else sources.near
            into.extend(_in_debt_below(search, cohort, visited))
    return sources


def _all_in_debt(debts: Iterable[Iterable[Cell]]) -> bool:
    for cells in debts:
        for cell in cells:
            if cell.usage > cell.subtree:
                break
        else:
            return False
    return True


def _in_turn(streams: Iterable[tuple[_Source, Iterator[Candidate]]]) -> Iterator[Candidate]:
    """Candidates of several ClusterQueues in order, each if its source is in debt when its turn comes.

    Whoever goes through them takes each, so that usage falls: a source out of debt has no more turns.
    """
    turns: list[tuple[PreemptionOrder, int, Candidate, _Source, Iterator[Candidate]]] = []
    for number, (source, stream) in enumerate(streams):
        for candidate in stream:
            turns.append((candidate.order, number, candidate, source, stream))
            break
    heapq.heapify(turns)
    while turns:
        _, number, candidate, source, stream = turns[0]
        following = None
        if _all_in_debt(source.debts):
            yield candidate
            following = next(stream, None)
        if following is None:
            heapq.heappop(turns)
        else:
            heapq.heapreplace(turns, (following.order, number, following, source, stream))


_ORDER: Final = attrgetter("order")


def _at_once(search: Search, streams: Iterable[tuple[_Source, Iterator[Candidate]]]) -> Iterator[Candidate]:
    """As ``_in_turn`` where taking those of one source changes no debts of another, and all are taken.

    It takes one sort instead of a turn for each, but goes through all before the first is taken.
    """
    result: list[Candidate] = []
    for source, stream in streams:
        debts = {
            pair: cell.usage - cell.subtree
            for pair in search.contested
            if (cell := source.queue.node.cells.get(pair)) is not None and cell.usage > cell.subtree
        }
        for candidate in stream if debts else ():
            result.append(candidate)
            for pair, amount in candidate.holds:
                if pair in debts:
                    debts[pair] -= amount
                    if debts[pair] <= 0:
                        del debts[pair]
            if not debts:
                break
    result.sort(key=_ORDER)
    return iter(result)


def _are_apart(search: Search, group: Iterable[_Source]) -> bool:
    """Whether ``_at_once`` may go through these: only their own debts count, and each is in order."""
    return search.world.local_queue_usage is None and all(len(source.debts) == 1 for source in group)


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


def _highest_while_borrowing(search: Search) -> int:
    """The highest priority at which those near may be preempted although the preemptor borrows."""
    rule = search.preemptor.queue.spec.preemption.borrow_within_cohort
    highest = highest_priority(rule.policy, search.preemptor.workload.priority)
    return highest if rule.max_priority_threshold is None else min(highest, rule.max_priority_threshold)


class _Outlook(Enum):
    """What an attempt can come to, as far as is found without going through candidates one by one."""

    HOPELESS = auto()
    """Not even all candidates would be enough."""
    ONLY_WITH_OWN = auto()
    """It takes some of the preemptor's own ClusterQueue, whoever else goes."""
    OPEN = auto()


def _groups(
    search: Search, sources: _Sources, outlook: _Outlook, *, may_borrow: bool
) -> Iterator[tuple[list[_Source], Iterator[Candidate]]]:
    """Candidates as they may be taken, group by group."""
    policy = search.preemptor.queue.spec.preemption
    across, within = policy.reclaim_within_cohort, policy.within_cluster_queue
    near = _highest_while_borrowing(search) if may_borrow else ABOVE_ALL
    for line in (search.leaving, search.staying):
        for group, rule, highest in (
            (sources.far, across, ABOVE_ALL),
            (sources.near, across, near),
            (sources.own, within, ABOVE_ALL),
        ):
            streams = ((source, line(source.queue, rule, highest)) for source in group)
            all_go = outlook is _Outlook.ONLY_WITH_OWN and group is not sources.own
            if all_go and _are_apart(search, group):
                yield group, _at_once(search, streams)
            else:
                yield group, _in_turn(streams)


def _outlook(search: Search, sources: _Sources, room: Room, is_enough: Callable[[], bool]) -> _Outlook:
    """Look what would be, if nothing of what is needed were in use elsewhere where there are candidates."""
    queue = search.preemptor.queue
    used = room.used_at(source.queue.node for source in chain(sources.far, sources.near))
    own: list[Candidate] = []
    for cell, amount in used:
        quota.remove_usage(cell, amount)
    try:
        if is_enough():
            return _Outlook.OPEN
        for candidate in search.candidates(queue, queue.spec.preemption.within_cluster_queue):
            own.append(candidate)
            candidate.take()
        return _Outlook.ONLY_WITH_OWN if is_enough() else _Outlook.HOPELESS
    finally:
        for candidate in own:
            candidate.put_back()
        for cell, amount in used:
            quota.add_usage(cell, amount)


def _attempt(search: Search, sources: _Sources, room: Room, *, may_borrow: bool) -> list[Candidate]:
    is_enough = room.is_free if may_borrow else room.is_free_within_nominal
    outlook = _outlook(search, sources, room, is_enough)
    if outlook is _Outlook.HOPELESS:
        return []
    looks = outlook is _Outlook.OPEN
    taken: list[Candidate] = []
    try:
        for group, candidates in _groups(search, sources, outlook, may_borrow=may_borrow):
            for candidate in candidates:
                taken.append(candidate)
                candidate.take()
                looks = looks or group is sources.own
                if looks and is_enough():
                    fill_back(taken, is_enough)
                    return taken
        return []
    finally:
        for candidate in taken:
            candidate.put_back()


def _give_reasons(search: Search, sources: _Sources, victims: Iterable[Candidate]) -> None:
    """Say why each is preempted who is not in the preemptor's own ClusterQueue."""
    near = {source.queue.node for source in sources.near}
    own = search.preemptor.queue.node
    highest = _highest_while_borrowing(search)
    for victim in victims:
        if victim.node in near and victim.order.priority <= highest:
            victim.reason = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        elif victim.node is not own:
            victim.reason = PreemptionReason.IN_COHORT_RECLAMATION


def find(search: Search) -> list[Candidate]:
    """Whom to preempt, in the order in which the search ends; nobody if nothing suffices."""
    queue = search.preemptor.queue
    across = queue.spec.preemption.reclaim_within_cohort
    sources = _find_sources(search)
    room = Room(queue.node, search.usage)

    def any_in(group: Iterable[_Source]) -> bool:
        return any(True for source in group for _ in search.candidates(source.queue, across))

    reclaim = any_in(sources.far)
    for may_borrow in attempts(
        queue.spec.preemption.borrow_within_cohort,
        below_nominal=all(cell.usage < cell.subtree for cell in search.cells(queue.node)),
        elsewhere=reclaim or any_in(sources.near),
        reclaim=reclaim,
    ):
        taken = _attempt(search, sources, room, may_borrow=may_borrow)
        if taken:
            _give_reasons(search, sources, taken)
            return taken
    return []
