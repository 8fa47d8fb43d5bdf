"""Assignments that keep some pods where they are, and get others in addition."""

from collections import Counter
from dataclasses import replace

from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import Domain
from admitq.core.topology.flavor_topology import FlavorTopology
from admitq.core.topology.refusals import StaleDomain

Leaves = list[tuple[Domain, int]]
"""Leaves, and the number of pods in each."""


def find_leaves(
    topology: FlavorTopology, assignment: TopologyAssignment, *, without: str | None = None
) -> Leaves | StaleDomain:
    """Return the leaves of an assignment, or one that does not exist any more.

    Args:
        topology: the topology of the flavor.
        assignment: the assignment.
        without: a host that is left out, even if it does not exist.
    """
    found: Leaves = []
    for name, count in topology.leaves_of(assignment):
        if name != (without,):
            leaf = topology.tree.find_leaf(name)
            if leaf is None:
                return StaleDomain(name)
            found.append((leaf, count))
    return found


def merge(topology: FlavorTopology, staying: Leaves, added: TopologyAssignment) -> TopologyAssignment:
    """Return an assignment with the pods that stay and those that were added, sorted by all levels."""
    tree, counts = topology.tree, Counter[int]()
    for leaf, count in staying:
        counts[leaf.number] += count
    for name, count in added.domains:
        leaf = tree.find_leaf(name)
        assert leaf is not None, "it was just chosen"  # noqa: S101 narrows the type
        counts[leaf.number] += count
    numbers = sorted(counts, key=tree.values_of)
    return replace(
        added, domains=tuple((tree.name_of(tree.domains[number]), counts[number]) for number in numbers)
    )
