"""Measurements of topologies over time: how full racks are, and how large a job could be placed.

The figures come from the trees of the core. After each instant, only the leaves that changed are read again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admitq.core.model import Admission, PodSet, Toleration
from admitq.core.requests import requests_on_node
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import Domain, DomainTree
from admitq.core.topology.flavor_topology import FlavorTopology, amounts_of_pod
from admitq.core.topology.leaf_room import Layer, PodShape
from admitq.core.world import World
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.series import Grid, Level
from admitq.simulator.units import natural


@dataclass(slots=True, eq=False)
class RackMeter:
    """What workloads use in a rack, and what its nodes offer them, by resource."""

    used: dict[str, Level] = field(default_factory=dict[str, Level])
    offered: dict[str, Level] = field(default_factory=dict[str, Level])
    """What the nodes can allocate, without what pods of others request."""


@dataclass(slots=True, eq=False)
class PlacementCounts:
    """How many workloads with several pods, and how many of their pods, got places.

    A workload that is placed again after an eviction counts again.
    """

    workloads: int = 0
    pods: int = 0
    workloads_across: int = 0
    """Of the workloads: those in more than one rack."""
    pods_across: int = 0
    """The pods of these workloads."""


class LevelMeter:
    """How many pods of the common shape fit into the domains of one level.

    Args:
        grid: the time buckets.
        now: the present time.

    Attributes:
        largest: the number of pods that fit into one domain: the largest job that can be placed there.
        total: the number of pods that fit into all domains together.
    """

    def __init__(self, grid: Grid, now: Nanoseconds) -> None:
        self.largest = Level(grid, now)
        self.total = Level(grid, now)
        self._values: dict[int, int] = {}
        self._counts: Counter[int] = Counter()

    @property
    def domains(self) -> int:
        """The number of domains."""
        return len(self._values)

    def set(self, domain: int, pods: int) -> int:
        """Set how many pods fit into a domain. Return the change."""
        former = self._values.get(domain)
        if former == pods:
            return 0
        if former is not None:
            self._counts[former] -= 1
            if not self._counts[former]:
                del self._counts[former]
        self._values[domain] = pods
        self._counts[pods] += 1
        return pods - (former or 0)

    def change(self, by: int, now: Nanoseconds) -> None:
        """Record the total and the largest value from this instant on."""
        self.total.change(by, now)
        # Few values differ, so this costs less than the number of domains.
        self.largest.change(max(self._counts, default=0) - self.largest.value, now)


class FlavorMeter:
    """The measurements of one flavor with a topology.

    Args:
        topology: the topology of the flavor.
        pods: the shape of pods for which room is measured; None measures none.
        tolerations: the tolerations that pods in the flavor get.
        grid: the time buckets.
        now: the present time.

    Attributes:
        rack_level: the index of the level of racks: the one above hosts, or the last one if hosts are no
            level. None if hosts are the only level.
        racks: the racks, by their values.
        levels: how many pods fit, by level.
        placed: how many workloads with several pods were placed.
    """

    def __init__(
        self,
        topology: FlavorTopology,
        pods: PodSet | None,
        tolerations: tuple[Toleration, ...],
        grid: Grid,
        now: Nanoseconds,
    ) -> None:
        self.placed = PlacementCounts()
        self.racks: dict[tuple[str, ...], RackMeter] = {}
        self._grid = grid
        self._pods = pods
        self.follow(topology, tolerations, now)

    def follow(self, topology: FlavorTopology, tolerations: tuple[Toleration, ...], now: Nanoseconds) -> None:
        """Measure another tree from now on: the flavor or its Topology has changed."""
        tree = topology.tree
        last = len(tree.levels) - 1
        racks = last - 1 if tree.ends_with_hosts else last
        for meter in self.racks.values():
            for level in (*meter.used.values(), *meter.offered.values()):
                level.change(-level.value, now)
        self.topology = topology
        self.rack_level = racks if racks >= 0 else None
        self.levels = [LevelMeter(self._grid, now) for _ in tree.levels]
        self._leaves: dict[int, tuple[Mapping[str, int], Mapping[str, int]]] = {}
        self._seen: int | None = None
        self._capacities = (
            None if self._pods is None else Capacities(tree, _shape_of(self._pods, tolerations, last))
        )

    @property
    def tree(self) -> DomainTree:
        """The domains of the flavor."""
        return self.topology.tree

    def settle(self, now: Nanoseconds) -> None:
        """Record the leaves that changed."""
        tree = self.tree
        if self._seen == tree.change_count:
            return
        changed = None if self._seen is None else tree.changes_since(self._seen)
        self._seen = tree.change_count
        numbers: Iterable[int] = tree.by_level[-1] if changed is None else dict.fromkeys(changed)
        for number in numbers:
            self._settle_leaf(tree.domains[number], now)
        if self._capacities is not None:
            self._capacities.refresh()
            self._settle_room(self._capacities.pods, numbers, now)

    def _settle_leaf(self, leaf: Domain, now: Nanoseconds) -> None:
        if self.rack_level is None:
            return
        used, offered = self._leaves.get(leaf.number, ({}, {}))
        values = leaf.values[: self.rack_level + 1]
        rack = self.racks.get(values)
        if rack is None:
            rack = self.racks[values] = RackMeter()
        # What runs on a node that failed stays counted, but takes no capacity that is offered.
        present = leaf.used if leaf.nodes else {}
        self._change(rack.used, used, present, now)
        self._change(rack.offered, offered, leaf.allocatable, now)
        self._leaves[leaf.number] = ({**present}, {**leaf.allocatable})

    def _change(
        self, levels: dict[str, Level], former: Mapping[str, int], to: Mapping[str, int], now: Nanoseconds
    ) -> None:
        if former == to:
            return
        for resource in {**former, **to}:
            change = to.get(resource, 0) - former.get(resource, 0)
            if change:
                level = levels.get(resource)
                if level is None:
                    level = levels[resource] = Level(self._grid, now)
                level.change(change, now)

    def _settle_room(self, pods: list[int], numbers: Iterable[int], now: Nanoseconds) -> None:
        domains = self.tree.domains
        for meter in reversed(self.levels):
            by = sum(meter.set(number, pods[number]) for number in numbers)
            meter.change(by, now)
            numbers = dict.fromkeys(
                parent for number in numbers if (parent := domains[number].parent) is not None
            )

    def count_placed(self, parts: Iterable[tuple[TopologyAssignment, int]]) -> None:
        """Count a workload that got places: the assignments of its podsets, and the pods of each."""
        racks: set[tuple[str, ...]] = set()
        pods = 0
        for assignment, count in parts:
            pods += count
            for name, _ in assignment.domains if self.rack_level is not None else ():
                leaf = self.tree.find_leaf(name[-1:] if self.tree.ends_with_hosts else name)
                if leaf is not None and self.rack_level is not None:
                    racks.add(leaf.values[: self.rack_level + 1])
        if pods < 2:
            return
        self.placed.workloads += 1
        self.placed.pods += pods
        if len(racks) > 1:
            self.placed.workloads_across += 1
            self.placed.pods_across += pods


def _shape_of(pods: PodSet, tolerations: tuple[Toleration, ...], last: int) -> PodShape:
    """Return the shape of one pod without further requests to the topology."""
    affinity = pods.required_node_affinity
    return PodShape(
        amounts_of_pod(requests_on_node(pods.template)),
        (Layer(last, 1),),
        node_selector=pods.node_selector,
        required_node_affinity=() if affinity is None else (affinity,),
        tolerations=((*pods.tolerations, *tolerations),),
    )


class TopologyMeasures:
    """The measurements of all flavors with a topology.

    Args:
        world: the state of the core.
        grid: the time buckets.
        pods: the most common podset of the run.

    Attributes:
        pods: the same.
        flavors: the measurements, by flavor.
    """

    def __init__(self, world: World, grid: Grid, pods: PodSet | None) -> None:
        self.pods = pods
        self.flavors: dict[str, FlavorMeter] = {}
        self._world = world
        self._grid = grid

    @property
    def pod_requests(self) -> dict[str, float]:
        """What one pod of the common podset requests on its node, in the unit of each resource."""
        requests = () if self.pods is None else requests_on_node(self.pods.template)
        return {resource: natural(resource, amount) for resource, amount in requests}

    def settle(self, now: Nanoseconds) -> None:
        """Record what changed at this instant."""
        topologies = self._world.topologies
        for name in topologies.flavors:
            topology = topologies.get(name)
            if topology is None:
                continue
            meter = self.flavors.get(name)
            if meter is None or meter.topology is not topology:
                tolerations = self._world.catalog.flavors[name].tolerations
                if meter is None:
                    meter = FlavorMeter(topology, self.pods, tolerations, self._grid, now)
                    self.flavors[name] = meter
                else:
                    meter.follow(topology, tolerations, now)
            meter.settle(now)

    def count_placed(self, admission: Admission) -> None:
        """Count a workload that got places."""
        parts: dict[str, list[tuple[TopologyAssignment, int]]] = {}
        for part in admission.pod_set_assignments:
            if part.topology is not None:
                flavor = next((name for _, name in part.flavors if name in self.flavors), None)
                if flavor is not None:
                    parts.setdefault(flavor, []).append((part.topology, part.count))
        for flavor, assignments in parts.items():
            self.flavors[flavor].count_placed(assignments)
