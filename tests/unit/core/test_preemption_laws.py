"""Differential test: in random small trees, core and reference model find the same targets of preemption.

The targets make room, and none can be spared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admitq.core import events as happened
from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.model import ClusterQueuePreemption, ObjectKey, ResourceQuota
from admitq.core.preemption import find_victims
from admitq.core.settings import CoreSettings, FairSharing, Gates, PreemptionStrategy
from tests.laws.reference.fair_sharing import Fair
from tests.laws.reference.observed import Observed
from tests.laws.reference.preemption import Classical, Question
from tests.unit.core.quota_trees import QuotaTrees, pair, policy

POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any", "Any")
FINAL, INITIAL = PreemptionStrategy
STRATEGIES = ((FINAL, INITIAL), (FINAL,), (INITIAL,))


class ObservedTrees(QuotaTrees):
    """A world for the core and for the reference model."""

    def __init__(self, settings: CoreSettings) -> None:
        self.observed = Observed(settings)
        super().__init__(settings)

    def send(self, event: happened.Event) -> None:
        super().send(event)
        self.observed.observe(event, 0)


@dataclass
class Case:
    """The objects of a world, and the preemptor of the search."""

    settings: CoreSettings
    cohorts: list[dict[str, Any]]
    queues: list[dict[str, Any]]
    holders: list[dict[str, Any]]
    preemptor: dict[str, Any]

    def trees(self) -> ObservedTrees:
        trees = ObservedTrees(self.settings)
        for each in self.cohorts:
            trees.cohort(**each)
        for each in self.queues:
            trees.queue(**each)
        for each in self.holders:
            trees.add_holder(**each)
        return trees


def draw_policy(chance: Random) -> ClusterQueuePreemption:
    return policy(
        chance.choice(POLICIES[:3]),
        chance.choice(POLICIES),
        chance.choice(["Never", "LowerPriority"]),
        chance.choice([None, None, 0, 1]),
    )


def draw_quota(chance: Random, most: int) -> ResourceQuota:
    limits = (None, None, None, None, None, 0, 2)
    return ResourceQuota(chance.randrange(most), chance.choice(limits), chance.choice(limits))


def draw_amounts(chance: Random, resources: list[str]) -> dict[str, int]:
    """Draw what a holder uses of some of the resources."""
    drawn = chance.sample(resources, chance.randint(1, len(resources)))
    return {name: chance.choice([1, 1, 2, 3]) for name in drawn}


def draw_case(chance: Random, settings: CoreSettings) -> Case:
    resources = chance.choice([["cpu"], ["cpu"], ["cpu", "gpu"]])
    weights = [0, 1, 1, 1, 2, "1/3"]

    def quotas(most: int) -> dict[str, ResourceQuota]:
        return {name: draw_quota(chance, most) for name in resources}

    tree = {"root": None, "left": "root", "right": "root", "deep": "left"}
    cohorts = [
        {"name": name, "parent": parent, "of": quotas(4), "weight": chance.choice(weights)}
        for name, parent in tree.items()
    ]
    names = [f"q{number}" for number in range(chance.randrange(1, 6))]
    queues = [
        {
            "name": name,
            "cohort": chance.choice([*tree, "root", None] if name == "q0" else [*tree]),
            "of": quotas(6 if name == "q0" else 2),
            "preemption": draw_policy(chance),
            "weight": chance.choice(weights),
        }
        for name in names
    ]
    holders = [
        {
            "queue": chance.choice(names[1:] * 2 + names),
            "name": f"w{number}",
            "of": draw_amounts(chance, resources),
            "priority": chance.randrange(3),
            "since": chance.randrange(2),
            "queued": chance.randrange(3),
            "evicted": chance.random() < 0.2,
        }
        for number in range(chance.randrange(3, 11))
    ]
    preemptor = {
        "queue": "q0",
        "of": {name: chance.randrange(1, 5) for name in resources if name == "cpu" or chance.random() < 0.5},
        "priority": chance.randrange(4),
        "queued": chance.randrange(3),
    }
    return Case(settings, cohorts, queues, holders, preemptor)


def draw_large_request(chance: Random, settings: CoreSettings) -> Case:
    """Draw neighbors that borrow little, so that the preemptor's own ClusterQueue has to give as well."""
    resources = chance.choice([["cpu"], ["cpu", "gpu"]])

    def quotas(most: int) -> dict[str, ResourceQuota]:
        return {name: ResourceQuota(chance.randrange(most), None, None) for name in resources}

    names = [f"q{number}" for number in range(chance.randrange(2, 5))]
    queues = [
        {
            "name": name,
            "cohort": "root" if name == "q0" or chance.random() < 0.5 else "deep",
            "of": quotas(9 if name == "q0" else 4),
            "preemption": policy("LowerPriority", "Any", "LowerPriority", chance.choice([None, 0, 1])),
        }
        for name in names
    ]
    holders = [
        {
            "queue": chance.choice([*names, "q0"]),
            "name": f"w{number}",
            "of": draw_amounts(chance, resources),
            "priority": chance.randrange(3),
            "since": chance.randrange(3),
            "evicted": chance.random() < 0.1,
        }
        for number in range(chance.randrange(5, 13))
    ]
    wanted = {name: chance.randrange(4, 13) for name in resources}
    cohorts = [{"name": "root", "of": quotas(9)}, {"name": "deep", "parent": "root", "of": quotas(6)}]
    return Case(settings, cohorts, queues, holders, {"queue": "q0", "of": wanted, "priority": 3, "queued": 9})


def draw_nearly_equal_case(chance: Random, settings: CoreSettings) -> Case:
    """Draw queues that borrow nearly the same, so that one workload decides; some quota is not lent."""
    resources = chance.choice([["cpu"], ["cpu"], ["cpu", "gpu"]])
    limits = chance.choice([[None], [None, 0, 1, 2]])
    wanted = resources if chance.random() < 0.5 else resources[:1]
    sizes = chance.choice([[1], [1, 1, 3], [1, 2, 3]])
    priorities = chance.choice([[0], [0, 1, 2]])
    evicted = chance.choice([0, 0.3])
    shape = chance.choice(
        [["root", "right"], ["right"], ["deep", "right"], ["left", "right", "root", "deep"]]
    )

    def quotas(most: int, lending: Sequence[int | None]) -> dict[str, ResourceQuota]:
        return {
            name: ResourceQuota(chance.randrange(most), None, chance.choice(lending)) for name in resources
        }

    names = [f"q{number}" for number in range(chance.randrange(2, 7))]
    tree = {"root": None, "left": "root", "right": "root", "deep": "right"}
    cohorts = [
        {"name": name, "parent": parent, "of": quotas(3, limits if name == "deep" else [None])}
        for name, parent in tree.items()
    ]
    queues = [
        {
            "name": name,
            "cohort": chance.choice(["root", "left"] if name == "q0" else shape),
            "of": quotas(2, limits),
            "preemption": policy("LowerPriority", chance.choice(POLICIES[1:])),
        }
        for name in names
    ]
    holders = [
        {
            "queue": name,
            "name": f"{name}-{number}",
            "of": {each: chance.choice(sizes) for each in resources},
            "priority": 0 if name == "q0" else chance.choice(priorities),
            "since": chance.randrange(2),
            "queued": chance.randrange(3),
            "evicted": chance.random() < evicted,
        }
        for name in names
        for number in range(chance.randrange(1, 5))
    ]
    preemptor = {
        "queue": "q0",
        "of": {name: chance.randrange(1, 7) for name in wanted},
        "priority": chance.choice([1, 2]),
        "queued": chance.randrange(3),
    }
    return Case(settings, cohorts, queues, holders, preemptor)


def find_targets(trees: ObservedTrees, case: Case) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the targets by the core and by the reference model."""
    request = case.preemptor
    usage = {pair(name): amount for name, amount in request["of"].items()}
    cells = trees.node("q0").cells
    contested = {each for each, amount in usage.items() if quota.available(cells[each]) < amount}
    preemptor = trees.preemptor("q0", request["priority"], request["queued"])
    before = trees.cells()
    victims = find_victims(trees.world, preemptor, usage, contested)
    assert trees.cells() == before
    core = [(each.entry.workload.key.name, str(each.reason)) for each in victims]
    if not contested:
        return core, []
    observed = trees.observed
    question = Question(observed, observed.tree(), "q0", preemptor.workload, usage, contested)
    model = (Fair if observed.settings.fair_sharing is not None else Classical)(question).victims()
    return core, [(each.holder.key.name, str(each.reason)) for each in model]


def check_case(case: Case, chance: Random) -> None:
    trees = case.trees()
    targets, expected = find_targets(trees, case)
    assert targets == expected
    shuffled = replace(
        case,
        **{
            name: chance.sample(getattr(case, name), len(getattr(case, name)))
            for name in ("cohorts", "queues", "holders")
        },
    )
    assert find_targets(shuffled.trees(), case)[0] == targets
    if targets:
        check_room(trees, case, [name for name, _ in targets])


def check_room(trees: QuotaTrees, case: Case, victims: list[str]) -> None:
    """Check that the request fits without the victims, and does not fit with any of them."""
    node = trees.node("q0")
    usage = {pair(name): amount for name, amount in case.preemptor["of"].items()}

    def change(name: str, sign: int) -> None:
        entry = trees.world.workloads[ObjectKey("default", name)]
        assert entry.held is not None
        cells = trees.node(entry.held.cluster_queue).cells
        for each, amount in entry.held.usage:
            quota.add_usage(cells[each], sign * amount)

    for name in victims:
        change(name, -1)
    fit = check_fit(node, usage)
    assert fit[0]
    spared: list[tuple[bool, bool]] = []
    for name in victims:
        change(name, 1)
        spared.append(check_fit(node, usage))
        change(name, -1)
    none_is_spared = not any(free for free, _ in spared)
    assert none_is_spared or (fit[1] and not any(within for _, within in spared))


def check_fit(node: Node, usage: dict[FlavorResource, int]) -> tuple[bool, bool]:
    """Return whether the request fits, and whether it fits within nominal quota."""
    free = all(quota.available(node.cells[each]) >= amount for each, amount in usage.items())
    borrows = any(quota.borrowing_with(node.cells[each], amount) for each, amount in usage.items())
    return free, free and not borrows


@given(st.randoms(use_true_random=False))
def test_classical_targets_equal_those_of_model(chance: Random) -> None:
    check_case(draw_case(chance, CoreSettings()), chance)


@given(st.randoms(use_true_random=False))
def test_classical_targets_equal_those_of_model_when_neighbors_do_not_suffice(chance: Random) -> None:
    check_case(draw_large_request(chance, CoreSettings()), chance)


@given(st.randoms(use_true_random=False), st.sampled_from(STRATEGIES), st.booleans())
def test_fair_sharing_targets_equal_those_of_model(
    chance: Random, strategies: tuple[PreemptionStrategy, ...], within_nominal: bool
) -> None:
    gates = Gates(fair_sharing_preempt_within_nominal=within_nominal)
    check_case(draw_case(chance, CoreSettings(fair_sharing=FairSharing(strategies), gates=gates)), chance)


@given(st.randoms(use_true_random=False), st.sampled_from(STRATEGIES), st.booleans())
def test_fair_sharing_targets_equal_those_of_model_at_nearly_equal_shares(
    chance: Random, strategies: tuple[PreemptionStrategy, ...], within_nominal: bool
) -> None:
    gates = Gates(fair_sharing_preempt_within_nominal=within_nominal)
    check_case(
        draw_nearly_equal_case(chance, CoreSettings(fair_sharing=FairSharing(strategies), gates=gates)),
        chance,
    )
