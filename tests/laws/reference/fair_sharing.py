"""Shares of ClusterQueues and cohorts, the order of a cycle and the targets (semantics, Fair sharing)."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import PreemptionReason
from admitq.core.model import Workload
from admitq.core.settings import Gates, PreemptionStrategy
from tests.laws.reference.observed import Holder
from tests.laws.reference.preemption import Question, Victim, satisfies
from tests.laws.reference.tree import Node, Tree, queue_node


class Share(NamedTuple):
    """Dominant resource share. Infinite shares come after finite ones, ordered by their unweighted ratio."""

    infinite: bool
    value: Fraction


NO_SHARE = Share(infinite=False, value=Fraction(0))


def share(tree: Tree, node: Node) -> Share:
    """Return max over resources of 1000 · borrowed / what the parent could lend, divided by the weight."""
    above = tree.parents[node]
    if above is None:
        return NO_SHARE
    borrowed: dict[str, int] = {}
    lendable: dict[str, int] = {}
    for pair in tree.pairs(tree.root(node)):
        beyond = max(0, tree.usage(node, pair) - tree.subtree_quota(node, pair))
        borrowed[pair.resource] = borrowed.get(pair.resource, 0) + beyond
        lendable[pair.resource] = lendable.get(pair.resource, 0) + tree.potential(above, pair)
    ratio = max(
        (Fraction(1000 * borrowed[name], lendable[name]) for name in borrowed if lendable[name] > 0),
        default=Fraction(0),
    )
    weight = tree.weights.get(node, Fraction(1))
    if weight == 0:
        return Share(infinite=ratio > 0, value=ratio)
    return Share(infinite=False, value=ratio / weight)


# --- order of a cycle -----------------------------------------------------------------------------------


class Contender(NamedTuple):
    """A head that waits for its turn in a cycle."""

    queue: str
    workload: Workload
    usage: Mapping[FlavorResource, int]
    is_preemptor: bool


C = TypeVar("C")


def next_contender(
    tree: Tree, gates: Gates, contenders: Sequence[tuple[Contender, C]]
) -> tuple[Contender, C]:
    """Return the contender of a tree that is processed next: the winner of its tournament."""
    root = tree.root(queue_node(contenders[0][0].queue))
    results: dict[tuple[str, Node], tuple[bool, Share]] = {}
    for contender, _ in contenders:
        node = queue_node(contender.queue)
        tree.add(contender.queue, contender.usage)
        for each in (node, *tree.ancestors(node)):
            borrows = tree.exceeds(each, [pair for pair, amount in contender.usage.items() if amount])
            results[contender.queue, each] = (borrows, share(tree, each))
        tree.remove(contender.queue, contender.usage)

    def order(child: Node, contender: Contender) -> tuple[bool, bool, Share, int, int, str]:
        borrows, own_share = results[contender.queue, child]
        workload = contender.workload
        return (
            gates.prioritize_preemptor_workloads and not contender.is_preemptor,
            gates.fair_sharing_prioritize_non_borrowing and borrows,
            own_share,
            -workload.priority,
            workload.queued_at,
            workload.uid,
        )

    def nominee(node: Node) -> tuple[Contender, C] | None:
        if not node.cohort:
            return next((each for each in contenders if each[0].queue == node.name), None)
        nominees = [(child, best) for child in tree.children[node] if (best := nominee(child)) is not None]
        if not nominees:
            return None
        return min(nominees, key=lambda each: order(each[0], each[1][0]))[1]

    winner = nominee(root)
    assert winner is not None, "a tree with contenders has a winner"
    return winner


# --- targets --------------------------------------------------------------------------------------------

Judge = Callable[[Share, Share, Share], bool]
"""Compares the preemptor's share with the target's share before and after it leaves."""

_STRATEGIES: Mapping[PreemptionStrategy, Judge] = {
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE: lambda own, _before, after: own <= after,
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE: lambda own, before, _after: own < before,
}


class Fair:
    """One search for targets by shares."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.tree = question.tree
        self.policy = question.observed.cluster_queues[question.queue].preemption
        settings = question.observed.settings
        assert settings.fair_sharing is not None, "asked without fair sharing"
        self.strategies = [_STRATEGIES[each] for each in settings.fair_sharing.preemption_strategies]
        self.gates = settings.gates
        self.taken: list[Victim] = []

    def victims(self) -> list[Victim]:
        """Return the targets in order; none if no targets suffice."""
        candidates = self._candidates()
        self.tree.add(self.question.queue, self.question.usage)
        fits, rejected = self._first_strategy(candidates)
        if not fits and len(self.strategies) > 1:
            fits = self._second_strategy(rejected)
        if fits:
            self._give_back()
        for victim in self.taken:
            self.tree.add(victim.holder.queue, victim.holder.usage)
        self.tree.remove(self.question.queue, self.question.usage)
        return self.taken if fits else []

    def _candidates(self) -> dict[str, list[Holder]]:
        """Return the candidates of each ClusterQueue, in candidate order."""
        question, tree = self.question, self.tree
        result: dict[str, list[Holder]] = {}
        for name in tree.queues_below(tree.root(question.node)):
            own = name == question.queue
            policy = self.policy.within_cluster_queue if own else self.policy.reclaim_within_cohort
            if own or tree.exceeds(queue_node(name), question.contested):
                result[name] = question.candidates_in_order(
                    holder
                    for holder in question.holders_in({name})
                    if satisfies(policy, question.workload, holder.workload)
                )
        return {name: some for name, some in result.items() if some}

    # --- the target ClusterQueue ------------------------------------------------------------------

    def _next_target(self, candidates: Mapping[str, Sequence[Holder]]) -> str | None:
        """Return the next target ClusterQueue: descend into the child with the highest share."""
        own_path = [self.question.node, *self.tree.ancestors(self.question.node)]
        if not self._leads_to_candidates(own_path[-1], candidates, own_path):
            return None
        return self._target_below(own_path[-1], candidates)

    def _target_below(self, node: Node, candidates: Mapping[str, Sequence[Holder]]) -> str | None:
        if not node.cohort:
            return node.name
        own_path = [self.question.node, *self.tree.ancestors(self.question.node)]
        children = [
            child
            for child in self.tree.children[node]
            if self._leads_to_candidates(child, candidates, own_path)
        ]
        if not children:
            return None

        def order(child: Node) -> tuple[object, ...]:
            own_share = share(self.tree, child)
            tie: tuple[object, ...] = (
                () if child.cohort else self.question.candidate_order(candidates[child.name][0])
            )
            return (not own_share.infinite, -own_share.value, not child.cohort, *tie)

        return self._target_below(min(children, key=order), candidates)

    def _leads_to_candidates(
        self, node: Node, candidates: Mapping[str, Sequence[Holder]], own_path: list[Node]
    ) -> bool:
        """Whether a node leads to candidates, through nodes that borrow or are the preemptor's own."""
        if node not in own_path and not self.tree.exceeds(node, self.question.contested):
            return False
        if not node.cohort:
            return bool(candidates.get(node.name))
        return any(
            self._leads_to_candidates(child, candidates, own_path) for child in self.tree.children[node]
        )

    def _just_below_common(self, name: str) -> tuple[Node, Node]:
        """Return the ancestors of preemptor and target just below their lowest common ancestor."""
        own = [self.question.node, *self.tree.ancestors(self.question.node)]
        other = [queue_node(name), *self.tree.ancestors(queue_node(name))]
        common = next(each for each in own if each in other)
        return own[own.index(common) - 1], other[other.index(common) - 1]

    # --- strategies -------------------------------------------------------------------------------

    def _first_strategy(self, candidates: Mapping[str, list[Holder]]) -> tuple[bool, dict[str, list[Holder]]]:
        left = {name: list(some) for name, some in candidates.items()}
        rejected: dict[str, list[Holder]] = {}
        while (name := self._next_target(left)) is not None:
            while left[name]:
                holder = left[name].pop(0)
                reason = self._accept(name, holder, self.strategies[0])
                if reason is None:
                    rejected.setdefault(name, []).append(holder)
                    continue
                self._reserve(holder, reason)
                if self._fits():
                    return True, rejected
                break
        return False, rejected

    def _second_strategy(self, rejected: Mapping[str, list[Holder]]) -> bool:
        left = {name: list(some) for name, some in rejected.items()}
        while (name := self._next_target(left)) is not None:
            own, target = self._just_below_common(name)
            before = share(self.tree, target)
            if self.strategies[1](share(self.tree, own), before, before):
                self._reserve(left[name][0], PreemptionReason.IN_COHORT_FAIR_SHARING)
                if self._fits():
                    return True
            del left[name]
        return False

    def _accept(self, name: str, holder: Holder, judge: Judge) -> PreemptionReason | None:
        question, tree = self.question, self.tree
        if name == question.queue:
            return PreemptionReason.IN_CLUSTER_QUEUE
        if self.gates.fair_sharing_preempt_within_nominal and not tree.exceeds(
            question.node, question.contested
        ):
            return PreemptionReason.IN_COHORT_RECLAMATION
        own, target = self._just_below_common(name)
        before = share(tree, target)
        tree.remove(holder.queue, holder.usage)
        after = share(tree, target)
        tree.add(holder.queue, holder.usage)
        accepted = judge(share(tree, own), before, after)
        return PreemptionReason.IN_COHORT_FAIR_SHARING if accepted else None

    def _reserve(self, holder: Holder, reason: PreemptionReason) -> None:
        self.tree.remove(holder.queue, holder.usage)
        self.taken.append(Victim(holder, reason))

    def _fits(self) -> bool:
        question = self.question
        self.tree.remove(question.queue, question.usage)
        fits = self.tree.fits(question.queue, question.usage)
        self.tree.add(question.queue, question.usage)
        return fits

    def _give_back(self) -> None:
        """Remove targets that can be spared, from the last but one to the first; the last takes the place."""
        targets = self.taken
        for index in range(len(targets) - 2, -1, -1):
            holder = targets[index].holder
            self.tree.add(holder.queue, holder.usage)
            if self._fits():
                targets[index] = targets[-1]
                targets.pop()
            else:
                self.tree.remove(holder.queue, holder.usage)
