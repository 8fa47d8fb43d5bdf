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
    """The assignments that podsets keep, by name, and the pods that they do not contain."""

    assignments: Mapping[str, TopologyAssignment]
    missing: tuple[PodsToPlace, ...]

    def merge(
        self, topology: FlavorTopology, added: Mapping[str, TopologyAssignment]
    ) -> dict[str, TopologyAssignment]:
        """Return the kept assignments with the places of the missing pods."""
        merged = dict(self.assignments)
        for name, assignment in added.items():
            merged[name] = merge(topology, _leaves(topology, self.assignments[name]), assignment)
        return merged


def keep_pods(
    topology: FlavorTopology, unit: Sequence[PodsToPlace], before: Mapping[str, TopologyAssignment]
) -> KeptPods | None:
    """Return what podsets keep of their assignments; None if all of their pods get new places.

    Args:
        topology: the topology of the flavor.
        unit: podsets that are placed together: one, or a leader with its workers.
        before: the assignments of the podsets of the original, by name.
    """
    if not all(pods.name in before for pods in unit):
        return None
    assignments = {pods.name: before[pods.name].keep(pods.count) for pods in unit}
    if any(isinstance(find_leaves(topology, assignment), StaleDomain) for assignment in assignments.values()):
        return None
    missing = tuple(
        replace(pods, count=count)
        for pods in unit
        if (count := pods.count - assignments[pods.name].pod_count) > 0
    )
    return KeptPods(assignments, missing)


def _leaves(topology: FlavorTopology, assignment: TopologyAssignment) -> Leaves:
    leaves = find_leaves(topology, assignment)
    assert not isinstance(leaves, StaleDomain), "kept assignments are not stale"  # noqa: S101 narrows the type
    return leaves
