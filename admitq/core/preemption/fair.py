"""Preemption by shares: whoever has borrowed the most for its weight gives first.

The preemptor counts as if it had been admitted. From the root one goes down into the child with the
greatest share, until a ClusterQueue is reached, the *target*: its next candidate is judged, and then one
starts from the root again, because shares have changed. In the preemptor's own ClusterQueue, and while that
stays within its nominal quota, candidates are taken unasked; else the two nodes just below the lowest
common ancestor are compared, as the strategy says. A second strategy gives those another chance who were
rejected, one of each ClusterQueue (semantics, Preemption, Fair sharing).

Taking somebody never raises a share, never makes a node borrow and never makes a first candidate better:
so who is out stays out, and a place in the order that was looked up earlier can only have become worse.
"""

import heapq
import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry
from admitq.core.fair_sharing import Share, share
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.preemption.candidates import Candidate, Search, in_debt
from admitq.core.preemption.room import Room, fill_back
from admitq.core.quota import Cell
from admitq.core.settings import FairSharing, PreemptionStrategy


class _Strategy(NamedTuple):
    """How the preemptor's share must compare with the target's, before and after it gives the candidate."""

    initial: Callable[[Share, Share], bool]
    final: Callable[[Share, Share], bool]


_STRATEGIES: Final[Mapping[PreemptionStrategy, _Strategy]] = {
    # That the initial share is not less follows; it is asked because it settles a whole ClusterQueue.
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE: _Strategy(operator.le, operator.le),
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE: _Strategy(operator.lt, lambda _preemptor, _final: True),
}

# --- the order of targets ---------------------------------------------------------------------------


class _Sides(NamedTuple):
    """The two nodes just below the lowest common ancestor of preemptor and target."""

    preemptor: Node
    target: Node


class _Place(NamedTuple):
    """Place among the children of a cohort: greater share, cohort before ClusterQueue, better candidate."""

    finite: bool
    share_descending: Fraction
    candidate: tuple[object, ...]
    name: str


def _place(node: Node, candidate: tuple[object, ...] = ()) -> _Place:
    taken = share(node)
    return _Place(not taken.infinite, -taken.amount, candidate, node.name)


class _Target:
    """A ClusterQueue with candidates. For the preemptor's own, both sides are that itself."""

    def __init__(
        self, node: Node, debts: tuple[Cell, ...], sides: _Sides, candidates: Iterator[Candidate]
    ) -> None:
        self.node = node
        self.sides = sides
        self._debts = debts
        self._candidates = candidates
        self._next = next(candidates, None)

    @property
    def is_own(self) -> bool:
        """Whether it is the preemptor's own ClusterQueue."""
        return self.sides.preemptor is self.node

    def place(self) -> _Place | None:
        """Its place as shares are now; none if it has nobody, or nothing borrowed, to give."""
        candidate, own = self._next, self.is_own
        if candidate is None or not (own or in_debt(self._debts)):
            return None
        return _place(self.node, (not candidate.entry.is_leaving, own, candidate.order))

    def descend(self) -> "_Target | None":
        """Itself, if it has candidates."""
        return None if self._next is None else self

    def pop(self, reason: PreemptionReason) -> Candidate | None:
        """The next candidate, to be preempted for this reason if at all."""
        candidate = self._next
        if candidate is not None:
            candidate.reason = reason
            self._next = next(self._candidates, None)
        return candidate

    def leave(self) -> None:
        """Have no candidates any more."""
        self._next = None


class _Branch:
    """A cohort with its children in the order in which they are descended into."""

    def __init__(
        self, node: Node, debts: tuple[Cell, ...] | None, children: Iterator["_Branch | _Target"]
    ) -> None:
        self._node = node
        self._debts = debts
        self._children = [(place, child) for child in children if (place := child.place()) is not None]
        heapq.heapify(self._children)

    def place(self) -> _Place | None:
        """Its place as shares are now; none if it borrows nothing and is not on the preemptor's path."""
        if self._debts is not None and not in_debt(self._debts):
            return None
        return _place(self._node)

    def descend(self) -> _Target | None:
        """The target below with the first place; none if there is no candidate below any more."""
        children = self._children
        while children:
            place, child = children[0]
            now = child.place()
            if now is not None and now != place:
                heapq.heapreplace(children, (now, child))
                continue
            target = None if now is None else child.descend()
            if target is not None:
                return target
            heapq.heappop(children)
        return None


class _Targets:
    """Lays out the tree of targets."""

    def __init__(
        self, search: Search, candidates: Callable[[ClusterQueueEntry], Iterator[Candidate]]
    ) -> None:
        self._search = search
        self._candidates = candidates
        self._own = search.preemptor.queue.node
        self._path: dict[Node, Node] = {}
        below = self._own
        for ancestor in below.ancestors:
            self._path[ancestor] = below
            below = ancestor

    def lay_out(self) -> _Branch | _Target:
        """The targets in the preemptor's tree, from the root."""
        root = self._own.root
        return self._branch(root, None) if root.is_cohort else self._own_target()

    def _own_target(self) -> _Target:
        candidates = self._candidates(self._search.preemptor.queue)
        return _Target(self._own, (), _Sides(self._own, self._own), candidates)

    def _branch(self, cohort: Node, sides: _Sides | None) -> _Branch:
        """A cohort; without sides, on the preemptor's path."""
        debts = None if sides is None else self._search.cells(cohort)
        return _Branch(cohort, debts, self._children(cohort, sides))

    def _children(self, cohort: Node, above: _Sides | None) -> Iterator[_Branch | _Target]:
        for node in chain(cohort.cohorts.values(), cohort.cluster_queues.values()):
            if node is self._own:
                yield self._own_target()
            elif node in self._path:
                yield self._branch(node, None)
            elif in_debt(debts := self._search.cells(node)):
                sides = _Sides(self._path[cohort], node) if above is None else above
                if node.is_cohort:
                    yield self._branch(node, sides)
                elif (queue := self._search.active(node)) is not None:
                    yield _Target(node, debts, sides, self._candidates(queue))


# --- the search -------------------------------------------------------------------------------------


class _Fair:
    """One search: who was taken, and the first of each ClusterQueue who was rejected."""

    def __init__(self, search: Search) -> None:
        queue = search.preemptor.queue
        self._search = search
        self._contested = search.cells(queue.node)
        self._unasked = search.world.settings.gates.fair_sharing_preempt_within_nominal
        self._room = Room(queue.node, search.usage)
        self._rejected: dict[Node, Candidate] = {}
        self.taken: list[Candidate] = []

    def make_room(self, fairness: FairSharing) -> bool:
        """Take candidates until there is room for the preemptor; whether there is."""
        strategies = [_STRATEGIES[name] for name in fairness.preemption_strategies]
        self._room.occupy()
        try:
            found = self._first_run(strategies[0]) or (
                len(strategies) > 1 and self._second_run(strategies[1])
            )
        finally:
            self._room.vacate()
        if found:
            fill_back(self.taken, self._room.is_free)
        return found

    def _first_run(self, strategy: _Strategy) -> bool:
        top = _Targets(self._search, self._all_candidates).lay_out()
        while (target := top.descend()) is not None:
            if target.is_own:
                candidate = target.pop(PreemptionReason.IN_CLUSTER_QUEUE)
            elif self._unasked and not in_debt(self._contested):
                candidate = target.pop(PreemptionReason.IN_COHORT_RECLAMATION)
            else:
                candidate = self._compare(target, strategy)
            if candidate is not None and self._take(candidate):
                return True
        return False

    def _second_run(self, strategy: _Strategy) -> bool:
        rejected = self._rejected
        top = _Targets(self._search, lambda queue: _one(rejected.get(queue.node))).lay_out()
        while (target := top.descend()) is not None:
            candidate = self._compare(target, strategy)
            if candidate is not None and self._take(candidate):
                return True
        return False

    def _all_candidates(self, queue: ClusterQueueEntry) -> Iterator[Candidate]:
        own = self._search.preemptor.queue
        policies = own.spec.preemption
        policy = policies.within_cluster_queue if queue is own else policies.reclaim_within_cohort
        return self._search.candidates(queue, policy)

    def _take(self, candidate: Candidate) -> bool:
        """Take a candidate; whether there is room then."""
        candidate.take()
        self.taken.append(candidate)
        self._room.vacate()
        enough = self._room.is_free()
        self._room.occupy()
        return enough

    def _compare(self, target: _Target, strategy: _Strategy) -> Candidate | None:
        """The target's first candidate that the strategy lets go; those before it are rejected."""
        ours, theirs = (share(node) for node in target.sides)
        settled = not strategy.initial(ours, theirs)
        rejected: set[Usage] = set()
        while (candidate := target.pop(PreemptionReason.IN_COHORT_FAIR_SHARING)) is not None:
            # Who holds the same is judged the same.
            if not settled and candidate.holds not in rejected:
                if strategy.final(ours, _share_without(candidate, target.sides.target)):
                    return candidate
                rejected.add(candidate.holds)
            self._rejected.setdefault(target.node, candidate)
            if settled:
                target.leave()
        return None


def _share_without(candidate: Candidate, node: Node) -> Share:
    candidate.take()
    try:
        return share(node)
    finally:
        candidate.put_back()


def _one(candidate: Candidate | None) -> Iterator[Candidate]:
    return iter(() if candidate is None else (candidate,))


def find(search: Search, fairness: FairSharing) -> list[Candidate]:
    """Whom to preempt, in the order in which the search ends; nobody if nothing suffices."""
    fair = _Fair(search)
    try:
        return list(fair.taken) if fair.make_room(fairness) else []
    finally:
        for candidate in fair.taken:
            candidate.put_back()
