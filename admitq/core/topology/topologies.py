"""The topologies of all flavors, with the nodes, pods and admitted workloads on them.

A flavor has a ``FlavorTopology`` while its Topology exists. When one of both changes, its tree is built again
from the observed nodes and pods, and from the usage that is counted.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from admitq.core.amounts import Amounts
from admitq.core.model import ObjectKey, PodSetAssignment, ResourceFlavor
from admitq.core.settings import Placement as PlacementSettings
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, LeafName, Node, add_multiple
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace, amounts_of_pod
from admitq.core.waiting.transitions import Cause

_ROOM: Final = "topology"

LeafGains: TypeAlias = Mapping[LeafName, Mapping[str, int]]
"""What each leaf of a flavor gained; less than nothing if it lost more."""

RoomGains: TypeAlias = Mapping[str, LeafGains | None]
"""What leaves gained, by flavor; None if nodes changed, so that any leaf may have more room."""


class Place(NamedTuple):
    """The domains of a podset, and the amounts that each of its pods takes there.

    ``flavors`` are all flavors of the podset. The domains are in the topologies of those that have one.
    """

    flavors: tuple[str, ...]
    assignment: TopologyAssignment
    of_pod: Amounts

    @property
    def is_on_hosts(self) -> bool:
        """Whether the domains are hosts."""
        return self.assignment.levels[-1] == HOST_NAME

    def identify(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return what identifies a domain of the assignment: a host has only one name."""
        return values[-1:] if self.is_on_hosts else values


class PodOnNode(NamedTuple):
    """A pod that belongs to no admitted workload of a topology: its node, and what it requests there."""

    node: str
    requests: Amounts


def places_of(pod_sets: Iterable[tuple[PodSetAssignment, str | None, Amounts]]) -> tuple[Place, ...]:
    """Return the places of podsets, given their groups, and what each of their pods requests on its node.

    All podsets of a group are placed in the topology of one flavor. A leader without requests has no flavor
    of its own.
    """
    placed = [each for each in pod_sets if each[0].topology is not None]
    of_groups: dict[str | None, set[str]] = {}
    for part, group, _ in placed:
        of_groups.setdefault(group, set()).update(flavor for _, flavor in part.flavors)
    return tuple(
        Place(
            tuple(sorted({flavor for _, flavor in part.flavors} if group is None else of_groups[group])),
            part.topology,
            amounts_of_pod(requests),
        )
        for part, group, requests in placed
        if part.topology is not None
    )


def places_beyond(places: Iterable[Place], original: Iterable[Place]) -> tuple[Place, ...]:
    """Return the places of a replacement without the pods that its original has in the same domains."""
    counted: Counter[tuple[tuple[str, ...], Amounts, tuple[str, ...]]] = Counter()
    for place in original:
        for values, count in place.assignment.domains:
            counted[place.flavors, place.of_pod, place.identify(values)] += count
    if not counted:
        return tuple(places)
    beyond: list[Place] = []
    for place in places:
        domains: list[tuple[tuple[str, ...], int]] = []
        for values, count in place.assignment.domains:
            key = place.flavors, place.of_pod, place.identify(values)
            common = min(count, counted[key])
            counted[key] -= common
            if count > common:
                domains.append((values, count - common))
        if domains:
            beyond.append(place._replace(assignment=replace(place.assignment, domains=tuple(domains))))
    return tuple(beyond)


def room_of(flavor: str) -> Cause:
    """Return the cause that stands for free capacity in the topology of a flavor."""
    return Cause(_ROOM, (flavor,))


def room_for(flavor: str, shape: str) -> Cause:
    """Return the cause that stands for free capacity for the pods of a shape in the topology of a flavor."""
    return Cause(_ROOM, (flavor, shape))


def is_room(cause: Cause) -> bool:
    """Whether a cause stands for free capacity in a topology."""
    return cause.constraint == _ROOM


class Topologies:
    """The topologies of flavors.

    Args:
        placement: how pods are assigned to domains. With None, they are not, and no flavor has a topology.
    """

    def __init__(self, placement: PlacementSettings | None) -> None:
        self.placement = placement
        self.levels: dict[str, tuple[str, ...]] = {}
        """The levels of each Topology."""
        self.nodes: dict[str, Node] = {}
        self.pods_of_others: dict[ObjectKey, PodOnNode] = {}
        self.generation = 0
        """A number that differs after each change of free capacity, also after one for an evaluation."""
        self.moves = 0
        """How often workloads took or left places."""
        self.gains = 0
        """How often flavors got more free capacity, by a node or after pods ended."""
        self._flavors: dict[str, ResourceFlavor] = {}
        self._by_flavor: dict[str, FlavorTopology] = {}
        self._held: Counter[Place] = Counter()
        """The places that are counted, and how often each."""

    def get(self, flavor: str) -> FlavorTopology | None:
        """Return the topology of a flavor; None if it has none, or its Topology does not exist."""
        return self._by_flavor.get(flavor)

    @property
    def flavors(self) -> list[str]:
        """The names of the flavors with a topology, sorted."""
        return sorted(self._by_flavor)

    # --- observed objects -------------------------------------------------------------------------

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        """Record a flavor as it is now."""
        if flavor.topology_name is None or self.placement is None:
            self.delete_flavor(flavor.name)
        elif self._flavors.get(flavor.name) != flavor:
            self._flavors[flavor.name] = flavor
            self._build(flavor)

    def delete_flavor(self, name: str) -> None:
        """Record that a flavor does not exist."""
        self._flavors.pop(name, None)
        self._by_flavor.pop(name, None)

    def set_topology(self, name: str, levels: tuple[str, ...]) -> bool:
        """Record the levels of a Topology. Return whether they changed."""
        if self.levels.get(name) == levels:
            return False
        self.levels[name] = levels
        for flavor in self._flavors_of(name):
            self._build(flavor)
        return True

    def delete_topology(self, name: str) -> bool:
        """Record that a Topology does not exist. Return whether it existed."""
        if self.levels.pop(name, None) is None:
            return False
        for flavor in self._flavors_of(name):
            del self._by_flavor[flavor.name]
        return True

    def set_node(self, node: Node) -> RoomGains:
        """Record a node as it is now. The room of flavors may change to which it belongs or belonged."""
        if self.nodes.get(node.name) == node:
            return {}
        self.nodes[node.name] = node
        self.generation += 1
        return {name: None for name in self.flavors if self._by_flavor[name].tree.set_node(node)}

    def delete_node(self, name: str) -> list[str]:
        """Record that a node does not exist. Return the flavors that it belonged to."""
        self.nodes.pop(name, None)
        self.generation += 1
        return [flavor for flavor in self.flavors if self._by_flavor[flavor].tree.remove_node(name)]

    def set_pod_of_others(self, key: ObjectKey, pod: PodOnNode | None) -> RoomGains:
        """Record a pod that belongs to no admitted workload of a topology; None: it does not run any more."""
        former = self.pods_of_others.get(key)
        if former == pod:
            return {}
        if pod is None:
            del self.pods_of_others[key]
        else:
            self.pods_of_others[key] = pod
            self._count_pod(pod, 1)
        if former is None:
            return {}
        self._count_pod(former, -1)
        gained = dict(amounts_of_pod(former.requests))
        if pod is not None and pod.node == former.node:
            add_multiple(gained, dict(amounts_of_pod(pod.requests)), -1)
        trees = ((name, self._by_flavor[name].tree) for name in self.flavors)
        leaves = ((name, tree, tree.leaf_of_node(former.node)) for name, tree in trees)
        return {name: {tree.name_of(leaf): gained} for name, tree, leaf in leaves if leaf is not None}

    def _count_pod(self, pod: PodOnNode, sign: int) -> None:
        self.generation += 1
        requests = {resource: sign * amount for resource, amount in amounts_of_pod(pod.requests)}
        for topology in self._by_flavor.values():
            topology.tree.add_requests_of_others(pod.node, requests)

    # --- usage ------------------------------------------------------------------------------------

    def move(self, left: tuple[Place, ...], taken: tuple[Place, ...]) -> RoomGains:
        """Count that a workload left places and took others."""
        if left == taken:
            return {}
        self.moves += 1
        self.release(left)
        self.hold(taken)
        gained: dict[str, dict[LeafName, dict[str, int]]] = {
            flavor: {} for place in left for flavor in self.list_concerned(place)
        }
        signed = [*((1, place) for place in left), *((-1, place) for place in taken)]
        for sign, place in signed:
            for flavor in gained.keys() & self.list_concerned(place):
                for name, count in self._by_flavor[flavor].leaves_of(place.assignment):
                    add_multiple(gained[flavor].setdefault(name, {}), dict(place.of_pod), sign * count)
        return gained

    def hold(self, places: Iterable[Place]) -> None:
        """Count places as taken."""
        self._count(places, 1)

    def release(self, places: Iterable[Place]) -> None:
        """Undo ``hold``."""
        self._count(places, -1)

    def _count(self, places: Iterable[Place], sign: int) -> None:
        for place in places:
            self.generation += 1
            self._held[place] += sign
            if not self._held[place]:
                del self._held[place]
            for name in self.list_concerned(place):
                self._by_flavor[name].add_usage(place.assignment, place.of_pod, times=sign)

    def list_concerned(self, place: Place) -> list[str]:
        """Return the flavors with free capacity that depends on a place."""
        if self.placement is not None and self.placement.shares_hosts and place.is_on_hosts:
            return [name for name in self.flavors if self._by_flavor[name].tree.ends_with_hosts]
        return [flavor for flavor in place.flavors if flavor in self._by_flavor]

    def fit(self, places: Iterable[Place]) -> bool:
        """Whether there is room for places, in addition to those that are counted."""
        places = tuple(places)
        self.hold(places)
        fits = all(
            self._by_flavor[flavor].has_room(place.assignment, place.of_pod)
            for place in places
            for flavor in place.flavors
            if flavor in self._by_flavor
        )
        self.release(places)
        return fits

    @contextmanager
    def assuming(self) -> Generator[Callable[[Place], None]]:
        """Return a context with a function that counts the places of podsets, until the context ends.

        Later podsets of the same workload do not get these places, also in a search without the usage of
        other workloads.
        """
        assumed: list[Place] = []

        def assume(place: Place) -> None:
            assumed.append(place)
            self._assume(place, 1)

        try:
            yield assume
        finally:
            for place in assumed:
                self._assume(place, -1)

    def _assume(self, place: Place, sign: int) -> None:
        for name in self.list_concerned(place):
            self._by_flavor[name].assume(place.assignment, place.of_pod, times=sign)

    # --- waiting for room -------------------------------------------------------------------------

    def causes_of_room(self, flavor: str, unit: Sequence[PodsToPlace]) -> list[Cause]:
        """Return the cause that ends the waiting of a unit for room in a flavor; none if no room helps."""
        topology = self._by_flavor.get(flavor)
        shape = None if topology is None else topology.wait_for_room(unit)
        return [] if shape is None else [room_for(flavor, shape)]

    def has_changed(self, room: Cause, gained: LeafGains | None) -> bool:
        """Whether a cause that stands for room changed, after the leaves of its flavor gained room."""
        flavor, *shape = room.subject
        topology = self._by_flavor.get(flavor)
        return topology is None or not shape or gained is None or topology.has_grown(shape[0], gained)

    # --- trees ------------------------------------------------------------------------------------

    def _flavors_of(self, topology: str) -> list[ResourceFlavor]:
        return [flavor for flavor in self._flavors.values() if flavor.topology_name == topology]

    def _build(self, flavor: ResourceFlavor) -> None:
        self.generation += 1
        name = flavor.topology_name or ""
        levels = self.levels.get(name)
        if levels is None or self.placement is None:
            self._by_flavor.pop(flavor.name, None)
            return
        topology = FlavorTopology(name, levels, flavor.node_labels, flavor.tolerations, self.placement.rules)
        self._by_flavor[flavor.name] = topology
        for node in self.nodes.values():
            topology.tree.set_node(node)
        for pod in self.pods_of_others.values():
            topology.tree.add_requests_of_others(pod.node, dict(amounts_of_pod(pod.requests)))
        for place, times in self._held.items():
            if flavor.name in self.list_concerned(place):
                topology.add_usage(place.assignment, place.of_pod, times=times)
