"""A small cluster for tests, with a topology of two racks."""

from dataclasses import dataclass
from typing import Any

from admitq.core import events as happened
from admitq.core.instructions import AssignTopology, ReserveQuota
from admitq.core.model import PodSet, ResourceFlavor
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.request import TopologyRequest
from tests.unit.core.small_cluster import SmallCluster, queue

RACK = TopologyRequest(required="rack")
PLACES = CoreSettings(placement=Placement())


def host(name: str) -> Node:
    labels = (("rack", name.partition("-")[0]), (HOST_NAME, name))
    return Node(name, labels, (), (("cpu", 4000), ("pods", 99)))


@dataclass
class Racks(SmallCluster):
    """Flavor ``default`` has racks ``r1`` and ``r2`` with two hosts each. A host has four CPUs."""

    settings: CoreSettings = PLACES

    def __post_init__(self) -> None:
        super().__post_init__()
        self.send(happened.TopologyChanged("racks", ("rack", HOST_NAME)))
        self.send(happened.ResourceFlavorChanged(ResourceFlavor("default", topology_name="racks")))
        for name in ("r1-a", "r1-b", "r2-a", "r2-b"):
            self.add_node(name)

    def add_node(self, name: str) -> None:
        self.send(happened.NodeChanged(host(name)))

    def submit_pods(
        self,
        name: str,
        count: int,
        request: TopologyRequest | None = RACK,
        queue: str = "cq",
        priority: int = 0,
    ) -> None:
        template = template_requesting({"cpu": 1000})
        pod_sets = (PodSet("main", count, template, topology_request=request),)
        self.submit(name, queue, priority=priority, pod_sets=pod_sets)

    def places(self) -> dict[str, dict[str, int]]:
        """The number of pods on each host, by the workload that got places last."""
        return {
            each.key.name: {values[0]: count for values, count in part.topology.domains}
            for each in self.instructions
            if isinstance(each, (ReserveQuota, AssignTopology))
            for part in each.admission.pod_set_assignments
            if part.topology is not None
        }

    def domains_by_pod_set(self) -> dict[str, dict[str, int]]:
        """The number of pods on each host, by podset, of the workload that got places last."""
        (placed,) = [each for each in self.instructions if isinstance(each, (ReserveQuota, AssignTopology))]
        return {
            part.name: {values[0]: count for values, count in part.topology.domains}
            for part in placed.admission.pod_set_assignments
            if part.topology is not None
        }

    def used_hosts(self) -> list[str]:
        """The hosts on which pods of admitted workloads are counted."""
        topology = self.state.queries.world.topologies.get("default")
        return [] if topology is None else sorted(name for (name,) in topology.tree.usage())


def racks(cpu: int = 100, settings: CoreSettings = PLACES, **fields: Any) -> Racks:
    cluster = Racks(settings)
    cluster.put(queue("cq", 1000 * cpu, **fields))
    return cluster
