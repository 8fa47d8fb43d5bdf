"""Podsets that are placed together, and the search for their places in topologies.

A workload has one unit for each podset, or for each group of podsets: a leader with its workers.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from admitq.core.model import PodSetAssignment
from admitq.core.refusals import PodSetRefusals
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.flavor_topology import PodsToPlace
from admitq.core.topology.refusals import TopologyRefusal, TwoTopologies
from admitq.core.topology.request import IMPLIED
from admitq.core.topology.topologies import Place, Topologies


class Unit(NamedTuple):
    """Podsets that are placed together, and the flavor with their topology."""

    flavor: str
    pods: tuple[PodsToPlace, ...]


class Unplaced(NamedTuple):
    """Podsets that have no place, and why."""

    names: tuple[str, ...]
    refusal: TopologyRefusal

    @property
    def refusals(self) -> tuple[PodSetRefusals, ...]:
        """The refusal of each podset."""
        return tuple(PodSetRefusals(name, (self.refusal,)) for name in self.names)


def list_units(
    flavors: Collection[str], demands: tuple[PodSetDemand, ...], pod_sets: tuple[PodSetAssignment, ...]
) -> list[Unit] | Unplaced:
    """Return the podsets to place, in order. Podsets of one group are placed together.

    Args:
        flavors: the flavors with a topology.
        demands: what each podset requests.
        pod_sets: the assignments of the same podsets.
    """
    groups: dict[str | int, list[tuple[PodSetDemand, PodSetAssignment]]] = {}
    for index, (demand, part) in enumerate(zip(demands, pod_sets, strict=True)):
        group = demand.pod_set.group
        groups.setdefault(index if group is None else group, []).append((demand, part))
    units: list[Unit] = []
    for members in groups.values():
        placed_in = sorted(
            {flavor for _, part in members for _, flavor in part.flavors}.intersection(flavors)
        )
        if len(placed_in) > 1:
            return Unplaced(tuple(part.name for _, part in members), TwoTopologies(tuple(placed_in)))
        if placed_in:
            units.append(Unit(placed_in[0], tuple(to_place(demand, part.count) for demand, part in members)))
    return units


def to_place(demand: PodSetDemand, count: int) -> PodsToPlace:
    """Return so many pods of a podset, as a topology sees them."""
    pod_set = demand.pod_set
    return PodsToPlace(
        pod_set.name,
        count,
        demand.on_node,
        pod_set.topology_request or IMPLIED,
        pod_set.node_selector,
        pod_set.required_node_affinity,
        pod_set.preferred_node_affinity,
        pod_set.tolerations,
    )


def find_places(
    topologies: Topologies, units: Sequence[Unit], *, without_usage: bool = False
) -> dict[str, TopologyAssignment] | Unplaced:
    """Return the places of podsets by name, or the podsets that have none."""
    found: dict[str, TopologyAssignment] = {}
    with topologies.assuming() as assume:
        for unit in units:
            topology = topologies.get(unit.flavor)
            assert topology is not None, "it would be refused"  # noqa: S101 narrows the type
            placed = topology.place(unit.pods, without_usage=without_usage)
            if not isinstance(placed, dict):
                return Unplaced(tuple(pods.name for pods in unit.pods), placed)
            found.update(placed)
            for pods in unit.pods if unit is not units[-1] else ():
                assume(Place((unit.flavor,), placed[pods.name], pods.amounts_of_pod))
    return found
