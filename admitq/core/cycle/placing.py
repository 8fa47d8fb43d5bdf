"""Assign pods to the domains of topologies, once a search has found their flavors.

Source: semantics, TAS step and partial admission.

In some flavors, pods get their places later (``delayed_places``): their podsets are marked.

An assignment that fits into unused quota may have no place in a topology. It then needs preemption, as if
quota were missing: all (flavor, resource) pairs of its placed podsets are contested. If the pods would have
no place even without other workloads in the topology, nothing helps.
"""

from collections.abc import Iterable
from dataclasses import replace

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.cycle.units_to_place import Unit, Unplaced, assigned_before, find_places, list_units
from admitq.core.flavor_options import FlavorOptions
from admitq.core.instructions import FitMode
from admitq.core.model import Admission
from admitq.core.refusals import NoFitReason, NoFlavorFits
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.topologies import Place, Topologies, places_beyond, places_of


class Placing:
    """Places the pods of one workload of a ClusterQueue, in the flavors that a search has found.

    Args:
        topologies: the topologies of all flavors.
        options: the flavor options of the ClusterQueue.
        demands: what each podset requests.
        assignment: the flavors of all podsets.
        original: the admission of the workload that it replaces; None if it replaces none.
        places_of_original: the places of this workload. They are counted, and stay so.
    """

    def __init__(
        self,
        topologies: Topologies,
        options: FlavorOptions,
        demands: tuple[PodSetDemand, ...],
        assignment: Assignment,
        original: Admission | None = None,
        places_of_original: tuple[Place, ...] = (),
    ) -> None:
        self._topologies = topologies
        self._before = assigned_before(topologies, original)
        self._places_of_original = places_of_original
        self._demands = demands
        self._assignment = assignment
        self._units = list_units(options.topologies.keys(), demands, assignment.pod_sets)
        if not isinstance(self._units, Unplaced) and options.placed_later:
            later = [unit for unit in self._units if unit.flavor in options.placed_later]
            self._units = [unit for unit in self._units if unit.flavor not in options.placed_later]
            self._assignment = _mark_placed_later(assignment, later)

    def place(self) -> Assignment:
        """Return the assignment with the places of its pods.

        If there is no place now, the assignment has the mode of preemption, and the places that it would have
        without other workloads in the topology. If there are none either, it fits no flavor.
        """
        assignment = self._assignment
        if isinstance(self._units, Unplaced):
            return _refuse(assignment, self._units)
        if not self._units:
            return assignment
        refused = None
        if assignment.mode is FitMode.FIT:
            found = find_places(self._topologies, self._units, self._before)
            if isinstance(found, dict):
                return self._with_places(found)
            refused = found
        found = find_places(self._topologies, self._units, self._before, without_usage=True)
        if isinstance(found, Unplaced):
            return _refuse(assignment, refused or found)
        return _needing_preemption(self._with_places(found), refused)

    def place_now(self) -> tuple[Place, ...]:
        """Return the places that the pods of the assignment have now; empty if there are none."""
        units = self._units
        found = units if isinstance(units, Unplaced) else find_places(self._topologies, units, self._before)
        return () if isinstance(found, Unplaced) else self._with_places(found).places

    def _with_places(self, found: dict[str, TopologyAssignment]) -> Assignment:
        """Return the assignment with places, and what these take beyond those of the original."""
        pod_sets = tuple(replace(part, topology=found.get(part.name)) for part in self._assignment.pod_sets)
        placed = zip(pod_sets, self._demands, strict=True)
        places = places_of((part, demand.pod_set.group, demand.on_node) for part, demand in placed)
        return self._assignment._replace(
            pod_sets=pod_sets, places=places_beyond(places, self._places_of_original)
        )


def _mark_placed_later(assignment: Assignment, units: Iterable[Unit]) -> Assignment:
    names = {pods.name for unit in units for pods in unit.pods}
    return assignment._replace(
        pod_sets=tuple(
            replace(part, lacks_topology_assignment=True) if part.name in names else part
            for part in assignment.pod_sets
        )
    )


def _refuse(assignment: Assignment, refused: Unplaced) -> Assignment:
    """Return an assignment that fits no flavor, because podsets have no place."""
    return assignment._replace(
        pod_sets=(),
        usage=(),
        mode=FitMode.NO_FIT,
        contested=frozenset(),
        refusal=NoFlavorFits(refused.refusals, NoFitReason.TOPOLOGY_PLACEMENT_FAILED),
        considered_flavors=(),
        lacks_room=True,
    )


def _needing_preemption(assignment: Assignment, refused: Unplaced | None) -> Assignment:
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
        refusal = NoFlavorFits(refused.refusals, NoFitReason.WAITING_FOR_QUOTA)
    return assignment._replace(
        mode=min(assignment.mode, FitMode.PREEMPT),
        contested=assignment.contested | contested,
        refusal=refusal,
        considered_flavors=(),
        lacks_room=refused is not None,
    )
