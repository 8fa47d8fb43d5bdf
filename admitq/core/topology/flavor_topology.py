"""The topology of one flavor: places podsets on its nodes (semantics, Topology-aware scheduling)."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import gt
from typing import Final, NamedTuple

from admitq.core.amounts import Amounts, add, amounts
from admitq.core.model import Labels, NodeSelectorTerm, PreferredTerm, Toleration
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import PODS, Domain, DomainTree, LeafName
from admitq.core.topology.leaf_room import MOST_SHAPES, Layer, LeafRoom, PodShape, identify
from admitq.core.topology.levels import RequestedLevels, find_levels
from admitq.core.topology.placement import Placement, PlacementOrder, Shortfall, place
from admitq.core.topology.refusals import LayerShortfall, NoRoomInTopology, TopologyRefusal
from admitq.core.topology.request import TopologyRequest
from admitq.core.topology.rooms import TopologyRoom, describe_room
from admitq.core.topology.rules import USUAL_RULES, PlacementRules


@dataclass(frozen=True, slots=True)
class PodsToPlace:
    """A podset as a topology sees it. ``requests`` are those of one pod, without its ``pods``."""

    name: str
    count: int
    requests: Amounts
    request: TopologyRequest
    node_selector: Labels = ()
    required_node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def amounts_of_pod(self) -> Amounts:
        """The amounts that one pod takes from a node."""
        return amounts_of_pod(self.requests)


@lru_cache(MOST_SHAPES)
def amounts_of_pod(requests: Amounts) -> Amounts:
    """Return the amounts that one pod with these requests takes from a node: also one of ``pods``."""
    taken = {resource: amount for resource, amount in requests if amount > 0}
    taken[PODS] = add(taken.get(PODS, 0), 1)
    return amounts(taken)


class Restriction(NamedTuple):
    """The domain in which pods must stay, and the slices in which they are placed there, outermost first."""

    domain: Domain
    layers: tuple[Layer, ...]


Assignments = dict[str, TopologyAssignment]
"""Assignments of podsets, by name."""


class FlavorTopology:
    """The nodes of a flavor, and where its workloads run on them.

    Args:
        topology: the name of the Topology.
        levels: the labels of its levels, the widest first.
        node_labels: the node labels of the flavor.
        tolerations: the tolerations that its pods get.
        rules: how domains are chosen.
    """

    def __init__(
        self,
        topology: str,
        levels: Sequence[str],
        node_labels: Labels = (),
        tolerations: tuple[Toleration, ...] = (),
        rules: PlacementRules = USUAL_RULES,
    ) -> None:
        self.name: Final = topology
        self.tree: Final = DomainTree(levels, node_labels)
        self._tolerations: Final = tolerations
        self._rules: Final = rules
        self._capacities: OrderedDict[tuple[PodShape, bool], Capacities] = OrderedDict()
        self._waiting: dict[str, LeafRoom] = {}
        """The room for each shape that waits for more."""

    # --- usage ------------------------------------------------------------------------------------

    def add_usage(self, assignment: TopologyAssignment, of_pod: Amounts, *, times: int = 1) -> None:
        """Count the usage of an admitted podset; with ``times=-1``, its end."""
        for name, count in self.leaves_of(assignment):
            self.tree.add_usage(name, of_pod, times * count)

    def assume(self, assignment: TopologyAssignment, of_pod: Amounts, *, times: int = 1) -> None:
        """Count a podset of the workload that is being placed; undo that with ``times=-1``."""
        for name, count in self.leaves_of(assignment):
            self.tree.assume(name, of_pod, times * count)

    def has_room(self, assignment: TopologyAssignment, of_pod: Amounts) -> bool:
        """Whether the leaves of an assignment exist, and have what its pods request. The pods are counted.

        Other resources may be used beyond what there is: pods of others took them, or a node shrank.
        """
        leaves = [self.tree.find_leaf(name) for name, _ in self.leaves_of(assignment)]
        return all(
            leaf is not None
            and all(leaf.used.get(resource, 0) <= leaf.allocatable.get(resource, 0) for resource, _ in of_pod)
            for leaf in leaves
        )

    def pods_in(self, assignment: TopologyAssignment, domain: tuple[str, ...]) -> int:
        """Return how many pods of an assignment are in a domain with these values; in any if it is empty."""
        leaves = ((self.tree.find_leaf(name), count) for name, count in self.leaves_of(assignment))
        return sum(
            count for leaf, count in leaves if leaf is not None and leaf.values[: len(domain)] == domain
        )

    def leaves_of(self, assignment: TopologyAssignment) -> Iterable[tuple[LeafName, int]]:
        """Return the names of the leaves of an assignment, and the number of pods in each.

        A stored assignment to hosts may list the values of all levels.
        """
        if self.tree.ends_with_hosts and len(assignment.levels) > 1:
            return ((values[-1:], count) for values, count in assignment.domains)
        return assignment.domains

    # --- placement --------------------------------------------------------------------------------

    def place(
        self,
        unit: Sequence[PodsToPlace],
        *,
        without_usage: bool = False,
        restriction: Restriction | None = None,
    ) -> Assignments | TopologyRefusal:
        """Return where the podsets of a unit run, or why there is no place. Nothing changes.

        Args:
            unit: podsets that are placed together: one, or a leader with its workers.
            without_usage: whether to assume that no other workload runs in the topology.
            restriction: the domain in which the pods must stay; None for any.
        """
        workers, leader = _split(unit)
        levels = find_levels(workers.request, self.tree.levels)
        if not isinstance(levels, RequestedLevels):
            return levels
        if restriction is not None:
            levels = levels._replace(
                level=restriction.domain.level, layers=restriction.layers, may_widen=False, may_spread=False
            )
        capacities = self._capacities_of(self._shape(levels, workers, leader), without_usage=without_usage)
        order = PlacementOrder(
            workers.count,
            levels.level,
            may_widen=levels.may_widen,
            may_spread=levels.may_spread,
            least_free_first=levels.is_unconstrained and self._rules.small_gaps_first,
            balanced=levels.may_widen and self._rules.balanced,
            within=None if restriction is None else restriction.domain.number,
        )
        placement = place(order, self.tree, capacities)
        if isinstance(placement, Shortfall):
            return self._refusal(levels, workers, placement, capacities, restriction)
        nowhere = {pods.name: self._assignment(()) for pods in unit}
        return nowhere | self._assignments(placement, workers, leader)

    def find_room(self, unit: Sequence[PodsToPlace], *, fits: bool) -> TopologyRoom | None:
        """Return how much of a unit each level could hold now; None if the levels do not suit the request.

        Args:
            unit: podsets that are placed together, as for ``place``.
            fits: whether they have a place.
        """
        workers, leader = _split(unit)
        levels = find_levels(workers.request, self.tree.levels)
        if not isinstance(levels, RequestedLevels):
            return None
        capacities = self._capacities_of(self._shape(levels, workers, leader), without_usage=False)
        return describe_room(self.name, levels, workers.count, self.tree, capacities, fits=fits)

    # --- waiting for room -------------------------------------------------------------------------

    def wait_for_room(self, unit: Sequence[PodsToPlace]) -> str | None:
        """Return what identifies the shape of a unit that waits; None if the levels do not suit its request.

        Until more room for it is found, ``has_grown`` knows the shape.
        """
        workers, leader = _split(unit)
        levels = find_levels(workers.request, self.tree.levels)
        if not isinstance(levels, RequestedLevels):
            return None
        shape = self._shape(levels, workers, leader)
        identity = identify(shape)
        self._waiting[identity] = LeafRoom(self.tree, shape)
        return identity

    def has_grown(self, shape: str, gained: Mapping[LeafName, Mapping[str, int]]) -> bool:
        """Whether a leaf can hold more pods of a shape since it gained free amounts.

        Args:
            shape: what identifies the shape. If it is not known, the answer is yes.
            gained: what each leaf gained last; less than nothing if it lost more.
        """
        room = self._waiting.get(shape)
        if room is None:
            return True
        leaves = ((self.tree.find_leaf(name), amounts) for name, amounts in gained.items())
        has_grown = any(
            any(map(gt, room.count_pods(leaf), room.count_pods(leaf, amounts)))
            for leaf, amounts in leaves
            if leaf is not None and room.find_exclusion(leaf) is None
        )
        if has_grown:
            del self._waiting[shape]
        return has_grown

    # --- shapes -----------------------------------------------------------------------------------

    def _shape(self, levels: RequestedLevels, workers: PodsToPlace, leader: PodsToPlace | None) -> PodShape:
        podsets = [workers] if leader is None else [workers, leader]
        return PodShape(
            workers.amounts_of_pod,
            levels.layers,
            None if leader is None else leader.amounts_of_pod,
            tuple(dict.fromkeys(pair for pods in podsets for pair in pods.node_selector)),
            tuple(pods.required_node_affinity for pods in podsets if pods.required_node_affinity),
            tuple(dict.fromkeys((*pods.tolerations, *self._tolerations) for pods in podsets)),
            tuple(each for pods in podsets for each in pods.preferred_node_affinity)
            if self._rules.prefers_nodes
            else (),
        )

    def _capacities_of(self, shape: PodShape, *, without_usage: bool) -> Capacities:
        key = (shape, without_usage)
        capacities = self._capacities.get(key)
        if capacities is None:
            capacities = self._capacities[key] = Capacities(self.tree, shape, without_usage=without_usage)
            if len(self._capacities) > MOST_SHAPES:
                self._capacities.popitem(last=False)
        else:
            self._capacities.move_to_end(key)
        capacities.refresh()
        return capacities

    def _assignments(
        self, placement: Placement, workers: PodsToPlace, leader: PodsToPlace | None
    ) -> Assignments:
        found = {workers.name: self._assignment(placement.leaves)}
        if leader is not None and placement.leader is not None:
            found[leader.name] = self._assignment([(placement.leader, leader.count)])
        return found

    def _assignment(self, leaves: Sequence[tuple[Domain, int]]) -> TopologyAssignment:
        levels = self.tree.levels[-1:] if self.tree.ends_with_hosts else self.tree.levels
        return TopologyAssignment(levels, tuple((self.tree.name_of(leaf), count) for leaf, count in leaves))

    def _refusal(
        self,
        levels: RequestedLevels,
        pods: PodsToPlace,
        shortfall: Shortfall,
        capacities: Capacities,
        restriction: Restriction | None,
    ) -> NoRoomInTopology:
        tree, above = self.tree, None if restriction is None else restriction.domain
        reasons = capacities.excluded if above is None else capacities.find_excluded_in(above)
        excluded = tuple(sorted((reason, count) for reason, count in reasons.items() if count))
        return NoRoomInTopology(
            self.name,
            levels.layers[0].size,
            shortfall.fitting,
            shortfall.wanted,
            tree.node_count,
            excluded,
            # Messages state them only if there are several, and the sums take long.
            self._layer_shortfalls(levels, pods, capacities, above) if len(levels.layers) > 1 else (),
        )

    def _layer_shortfalls(
        self, levels: RequestedLevels, pods: PodsToPlace, capacities: Capacities, above: Domain | None
    ) -> tuple[LayerShortfall, ...]:
        tree = self.tree
        return tuple(
            LayerShortfall(
                tree.levels[level],
                sum(
                    capacities.pods[domain] // size
                    for domain in tree.by_level[level]
                    if above is None or tree.is_in(domain, above)
                ),
                -(-pods.count // size),
            )
            for level, size in levels.layers
        )


def _split(unit: Sequence[PodsToPlace]) -> tuple[PodsToPlace, PodsToPlace | None]:
    """Return the workers and the leader: of two podsets, the smaller one is the leader, if it has pods."""
    leader, *others = sorted(unit, key=lambda pods: pods.count)
    if not others:
        return leader, None
    return others[0], leader if leader.count else None
