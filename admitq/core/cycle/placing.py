"""Assign pods to the domains of topologies, once a search has found their flavors.

Source: semantics, TAS step and partial admission.

An assignment that fits into unused quota may have no place in a topology. It then needs preemption, as if
quota were missing: all (flavor, resource) pairs of its placed podsets are contested. If the pods would have
no place even without other workloads in the topology, nothing helps.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.flavor_options import FlavorOptions
from admitq.core.instructions import FitMode
from admitq.core.model import PodSetAssignment
from admitq.core.refusals import NoFitReason, NoFlavorFits, PodSetRefusals
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.flavor_topology import PodsToPlace
from admitq.core.topology.refusals import TopologyRefusal, TwoTopologies
from admitq.core.topology.request import IMPLIED
from admitq.core.topology.topologies import Place, Topologies, places_of


class _Unit(NamedTuple):
    """Podsets that are placed together, and the flavor with their topology."""

    flavor: str
    pods: tuple[PodsToPlace, ...]


class _Refused(NamedTuple):
    """Podsets that have no place, and why."""

    names: tuple[str, ...]
    refusal: TopologyRefusal


class Placing:
    """Places the pods of one workload of a ClusterQueue, in the flavors that a search has found.

    Args:
        topologies: the topologies of all flavors.
        options: the flavor options of the ClusterQueue.
        demands: what each podset requests.
        assignment: the flavors of all podsets.
    """

    def __init__(
        self,
        topologies: Topologies,
        options: FlavorOptions,
        demands: tuple[PodSetDemand, ...],
        assignment: Assignment,
    ) -> None:
        self._topologies = topologies
        self._demands = demands
        self._assignment = assignment
        self._units = _list_units(options, demands, assignment)

    def place(self) -> Assignment:
        """Return the assignment with the places of its pods.

        If there is no place now, the assignment has the mode of preemption, and the places that it would have
        without other workloads in the topology. If there are none either, it fits no flavor.
        """
        assignment = self._assignment
        if isinstance(self._units, _Refused):
            return _refuse(assignment, self._units)
        if not self._units:
            return assignment
        refused = None
        if assignment.mode is FitMode.FIT:
            found = self._find(self._units)
            if isinstance(found, dict):
                return _with_places(self._demands, assignment, found)
            refused = found
        found = self._find(self._units, without_usage=True)
        if isinstance(found, _Refused):
            return _refuse(assignment, refused or found)
        return _needing_preemption(_with_places(self._demands, assignment, found), refused)

    def place_now(self) -> tuple[Place, ...]:
        """Return the places that the pods of the assignment have now; empty if there are none."""
        found = self._units if isinstance(self._units, _Refused) else self._find(self._units)
        if isinstance(found, _Refused):
            return ()
        return _with_places(self._demands, self._assignment, found).places

    def _find(
        self, units: Sequence[_Unit], *, without_usage: bool = False
    ) -> dict[str, TopologyAssignment] | _Refused:
        """Return the places of podsets by name, or the podsets that have none."""
        placement = self._topologies.placement
        assert placement is not None, "there are topologies"  # noqa: S101 narrows the type
        found: dict[str, TopologyAssignment] = {}
        with self._topologies.assuming() as assume:
            for unit in units:
                topology = self._topologies.get(unit.flavor)
                assert topology is not None, "it would be refused"  # noqa: S101 narrows the type
                placed = topology.place(
                    unit.pods, small_gaps_first=placement.small_gaps_first, without_usage=without_usage
                )
                if not isinstance(placed, dict):
                    return _Refused(tuple(pods.name for pods in unit.pods), placed)
                found.update(placed)
                for pods in unit.pods if unit is not units[-1] else ():
                    assume(Place((unit.flavor,), placed[pods.name], pods.amounts_of_pod))
        return found


def _list_units(
    options: FlavorOptions, demands: tuple[PodSetDemand, ...], assignment: Assignment
) -> list[_Unit] | _Refused:
    """Return the podsets to place, in order. Podsets of one group are placed together."""
    groups: dict[str | int, list[tuple[PodSetDemand, PodSetAssignment]]] = {}
    for index, (demand, part) in enumerate(zip(demands, assignment.pod_sets, strict=True)):
        group = demand.pod_set.group
        groups.setdefault(index if group is None else group, []).append((demand, part))
    units: list[_Unit] = []
    for members in groups.values():
        flavors = {flavor for _, part in members for _, flavor in part.flavors}
        placed_in = sorted(flavors & options.topologies.keys())
        if len(placed_in) > 1:
            return _Refused(tuple(part.name for _, part in members), TwoTopologies(tuple(placed_in)))
        if placed_in:
            units.append(_Unit(placed_in[0], tuple(_to_place(*member) for member in members)))
    return units


def _to_place(demand: PodSetDemand, part: PodSetAssignment) -> PodsToPlace:
    pod_set = demand.pod_set
    return PodsToPlace(
        part.name,
        part.count,
        demand.on_node,
        pod_set.topology_request or IMPLIED,
        pod_set.node_selector,
        pod_set.required_node_affinity,
        pod_set.tolerations,
    )


def _with_places(
    demands: tuple[PodSetDemand, ...], assignment: Assignment, found: dict[str, TopologyAssignment]
) -> Assignment:
    pod_sets = tuple(replace(part, topology=found.get(part.name)) for part in assignment.pod_sets)
    on_node = (demand.on_node for demand in demands)
    return assignment._replace(pod_sets=pod_sets, places=places_of(zip(pod_sets, on_node, strict=True)))


def _refuse(assignment: Assignment, refused: _Refused) -> Assignment:
    """Return an assignment that fits no flavor, because podsets have no place."""
    parts = tuple(PodSetRefusals(name, (refused.refusal,)) for name in refused.names)
    return assignment._replace(
        pod_sets=(),
        usage=(),
        mode=FitMode.NO_FIT,
        contested=frozenset(),
        refusal=NoFlavorFits(parts, NoFitReason.TOPOLOGY_PLACEMENT_FAILED),
        considered_flavors=(),
        lacks_room=True,
    )


def _needing_preemption(assignment: Assignment, refused: _Refused | None) -> Assignment:
    """Return an assignment that fits once other workloads have left.

    Args:
        assignment: the assignment, with places on an empty cluster.
        refused: the podsets that have no place now; None if quota is missing, too.
    """
    contested = {
        FlavorResource(flavor, resource)
        for part in assignment.pod_sets
        if part.topology is not None
        for resource, flavor in part.flavors
    }
    refusal = assignment.refusal
    if refused is not None:
        parts = tuple(PodSetRefusals(name, (refused.refusal,)) for name in refused.names)
        refusal = NoFlavorFits(parts, NoFitReason.WAITING_FOR_QUOTA)
    return assignment._replace(
        mode=min(assignment.mode, FitMode.PREEMPT),
        contested=assignment.contested | contested,
        refusal=refusal,
        considered_flavors=(),
        lacks_room=refused is not None,
    )
