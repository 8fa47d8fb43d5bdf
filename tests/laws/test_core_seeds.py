"""The same laws over histories that are dense in what matters: many queues at odds over little quota.

Where hypothesis seeks the simplest world that breaks a law, these histories draw from crowded ones. A
failing seed replays exactly.
"""

import random
from dataclasses import replace

import pytest

from admitq.core import events as happened
from admitq.core.model import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Workload,
)
from admitq.core.requests import asking
from tests.laws.test_core_laws import (
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    QUEUES,
    TEAM_BLUE,
    WORKLOADS,
    Histories,
)

STEPS = 80
SEEDS = range(150)


class Crowd:
    """Draws steps of a history in a crowded world."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 a history, not a secret
        self.world = Histories()

    def quota(self) -> ResourceQuota:
        draw = self.draw
        limit = [None, None, None, 0, 1, 2, 4]
        return ResourceQuota(draw.choice([0, 1, 2, 3, 4, 6]), draw.choice(limit), draw.choice(limit))

    def groups(self) -> tuple[ResourceGroup, ...]:
        draw = self.draw
        covered = draw.choice([("cpu",), ("cpu",), ("cpu", "mem"), ("cpu", "pods")])
        names = draw.choice([("f1",), ("f2", "f1"), ("f1", "f2")])
        groups = [
            ResourceGroup(
                covered,
                tuple(FlavorQuotas(name, tuple((each, self.quota()) for each in covered)) for name in names),
            )
        ]
        if names == ("f1",):
            groups.append(ResourceGroup(("gpu",), (FlavorQuotas("f2", (("gpu", self.quota()),)),)))
        return tuple(groups)

    def cluster_queue(self, name: str) -> ClusterQueue:
        draw = self.draw
        return ClusterQueue(
            name,
            cohort=draw.choice([*COHORTS, *COHORTS, None]),
            resource_groups=self.groups(),
            queueing_strategy=draw.choice(list(QueueingStrategy)),
            namespace_selector=draw.choice([LabelSelector()] * 4 + [TEAM_BLUE, None]),
            stop_policy=draw.choice([StopPolicy.NONE] * 5 + [StopPolicy.HOLD]),
            flavor_fungibility=FlavorFungibility(draw.choice(["MayStopSearch", "TryNextFlavor"])),
        )

    def workload(self, key: ObjectKey) -> Workload:
        draw = self.draw
        requests = [
            (("cpu", 1),),
            (("cpu", 2),),
            (("cpu", 3),),
            (("cpu", 1), ("mem", 1)),
            (("cpu", 1), ("gpu", 1)),
        ]
        pod_sets = [PodSet("main", draw.choice([1, 1, 1, 2]), asking(draw.choice(requests)))]
        if draw.random() < 0.3:
            pod_sets.append(PodSet("workers", 1, asking(draw.choice(requests))))
        return Workload(
            key,
            self.world.uid(),
            draw.choice(["l1", "l2"]),
            draw.randrange(4),
            tuple(pod_sets),
            draw.choice([0, 0, 0, 1]),
        )

    # --- steps ------------------------------------------------------------------------------------

    def begin(self) -> None:
        for name in FLAVORS:
            self.world.put_flavor(ResourceFlavor(name))
        for name in NAMESPACES:
            self.world.put_namespace(name, "blue")
        for name in QUEUES:
            self.world.put_cluster_queue(self.cluster_queue(name))
        for key, queue in zip(LOCAL_QUEUES, QUEUES, strict=True):
            self.world.put_local_queue(LocalQueue(key, queue))

    def submit(self) -> None:
        self.world.submit([self.workload(self.draw.choice(WORKLOADS)) for _ in range(6)])

    def run(self) -> None:
        draw = self.draw
        self.world.run_cycles(draw.choice([None, None, 1, 2]), draw.choice([0, 0, 1]), draw.randrange(1000))

    def answer(self) -> None:
        self.world.answer({0} if self.draw.random() < 0.3 else set())

    def give_back(self) -> None:
        draw = self.draw
        self.world.give_back([(draw.randrange(12), draw.random() < 0.5) for _ in range(draw.randrange(1, 4))])

    def change(self) -> None:
        changes = [
            {"priority": self.draw.choice([0, 1, 2])},
            {"reclaimable_pods": (("main", 1),)},
            {"active": self.draw.random() < 0.5},
            {"requeue_blocked": self.draw.random() < 0.5},
            {"requeue_at": self.world.now + self.draw.randrange(3)},
            {"queue_name": self.draw.choice(["l1", "l2"])},
            {"admission_checks": self.draw.choice([(), (("check", "Retry"),)])},
            {"finished": True},
        ]
        self.world.change_workload(self.draw.choice(WORKLOADS), self.draw.choice(changes))

    def delete(self) -> None:
        self.world.delete_workload(self.draw.choice(WORKLOADS))

    def edit(self) -> None:
        draw, world = self.draw, self.world
        name = draw.choice(QUEUES)
        queue = world.reference.cluster_queues.get(name)
        edits = [
            lambda: world.put_cluster_queue(self.cluster_queue(name)),
            lambda: queue and world.put_cluster_queue(replace(queue, resource_groups=self.groups())),
            lambda: queue and world.put_cluster_queue(replace(queue, cohort=draw.choice(COHORTS))),
            lambda: world.send(
                happened.CohortChanged(
                    Cohort(
                        draw.choice(COHORTS),
                        draw.choice([None, *COHORTS]),
                        self.groups() if draw.random() < 0.4 else (),
                    )
                )
            ),
            lambda: world.send(happened.CohortDeleted(draw.choice(COHORTS))),
            lambda: draw.random() < 0.3 and world.send(happened.ClusterQueueDeleted(name)),
            lambda: world.put_local_queue(
                LocalQueue(
                    draw.choice(LOCAL_QUEUES), name, "", draw.choice([StopPolicy.NONE, StopPolicy.HOLD])
                )
            ),
            lambda: world.put_namespace(draw.choice(NAMESPACES), draw.choice(["blue", "red"])),
            lambda: draw.random() < 0.3 and world.send(happened.ResourceFlavorDeleted(draw.choice(FLAVORS))),
            lambda: [world.put_flavor(ResourceFlavor(flavor)) for flavor in FLAVORS],
        ]
        draw.choice(edits)()

    def step(self) -> None:
        weights = {
            self.submit: 20,
            self.run: 25,
            self.answer: 14,
            self.give_back: 14,
            self.change: 10,
            self.edit: 12,
            self.delete: 3,
            self.world.restart: 2,
            self.world.observe_everything_again: 2,
        }
        (step,) = self.draw.choices(list(weights), list(weights.values()))
        step()
        self.world.books_are_right()


@pytest.mark.parametrize("seed", SEEDS)
def test_laws_hold_in_a_crowded_world(seed: int) -> None:
    crowd = Crowd(seed)
    crowd.begin()
    for _ in range(STEPS):
        crowd.step()
