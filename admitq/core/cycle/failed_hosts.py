"""New places for the pods of a workload on a failed host (semantics, Node failure)."""

from dataclasses import replace
from typing import Final

from admitq.core.cycle.units_to_place import Unplaced, list_units, topology_of
from admitq.core.model import Admission, Workload
from admitq.core.refusals import NoFitReason, NoFlavorFits
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, PODS
from admitq.core.topology.replacement import PlacedPods, has_host, replace_host
from admitq.core.topology.topologies import Place, Topologies

_MORE_THAN_ANY_NODE: Final = 1 << 40


def place_again(
    topologies: Topologies, demands: tuple[PodSetDemand, ...], workload: Workload, host: str
) -> Admission | NoFlavorFits:
    """Return the reservation with other places for the pods on a failed host, or why there are none.

    Args:
        topologies: the topologies of all flavors.
        demands: what each podset requests, with what admission checks added.
        workload: a workload with quota.
        host: one of its unhealthy nodes. None of these gets pods.
    """
    admission = workload.admission
    assert admission is not None, "places are those of an admission"  # noqa: S101 narrows the type
    by_name = {demand.pod_set.name: demand for demand in demands}
    parts = tuple(part for part in admission.pod_set_assignments if part.name in by_name)
    units = list_units(topologies.flavors, tuple(by_name[part.name] for part in parts), parts)
    if isinstance(units, Unplaced):
        return _refused(units)
    assigned = {part.name: part.topology for part in parts}
    found: dict[str, TopologyAssignment] = {}
    with topologies.assuming() as assume:
        for unhealthy in workload.unhealthy_nodes:
            full = TopologyAssignment((HOST_NAME,), (((unhealthy,), 1),))
            assume(Place(tuple(topologies.flavors), full, ((PODS, _MORE_THAN_ANY_NODE),)))
        for unit in units:
            placed = [
                PlacedPods(pods, assignment)
                for pods in unit.pods
                if (assignment := assigned[pods.name]) is not None
            ]
            if not any(has_host(each.assignment, host) for each in placed):
                continue
            moved = replace_host(topology_of(topologies, unit), placed, host)
            if not isinstance(moved, dict):
                return _refused(Unplaced(tuple(pods.name for pods in unit.pods), moved))
            found.update(moved)
            for pods in unit.pods:
                if pods.name in moved:
                    added = _added(assigned[pods.name], moved[pods.name])
                    assume(Place((unit.flavor,), added, pods.amounts_of_pod))
    return replace(
        admission,
        pod_set_assignments=tuple(
            replace(part, topology=found.get(part.name, part.topology))
            for part in admission.pod_set_assignments
        ),
    )


def _added(before: TopologyAssignment | None, after: TopologyAssignment) -> TopologyAssignment:
    """Return the domains with more pods than before: the usage of the others is counted already."""
    counts = {} if before is None else {values[-1]: count for values, count in before.domains}
    more = ((values, count - counts.get(values[-1], 0)) for values, count in after.domains)
    return replace(after, domains=tuple((values, count) for values, count in more if count > 0))


def _refused(unplaced: Unplaced) -> NoFlavorFits:
    return NoFlavorFits(unplaced.refusals, NoFitReason.TOPOLOGY_PLACEMENT_FAILED)
