"""The search for victims as the rules are written: no index, no bound, no laziness, everything anew.

Only the arithmetic of the quota tree and the shares are the core's own.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.entries import WorkloadEntry
from admitq.core.fair_sharing import share
from admitq.core.model import Workload
from admitq.core.preemption import Preemptor
from admitq.core.settings import FairSharing, PreemptionStrategy
from admitq.core.world import World

Usage = Mapping[FlavorResource, int]
OWN, RECLAIM, FAIR, BORROWING = (
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortFairSharing",
    "InCohortReclaimWhileBorrowing",
)


def allowed(policy: str, preemptor: Workload, candidate: Workload) -> bool:
    if policy == "LowerPriority":
        return preemptor.priority > candidate.priority
    if policy == "LowerOrNewerEqualPriority":
        newer = preemptor.priority == candidate.priority and preemptor.queued_at < candidate.queued_at
        return preemptor.priority > candidate.priority or newer
    return policy == "Any"


class Plain:
    def __init__(
        self, world: World, preemptor: Preemptor, usage: Usage, contested: set[FlavorResource]
    ) -> None:
        self.world = world
        self.preemptor = preemptor
        self.node = preemptor.queue.node
        self.policy = preemptor.queue.spec.preemption
        self.usage = {pair: amount for pair, amount in usage.items() if amount}
        self.contested = contested
        self.taken: list[tuple[WorkloadEntry, str]] = []

    # --- the tree -------------------------------------------------------------------------------

    def node_of(self, entry: WorkloadEntry) -> Node:
        assert entry.held is not None
        return self.world.forest.cluster_queues[entry.held.cluster_queue]

    def change(self, entry: WorkloadEntry, sign: int) -> None:
        assert entry.held is not None
        for pair, amount in entry.held.usage:
            quota.add_usage(self.node_of(entry).cells[pair], sign * amount)

    def take(self, entry: WorkloadEntry, reason: str) -> None:
        self.taken.append((entry, reason))
        self.change(entry, -1)

    def undo(self) -> None:
        for entry, _ in self.taken:
            self.change(entry, 1)
        self.taken = []

    def fits(self, may_borrow: bool = True) -> bool:
        cells = self.node.cells
        return all(
            quota.available(cells[pair]) >= amount
            and (may_borrow or cells[pair].usage + amount <= cells[pair].subtree)
            for pair, amount in self.usage.items()
        )

    def in_debt(self, node: Node) -> bool:
        cells = [node.cells[pair] for pair in self.contested if pair in node.cells]
        return any(cell.usage > cell.subtree for cell in cells)

    def fill_back(self, may_borrow: bool) -> None:
        for index in range(len(self.taken) - 2, -1, -1):
            self.change(self.taken[index][0], 1)
            if self.fits(may_borrow):
                last = self.taken.pop()
                self.taken[index] = last
            else:
                self.change(self.taken[index][0], -1)

    # --- candidates -----------------------------------------------------------------------------

    def candidates(self) -> list[WorkloadEntry]:
        found: list[WorkloadEntry] = []
        for entry in self.world.workloads.values():
            if entry.held is None or not any(pair in self.contested for pair, _ in entry.held.usage):
                continue
            node = self.node_of(entry)
            within = node is self.node
            policy = self.policy.within_cluster_queue if within else self.policy.reclaim_within_cohort
            same_tree = node.root is self.node.root
            may_go = same_tree and allowed(policy, self.preemptor.workload, entry.workload)
            if may_go and (within or self.in_debt(node)):
                found.append(entry)
        return sorted(found, key=self.order)

    def order(self, entry: WorkloadEntry) -> tuple[Any, ...]:
        own = self.node_of(entry) is self.node
        workload = entry.workload
        return (not entry.is_leaving, own, workload.priority, -entry.reserved_at, workload.uid)

    # --- classical ------------------------------------------------------------------------------

    def between(self, entry: WorkloadEntry) -> list[Node]:
        """The candidate's node and those above it below the common ancestor."""
        node = self.node_of(entry)
        if node is self.node:
            return []
        mine = list(self.node.ancestors)
        chain = [node]
        for ancestor in node.ancestors:
            if ancestor in mine:
                break
            chain.append(ancestor)
        return chain

    def advantages(self) -> dict[Node, bool]:
        """For each cohort above the preemptor, whether it has the advantage there."""
        remaining, node, advantage = dict(self.usage), self.node, False
        found: dict[Node, bool] = {}
        for ancestor in self.node.ancestors:
            fits = all(
                node.cells[pair].usage + amount <= node.cells[pair].subtree
                for pair, amount in remaining.items()
                if amount
            )
            advantage = advantage or fits
            found[ancestor] = advantage
            remaining = {
                pair: max(0, amount - node.cells[pair].local_available) for pair, amount in remaining.items()
            }
            node = ancestor
        return found

    def variant(self, entry: WorkloadEntry, advantages: dict[Node, bool]) -> str:
        chain = self.between(entry)
        if not chain:
            return "own"
        common = chain[-1].parent
        assert common is not None
        if advantages[common]:
            return "reclaim"
        rule, priority = self.policy.borrow_within_cohort, entry.workload.priority
        threshold = rule.max_priority_threshold
        if rule.policy == "Never" or priority >= self.preemptor.workload.priority:
            return "without borrowing"
        return "without borrowing" if threshold is not None and priority > threshold else "while borrowing"

    def classical(self) -> list[tuple[WorkloadEntry, str]]:
        advantages = self.advantages()
        candidates = [
            (entry, self.variant(entry, advantages))
            for entry in self.candidates()
            if all(map(self.in_debt, self.between(entry)))
        ]
        rank = {"reclaim": 0, "without borrowing": 1, "while borrowing": 1, "own": 2}
        candidates.sort(key=lambda each: (not each[0].is_leaving, rank[each[1]], self.order(each[0])))
        kinds = {kind for _, kind in candidates}
        never = self.policy.borrow_within_cohort.policy == "Never"
        under = all(self.node.cells[pair].usage < self.node.cells[pair].nominal for pair in self.contested)
        if not kinds - {"own"} or (never and not under):
            attempts = [True]
        else:
            attempts = [False, True] if never and "reclaim" not in kinds else [True, False]
        reasons = {"own": OWN, "while borrowing": BORROWING}
        for may_borrow in attempts:
            for entry, kind in candidates:
                if may_borrow and kind == "without borrowing":
                    continue
                if all(map(self.in_debt, self.between(entry))):
                    self.take(entry, reasons.get(kind, RECLAIM))
                    if self.fits(may_borrow):
                        self.fill_back(may_borrow)
                        return self.taken
            self.undo()
        return []

    # --- fair sharing ---------------------------------------------------------------------------

    def occupy(self, sign: int) -> None:
        for pair, amount in self.usage.items():
            quota.add_usage(self.node.cells[pair], sign * amount)

    def fits_with_preemptor_counted(self) -> bool:
        self.occupy(-1)
        result = self.fits()
        self.occupy(1)
        return result

    def target(self, left: list[WorkloadEntry], at: Node, pruned: set[Node]) -> Node | None:
        """The ClusterQueue to take from next, below a node."""
        if not at.is_cohort:
            return at
        while True:
            best: tuple[Any, ...] | None = None
            for child in [*at.cohorts.values(), *at.cluster_queues.values()]:
                mine = child is self.node or child in self.node.ancestors
                own = [entry for entry in left if self.node_of(entry) is child]
                if child in pruned or not (mine or self.in_debt(child)) or not (child.is_cohort or own):
                    continue
                first = () if child.is_cohort else self.order(own[0])
                taken = share(child)
                key = (not taken.infinite, -taken.amount, not child.is_cohort, first, child.name)
                if best is None or key < best[0]:
                    best = (key, child)
            if best is None:
                return None
            found = self.target(left, best[1], pruned)
            if found is not None:
                return found
            pruned.add(best[1])

    def targets(self, left: list[WorkloadEntry]) -> Iterator[Node]:
        """ClusterQueues to take from, as long as there are any; ``left`` is changed meanwhile."""
        while left:
            root = self.node.root
            target = self.target(left, root, set())
            if target is None or not any(self.node_of(entry) is target for entry in left):
                return
            yield target

    def shares(self, target: Node) -> tuple[Node, Node]:
        mine, theirs = self.node, target
        while mine.parent not in list(theirs.ancestors):
            assert mine.parent is not None
            mine = mine.parent
        while theirs.parent is not mine.parent:
            assert theirs.parent is not None
            theirs = theirs.parent
        return mine, theirs

    def passes(self, strategy: PreemptionStrategy, target: Node, entry: WorkloadEntry) -> bool:
        mine, theirs = self.shares(target)
        if strategy is PreemptionStrategy.LESS_THAN_INITIAL_SHARE:
            return share(mine) < share(theirs)
        self.change(entry, -1)
        result = share(mine) <= share(theirs)
        self.change(entry, 1)
        return result

    def fair(self, fairness: FairSharing) -> list[tuple[WorkloadEntry, str]]:
        left = self.candidates()
        rejected: list[WorkloadEntry] = []
        unasked = self.world.settings.gates.fair_sharing_preempt_within_nominal
        strategies = fairness.preemption_strategies
        self.occupy(1)
        enough = False
        for target in self.targets(left):
            for entry in [entry for entry in left if self.node_of(entry) is target]:
                left.remove(entry)
                if target is self.node:
                    self.take(entry, OWN)
                elif unasked and not self.in_debt(self.node):
                    self.take(entry, RECLAIM)
                elif self.passes(strategies[0], target, entry):
                    self.take(entry, FAIR)
                else:
                    rejected.append(entry)
                    continue
                enough = self.fits_with_preemptor_counted()
                break
            if enough:
                break
        if not enough and len(strategies) > 1:
            rejected.sort(key=self.order)
            for target in self.targets(rejected):
                mine = [entry for entry in rejected if self.node_of(entry) is target]
                for entry in mine:
                    rejected.remove(entry)
                if self.passes(strategies[1], target, mine[0]):
                    self.take(mine[0], FAIR)
                    enough = self.fits_with_preemptor_counted()
                    if enough:
                        break
        self.occupy(-1)
        if not enough:
            return []
        self.fill_back(may_borrow=True)
        return self.taken


def find_plainly(
    world: World, preemptor: Preemptor, usage: Usage, contested: set[FlavorResource]
) -> list[tuple[str, str]]:
    plain = Plain(world, preemptor, usage, contested)
    if plain.fits():
        return []
    fairness = world.settings.fair_sharing
    found = plain.classical() if fairness is None else plain.fair(fairness)
    result = [(entry.workload.key.name, reason) for entry, reason in found]
    plain.undo()
    return result
