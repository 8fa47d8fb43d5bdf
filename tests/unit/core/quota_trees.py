"""A world for tests of preemption and shares: queues, cohorts and holders of quota, short to write.

A (flavor, resource) is written ``"gpu"`` (of the one flavor ``default``) or ``"spot/gpu"``; amounts given as
a plain number are of ``cpu``.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource, amounts
from admitq.core.cohorts import Node
from admitq.core.model import (
    SECOND,
    Admission,
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.preemption import Preemptor, find_victims
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.core.world import World

Stated = int | Mapping[str, Any]
"""Amounts or quotas by (flavor, resource); one number is an amount of cpu."""

Weight = Fraction | float | str

OWN = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


def pair(name: str) -> FlavorResource:
    flavor, _, resource = name.rpartition("/")
    return FlavorResource(flavor or "default", resource)


def stated(of: Stated) -> dict[FlavorResource, Any]:
    return {pair(name): each for name, each in ({"cpu": of} if isinstance(of, int) else of).items()}


def groups(of: Stated | ResourceQuota) -> tuple[ResourceGroup, ...]:
    quotas = stated({"cpu": of} if isinstance(of, ResourceQuota) else of)
    by_flavor: dict[str, dict[str, ResourceQuota]] = {}
    for (flavor, resource), each in quotas.items():
        by_flavor.setdefault(flavor, {})[resource] = (
            each if isinstance(each, ResourceQuota) else ResourceQuota(each)
        )
    resources = tuple({resource: None for _, resource in quotas})
    flavors = tuple(FlavorQuotas(name, tuple(each.items())) for name, each in by_flavor.items())
    return (ResourceGroup(resources, flavors),) if quotas else ()


def policy(
    within: str = "Never", reclaim: str = "Never", borrow: str = "Never", threshold: int | None = None
) -> ClusterQueuePreemption:
    return ClusterQueuePreemption(
        PreemptionPolicy(reclaim),
        PreemptionPolicy(within),
        BorrowWithinCohort(PreemptionPolicy(borrow), threshold),
    )


RECLAIM_ANY = policy(reclaim="Any")
LOWER_IN_QUEUE = policy(within="LowerPriority")


NamesAndReasons = list[tuple[str, str]]


class QuotaTrees:
    """A world that is filled by events, and searches for victims in it."""

    def __init__(self, settings: CoreSettings | None = None) -> None:
        self.state = AdmissionState(settings)
        for name in ("default", "spot"):
            self.send(happened.ResourceFlavorChanged(ResourceFlavor(name)))

    @property
    def world(self) -> World:
        return self.state._world  # pyright: ignore[reportPrivateUsage]

    def send(self, event: happened.Event) -> None:
        self.state.handle(event, now=0)

    def node(self, name: str) -> Node:
        return (self.world.cohort_trees.cluster_queues | self.world.cohort_trees.cohorts)[name]

    def cohort(
        self, name: str, parent: str | None = None, of: Stated | ResourceQuota = 0, weight: Weight = 1
    ) -> None:
        self.send(happened.CohortChanged(Cohort(name, parent, groups(of), Fraction(weight))))

    def queue(
        self,
        name: str,
        cohort: str | None = "all",
        of: Stated | ResourceQuota = 0,
        preemption: ClusterQueuePreemption | None = None,
        weight: Weight = 1,
        **fields: Any,
    ) -> None:
        self.send(
            happened.ClusterQueueChanged(
                ClusterQueue(
                    name,
                    cohort=cohort,
                    resource_groups=groups(of),
                    preemption=preemption or policy(),
                    fair_weight=Fraction(weight),
                    **fields,
                )
            )
        )

    def add_holder(
        self,
        queue: str,
        name: str,
        of: Stated = 1,
        priority: int = 0,
        since: float = 0,
        queued: float = 0,
        local_queue: str = "",
        evicted: bool = False,
    ) -> None:
        """Add a workload that holds quota of a ClusterQueue."""
        usage: dict[str, int] = {}
        flavors: dict[str, str] = {}
        for (flavor, resource), amount in stated(of).items():
            usage[resource], flavors[resource] = amount, flavor
        assignment = PodSetAssignment("main", tuple(sorted(flavors.items())), amounts(usage), 1)
        workload = Workload(
            ObjectKey("default", name),
            f"uid-{name}",
            local_queue or queue,
            queued_at=round(queued * SECOND),
            pod_sets=(PodSet("main", 1),),
            priority=priority,
            admission=Admission(queue, (assignment,)),
            reserved_at=round(since * SECOND),
            admitted=True,
            evicted=evicted,
        )
        self.send(happened.WorkloadChanged(workload))
        self.world.quota_holders.put(self.world.workloads[workload.key])

    def remove_holder(self, name: str) -> None:
        key = ObjectKey("default", name)
        self.send(happened.WorkloadDeleted(key, f"uid-{name}"))
        self.world.quota_holders.remove(key)

    def preemptor(self, queue: str, priority: int = 0, queued: float = 0, uid: str = "new") -> Preemptor:
        workload = Workload(
            ObjectKey("default", uid), uid, queue, round(queued * SECOND), (), priority=priority
        )
        return Preemptor(self.world.cluster_queues[queue], workload)

    def victims(
        self,
        queue: str,
        of: Stated = 1,
        priority: int = 0,
        queued: float = 0,
        contested: Iterable[str] | None = None,
        excluded: Iterable[str] = (),
    ) -> NamesAndReasons:
        """Return names and reasons of the targets; the tree must be unchanged after the search."""
        usage = stated(of)
        before = self.cells()
        victims = find_victims(
            self.world,
            self.preemptor(queue, priority, queued),
            usage,
            usage.keys() if contested is None else [pair(name) for name in contested],
            [ObjectKey("default", name) for name in excluded],
        )
        assert self.cells() == before, "the search changed the tree"
        return [(victim.entry.workload.key.name, str(victim.reason)) for victim in victims]

    def victim_names(self, queue: str, of: Stated = 1, priority: int = 0, **options: Any) -> list[str]:
        return [name for name, _ in self.victims(queue, of, priority, **options)]

    def cells(self) -> dict[tuple[bool, str, FlavorResource], tuple[int, ...]]:
        """Return all numbers of the quota tree."""
        trees = self.world.cohort_trees
        nodes = [*trees.cluster_queues.values(), *trees.cohorts.values()]
        return {
            (node.is_cohort, node.name, of): (cell.usage, cell.subtree_quota, cell.local)
            for node in nodes
            for of, cell in node.cells.items()
        }
