"""Where the pods of a failed host are placed again (semantics, Node failure).

The other pods stay where they are. What was true of the place of all pods must stay true: slices that lost
pods are completed in their own domain, and all pods stay in the domain that they require. Otherwise the pods
may go anywhere that suits their request.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from admitq.core.model import Admission, Workload
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, Domain, DomainTree
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace, Restriction
from admitq.core.topology.leaf_room import Layer
from admitq.core.topology.levels import RequestedLevels, find_levels
from admitq.core.topology.merging import Leaves, find_leaves, merge
from admitq.core.topology.refusals import StaleDomain, TopologyRefusal


class PlacedPods(NamedTuple):
    """A podset and its present assignment to hosts."""

    pods: PodsToPlace
    assignment: TopologyAssignment


def has_host(assignment: TopologyAssignment | None, host: str) -> bool:
    """Whether an assignment has pods on a host."""
    return assignment is not None and bool(_count_on(assignment, host))


def select_hosts_with_pods(hosts: Iterable[str], admission: Admission) -> tuple[str, ...]:
    """Return the hosts on which an admission has pods. Other unhealthy nodes are not listed any more."""
    parts = admission.pod_set_assignments
    return tuple(host for host in hosts if any(has_host(part.topology, host) for part in parts))


def find_failed_host(workload: Workload) -> str | None:
    """Return the first unhealthy node with pods of the workload; None if there is none."""
    admission = workload.admission
    hosts = () if admission is None else select_hosts_with_pods(workload.unhealthy_nodes, admission)
    return next(iter(hosts), None)


def _count_on(assignment: TopologyAssignment, host: str) -> int:
    if assignment.levels[-1] != HOST_NAME:
        return 0
    return sum(count for values, count in assignment.domains if values[-1] == host)


def replace_host(
    topology: FlavorTopology, unit: Sequence[PlacedPods], host: str
) -> dict[str, TopologyAssignment] | TopologyRefusal:
    """Return new assignments of the podsets with pods on a failed host, by name, or why there are none.

    Args:
        topology: the topology of the flavor. The host must have no free capacity in it.
        unit: podsets that were placed together: one, or a leader with its workers.
        host: the failed host. At least one of the podsets has pods there.
    """
    staying: dict[str, Leaves] = {}
    for pods, assignment in unit:
        leaves = find_leaves(topology, assignment, without=host)
        if isinstance(leaves, StaleDomain):
            return leaves
        staying[pods.name] = leaves
    # Of two podsets with equally many pods, the first is the leader, as in the placement of all of them.
    by_size = sorted(unit, key=lambda each: each.pods.count)
    missing = [
        replace(pods, count=count) for pods, assignment in by_size if (count := _count_on(assignment, host))
    ]
    workers = missing[-1]
    if len(unit) > 1 and workers.name == by_size[0].pods.name:
        # The leader alone is no slice.
        workers = replace(workers, request=replace(workers.request, slices=()))
        missing = [workers]
    levels = find_levels(workers.request, topology.tree.levels)
    restriction = None
    if isinstance(levels, RequestedLevels):
        restriction = _find_restriction(
            topology.tree,
            levels,
            staying[workers.name],
            [leaf for leaves in staying.values() for leaf, _ in leaves],
            workers.count,
        )
    found = topology.place(missing, restriction=restriction)
    if not isinstance(found, dict):
        return found
    return {name: merge(topology, staying[name], added) for name, added in found.items()}


def _find_restriction(
    tree: DomainTree,
    levels: RequestedLevels,
    workers: Leaves,
    all_leaves: Sequence[Domain],
    missing: int,
) -> Restriction | None:
    """Return where the missing pods must be placed; None for anywhere.

    Args:
        tree: the domains.
        levels: the request of the workers.
        workers: where the workers stay.
        all_leaves: where any pods of the unit stay.
        missing: the number of missing workers.
    """
    for layer in reversed(levels.layers):
        domain = _find_broken_slice(tree, layer, workers, missing)
        if domain is not None:
            return Restriction(domain, _degrade(levels.layers, missing, domain.level, tree))
    is_required = not (levels.may_widen or levels.may_spread)
    if is_required and all_leaves:
        return Restriction(tree.find_above(all_leaves[0], levels.level), levels.layers)
    return None


def _find_broken_slice(tree: DomainTree, layer: Layer, workers: Leaves, missing: int) -> Domain | None:
    """Return the domain of the slice that lost pods; None if no slice of the layer did.

    The last slice may have been incomplete before. So a domain that the missing pods complete comes first.
    """
    if not missing % layer.size:
        return None
    counts: Counter[int] = Counter()
    for leaf, count in workers:
        counts[tree.find_above(leaf, layer.level).number] += count
    incomplete = [number for number, count in counts.items() if count % layer.size]
    completed = [number for number in incomplete if not (counts[number] + missing) % layer.size]
    return next((tree.domains[number] for number in completed or incomplete), None)


def _degrade(layers: Iterable[Layer], missing: int, level: int, tree: DomainTree) -> tuple[Layer, ...]:
    """Return the slices in which the missing pods can be placed, inside of a domain of a level."""
    whole = tuple(layer for layer in layers if layer.level >= level and not missing % layer.size)
    return whole or (Layer(len(tree.levels) - 1, 1),)
