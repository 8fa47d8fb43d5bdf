"""How many pods the domains of each level could hold now, and what limits them there."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import Domain, DomainTree
from admitq.core.topology.levels import RequestedLevels
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle


class LevelRoom(NamedTuple):
    """The domain of a level that could hold the most slices now.

    Attributes:
        level: the label of the level.
        domain: the values of the domain, from the widest level on; empty if the level has no domain with
            nodes.
        fitting: how many slices the domain holds; 0 if it cannot hold the leader.
        nodes: the number of nodes of the domain.
        limit: the resource that limits most of the nodes; None if all slices fit, or if no node is limited by
            a resource.
        excluded: the number of nodes of the domain on which no pod fits, by reason, sorted.
    """

    level: str
    domain: tuple[str, ...]
    fitting: int
    nodes: int = 0
    limit: str | None = None
    excluded: tuple[tuple[NodeExclusion, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyRoom:
    """The room that a topology has now for podsets that are placed together.

    Attributes:
        topology: the name of the Topology.
        unit: the number of pods of a slice; 1 without slices.
        wanted: how many slices are wanted, without the leader.
        has_leader: whether a leader must be in the same domain.
        fits: whether the podsets have a place now.
        requested: the label of the requested level.
        may_spread: whether several domains of the requested level may be used.
        is_unconstrained: whether the podsets request no domain for all of their pods.
        total: how many slices all domains hold together, without the leader.
        levels: the room of each level, the widest first, down to the level of the slices.
    """

    topology: str
    unit: int
    wanted: int
    has_leader: bool
    fits: bool
    requested: str
    may_spread: bool
    is_unconstrained: bool
    total: int
    levels: tuple[LevelRoom, ...]

    @property
    def closest(self) -> tuple[str, ...]:
        """The domain of the requested level that is closest to hold all; empty if all domains may be used."""
        if self.is_unconstrained:
            return ()
        return next(room.domain for room in self.levels if room.level == self.requested)


def describe_room(
    topology: str,
    requested: RequestedLevels,
    count: int,
    tree: DomainTree,
    capacities: Capacities,
    *,
    fits: bool,
) -> TopologyRoom:
    """Return the room for so many pods beside their leader.

    Args:
        topology: the name of the Topology.
        requested: the requested levels.
        count: the number of pods, without the leader.
        tree: the domains.
        capacities: the capacities of the tree for the shape of the pods. They must be up to date.
        fits: whether the pods have a place now.
    """
    slice_level, unit = requested.layers[0]
    wanted = -(-count // unit)
    return TopologyRoom(
        topology,
        unit,
        wanted,
        capacities.shape.leader is not None,
        fits,
        tree.levels[requested.level],
        requested.may_spread,
        requested.is_unconstrained,
        sum(map(capacities.slices.__getitem__, tree.by_level[0])),
        tuple(_room_of_level(level, wanted, tree, capacities) for level in range(slice_level + 1)),
    )


def _room_of_level(level: int, wanted: int, tree: DomainTree, capacities: Capacities) -> LevelRoom:
    def fitting(number: int) -> int:
        can_lead = capacities.shape.leader is None or capacities.has_leader[number]
        return capacities.slices_with_leader[number] if can_lead else 0

    def size(number: int) -> tuple[int, int]:
        return fitting(number), capacities.pods[number]

    label = tree.levels[level]
    domains = [number for number in tree.by_level[level] if any(_leaves_of(tree, tree.domains[number]))]
    if not domains:
        return LevelRoom(label, (), 0)
    best = tree.domains[max(domains, key=size)]
    limits: Counter[str] = Counter()
    excluded: Counter[NodeExclusion] = Counter()
    nodes = 0
    for leaf in _leaves_of(tree, best):
        nodes += len(leaf.nodes)
        exclusion = capacities.exclusion_of(leaf)
        if exclusion is not None:
            excluded[exclusion] += len(leaf.nodes)
        if exclusion is None or exclusion.obstacle is NodeObstacle.RESOURCE:
            limits[capacities.scarcest(leaf)] += len(leaf.nodes)
    found = fitting(best.number)
    limit = min(limits, key=lambda name: (-limits[name], name), default=None)
    return LevelRoom(
        label, best.values, found, nodes, limit if found < wanted else None, tuple(sorted(excluded.items()))
    )


def _leaves_of(tree: DomainTree, domain: Domain) -> Iterator[Domain]:
    """Yield the leaves of a domain that have nodes."""
    if domain.level == len(tree.levels) - 1:
        if domain.nodes:
            yield domain
        return
    for child in domain.children:
        yield from _leaves_of(tree, tree.domains[child])
