"""The overlay of a cycle and its indexes return the same as a tree that is really changed."""

from collections.abc import Collection
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.model import ObjectKey
from admitq.core.overlay import Overlay, evaluate_without
from admitq.core.preemption import Victim, find_victims
from admitq.core.preemption.index import Amounts
from admitq.core.settings import CoreSettings, FairSharing, Gates, PreemptionStrategy
from admitq.core.world import WorkloadEntry
from tests.unit.core.quota_trees import QuotaTrees, Stated, pair, policy, stated
from tests.unit.core.test_preemption_laws import draw_case, draw_nearly_equal_case

CPU = pair("cpu")
SETTINGS = (CoreSettings(), CoreSettings(fair_sharing=FairSharing()))


class OverlayTrial:
    """A world, an overlay of the tree of its first ClusterQueue, and what the overlay supposes."""

    def __init__(self, chance: Random, settings: CoreSettings) -> None:
        self.case = chance.choice([draw_case, draw_nearly_equal_case])(chance, settings)
        self.trees = self.case.trees()
        self.world = self.trees.world
        self.chance = chance
        self.root = self.trees.node("q0").root
        self.admitted: dict[ObjectKey, None] = {}
        self.overlay = Overlay(self.world, self.root, self.admitted)
        self.victims: dict[ObjectKey, WorkloadEntry] = {}
        self.reserved: list[tuple[str, int]] = []

    @property
    def queues(self) -> list[str]:
        return [node.name for node in self.root.cluster_queues_below()]

    def reserve_capacity(self) -> None:
        name, amount = self.chance.choice(self.queues), self.chance.randrange(1, 4)
        self.reserved.append((name, amount))
        self.overlay.reserve_capacity(self.trees.node(name), ((CPU, amount),))

    def add_victim(self) -> None:
        holders = [
            entry
            for name in self.queues
            for line in (self.world.quota_holders.leaving, self.world.quota_holders.staying)
            for _, entry in line(name)
            if entry.workload.key not in self.victims
        ]
        if holders:
            entry = self.chance.choice(holders)
            key = entry.workload.key
            self.victims[key] = entry
            self.overlay.add_victims([Victim(entry, PreemptionReason.IN_CLUSTER_QUEUE)])
            if not entry.is_leaving:
                reason = PreemptionReason.IN_CLUSTER_QUEUE
                self.world.preempt(Preempt(key, entry.workload.uid, reason, key, "", (), ()))

    def change_tree(self) -> None:
        """Add a holder of quota without the overlay."""
        name = f"more-{len(self.world.workloads)}"
        self.trees.add_holder(self.chance.choice(self.queues), name, self.chance.randrange(1, 3))

    def check_search(self) -> None:
        """Check that a search with the overlay finds what one in a changed tree finds without indexes."""
        name = self.chance.choice(self.queues)
        node = self.trees.node(name)
        usage = {CPU: self.chance.randrange(1, 6)}
        contested = (CPU,)
        preemptor = self.trees.preemptor(name, self.chance.randrange(4), self.chance.randrange(3))
        excluded = self.overlay.excluded

        def victims(*, with_overlay: bool) -> list[Victim]:
            tree = self.overlay.indexes if with_overlay else None
            return list(find_victims(self.world, preemptor, usage, contested, excluded, tree))

        before = self.trees.cells()
        expected = evaluate_without(self.world, self.victims.values(), lambda: victims(with_overlay=False))
        assert self.overlay.evaluate_without_victims(node, (), lambda: victims(with_overlay=True)) == expected
        assert self.trees.cells() == before

    def check_available(self) -> None:
        """Check that as much is available without victims or reserved capacity as in a changed tree."""
        node = self.trees.node(self.chance.choice(self.queues))
        cell = node.cells[CPU]
        others = [entry for entry in self.staying() if self.chance.random() < 0.3]
        own = [Victim(entry, PreemptionReason.IN_CLUSTER_QUEUE) for entry in others]
        removed = {**self.victims, **{entry.workload.key: entry for entry in others}}
        available = evaluate_without(self.world, removed.values(), lambda: quota.available(cell))
        assert self.overlay.evaluate_without_victims(node, own, lambda: quota.available(cell)) == available
        self.count_reserved(-1)
        available = quota.available(cell)
        self.count_reserved(1)
        assert (
            self.overlay.evaluate_without_reserved_capacity(node, lambda: quota.available(cell)) == available
        )

    def staying(self) -> list[WorkloadEntry]:
        return [entry for name in self.queues for _, entry in self.world.quota_holders.staying(name)]

    def count_reserved(self, sign: int) -> None:
        for name, amount in self.reserved:
            quota.add_usage(self.trees.node(name).cells[CPU], sign * amount)


@given(st.randoms(use_true_random=False), st.sampled_from(SETTINGS))
def test_overlay_equals_changed_tree_after_any_changes(chance: Random, settings: CoreSettings) -> None:
    trial = OverlayTrial(chance, settings)
    before = trial.trees.cells()
    steps = (
        trial.reserve_capacity,
        trial.add_victim,
        trial.add_victim,
        trial.check_search,
        trial.check_search,
        trial.check_available,
    )
    for _ in range(20):
        chance.choice(steps)()
    trial.overlay.undo()
    assert trial.trees.cells() == before


@given(st.randoms(use_true_random=False), st.sampled_from(SETTINGS))
def test_overlay_is_computed_again_when_tree_changes_without_it(
    chance: Random, settings: CoreSettings
) -> None:
    trial = OverlayTrial(chance, settings)
    steps = (
        trial.reserve_capacity,
        trial.add_victim,
        trial.change_tree,
        trial.check_search,
        trial.check_available,
    )
    for _ in range(20):
        chance.choice(steps)()


def victims_of(
    overlay: Overlay,
    trees: QuotaTrees,
    name: str,
    requested: Stated,
    contested: Collection[FlavorResource] = (CPU,),
) -> list[str]:
    """Return the victims for a workload of a ClusterQueue, in the tree with the overlay."""

    def check_search() -> list[str]:
        preemptor, excluded = trees.preemptor(name, priority=1), overlay.excluded
        tree = overlay.indexes
        victims = find_victims(trees.world, preemptor, stated(requested), contested, excluded, tree)
        return [victim.entry.workload.key.name for victim in victims]

    return overlay.evaluate_without_victims(trees.node(name), (), check_search)


def supposed_victim(trees: QuotaTrees, name: str) -> Victim:
    entry = trees.world.workloads[ObjectKey("default", name)]
    return Victim(entry, PreemptionReason.IN_COHORT_RECLAMATION)


def available_without_victims(overlay: Overlay, trees: QuotaTrees, name: str) -> int:
    node = trees.node(name)
    return overlay.evaluate_without_victims(node, (), lambda: quota.available(node.cells[CPU]))


def test_overlay_is_computed_again_when_another_workload_is_admitted() -> None:
    trees = QuotaTrees()
    trees.queue("own", of=10)
    trees.queue("other")
    trees.add_holder("other", "victim", 2)
    node = trees.node("own")
    overlay = Overlay(trees.world, node.root)
    overlay.reserve_capacity(node, ((CPU, 1),))
    overlay.add_victims([supposed_victim(trees, "victim")])
    assert available_without_victims(overlay, trees, "own") == 9
    trees.add_holder("other", "more", 3)
    assert available_without_victims(overlay, trees, "own") == 6
    assert overlay.evaluate_without_reserved_capacity(node, lambda: quota.available(node.cells[CPU])) == 5


def test_overlay_is_computed_again_when_reservation_is_not_as_expected() -> None:
    trees = QuotaTrees()
    trees.queue("own", of=10)
    trees.queue("other")
    trees.add_holder("other", "victim", 2)
    trees.add_holder("own", "counted", 3)
    overlay = Overlay(trees.world, trees.node("own").root)
    overlay.add_victims([supposed_victim(trees, "victim")])
    record = trees.world.workloads[ObjectKey("default", "counted")]
    overlay.settle_reservation(record, trees.node("own"), ((CPU, 3),))
    assert available_without_victims(overlay, trees, "own") == 7


def test_search_counts_quota_that_victim_of_another_head_did_not_borrow() -> None:
    trees = QuotaTrees()
    trees.cohort("deep", "all")
    trees.queue("own", "all", 1, policy(reclaim="Any", borrow="LowerPriority"))
    trees.queue("inner", "deep", 4)
    trees.queue("other", "all")
    trees.add_holder("inner", "within quota", 2)
    trees.add_holder("other", "borrows", 3)
    overlay = Overlay(trees.world, trees.node("own").root)
    assert victims_of(overlay, trees, "own", 5) == []
    overlay.add_victims([supposed_victim(trees, "within quota")])
    assert victims_of(overlay, trees, "own", 5) == ["borrows"]


def by_final_share() -> QuotaTrees:
    strategies = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
    gates = Gates(fair_sharing_preempt_within_nominal=False)
    return QuotaTrees(CoreSettings(fair_sharing=FairSharing(strategies), gates=gates))


def test_search_accepts_smaller_workload_of_queue_that_borrows_by_reserved_capacity() -> None:
    trees = by_final_share()
    trees.cohort("root", None, 5)
    trees.cohort("other", "root")
    trees.queue("own", "root", 0, policy(reclaim="LowerPriority"))
    trees.queue("b", "other")
    trees.queue("c", "other", 1)
    trees.add_holder("b", "large", 3)
    trees.add_holder("c", "small", 1)
    overlay = Overlay(trees.world, trees.node("own").root)
    # The cohort borrows 3, and nothing without "large": only "large" can be preempted.
    assert victims_of(overlay, trees, "own", 3) == []
    overlay.reserve_capacity(trees.node("c"), ((CPU, 1),))
    # The cohort borrows 4, and 3 without "small".
    assert victims_of(overlay, trees, "own", 2) == ["small"]


def test_search_accepts_workload_of_borrowing_queue_although_share_of_cohort_is_unchanged() -> None:
    trees = by_final_share()
    trees.cohort("root", None, 6)
    trees.cohort("other", "root", {"cpu": 0, "gpu": 30})
    trees.cohort("deep", "other", {"cpu": 0, "gpu": 0})
    trees.queue("own", "root", 0, policy(reclaim="LowerPriority"))
    for name, cohort, nominal in (("b", "deep", 0), ("c", "deep", 1), ("d", "other", 0)):
        trees.queue(name, cohort, {"cpu": nominal, "gpu": 0})
    trees.add_holder("b", "gpus", {"gpu": 30})
    trees.add_holder("b", "large", 3)
    trees.add_holder("c", "small", 1)
    trees.add_holder("d", "next", 1)
    overlay = Overlay(trees.world, trees.node("own").root)
    # 3 CPUs against 4, and 1 without "large": nothing of deep, because GPUs dominate its share.
    assert victims_of(overlay, trees, "own", 3) == ["next"]
    overlay.reserve_capacity(trees.node("c"), ((CPU, 1),))
    # 3 CPUs against 5, and 4 without "small", then 3.
    assert victims_of(overlay, trees, "own", 3) == ["small", "next"]


def test_search_accepts_candidate_when_only_the_share_without_it_rises() -> None:
    trees = by_final_share()
    trees.cohort("root", None, {"cpu": 9, "gpu": 9})
    for name in ("own", "b"):
        trees.queue(name, "root", {"cpu": 0, "gpu": 0}, policy(reclaim="LowerPriority"))
    trees.add_holder("b", "lower", 4)
    trees.add_holder("b", "higher", 2, priority=9)
    overlay = Overlay(trees.world, trees.node("own").root)
    # b borrows 6 of 9 CPUs, and 2 without "lower": less than the 4 of the preemptor.
    assert victims_of(overlay, trees, "own", 4) == []
    overlay.reserve_capacity(trees.node("b"), ((pair("gpu"), 5),))
    # The share of b is the same. Without "lower", it is 5 of 9 GPUs.
    assert victims_of(overlay, trees, "own", 4) == ["lower"]


def test_search_keeps_no_bound_of_queue_without_own_candidates_that_were_removed() -> None:
    trees = by_final_share()
    trees.cohort("root", None, {"cpu": 14, "gpu": 1})
    for name, gpus in (("own", 0), ("later", 0), ("b", 0), ("g", 99)):
        trees.queue(name, "root", {"cpu": 0, "gpu": gpus}, policy("LowerPriority", "Any"))
    trees.add_holder("own", "lower", 4)
    trees.add_holder("own", "higher", 1, priority=9)
    trees.add_holder("b", "large", 6)
    trees.add_holder("g", "gpus", {"gpu": 100})
    overlay = Overlay(trees.world, trees.node("own").root)
    contested = (CPU, pair("gpu"))
    # 7 CPUs against 6: "lower" becomes a target. Then 3, against none of b without "large".
    assert victims_of(overlay, trees, "own", {"cpu": 2, "gpu": 1}, contested) == []
    # 4 CPUs against 5, or 4 without "higher".
    assert victims_of(overlay, trees, "later", 4, contested) == ["higher"]


def test_least_amounts_are_those_of_workloads_that_are_no_victims() -> None:
    trees = by_final_share()
    trees.cohort("deep", "root")
    trees.queue("b", "deep")
    trees.add_holder("b", "small", 2)
    trees.add_holder("b", "large", 5)
    node = trees.node("b")
    overlay = Overlay(trees.world, node.root)

    def least() -> list[Amounts]:
        bounds = overlay.indexes.by_share(frozenset((CPU,)), highest=0)
        bounds.index.prepare(node)
        return [bounds.least_amounts(at) for at in (node, trees.node("deep"))]

    assert least() == [{CPU: 2}] * 2
    overlay.add_victims([supposed_victim(trees, "small")])
    assert least() == [{CPU: 5}] * 2


def test_least_amounts_exclude_workloads_of_higher_priority_even_if_they_leave() -> None:
    trees = by_final_share()
    trees.queue("b", "root")
    trees.add_holder("b", "leaving", 1, priority=5, evicted=True)
    trees.add_holder("b", "candidate", 3)
    trees.add_holder("b", "higher", 2, priority=5)
    node = trees.node("b")
    bounds = Overlay(trees.world, node.root).indexes.by_share(frozenset((CPU,)), highest=0)
    bounds.index.prepare(node)
    assert bounds.least_amounts(node) == {CPU: 3}


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [(0, 7, []), (2, 6, ["first", "borrows", "own 0", "own 1"])],
    ids=["only workloads of neighbors", "own workloads too"],
)
def test_search_takes_only_what_neighbor_borrows_without_victim_of_another_head(
    running: int, wanted: int, expected: list[str]
) -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 6, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("first", "all")
    trees.queue("neighbor", "all", 1)
    for number in range(running):
        trees.add_holder("own", f"own {number}")
    trees.add_holder("first", "first", priority=-1)
    trees.add_holder("neighbor", "victim")
    trees.add_holder("neighbor", "borrows")
    trees.add_holder("neighbor", "within quota", priority=1)
    node = trees.node("own")
    overlay = Overlay(trees.world, node.root)
    overlay.add_victims([supposed_victim(trees, "victim")])

    def check_search() -> list[str]:
        preemptor = trees.preemptor("own", priority=5)
        usage, tree = {CPU: wanted}, overlay.indexes
        victims = find_victims(trees.world, preemptor, usage, (CPU,), overlay.excluded, tree)
        return [victim.entry.workload.key.name for victim in victims]

    assert overlay.evaluate_without_victims(node, (), check_search) == expected
