"""How many pods of one shape a leaf can hold now (semantics, Placement algorithm, phase 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from admitq.core.amounts import Amounts
from admitq.core.model import HashedOnce, Labels, NodeSelectorTerm, PreferredTerm, Toleration
from admitq.core.selectors import find_untolerated_taint, requirement_holds
from admitq.core.topology.domains import Domain, DomainTree
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle


class Layer(NamedTuple):
    """Slices: the index of their level, and the number of pods of one."""

    level: int
    size: int


@dataclass(frozen=True, slots=True)
class PodShape(HashedOnce):
    """What decides how many pods a domain can hold.

    ``requests`` are those of one pod, ``leader`` those of the leader; None without one. The constraints on
    nodes are those of pods and leader together, with the tolerations of the flavor. ``layers`` has the
    slices, outermost first. Without slices, each pod is a slice of the lowest level. Preferred terms give
    hosts a score.
    """

    requests: Amounts
    layers: tuple[Layer, ...]
    leader: Amounts | None = None
    node_selector: Labels = ()
    required_node_affinity: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    tolerations: tuple[tuple[Toleration, ...], ...] = ()
    preferred_node_affinity: tuple[PreferredTerm, ...] = ()

    __hash__ = HashedOnce.__hash__

    def unit_of(self, level: int) -> int:
        """Return of how many pods the count in a domain of a level below the slice level is a multiple."""
        return next((size for at, size in self.layers[1:] if at >= level), 1)


MOST_SHAPES: Final = 256
"""The number of shapes for which results are kept."""


@lru_cache(MOST_SHAPES)
def identify(shape: PodShape) -> str:
    """Return a text that identifies a shape, also in other processes."""
    return repr(shape)


_NOTHING: Final[Mapping[str, int]] = {}


class LeafCapacity(NamedTuple):
    """How many pods fit into a leaf, how many beside the leader, and whether the leader fits.

    If the leader does not fit, both numbers are equal.
    """

    pods: int
    with_leader: int
    has_leader: bool


NO_CAPACITY: Final = LeafCapacity(0, 0, has_leader=False)


class LeafRoom:
    """The room that leaves have for pods of one shape.

    Args:
        tree: the domains.
        shape: the shape.
        without_usage: whether to assume that no admitted workload of a topology runs.
    """

    def __init__(self, tree: DomainTree, shape: PodShape, *, without_usage: bool = False) -> None:
        self._tree = tree
        self._shape = shape
        self._without_usage = without_usage

    def count_pods(self, leaf: Domain, less: Mapping[str, int] = _NOTHING) -> LeafCapacity:
        """Return how many pods fit into a leaf, if it had so much less of each resource.

        Args:
            leaf: a leaf without a constraint that its hosts do not satisfy.
            less: the amounts.
        """
        pods, leader = max(0, self._fitting(leaf, less)), self._shape.leader
        if leader is None:
            return LeafCapacity(pods, pods, has_leader=False)
        if not all(
            self._free(leaf, resource) - less.get(resource, 0) >= amount for resource, amount in leader
        ):
            return LeafCapacity(pods, pods, has_leader=False)
        taken = {**less}
        for resource, amount in leader:
            taken[resource] = taken.get(resource, 0) + amount
        return LeafCapacity(pods, max(0, self._fitting(leaf, taken)), has_leader=True)

    def find_exclusion(self, leaf: Domain) -> NodeExclusion | None:
        """Return the constraint that a host does not satisfy; None if it does. Only hosts are checked."""
        shape = self._shape
        for node in leaf.nodes.values() if self._tree.ends_with_hosts else ():
            if shape.node_selector or shape.required_node_affinity:
                labels = dict(node.labels)
                if any(labels.get(key) != value for key, value in shape.node_selector):
                    return NodeExclusion(NodeObstacle.NODE_SELECTOR)
                if not all(_accept(terms, labels) for terms in shape.required_node_affinity):
                    return NodeExclusion(NodeObstacle.AFFINITY)
            for tolerations in shape.tolerations if node.taints else ():
                taint = find_untolerated_taint(node.taints, tolerations)
                if taint is not None:
                    return NodeExclusion(NodeObstacle.TAINT, f"{taint.key}={taint.value}:{taint.effect}")
        return None

    def scarcest(self, leaf: Domain) -> str:
        """Return the resource of which the fewest pods fit into a leaf."""
        return min(
            (self._free(leaf, resource) // amount, resource) for resource, amount in self._shape.requests
        )[1]

    def score_of(self, leaf: Domain) -> int:
        """Return the sum of the weights of preferred terms that a host satisfies. Only hosts have a score."""
        terms = self._shape.preferred_node_affinity if self._tree.ends_with_hosts else ()
        if not terms:
            return 0
        labels = [dict(node.labels) for node in leaf.nodes.values()]
        return sum(
            preferred.weight for preferred in terms if all(_holds(preferred.term, each) for each in labels)
        )

    def _free(self, leaf: Domain, resource: str) -> int:
        free = leaf.allocatable.get(resource, 0) - leaf.assumed.get(resource, 0)
        return free if self._without_usage else free - leaf.used.get(resource, 0)

    def _fitting(self, leaf: Domain, less: Mapping[str, int]) -> int:
        """Return how many pods fit; negative if too much is used already."""
        return min(
            [
                (self._free(leaf, resource) - less.get(resource, 0)) // amount
                for resource, amount in self._shape.requests
            ]
        )


def _accept(terms: tuple[NodeSelectorTerm, ...], labels: dict[str, str]) -> bool:
    return any(_holds(term, labels) for term in terms)


def _holds(term: NodeSelectorTerm, labels: dict[str, str]) -> bool:
    return all(requirement_holds(requirement, labels) for requirement in term.requirements)
