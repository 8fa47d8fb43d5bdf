"""Where the pods of an elastic job stay when it gets more or fewer pods (semantics, Elastic + TAS).

Running pods cannot move. So a replacement keeps the domains of its original, and only its additional pods get
places. If a domain of the original does not exist any more, all pods get new places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.merging import Leaves, find_leaves, merge
from admitq.core.topology.refusals import StaleDomain


class KeptPods(NamedTuple):
    """What podsets keep of their assignments.

    Attributes:
        assignments: the kept assignments, by podset; empty if all pods get new places.
        leaves: their leaves.
        missing: the pods that get new places.
    """

    assignments: Mapping[str, TopologyAssignment]
    leaves: Mapping[str, Leaves]
    missing: tuple[PodsToPlace, ...]

    def merge(
        self, topology: FlavorTopology, added: Mapping[str, TopologyAssignment]
    ) -> dict[str, TopologyAssignment]:
        """Return the kept assignments with the places of the missing pods."""
        merged = {
            name: merge(topology, self.leaves[name], assignment) if name in self.leaves else assignment
            for name, assignment in added.items()
        }
        return {**self.assignments, **merged}


def keep_pods(
    topology: FlavorTopology, unit: Sequence[PodsToPlace], before: Mapping[str, TopologyAssignment]
) -> KeptPods:
    """Return what podsets keep of their assignments.

    Args:
        topology: the topology of the flavor.
        unit: podsets that are placed together: one, or a leader with its workers.
        before: the assignments of the podsets of the original, by name.
    """
    nothing = KeptPods({}, {}, tuple(unit))
    if not all(pods.name in before for pods in unit):
        return nothing
    assignments = {pods.name: before[pods.name].keep(pods.count) for pods in unit}
    leaves: dict[str, Leaves] = {}
    for name, assignment in assignments.items():
        found = find_leaves(topology, assignment)
        if isinstance(found, StaleDomain):
            return nothing
        leaves[name] = found
    missing = (replace(pods, count=pods.count - assignments[pods.name].pod_count) for pods in unit)
    return KeptPods(assignments, leaves, tuple(pods for pods in missing if pods.count))
