"""Fair preemption: candidates of the ClusterQueue with the greatest share are tried first.

During a search, the preemptor counts as if it had been admitted. The search descends from the root into the
child with the greatest share until it reaches a ClusterQueue, the *target queue*. It evaluates the next
candidate of this ClusterQueue. Then it starts from the root again, because shares have changed.

Candidates in the preemptor's own ClusterQueue are accepted without a comparison. With a gate, so are all
others while this ClusterQueue is within its nominal quota. Otherwise the strategy compares the two nodes just
below the lowest common ancestor. A second strategy tries rejected candidates again, one of each ClusterQueue
(semantics, Preemption, Fair sharing).

The removal of a candidate never raises a share, never makes a node borrow, and never improves a first
candidate. So a ClusterQueue without candidates never gets new ones, and an earlier sort key is a lower bound.
"""

import operator
from collections.abc import Mapping
from typing import Final

from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share, share
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.preemption.bounds import FinalBounds
from admitq.core.preemption.candidates import Candidate, TargetSearch
from admitq.core.preemption.capacity import (
    Reachability,
    RequestedCapacity,
    drop_unneeded,
    estimate_reachability,
)
from admitq.core.preemption.targets import FirstRun, Strategy, Target, Targets
from admitq.core.settings import FairSharing, PreemptionStrategy

_STRATEGIES: Final[Mapping[PreemptionStrategy, Strategy]] = {
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE: Strategy(operator.le, by_final=True),
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE: Strategy(operator.lt, by_final=False),
}


class _FairSearch:
    """One search: the removed candidates, and the first rejected one of each ClusterQueue."""

    def __init__(self, search: TargetSearch, bounds: FinalBounds) -> None:
        self._search = search
        self._bounds = bounds
        self._capacity = RequestedCapacity(search.preemptor.queue.node, search.usage, search.has_room)
        self._rejected: dict[Node, Candidate] = {}
        self.removed: list[Candidate] = []

    def free_capacity(self, fairness: FairSharing) -> bool:
        """Remove candidates until the preemptor fits. Return whether it fits."""
        if (
            estimate_reachability(
                self._search, self._bounds.index, self._capacity, self._capacity.is_quota_available
            )
            is Reachability.IMPOSSIBLE
        ):
            return False
        first, *second = [_STRATEGIES[name] for name in fairness.preemption_strategies]
        targets = Targets(self._search, self._bounds, first)
        self._capacity.add_to_usage()
        try:
            fits = self._run(targets, first)
            for strategy in second if not fits else ():
                first_run = FirstRun(targets.opened, dict(self._rejected))
                fits = self._run(Targets(self._search, self._bounds, strategy, first_run), strategy)
        finally:
            self._capacity.remove_from_usage()
        if fits:
            drop_unneeded(self.removed, self._capacity.is_available)
        return fits

    def _run(self, targets: Targets, strategy: Strategy) -> bool:
        """Remove candidates that a strategy accepts until the preemptor fits. Return whether it fits."""
        root = targets.build()
        while (target := root.descend()) is not None:
            if target.is_own:
                candidate = target.pop(PreemptionReason.IN_CLUSTER_QUEUE)
            elif targets.compares_shares():
                candidate = self._compare(target, strategy)
            else:
                candidate = target.pop(PreemptionReason.IN_COHORT_RECLAMATION)
            if candidate is not None and self._remove(candidate):
                return True
        return False

    def _remove(self, candidate: Candidate) -> bool:
        """Remove a candidate. Return whether the preemptor fits then."""
        candidate.remove()
        self.removed.append(candidate)
        self._capacity.remove_from_usage()
        fits = self._capacity.is_available()
        self._capacity.add_to_usage()
        return fits

    def _compare(self, target: Target, strategy: Strategy) -> Candidate | None:
        """Return the first candidate of a target that the strategy accepts. Reject those before it."""
        target_side = target.sides.target
        is_enough = strategy.accepts(share(target.sides.preemptor))
        # Without a candidate, the share is at most as great: one comparison can reject all candidates.
        rejects_all = not is_enough(share(target_side))
        rejected: set[Usage] = set()
        while (candidate := target.pop(PreemptionReason.IN_COHORT_FAIR_SHARING)) is not None:
            # Candidates with the same usage have the same result.
            if not rejects_all and candidate.usage not in rejected:
                if not strategy.by_final or is_enough(_share_without(candidate, target_side)):
                    return candidate
                rejected.add(candidate.usage)
            self._rejected.setdefault(target.node, candidate)
            if rejects_all:
                target.drop_candidates()
        return None


def _share_without(candidate: Candidate, node: Node) -> Share:
    candidate.remove()
    try:
        return share(node)
    finally:
        candidate.restore()


def find(search: TargetSearch, bounds: FinalBounds, fairness: FairSharing) -> list[Candidate]:
    """Return the workloads to preempt, in the order in which the search ends; none if nothing is enough."""
    fair = _FairSearch(search, bounds)
    try:
        return list(fair.removed) if fair.free_capacity(fairness) else []
    finally:
        for candidate in fair.removed:
            candidate.restore()
