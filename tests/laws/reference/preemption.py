"""The targets of classical preemption (semantics, Preemption), attempt by attempt."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import PreemptionReason
from admitq.core.model import ObjectKey, Workload
from tests.laws.reference.observed import Holder, Observed
from tests.laws.reference.tree import Node, Tree, queue_node


class Victim(NamedTuple):
    """A target of preemption, with the reason."""

    holder: Holder
    reason: PreemptionReason


class Used(NamedTuple):
    """Past usage of a LocalQueue divided by its weight; infinite with weight 0."""

    infinite: bool
    value: Fraction


NEVER_USED = Used(infinite=False, value=Fraction(0))


@dataclass(frozen=True)
class Question:
    """The preemptor of a search, what it requests, and the candidates."""

    observed: Observed
    tree: Tree
    queue: str
    workload: Workload
    usage: Mapping[FlavorResource, int]
    """All that the preemptor requests."""
    contested: Collection[FlavorResource]
    """The part that needs preemption."""
    removed_victims: Collection[ObjectKey] = ()
    """Targets that are removed from the tree already."""
    used: Mapping[ObjectKey, Used] | None = None
    """Past usage of LocalQueues, with admission fair sharing."""

    @property
    def node(self) -> Node:
        """The node of the preemptor's ClusterQueue."""
        return queue_node(self.queue)

    def holders_in(self, queues: Collection[str]) -> Iterator[Holder]:
        """Return holders of contested resources in these ClusterQueues, as far as they are active."""
        for holder in self.observed.quota_holders():
            if (
                holder.queue in queues
                and holder.key not in self.removed_victims
                and self.observed.is_active(holder.queue)
                and any(holder.usage.get(pair, 0) for pair in self.contested)
            ):
                yield holder

    def candidate_order(self, holder: Holder) -> tuple[bool, bool, int, int, str]:
        """Return the sort key: evicted, other ClusterQueue, low priority, reserved late, uid."""
        return (
            not holder.evicted,
            holder.queue == self.queue,
            holder.workload.priority,
            -holder.reserved_at,
            holder.workload.uid,
        )

    def candidates_in_order(self, holders: Iterable[Holder]) -> list[Holder]:
        """Return the candidates in order.

        In a ClusterQueue with admission fair sharing, after evicted workloads, those of LocalQueues with more
        past usage come first. ClusterQueues are merged by their next candidates.
        """
        by_queue: dict[str, list[Holder]] = {}
        for holder in sorted(holders, key=self.candidate_order):
            by_queue.setdefault(holder.queue, []).append(holder)
        for some in by_queue.values():
            some.sort(key=self._by_use)
        result: list[Holder] = []
        while by_queue:
            name = min(by_queue, key=lambda each: self.candidate_order(by_queue[each][0]))
            result.append(by_queue[name].pop(0))
            if not by_queue[name]:
                del by_queue[name]
        return result

    def _by_use(self, holder: Holder) -> tuple[bool, bool, Fraction]:
        """Return the sort key: evicted first, then higher past usage of the LocalQueue, where that counts."""
        if self.used is None or not self.observed.cluster_queues[holder.queue].usage_based_admission:
            return (not holder.evicted, False, Fraction(0))
        key = ObjectKey(holder.key.namespace, holder.workload.queue_name)
        used = self.used.get(key, NEVER_USED)
        return (not holder.evicted, not used.infinite, -used.value)


def satisfies(policy: str, preemptor: Workload, candidate: Workload) -> bool:
    """Whether a policy lets a preemptor preempt a candidate."""
    match policy:
        case "Any":
            return True
        case "LowerPriority":
            return preemptor.priority > candidate.priority
        case "LowerOrNewerEqualPriority":
            newer = preemptor.queued_at < candidate.queued_at
            return preemptor.priority > candidate.priority or (
                preemptor.priority == candidate.priority and newer
            )
        case _:
            return False


class _Candidate(NamedTuple):
    holder: Holder
    kind: str
    """``own``, ``hierarchical``, ``reclaim`` (without borrowing only) or ``borrow``."""


_REASONS = {
    "own": PreemptionReason.IN_CLUSTER_QUEUE,
    "hierarchical": PreemptionReason.IN_COHORT_RECLAMATION,
    "reclaim": PreemptionReason.IN_COHORT_RECLAMATION,
    "borrow": PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class Classical:
    """One classical search for targets."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.tree = question.tree
        self.policy = question.observed.cluster_queues[question.queue].preemption

    def victims(self) -> list[Victim]:
        """Return the targets in order; none if no targets suffice."""
        groups = self._candidates()
        for borrowing in self._attempts(groups):
            victims = self._attempt(self._in_order(groups, borrowing=borrowing), borrowing=borrowing)
            if victims:
                return [Victim(each.holder, _REASONS[each.kind]) for each in victims]
        return []

    # --- candidates -------------------------------------------------------------------------------

    def _candidates(self) -> list[list[_Candidate]]:
        """Return candidates with hierarchical advantage, others of other queues, and those of the own."""
        question = self.question
        own = [
            _Candidate(holder, "own")
            for holder in question.holders_in({question.queue})
            if satisfies(self.policy.within_cluster_queue, question.workload, holder.workload)
        ]
        return [*self._across_queues(), own]

    def _in_order(self, groups: list[list[_Candidate]], *, borrowing: bool) -> list[_Candidate]:
        """Return the candidates that an attempt allows. A forbidden one takes no place in the order."""
        lists: list[list[_Candidate]] = []
        for group in groups:
            kinds = {each.holder.key: each for each in group if not (borrowing and each.kind == "reclaim")}
            in_order = self.question.candidates_in_order(each.holder for each in kinds.values())
            lists.append([kinds[holder.key] for holder in in_order])
        evicted = [each for some in lists for each in some if each.holder.evicted]
        return evicted + [each for some in lists for each in some if not each.holder.evicted]

    def _across_queues(self) -> tuple[list[_Candidate], list[_Candidate]]:
        """Return candidates of other ClusterQueues, with and without hierarchical advantage."""
        hierarchical: list[_Candidate] = []
        priority: list[_Candidate] = []
        if self.policy.reclaim_within_cohort == "Never":
            return hierarchical, priority
        question, tree = self.question, self.tree
        below = question.node
        advantage = self._fits_in_subtree(below, question.usage)
        remaining = self._remaining(below, question.usage)
        for ancestor in tree.ancestors(question.node):
            queues = self._exceeding(ancestor, below)
            for holder in question.holders_in(queues):
                if not satisfies(self.policy.reclaim_within_cohort, question.workload, holder.workload):
                    continue
                if advantage:
                    hierarchical.append(_Candidate(holder, "hierarchical"))
                else:
                    priority.append(_Candidate(holder, self._kind_by_priority(holder)))
            advantage = advantage or self._fits_in_subtree(ancestor, remaining)
            remaining = self._remaining(ancestor, remaining)
            below = ancestor
        return hierarchical, priority

    def _fits_in_subtree(self, node: Node, requests: Mapping[FlavorResource, int]) -> bool:
        return not any(
            amount and self.tree.borrows_with(node, pair, amount) for pair, amount in requests.items()
        )

    def _remaining(self, node: Node, requests: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
        return {
            pair: amount - min(amount, self.tree.unused_local_quota(node, pair))
            for pair, amount in requests.items()
        }

    def _exceeding(self, node: Node, visited: Node) -> set[str]:
        """Return ClusterQueues below that exceed their quota, through cohorts that exceed theirs."""
        queues: set[str] = set()
        for child in self.tree.children[node]:
            if child == visited or not self.tree.exceeds(child, self.question.contested):
                continue
            queues |= self._exceeding(child, visited) if child.cohort else {child.name}
        return queues

    def _kind_by_priority(self, holder: Holder) -> str:
        rule = self.policy.borrow_within_cohort
        threshold = rule.max_priority_threshold
        if (
            rule.policy == "Never"
            or holder.workload.priority >= self.question.workload.priority
            or (threshold is not None and holder.workload.priority > threshold)
        ):
            return "reclaim"
        return "borrow"

    # --- attempts ---------------------------------------------------------------------------------

    def _attempts(self, groups: list[list[_Candidate]]) -> list[bool]:
        """Return for each attempt whether the preemptor may borrow."""
        question, never = self.question, self.policy.borrow_within_cohort.policy == "Never"
        kinds = {each.kind for group in groups for each in group}
        under_nominal = all(
            self.tree.usage(question.node, pair) < self.tree.nominal(question.node, pair)
            for pair in question.contested
        )
        if not kinds - {"own"} or (never and not under_nominal):
            return [True]
        if never and "hierarchical" not in kinds:
            return [False, True]
        return [True, False]

    def _attempt(self, candidates: list[_Candidate], *, borrowing: bool) -> list[_Candidate]:
        tree, taken = self.tree, list[_Candidate]()
        for candidate in candidates:
            if not self._is_valid(candidate):
                continue
            tree.remove(candidate.holder.queue, candidate.holder.usage)
            taken.append(candidate)
            if self._fits(borrowing=borrowing):
                remaining = self._give_back(taken, borrowing=borrowing)
                self._restore(remaining)
                return remaining
        self._restore(taken)
        return []

    def _restore(self, taken: list[_Candidate]) -> None:
        for each in taken:
            self.tree.add(each.holder.queue, each.holder.usage)

    def _is_valid(self, candidate: _Candidate) -> bool:
        if candidate.kind == "own":
            return True
        own_path = [self.question.node, *self.tree.ancestors(self.question.node)]
        node = queue_node(candidate.holder.queue)
        below_common = [each for each in (node, *self.tree.ancestors(node)) if each not in own_path]
        return all(self.tree.exceeds(each, self.question.contested) for each in below_common)

    def _fits(self, *, borrowing: bool) -> bool:
        question, tree = self.question, self.tree
        return tree.fits(question.queue, question.usage) and (
            borrowing
            or not any(n and tree.borrows_with(question.node, pair, n) for pair, n in question.usage.items())
        )

    def _give_back(self, taken: list[_Candidate], *, borrowing: bool) -> list[_Candidate]:
        """Remove targets that can be spared, from the last but one to the first; the last takes the place."""
        targets = list(taken)
        for index in range(len(taken) - 2, -1, -1):
            each = targets[index]
            self.tree.add(each.holder.queue, each.holder.usage)
            if self._fits(borrowing=borrowing):
                targets[index] = targets[-1]
                targets.pop()
            else:
                self.tree.remove(each.holder.queue, each.holder.usage)
        return targets
