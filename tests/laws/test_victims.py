"""Searches for victims among many holders of quota find those of the model, and none that can be spared."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.events import Event
from admitq.core.model import Admission, ObjectKey, PodSet, PodSetAssignment, Workload
from admitq.core.preemption import Preemptor, find_victims
from admitq.core.state import AdmissionState
from tests.laws.drawing import COHORTS, FLAVORS, LOCAL_QUEUES, NAMESPACES, QUEUES, WORKLOADS, Draw, requesting
from tests.laws.heads import local_queue_usage
from tests.laws.law import check_law
from tests.laws.reference.fair_sharing import Fair
from tests.laws.reference.observed import Observed
from tests.laws.reference.preemption import Classical, Question, Victim
from tests.laws.reference.tree import Tree, queue_node

MAX_VICTIMS = 8
"""All subsets of up to this many victims are tested; no search may find more."""


class World:
    """ClusterQueues full of workloads."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = Draw(seed)
        settings = draw.settings()
        self.observed = Observed(settings)
        self.core = AdmissionState(settings)
        for name in FLAVORS:
            self.send(happened.ResourceFlavorChanged(replace(draw.flavor(name), topology_name=None)))
        for name in NAMESPACES:
            self.send(happened.NamespaceChanged(name, ()))
        for name in draw.some(COHORTS):
            self.send(happened.CohortChanged(draw.cohort(name)))
        for name in QUEUES:
            queue = replace(draw.cluster_queue(name), admission_checks=(), terminating=False)
            if queue.preemption.reclaim_within_cohort == "Never" or queue.cohort is None:
                queue = replace(draw.cluster_queue(name), admission_checks=(), cohort="w")
            self.send(happened.ClusterQueueChanged(queue))
        for key in LOCAL_QUEUES:
            self.send(happened.LocalQueueChanged(draw.local_queue(key)))
        for number, key in enumerate(WORKLOADS):
            self.send(happened.WorkloadChanged(self.holder(key, f"{draw.randrange(100)}-{number}")))

    def holder(self, key: ObjectKey, uid: str) -> Workload:
        """Draw a workload that holds quota."""
        draw = self.draw
        name = draw.choice(QUEUES)
        taken = {pair: draw.choice((0, 1, 1, 2, 3)) for pair in self.pairs(name) if draw.chance(0.7)}
        flavors = {pair.resource: pair.flavor for pair in taken}
        usage = {pair.resource: taken[pair] for pair in taken if flavors[pair.resource] == pair.flavor}
        assigned = PodSetAssignment("main", tuple(sorted(flavors.items())), tuple(sorted(usage.items())), 1)
        return Workload(
            key,
            uid,
            draw.choice(("l1", "l2")),
            draw.randrange(4),
            (PodSet("main", 1, requesting()),),
            draw.randrange(4),
            admission=Admission(name, (assigned,)),
            reserved_at=draw.randrange(4),
            admitted=draw.chance(0.8),
            evicted=draw.chance(0.15),
        )

    def pairs(self, name: str) -> list[FlavorResource]:
        """Return the (flavor, resource) pairs of a ClusterQueue."""
        groups = self.observed.cluster_queues[name].resource_groups
        return [
            FlavorResource(flavor.name, resource)
            for group in groups
            for flavor in group.flavors
            for resource in group.covered_resources
        ]

    def send(self, event: Event) -> None:
        self.observed.observe(event, 0)
        self.core.handle(event, now=0)


def fits(tree: Tree, question: Question, *, borrowing: bool) -> bool:
    """Whether the requested amounts fit, with or without borrowing."""
    node = queue_node(question.queue)
    return tree.fits(question.queue, question.usage) and (
        borrowing or not any(n and tree.borrows_with(node, pair, n) for pair, n in question.usage.items())
    )


def suffices(question: Question, victims: Iterable[Victim], *, borrowing: bool) -> bool:
    """Whether the requested amounts fit once these targets have left."""
    tree = question.observed.tree()
    for victim in victims:
        tree.remove(victim.holder.queue, victim.holder.usage)
    return fits(tree, question, borrowing=borrowing)


def check_none_can_be_spared(question: Question, victims: list[Victim]) -> None:
    """Check that no proper subset of the targets suffices, in the attempt that found them."""
    assert suffices(question, victims, borrowing=True)
    assert len(victims) <= MAX_VICTIMS
    subsets = [subset for size in range(len(victims)) for subset in combinations(victims, size)]
    assert any(
        suffices(question, victims, borrowing=borrowing)
        and not any(suffices(question, subset, borrowing=borrowing) for subset in subsets)
        for borrowing in (True, False)
    ), "some victims can be spared"


def demands(world: World, name: str) -> Mapping[FlavorResource, int]:
    """Draw the amounts that a preemptor of a ClusterQueue requests: each resource in one flavor."""
    flavors: dict[str, FlavorResource] = {}
    for pair in world.draw.sample(world.pairs(name), k=len(world.pairs(name))):
        flavors.setdefault(pair.resource, pair)
    return {pair: world.draw.choice((1, 2, 3, 5)) for pair in flavors.values() if world.draw.chance(0.8)}


def search(world: World, name: str, preemptor: Workload) -> int:
    """Compare one search with the model; return the number of targets."""
    tree = world.observed.tree()
    node = queue_node(name)
    if tree.path(node) is None or not world.observed.is_active(name):
        return 0
    usage = demands(world, name)
    contested = {pair for pair, amount in usage.items() if amount > tree.available(node, pair)}
    if not contested:
        return 0
    inner = world.core._world  # pyright: ignore[reportPrivateUsage]
    question = Question(
        world.observed, tree, name, preemptor, usage, contested, used=local_queue_usage(world.core)
    )
    fair = world.observed.settings.fair_sharing is not None
    expected = (Fair(question) if fair else Classical(question)).victims()
    found = find_victims(inner, Preemptor(inner.cluster_queues[name], preemptor), usage, contested)
    core = [(each.entry.workload.key, each.reason) for each in found]
    model = [(each.holder.key, each.reason) for each in expected]
    check_law(core == model, "other victims", f"core  {core}", f"model {model}", question.usage, contested)
    if expected:
        check_none_can_be_spared(question, expected)
    world.core.validate()
    return len(found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_victims_equal_those_of_model_and_none_can_be_spared(first: int) -> None:
    victims = 0
    for seed in range(first, first + 50):
        world = World(seed)
        for number in range(6):
            name = world.draw.choice(QUEUES)
            preemptor = Workload(
                WORKLOADS[0]._replace(name="preemptor"),
                f"p{number}",
                "l1",
                world.draw.randrange(4),
                (PodSet("main", 1, requesting()),),
                world.draw.randrange(5),
            )
            victims += search(world, name, preemptor)
    assert victims > 20, "the worlds are not crowded"
