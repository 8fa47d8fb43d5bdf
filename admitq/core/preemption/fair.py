"""Fair preemption: the ClusterQueue that has borrowed the most for its weight gives first.

The preemptor counts as if it had been admitted. From the root, the search descends into the child with the
greatest share until it reaches a ClusterQueue, the *target*. It judges the target's next candidate and then
starts from the root again, because shares have changed. Candidates in the preemptor's own ClusterQueue are
accepted without a comparison, and so are all others while that ClusterQueue stays within its nominal quota
(by a gate). Otherwise the strategy compares the two nodes just below the lowest common ancestor. A second
strategy tries rejected candidates once more, one of each ClusterQueue (semantics, Preemption, Fair sharing).

Removing a candidate never raises a share, never makes a node borrow and never makes a first candidate
better. So a target that has no candidates left never returns, and a place in the order that was found earlier
is a lower bound.
"""

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share, share
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.preemption.candidates import STAGES, Candidate, Search, is_borrowing
from admitq.core.preemption.index import ShareIndex, ShareKey, candidate_key, share_key
from admitq.core.preemption.room import Outlook, Room, outlook, restore_unneeded
from admitq.core.quota import Cell
from admitq.core.settings import FairSharing, PreemptionStrategy


class _Strategy(NamedTuple):
    """How the preemptor's share must compare with the target's, before and after it gives the candidate."""

    initial: Callable[[Share, Share], bool]
    final: Callable[[Share, Share], bool]


_STRATEGIES: Final[Mapping[PreemptionStrategy, _Strategy]] = {
    # That the initial share is not less follows; it is compared because it settles a whole ClusterQueue.
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE: _Strategy(operator.le, operator.le),
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE: _Strategy(operator.lt, lambda _preemptor, _final: True),
}

# --- the order of targets ---------------------------------------------------------------------------


class _Sides(NamedTuple):
    """The two nodes just below the lowest common ancestor of preemptor and target."""

    preemptor: Node
    target: Node


class _Target:
    """A ClusterQueue with candidates. For the preemptor's own, both sides are that itself."""

    def __init__(
        self, node: Node, contested: tuple[Cell, ...], sides: _Sides, candidates: Iterator[Candidate]
    ) -> None:
        self.node = node
        self.sides = sides
        self._contested = contested
        self._candidates = candidates
        self._next = next(candidates, None)

    @property
    def is_own(self) -> bool:
        """Whether it is the preemptor's own ClusterQueue."""
        return self.sides.preemptor is self.node

    def place(self) -> ShareKey | None:
        """Its place by present shares; None if it has no candidate, or borrows nothing that is contested."""
        candidate, own = self._next, self.is_own
        if candidate is None or not (own or is_borrowing(self._contested)):
            return None
        is_leaving = candidate.entry.is_leaving
        key = candidate_key(candidate.order, is_leaving=is_leaving, is_own=own)
        return share_key(self.node, share(self.node), key)

    def descend(self) -> "_Target | None":
        """Itself, if it has candidates."""
        return None if self._next is None else self

    def pop(self, reason: PreemptionReason) -> Candidate | None:
        """The next candidate, which would be preempted for this reason."""
        candidate = self._next
        if candidate is not None:
            candidate.reason = reason
            self._next = next(self._candidates, None)
        return candidate

    def drop_candidates(self) -> None:
        """Have no candidates any more."""
        self._next = None


class _Branch:
    """A cohort with its children in the order in which the search descends into them.

    ``listed`` children come by lower bounds of their places. The search opens each when it reaches its bound,
    unless that and all that follow are hopeless.
    """

    def __init__(
        self,
        node: Node,
        contested: tuple[Cell, ...] | None,
        children: Iterable["_Branch | _Target"],
        listed: Iterator[tuple[ShareKey, Node]],
        open_listed: Callable[[Node], "_Branch | _Target"],
        is_hopeless: Callable[[ShareKey], bool],
    ) -> None:
        self._node = node
        self._contested = contested
        self._children: list[tuple[ShareKey, _Branch | _Target]] = []
        self._listed = listed
        self._next = next(listed, None)
        self._open_listed = open_listed
        self._is_hopeless = is_hopeless
        for child in children:
            self._add(child)

    def place(self) -> ShareKey | None:
        """Its place by present shares; None if it borrows nothing and is not on the preemptor's path."""
        if self._contested is not None and not is_borrowing(self._contested):
            return None
        return share_key(self._node, share(self._node))

    def descend(self) -> _Target | None:
        """The target below with the first place; None if no candidate is left below."""
        children = self._children
        while True:
            self._open_reached()
            if not children:
                return None
            place, child = children[0]
            now = child.place()
            if now is not None and now != place:
                heapq.heapreplace(children, (now, child))
                continue
            target = None if now is None else child.descend()
            if target is not None:
                return target
            heapq.heappop(children)

    def _open_reached(self) -> None:
        """Open the listed children that may come before all that are open."""
        children = self._children
        while self._next is not None and not (children and children[0][0] < self._next[0]):
            key, node = self._next
            if self._is_hopeless(key):
                self._next = None
                return
            self._add(self._open_listed(node))
            self._next = next(self._listed, None)

    def _add(self, child: "_Branch | _Target") -> None:
        place = child.place()
        if place is not None:
            heapq.heappush(self._children, (place, child))


class _Targets:
    """Builds the tree of targets: all in the preemptor's tree, or those with a rejected candidate."""

    def __init__(
        self, search: Search, index: ShareIndex, rejected: Mapping[Node, Candidate] | None = None
    ) -> None:
        self._search = search
        self._index = index
        self._own = search.preemptor.queue.node
        self._path: dict[Node, Node] = {}
        below = self._own
        for ancestor in below.ancestors:
            self._path[ancestor] = below
            below = ancestor
        self._rejected = rejected
        self._rejected_below: dict[Node, dict[Node, None]] = {}
        for node in rejected or ():
            at, parent = node, node.parent
            while parent is not None and at not in self._path:
                self._rejected_below.setdefault(parent, {})[at] = None
                at, parent = parent, parent.parent

        self._contested = search.cells(self._own)
        self._needs_no_comparison = search.world.settings.gates.fair_sharing_preempt_within_nominal

    def build(self) -> _Branch | _Target:
        """The targets from the root."""
        root = self._own.root
        return self._branch(root, None) if root.is_cohort else self._own_target()

    def _own_target(self) -> _Target:
        queue = self._search.preemptor.queue
        candidates = self._search.candidates(queue, queue.spec.preemption.within_cluster_queue)
        return _Target(self._own, (), _Sides(self._own, self._own), candidates)

    def _branch(self, cohort: Node, sides: _Sides | None) -> _Branch:
        """A cohort; without sides, on the preemptor's path."""
        return _Branch(
            cohort,
            None if sides is None else self._search.cells(cohort),
            self._children(cohort, sides),
            self._listed(cohort),
            lambda node: self._open(node, sides or _Sides(self._path[cohort], node)),
            self._is_hopeless if self._own.parent is cohort else _is_never_hopeless,
        )

    def _is_hopeless(self, key: ShareKey) -> bool:
        """Whether no strategy accepts anything of a sibling of the preemptor's ClusterQueue, by its share.

        That is so if the preemptor's share is greater. Its ClusterQueue then comes first while it has
        candidates. When a sibling's turn comes, it has none, so that its share does not fall any more.
        """
        if self._needs_no_comparison and not is_borrowing(self._contested):
            return False
        ours = share(self._own)
        return (not ours.infinite, -ours.amount) < (key.finite, key.share_descending)

    def _children(self, cohort: Node, sides: _Sides | None) -> Iterator[_Branch | _Target]:
        """The child on the preemptor's path, and all children with rejected candidates."""
        if sides is None:
            below = self._path[cohort]
            if below is not self._own:
                yield self._branch(below, None)
            elif self._rejected is None:
                yield self._own_target()
        for node in self._rejected_below.get(cohort, ()):
            yield self._open(node, sides or _Sides(self._path[cohort], node))

    def _listed(self, cohort: Node) -> Iterator[tuple[ShareKey, Node]]:
        if self._rejected is None:
            for key, node in self._index.children(cohort):
                if node is not self._path.get(cohort):
                    yield key, node

    def _open(self, node: Node, sides: _Sides) -> _Branch | _Target:
        self._index.enter(node)
        if node.is_cohort:
            return self._branch(node, sides)
        target = _Target(node, self._search.cells(node), sides, self._candidates(node))
        if target.descend() is None:
            self._index.note_fruitless()
        return target

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        if self._rejected is not None:
            yield self._rejected[node]
            return
        queue = self._search.world.cluster_queues[node.name]
        policy = self._search.preemptor.queue.spec.preemption.reclaim_within_cohort
        for stage in STAGES:
            since = self._index.first(node, stage)
            if since is not None:
                yield from self._search.in_stage(stage, queue, policy, since=since)


def _is_never_hopeless(_key: ShareKey) -> bool:
    return False


# --- the search -------------------------------------------------------------------------------------


class _Fair:
    """One search: the removed candidates, and the first rejected one of each ClusterQueue."""

    def __init__(self, search: Search, index: ShareIndex) -> None:
        queue = search.preemptor.queue
        self._search = search
        self._index = index
        self._contested = search.cells(queue.node)
        self._needs_no_comparison = search.world.settings.gates.fair_sharing_preempt_within_nominal
        self._room = Room(queue.node, search.usage)
        self._rejected: dict[Node, Candidate] = {}
        self.removed: list[Candidate] = []

    def make_room(self, fairness: FairSharing) -> bool:
        """Remove candidates until the preemptor fits; whether it does."""
        if outlook(self._search, self._index, self._room, self._room.is_free) is Outlook.HOPELESS:
            return False
        strategies = [_STRATEGIES[name] for name in fairness.preemption_strategies]
        self._room.occupy()
        try:
            found = self._first_run(strategies[0]) or (
                len(strategies) > 1 and self._second_run(strategies[1])
            )
        finally:
            self._room.vacate()
        if found:
            restore_unneeded(self.removed, self._room.is_free)
        return found

    def _first_run(self, strategy: _Strategy) -> bool:
        top = _Targets(self._search, self._index).build()
        while (target := top.descend()) is not None:
            if target.is_own:
                candidate = target.pop(PreemptionReason.IN_CLUSTER_QUEUE)
            elif self._needs_no_comparison and not is_borrowing(self._contested):
                candidate = target.pop(PreemptionReason.IN_COHORT_RECLAMATION)
            else:
                candidate = self._compare(target, strategy)
            if candidate is not None and self._remove(candidate):
                return True
        return False

    def _second_run(self, strategy: _Strategy) -> bool:
        if not self._rejected:
            return False
        top = _Targets(self._search, self._index, dict(self._rejected)).build()
        while (target := top.descend()) is not None:
            candidate = self._compare(target, strategy)
            if candidate is not None and self._remove(candidate):
                return True
        return False

    def _remove(self, candidate: Candidate) -> bool:
        """Remove a candidate; whether the preemptor fits then."""
        candidate.remove()
        self.removed.append(candidate)
        self._room.vacate()
        enough = self._room.is_free()
        self._room.occupy()
        return enough

    def _compare(self, target: _Target, strategy: _Strategy) -> Candidate | None:
        """The target's first candidate that the strategy accepts; those before it are rejected."""
        ours, theirs = (share(node) for node in target.sides)
        settled = not strategy.initial(ours, theirs)
        rejected: set[Usage] = set()
        while (candidate := target.pop(PreemptionReason.IN_COHORT_FAIR_SHARING)) is not None:
            # Candidates with the same usage are judged alike.
            if not settled and candidate.holds not in rejected:
                if strategy.final(ours, _share_without(candidate, target.sides.target)):
                    return candidate
                rejected.add(candidate.holds)
            self._rejected.setdefault(target.node, candidate)
            if settled:
                target.drop_candidates()
        return None


def _share_without(candidate: Candidate, node: Node) -> Share:
    candidate.remove()
    try:
        return share(node)
    finally:
        candidate.restore()


def find(search: Search, index: ShareIndex, fairness: FairSharing) -> list[Candidate]:
    """The workloads to preempt, in the order in which the search ends; none if nothing is enough."""
    fair = _Fair(search, index)
    try:
        return list(fair.removed) if fair.make_room(fairness) else []
    finally:
        for candidate in fair.removed:
            candidate.restore()
