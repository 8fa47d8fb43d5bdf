"""What a cycle supposes of a tree, and the indexes that follow it, equal a tree that is really changed."""

from collections.abc import Collection
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.model import ObjectKey
from admitq.core.overlay import Overlay, ask_without
from admitq.core.preemption import Victim, find_victims
from admitq.core.preemption.index import Amounts
from admitq.core.settings import FairSharing, Gates, PreemptionStrategy, Settings
from admitq.core.world import WorkloadEntry
from tests.unit.core.stage import Stage, Stated, pair, policy, stated
from tests.unit.core.test_preemption_laws import a_case, a_nearly_equal_case

CPU = pair("cpu")
SETTINGS = (Settings(), Settings(fair_sharing=FairSharing()))


class Supposing:
    """A stage, an overlay of the tree of its first ClusterQueue, and what was supposed so far."""

    def __init__(self, chance: Random, settings: Settings) -> None:
        self.case = chance.choice([a_case, a_nearly_equal_case])(chance, settings)
        self.stage = self.case.stage()
        self.world = self.stage.world
        self.chance = chance
        self.root = self.stage.node("q0").root
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
        self.overlay.reserve_capacity(self.stage.node(name), ((CPU, amount),))

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

    def change_the_tree(self) -> None:
        """Let a workload hold quota, of which the overlay is not told."""
        name = f"more-{len(self.world.workloads)}"
        self.stage.add_holder(self.chance.choice(self.queues), name, self.chance.randrange(1, 3))

    def search(self) -> None:
        """The searches on the supposed tree find what those on a changed tree find, without indexes."""
        name = self.chance.choice(self.queues)
        node = self.stage.node(name)
        usage = {CPU: self.chance.randrange(1, 6)}
        contested = (CPU,)
        preemptor = self.stage.preemptor(name, self.chance.randrange(4), self.chance.randrange(3))
        excluded = self.overlay.excluded

        def found(*, supposed: bool) -> list[Victim]:
            tree = self.overlay.candidates if supposed else None
            return list(find_victims(self.world, preemptor, usage, contested, excluded, tree))

        before = self.stage.cells()
        expected = ask_without(self.world, self.victims.values(), lambda: found(supposed=False))
        assert self.overlay.without_victims(node, (), lambda: found(supposed=True)) == expected
        assert self.stage.cells() == before

    def ask(self) -> None:
        """What is available without victims, or without reserved capacity, is that of a changed tree."""
        node = self.stage.node(self.chance.choice(self.queues))
        cell = node.cells[CPU]
        others = [entry for entry in self.staying() if self.chance.random() < 0.3]
        own = [Victim(entry, PreemptionReason.IN_CLUSTER_QUEUE) for entry in others]
        gone = {**self.victims, **{entry.workload.key: entry for entry in others}}
        available = ask_without(self.world, gone.values(), lambda: quota.available(cell))
        assert self.overlay.without_victims(node, own, lambda: quota.available(cell)) == available
        self.count_reserved(-1)
        available = quota.available(cell)
        self.count_reserved(1)
        assert self.overlay.without_reserved_capacity(node, lambda: quota.available(cell)) == available

    def staying(self) -> list[WorkloadEntry]:
        return [entry for name in self.queues for _, entry in self.world.quota_holders.staying(name)]

    def count_reserved(self, sign: int) -> None:
        for name, amount in self.reserved:
            quota.add_usage(self.stage.node(name).cells[CPU], sign * amount)


@given(st.randoms(use_true_random=False), st.sampled_from(SETTINGS))
def test_overlay_after_any_changes_equals_a_changed_tree(chance: Random, settings: Settings) -> None:
    supposing = Supposing(chance, settings)
    before = supposing.stage.cells()
    steps = (
        supposing.reserve_capacity,
        supposing.add_victim,
        supposing.add_victim,
        supposing.search,
        supposing.search,
        supposing.ask,
    )
    for _ in range(20):
        chance.choice(steps)()
    supposing.overlay.undo()
    assert supposing.stage.cells() == before


@given(st.randoms(use_true_random=False), st.sampled_from(SETTINGS))
def test_overlay_tree_changes_otherwise_is_computed_anew(chance: Random, settings: Settings) -> None:
    supposing = Supposing(chance, settings)
    steps = (
        supposing.reserve_capacity,
        supposing.add_victim,
        supposing.change_the_tree,
        supposing.search,
        supposing.ask,
    )
    for _ in range(20):
        chance.choice(steps)()


def victims_of(
    overlay: Overlay,
    stage: Stage,
    name: str,
    requested: Stated,
    contested: Collection[FlavorResource] = (CPU,),
) -> list[str]:
    """The victims for a workload of a ClusterQueue, in the tree as it is supposed."""

    def search() -> list[str]:
        preemptor, excluded = stage.preemptor(name, priority=1), overlay.excluded
        tree = overlay.candidates
        found = find_victims(stage.world, preemptor, stated(requested), contested, excluded, tree)
        return [victim.entry.workload.key.name for victim in found]

    return overlay.without_victims(stage.node(name), (), search)


def supposed_victim(stage: Stage, name: str) -> Victim:
    entry = stage.world.workloads[ObjectKey("default", name)]
    return Victim(entry, PreemptionReason.IN_COHORT_RECLAMATION)


def available_without_victims(overlay: Overlay, stage: Stage, name: str) -> int:
    node = stage.node(name)
    return overlay.without_victims(node, (), lambda: quota.available(node.cells[CPU]))


def test_overlay_workload_is_admitted_elsewhere_is_computed_anew() -> None:
    stage = Stage()
    stage.queue("own", of=10)
    stage.queue("other")
    stage.add_holder("other", "victim", 2)
    node = stage.node("own")
    overlay = Overlay(stage.world, node.root)
    overlay.reserve_capacity(node, ((CPU, 1),))
    overlay.add_victims([supposed_victim(stage, "victim")])
    assert available_without_victims(overlay, stage, "own") == 9
    stage.add_holder("other", "more", 3)
    assert available_without_victims(overlay, stage, "own") == 6
    assert overlay.without_reserved_capacity(node, lambda: quota.available(node.cells[CPU])) == 5


def test_overlay_reservation_is_not_as_expected_is_computed_anew() -> None:
    stage = Stage()
    stage.queue("own", of=10)
    stage.queue("other")
    stage.add_holder("other", "victim", 2)
    stage.add_holder("own", "counted", 3)
    overlay = Overlay(stage.world, stage.node("own").root)
    overlay.add_victims([supposed_victim(stage, "victim")])
    record = stage.world.workloads[ObjectKey("default", "counted")]
    overlay.settle_reservation(record, stage.node("own"), ((CPU, 3),))
    assert available_without_victims(overlay, stage, "own") == 7


def test_search_victim_of_another_head_did_not_borrow_its_quota_counts() -> None:
    stage = Stage()
    stage.cohort("deep", "all")
    stage.queue("own", "all", 1, policy(reclaim="Any", borrow="LowerPriority"))
    stage.queue("inner", "deep", 4)
    stage.queue("other", "all")
    stage.add_holder("inner", "within quota", 2)
    stage.add_holder("other", "borrows", 3)
    overlay = Overlay(stage.world, stage.node("own").root)
    assert victims_of(overlay, stage, "own", 5) == []
    overlay.add_victims([supposed_victim(stage, "within quota")])
    assert victims_of(overlay, stage, "own", 5) == ["borrows"]


def by_final_share() -> Stage:
    strategies = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
    gates = Gates(fair_sharing_preempt_within_nominal=False)
    return Stage(Settings(fair_sharing=FairSharing(strategies), gates=gates))


def test_search_queue_borrows_by_reserved_capacity_its_smaller_workload_counts_in_its_cohort() -> None:
    stage = by_final_share()
    stage.cohort("root", None, 5)
    stage.cohort("other", "root")
    stage.queue("own", "root", 0, policy(reclaim="LowerPriority"))
    stage.queue("b", "other")
    stage.queue("c", "other", 1)
    stage.add_holder("b", "large", 3)
    stage.add_holder("c", "small", 1)
    overlay = Overlay(stage.world, stage.node("own").root)
    # The cohort borrows 3, and nothing without the large one: only that can be preempted.
    assert victims_of(overlay, stage, "own", 3) == []
    overlay.reserve_capacity(stage.node("c"), ((CPU, 1),))
    # It borrows 4, and 3 without the small one.
    assert victims_of(overlay, stage, "own", 2) == ["small"]


def test_search_queue_borrows_by_reserved_capacity_place_of_its_cohort_stays_its_workload_counts() -> None:
    stage = by_final_share()
    stage.cohort("root", None, 6)
    stage.cohort("other", "root", {"cpu": 0, "gpu": 30})
    stage.cohort("deep", "other", {"cpu": 0, "gpu": 0})
    stage.queue("own", "root", 0, policy(reclaim="LowerPriority"))
    for name, cohort, nominal in (("b", "deep", 0), ("c", "deep", 1), ("d", "other", 0)):
        stage.queue(name, cohort, {"cpu": nominal, "gpu": 0})
    stage.add_holder("b", "gpus", {"gpu": 30})
    stage.add_holder("b", "large", 3)
    stage.add_holder("c", "small", 1)
    stage.add_holder("d", "next", 1)
    overlay = Overlay(stage.world, stage.node("own").root)
    # 3 CPUs against 4, and 1 without the large one: nothing of deep, because GPUs dominate its share.
    assert victims_of(overlay, stage, "own", 3) == ["next"]
    overlay.reserve_capacity(stage.node("c"), ((CPU, 1),))
    # 3 against 5, and 4 without the small one, then 3.
    assert victims_of(overlay, stage, "own", 3) == ["small", "next"]


def test_search_place_stays_share_without_the_candidate_rises_candidate_is_accepted() -> None:
    stage = by_final_share()
    stage.cohort("root", None, {"cpu": 9, "gpu": 9})
    for name in ("own", "b"):
        stage.queue(name, "root", {"cpu": 0, "gpu": 0}, policy(reclaim="LowerPriority"))
    stage.add_holder("b", "lower", 4)
    stage.add_holder("b", "higher", 2, priority=9)
    overlay = Overlay(stage.world, stage.node("own").root)
    # b borrows 6 of 9 CPUs, and 2 without the lower one: less than the 4 of the preemptor.
    assert victims_of(overlay, stage, "own", 4) == []
    overlay.reserve_capacity(stage.node("b"), ((pair("gpu"), 5),))
    # The share of b is the same. Without the lower one, it is 5 of 9 GPUs.
    assert victims_of(overlay, stage, "own", 4) == ["lower"]


def test_search_preemptor_lost_own_candidates_meanwhile_bound_of_its_queue_is_not_kept() -> None:
    stage = by_final_share()
    stage.cohort("root", None, {"cpu": 14, "gpu": 1})
    for name, gpus in (("own", 0), ("later", 0), ("b", 0), ("g", 99)):
        stage.queue(name, "root", {"cpu": 0, "gpu": gpus}, policy("LowerPriority", "Any"))
    stage.add_holder("own", "lower", 4)
    stage.add_holder("own", "higher", 1, priority=9)
    stage.add_holder("b", "large", 6)
    stage.add_holder("g", "gpus", {"gpu": 100})
    overlay = Overlay(stage.world, stage.node("own").root)
    contested = (CPU, pair("gpu"))
    # 7 CPUs against 6: the lower one goes. Then 3, against none of b without the large one.
    assert victims_of(overlay, stage, "own", {"cpu": 2, "gpu": 1}, contested) == []
    # 4 CPUs against 5, or 4 without the higher one.
    assert victims_of(overlay, stage, "later", 4, contested) == ["higher"]


def test_least_amounts_are_those_of_workloads_that_are_no_victims() -> None:
    stage = by_final_share()
    stage.cohort("deep", "root")
    stage.queue("b", "deep")
    stage.add_holder("b", "small", 2)
    stage.add_holder("b", "large", 5)
    node = stage.node("b")
    overlay = Overlay(stage.world, node.root)

    def least() -> list[Amounts]:
        bounds = overlay.candidates.by_share(frozenset((CPU,)), highest=0)
        bounds.index.prepare(node)
        return [bounds.least_amounts(at) for at in (node, stage.node("deep"))]

    assert least() == [{CPU: 2}] * 2
    overlay.add_victims([supposed_victim(stage, "small")])
    assert least() == [{CPU: 5}] * 2


def test_least_amounts_leave_out_workloads_of_higher_priority_whether_or_not_they_leave() -> None:
    stage = by_final_share()
    stage.queue("b", "root")
    stage.add_holder("b", "leaving", 1, priority=5, evicted=True)
    stage.add_holder("b", "candidate", 3)
    stage.add_holder("b", "higher", 2, priority=5)
    node = stage.node("b")
    bounds = Overlay(stage.world, node.root).candidates.by_share(frozenset((CPU,)), highest=0)
    bounds.index.prepare(node)
    assert bounds.least_amounts(node) == {CPU: 3}


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [(0, 7, []), (2, 6, ["first", "borrows", "own 0", "own 1"])],
    ids=["neighbors alone", "own candidates needed too"],
)
def test_search_without_victim_of_another_head_its_cluster_queue_loses_only_what_it_then_borrows(
    running: int, wanted: int, expected: list[str]
) -> None:
    stage = Stage()
    stage.queue("own", "all", 6, policy("LowerPriority", "Any", "LowerPriority"))
    stage.queue("first", "all")
    stage.queue("neighbor", "all", 1)
    for number in range(running):
        stage.add_holder("own", f"own {number}")
    stage.add_holder("first", "first", priority=-1)
    stage.add_holder("neighbor", "victim")
    stage.add_holder("neighbor", "borrows")
    stage.add_holder("neighbor", "within quota", priority=1)
    node = stage.node("own")
    overlay = Overlay(stage.world, node.root)
    overlay.add_victims([supposed_victim(stage, "victim")])

    def search() -> list[str]:
        preemptor = stage.preemptor("own", priority=5)
        usage, tree = {CPU: wanted}, overlay.candidates
        found = find_victims(stage.world, preemptor, usage, (CPU,), overlay.excluded, tree)
        return [victim.entry.workload.key.name for victim in found]

    assert overlay.without_victims(node, (), search) == expected
