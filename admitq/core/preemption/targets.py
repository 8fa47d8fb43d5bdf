"""The order in which a fair search reaches candidates: the target queues of a cohort tree.

A *target queue* (class ``Target``) is a ClusterQueue with candidates. The *path* leads from the root to the
preemptor's ClusterQueue. A child of a cohort is *listed* while only its sort key in the index is known, which
is a lower bound. The search *opens* the child when it reaches it. From then on, its sort key depends on
present shares.

The search passes over a listed child if it would accept none of its candidates at present. To open such a
child would only reject all its candidates. Rejected candidates must stay rejected when shares change. So a
child that was passed over must not be accepted later. The search skips it in time:

- A child of a cohort on the path is compared with the child on the path. It is skipped when the search
  descends the path: the removal of a candidate there lowers the share of the preemptor's side.
- Below a cohort off the path, the share of this cohort, or of a cohort above it, is compared. Children that
  were passed over are skipped when the search finds a target in the cohort. When the search is there again,
  both shares may have fallen.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share, share, supposed_share
from admitq.core.instructions import PreemptionReason
from admitq.core.preemption.bounds import FinalBounds
from admitq.core.preemption.candidates import STAGES, Candidate, TargetSearch, is_borrowing
from admitq.core.preemption.index import Amounts
from admitq.core.preemption.policies import equals_must_be_newer
from admitq.core.preemption.sort_keys import ShareKey, candidate_key, share_from_key, share_key
from admitq.core.quota import Cell


class Strategy(NamedTuple):
    """How the preemptor's share must compare with the target's."""

    compare: Callable[[Share, Share], bool]
    by_final: bool
    """Whether the share of the target without the candidate counts, or else its present share."""

    def accepts(self, preemptor_share: Share) -> Callable[[Share], bool]:
        """Return the condition for the share of a target, given the share of the preemptor."""
        return partial(self.compare, preemptor_share)


class _Sides(NamedTuple):
    """The two nodes just below the lowest common ancestor of preemptor and target."""

    preemptor: Node
    target: Node


class Target:
    """A ClusterQueue with candidates. For the preemptor's own ClusterQueue, both sides are that node."""

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

    def sort_key(self) -> ShareKey | None:
        """Return the sort key by present shares; None without candidate or borrowing."""
        candidate, is_own = self._next, self.is_own
        if candidate is None or not (is_own or is_borrowing(self._contested)):
            return None
        is_leaving = candidate.entry.is_leaving
        key = candidate_key(candidate.order, is_leaving=is_leaving, is_own=is_own)
        return share_key(self.node, share(self.node), key)

    def descend(self) -> "Target | None":
        """Return this target; None if it has no candidate."""
        return None if self._next is None else self

    def pop(self, reason: PreemptionReason) -> Candidate | None:
        """Remove and return the next candidate, with this reason."""
        candidate = self._next
        if candidate is not None:
            candidate.reason = reason
            self._next = next(self._candidates, None)
        return candidate

    def drop_candidates(self) -> None:
        """Drop the remaining candidates."""
        self._next = None


class _ListedByShare:
    """The listed children of a cohort, in the order of the index.

    Args:
        children: the list of the index.
        excluded: the children that are open from the beginning.
        find_acceptable: returns the sort key of the first child, from a sort key on, with a candidate that
            the search may accept at present.
    """

    def __init__(
        self,
        children: list[tuple[ShareKey, Node]],
        excluded: Container[Node],
        find_acceptable: Callable[[ShareKey], ShareKey | None],
    ) -> None:
        self._children = children
        self._excluded = excluded
        self._find_acceptable = find_acceptable
        self._position = 0

    def pop(self, before: ShareKey | None) -> Node | None:
        """Return the next child with a candidate that may be accepted; None if it is after this sort key."""
        children = self._children
        while self._position < len(children):
            key, node = children[self._position]
            if before is not None and before < key:
                return None
            if node in self._excluded:
                self._position += 1
                continue
            acceptable = self._find_acceptable(key)
            if acceptable is None or (before is not None and before < acceptable):
                return None
            if acceptable == key:
                self._position += 1
                return node
            self._position = bisect_left(children, (acceptable,))
        return None

    def pop_equals(self, key: ShareKey) -> list[Node]:
        """Return all children before this key with the same share, also without acceptable candidates."""
        children = self._children
        start = bisect_left(children, (key[:2],), self._position)
        self._position = bisect_left(children, (key,))
        return [node for _, node in children[start : self._position] if node not in self._excluded]

    def skip(self, key: ShareKey) -> None:
        """Skip all children before a sort key: their candidates count as rejected."""
        self._position = bisect_left(self._children, (key,), self._position)


class _Branch:
    """A cohort with its children in the order in which the search descends into them.

    Args:
        node: the cohort.
        contested: its cells of the contested pairs. None for a cohort on the path, which need not borrow.
        below: the child on the path; None if it has no candidates, or if the cohort is off the path.
        listed: its listed children.
        open_listed: opens a listed child.
    """

    def __init__(
        self,
        node: Node,
        contested: tuple[Cell, ...] | None,
        child_on_path: "_Branch | Target | None",
        listed: _ListedByShare,
        open_listed: Callable[[Node], "_Branch | Target"],
    ) -> None:
        self._node = node
        self._contested = contested
        self._children: list[tuple[ShareKey, _Branch | Target]] = []
        self._child_on_path = child_on_path
        self._listed = listed
        self._open_listed = open_listed
        if child_on_path is not None:
            self.add(child_on_path)

    def sort_key(self) -> ShareKey | None:
        """Return the sort key by present shares; None if the cohort is off the path and does not borrow."""
        if self._contested is not None and not is_borrowing(self._contested):
            return None
        return share_key(self._node, share(self._node))

    def descend(self) -> Target | None:
        """Return the first target below the cohort; None if no candidate is left below."""
        children = self._children
        while True:
            self._open_listed_children()
            if not children:
                return None
            key, child = children[0]
            present_key = child.sort_key()
            if present_key is not None and present_key != key:
                heapq.heapreplace(children, (present_key, child))
                continue
            target = None if present_key is None else child.descend()
            if target is None:
                heapq.heappop(children)
                continue
            descends_path = child is self._child_on_path
            if descends_path and self._open_equals(key):
                continue
            if descends_path or self._contested is not None:
                self._listed.skip(key)
            return target

    def add(self, child: "_Branch | Target") -> None:
        """Add an open child, unless it has no sort key."""
        key = child.sort_key()
        if key is not None:
            heapq.heappush(self._children, (key, child))

    def _open_listed_children(self) -> None:
        """Open the listed children that may come before all open children."""
        children = self._children
        while (node := self._listed.pop(children[0][0] if children else None)) is not None:
            self.add(self._open_listed(node))

    def _open_equals(self, key: ShareKey) -> bool:
        """Open listed children that may come after the preemptor's own ClusterQueue with this sort key.

        These children have the same share, and the index lists them before the own ClusterQueue, because
        their first candidates are leaving. But these first candidates may not be candidates of this
        preemptor. The other candidates of these children come after candidates of the own ClusterQueue that
        are leaving. If no candidate of the own ClusterQueue is leaving, all other children with the same
        share come before it.

        Returns:
            Whether a child was opened.
        """
        is_own_leaving = key.candidate[:1] == (False,)
        equals = self._listed.pop_equals(key) if is_own_leaving else []
        for node in equals:
            self.add(self._open_listed(node))
        return bool(equals)


class FirstRun(NamedTuple):
    """Results of the run with the first strategy. The run with the second strategy needs them."""

    opened: Mapping[Node, list[Node]]
    """The children that were opened, by cohort. All candidates of other children were rejected."""
    rejected: Mapping[Node, Candidate]
    """The first rejected candidate of each ClusterQueue that was opened."""


class Targets:
    """Builds the tree of targets for one run of a search.

    Args:
        search: the input of the search.
        bounds: the index of the preemptor's tree, with bounds.
        strategy: decides which candidates this run accepts.
        first_run: the results of the first run, if this is the second run.
    """

    def __init__(
        self, search: TargetSearch, bounds: FinalBounds, strategy: Strategy, first_run: FirstRun | None = None
    ) -> None:
        self._search = search
        self._index = bounds.index
        self._bounds = bounds
        self._strategy = strategy
        self._first_run = first_run
        self._own = search.preemptor.queue.node
        self._contested = search.cells(self._own)
        policy = search.preemptor.queue.spec.preemption.reclaim_within_cohort
        self._has_exact_places = search.world.local_queue_usage is None and not (
            equals_must_be_newer(policy) and bounds.index.highest == search.preemptor.workload.priority
        )
        """Whether sort keys are exact: the first candidates in the index are those of this preemptor."""
        self._compares_always = (
            first_run is not None or not search.world.settings.gates.fair_sharing_preempt_within_nominal
        )
        self._path: dict[Node, Node] = {}
        child = self._own
        for ancestor in child.ancestors:
            self._path[ancestor] = child
            child = ancestor
        self.opened: dict[Node, list[Node]] = {}
        """The children that were opened in this run, by cohort."""

    def build(self) -> _Branch | Target:
        """Return the tree of targets, from the root."""
        root = self._own.root
        return self._branch(root, None) if root.is_cohort else self._own_target()

    def compares_shares(self) -> bool:
        """Whether shares decide now. By a gate, they do not while the preemptor's queue is within quota."""
        return self._compares_always or is_borrowing(self._contested)

    def _own_target(self) -> Target:
        queue = self._search.preemptor.queue
        candidates = self._search.candidates(queue, queue.spec.preemption.within_cluster_queue)
        return Target(self._own, (), _Sides(self._own, self._own), candidates)

    def _branch(self, cohort: Node, sides: _Sides | None) -> _Branch:
        """Return the branch of a cohort. Without ``sides``, the cohort is on the path."""
        child_on_path = self._path.get(cohort)
        opened = () if self._first_run is None else self._first_run.opened.get(cohort, ())
        branch = _Branch(
            cohort,
            None if sides is None else self._search.cells(cohort),
            self._child_on_path(child_on_path),
            _ListedByShare(
                self._index.children(cohort),
                {child_on_path, *opened},
                partial(self._find_on_path, cohort)
                if sides is None
                else partial(self._find_off_path, sides, cohort),
            ),
            partial(self._open, sides),
        )
        for node in opened:
            branch.add(self._open(sides, node))
        return branch

    def _child_on_path(self, node: Node | None) -> _Branch | Target | None:
        """Return the child on the path. In a second run, its own candidates are removed already."""
        if node is None:
            return None
        if node is not self._own:
            return self._branch(node, None)
        return self._own_target() if self._first_run is None else None

    def _find_on_path(self, cohort: Node, first_key: ShareKey) -> ShareKey | None:
        """Return the key of the first child of a cohort on the path with a candidate that may be accepted.

        Such a child is compared with the child on the path. The usage of the latter differs from the index.
        """
        if not self.compares_shares():
            return first_key
        child_on_path = self._path[cohort]
        is_enough = self._strategy.accepts(share(child_on_path))
        if not self._strategy.by_final:
            return first_key if is_enough(share_from_key(first_key)) else None
        return self._bounds.next_by_final_share(cohort, first_key, is_enough, child_on_path)

    def _find_off_path(self, sides: _Sides, cohort: Node, first_key: ShareKey) -> ShareKey | None:
        """Return the same for a cohort off the path. The compared side is this cohort, or a cohort above it.

        If sort keys of the index are not exact, a child that was passed over could be skipped although it
        comes later. In this case, the search passes over all children or none, so that the order does not
        matter.
        """
        if not self.compares_shares():
            return first_key
        bounds, target = self._bounds, sides.target
        is_enough = self._strategy.accepts(share(sides.preemptor))
        if not self._strategy.by_final:
            return first_key if is_enough(share(target)) else None

        def are_small(amounts: Amounts) -> bool:
            """Whether the share of the side is sufficient if the cohort's usage falls by these amounts."""
            node = cohort
            while node is not target:
                amounts = bounds.amounts_at_parent(node, amounts)
                assert node.parent is not None  # noqa: S101 narrows the type: it is below the side
                node = node.parent
            usage = {cell: cell.usage - amounts.get(pair, 0) for pair, cell in target.cells.items()}
            return is_enough(supposed_share(target, usage))

        if self._has_exact_places:
            return bounds.next_by_amounts(cohort, first_key, are_small)
        return first_key if are_small(bounds.least_amounts(cohort)) else None

    def _open(self, sides: _Sides | None, node: Node) -> _Branch | Target:
        assert node.parent is not None  # noqa: S101 narrows the type: it is the child of a cohort
        if sides is None:
            sides = _Sides(self._path[node.parent], node)
        self.opened.setdefault(node.parent, []).append(node)
        self._index.write_usage_to_cells(node)
        if node.is_cohort:
            return self._branch(node, sides)
        target = Target(node, self._search.cells(node), sides, self._candidates(node))
        if target.descend() is None:
            self._index.record_queue_without_candidate()
        return target

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        """Return all candidates of a ClusterQueue; in a second run, only its first rejected candidate."""
        first_run = self._first_run
        if first_run is None:
            return self._listed_candidates(node)
        assert node.parent is not None  # noqa: S101 narrows the type: it is the child of a cohort
        if node in first_run.opened.get(node.parent, ()):
            return iter([first_run.rejected[node]] if node in first_run.rejected else [])
        return islice(self._listed_candidates(node), 1)

    def _listed_candidates(self, node: Node) -> Iterator[Candidate]:
        queue = self._search.world.cluster_queues[node.name]
        policy = self._search.preemptor.queue.spec.preemption.reclaim_within_cohort
        for stage in STAGES:
            first_key = self._index.first_order(node, stage)
            if first_key is not None:
                yield from self._search.in_stage(stage, queue, policy, first_key=first_key)
