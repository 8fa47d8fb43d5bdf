"""Podsets that are placed together, and the search for their places in topologies.

A workload has one unit for each podset, or for each group of podsets: a leader with its workers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from admitq.core.model import Admission, PodSetAssignment
from admitq.core.refusals import PodSetRefusals
from admitq.core.requests import PodSetDemand, group_by_unit
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.kept_pods import keep_pods
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
    units: list[Unit] = []
    for unit in group_by_unit(demands):
        members = [(demand, pod_sets[position]) for position, demand in unit.items()]
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


def assigned_before(topologies: Topologies, original: Admission | None) -> dict[str, TopologyAssignment]:
    """Return the assignments that a replacement keeps of its original, by podset; empty if it keeps none."""
    if original is None or topologies.placement is None or not topologies.placement.keeps_pods:
        return {}
    return {part.name: part.topology for part in original.pod_set_assignments if part.topology is not None}


def find_places(
    topologies: Topologies,
    units: Sequence[Unit],
    before: Mapping[str, TopologyAssignment] | None = None,
    *,
    without_usage: bool = False,
) -> dict[str, TopologyAssignment] | Unplaced:
    """Return the places of podsets by name, or the podsets that have none.

    Args:
        topologies: the topologies of all flavors.
        units: the podsets.
        before: the result of ``assigned_before``, if any. The usage of these pods is counted.
        without_usage: whether to assume that no other workload runs in the topologies.
    """
    found: dict[str, TopologyAssignment] = {}
    with topologies.assuming() as assume:

        def count(unit: Unit, assignments: Mapping[str, TopologyAssignment]) -> None:
            for pods in unit.pods:
                if pods.name in assignments:
                    assume(Place((unit.flavor,), assignments[pods.name], pods.amounts_of_pod))

        kept_by_unit = [keep_pods(topology_of(topologies, unit), unit.pods, before or {}) for unit in units]
        if without_usage:
            for unit, kept in zip(units, kept_by_unit, strict=True):
                count(unit, kept.assignments)
        for unit, kept in zip(units, kept_by_unit, strict=True):
            topology = topology_of(topologies, unit)
            placed = topology.place(kept.missing, without_usage=without_usage) if kept.missing else {}
            if not isinstance(placed, dict):
                return Unplaced(tuple(pods.name for pods in unit.pods), placed)
            assigned = kept.merge(topology, placed)
            # A stored assignment has domains: podsets without pods get none.
            found.update((name, assignment) for name, assignment in assigned.items() if assignment.domains)
            if unit is not units[-1]:
                count(unit, placed)
    return found


def topology_of(topologies: Topologies, unit: Unit) -> FlavorTopology:
    """Return the topology in which a unit is placed."""
    topology = topologies.get(unit.flavor)
    assert topology is not None, "only flavors with a topology have units"  # noqa: S101 narrows the type
    return topology
