"""How many pods of one shape each domain can hold (semantics, Placement algorithm, phase 1).

Pods of equal requests and equal constraints on nodes have one *shape*. The capacities of a shape are kept.
Only those of changed leaves, and of the domains above these, are computed again.

A *slice* is so many pods that must be in one domain of the slice level. Smaller slices may be inside of it. A
*leader* is one pod of another podset that must be in the same domain as the others.
"""

from collections import Counter
from collections.abc import Iterable

from admitq.core.topology.domains import Domain, DomainTree
from admitq.core.topology.leaf_room import NO_CAPACITY, LeafRoom, PodShape
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle


class Capacities:
    """The capacities of the domains of one flavor for one shape, by the number of the domain.

    Args:
        tree: the domains.
        shape: the shape.
        without_usage: whether to assume that no admitted workload of a topology runs.

    Attributes:
        pods: how many pods fit.
        pods_with_leader: how many pods fit beside the leader, or without it if ``has_leader`` is false.
        slices: how many slices fit; 0 below the level of the slices.
        slices_with_leader: as ``pods_with_leader``.
        has_leader: whether the leader fits.
        scores: the sum of the weights of preferred terms that hosts with room satisfy; empty if the shape has
            no such terms.
        excluded: the number of nodes on which no pod fits, by reason.
    """

    def __init__(self, tree: DomainTree, shape: PodShape, *, without_usage: bool = False) -> None:
        self.shape = shape
        self.pods: list[int] = []
        self.slices: list[int] = []
        self.has_leader: list[bool] = []
        self.excluded: Counter[NodeExclusion] = Counter()
        self.pods_with_leader: list[int] = self.pods if shape.leader is None else []
        self.slices_with_leader: list[int] = self.slices if shape.leader is None else []
        self.scores: list[int] = []
        self._tree = tree
        self._leaf_room = LeafRoom(tree, shape, without_usage=without_usage)
        self._seen: int | None = None
        self._exclusions: dict[int, tuple[NodeExclusion, int]] = {}
        """Why no pod fits into a leaf, and the number of its nodes."""
        self._slice_level = shape.layers[0].level

    def refresh(self) -> None:
        """Compute the capacities again that may have changed since the last call."""
        tree = self._tree
        changed = None if self._seen is None else tree.changes_since(self._seen)
        if changed is not None and not changed:
            return
        self._seen = tree.change_count
        self._extend(len(tree.domains))
        domains = tree.domains
        above: dict[int, None] = {}
        for number in tree.by_level[-1] if changed is None else dict.fromkeys(changed):
            leaf = domains[number]
            if self._update_leaf(leaf) and leaf.parent is not None:
                above[leaf.parent] = None
        while above:
            numbers, above = above, {}
            for number in numbers:
                domain = domains[number]
                if self._update_above(domain) and domain.parent is not None:
                    above[domain.parent] = None

    def _extend(self, length: int) -> None:
        missing = length - len(self.pods)
        self.pods.extend([0] * missing)
        self.slices.extend([0] * missing)
        self.has_leader.extend([False] * missing)
        if self.shape.preferred_node_affinity:
            self.scores.extend([0] * missing)
        if self.shape.leader is not None:
            self.pods_with_leader.extend([0] * missing)
            self.slices_with_leader.extend([0] * missing)

    # --- leaves -----------------------------------------------------------------------------------

    def _update_leaf(self, leaf: Domain) -> bool:
        exclusion = self._leaf_room.find_exclusion(leaf)
        found = NO_CAPACITY if exclusion else self._leaf_room.count_pods(leaf)
        pods, with_leader, has_leader = found
        if leaf.nodes and not pods:
            exclusion = exclusion or NodeExclusion(NodeObstacle.RESOURCE, self.scarcest(leaf))
        self._count_exclusion(leaf, exclusion)
        score = self._leaf_room.score_of(leaf) if self.scores and (pods or has_leader) else 0
        return self._set(leaf, pods, with_leader, has_leader=has_leader, score=score)

    def score_of(self, number: int) -> int:
        """Return the score of a domain; 0 if the shape has no preferred terms."""
        return self.scores[number] if self.scores else 0

    def exclusion_of(self, leaf: Domain) -> NodeExclusion | None:
        """Return why no pod fits into a leaf; None if some fit, or if it has no nodes."""
        found = self._exclusions.get(leaf.number)
        return None if found is None else found[0]

    def scarcest(self, leaf: Domain) -> str:
        """Return the resource of which the fewest pods fit into a leaf."""
        return self._leaf_room.scarcest(leaf)

    def _count_exclusion(self, leaf: Domain, exclusion: NodeExclusion | None) -> None:
        counted = self._exclusions.pop(leaf.number, None)
        if counted is not None:
            self.excluded[counted[0]] -= counted[1]
        if exclusion is not None:
            self._exclusions[leaf.number] = (exclusion, len(leaf.nodes))
            self.excluded[exclusion] += len(leaf.nodes)

    def find_excluded_in(self, domain: Domain) -> Counter[NodeExclusion]:
        """Return ``excluded`` for pods that must stay in a domain: all nodes outside of it are excluded."""
        tree, excluded = self._tree, Counter[NodeExclusion]()
        for number in tree.by_level[-1]:
            if not tree.is_in(number, domain):
                excluded[NodeExclusion(NodeObstacle.TOPOLOGY_DOMAIN)] += len(tree.domains[number].nodes)
            elif number in self._exclusions:
                exclusion, count = self._exclusions[number]
                excluded[exclusion] += count
        return excluded

    # --- domains above ----------------------------------------------------------------------------

    def _update_above(self, domain: Domain) -> bool:
        children = domain.children
        unit = self.shape.unit_of(domain.level + 1) if domain.level >= self._slice_level else 1
        pods = _sum(self.pods, children, unit)
        score = _sum(self.scores, children, 1) if self.scores else 0
        if self.shape.leader is None:
            return self._set(domain, pods, pods, has_leader=False, score=score)
        capable = [child for child in children if self.has_leader[child]]
        lost = [
            _round_down(self.pods[child], unit) - _round_down(self.pods_with_leader[child], unit)
            for child in capable
        ]
        with_leader = pods - min(lost, default=0)
        return self._set(domain, pods, with_leader, has_leader=bool(capable), score=score)

    def _set(self, domain: Domain, pods: int, with_leader: int, *, has_leader: bool, score: int) -> bool:
        """Set the values of a domain. Return whether they changed."""
        number, level = domain.number, domain.level
        if level == self._slice_level:
            size = self.shape.layers[0].size
            slices, slices_with_leader = pods // size, with_leader // size
        elif level < self._slice_level:
            slices, slices_with_leader = self._slices_above(domain)
        else:
            slices = slices_with_leader = 0
        values = (pods, with_leader, slices, slices_with_leader, has_leader)
        if values == self.values_of(domain) and score == self.score_of(number):
            return False
        if self.scores:
            self.scores[number] = score
        self.pods[number], self.pods_with_leader[number] = pods, with_leader
        self.slices[number], self.slices_with_leader[number] = slices, slices_with_leader
        self.has_leader[number] = has_leader
        return True

    def _slices_above(self, domain: Domain) -> tuple[int, int]:
        slices = _sum(self.slices, domain.children, 1)
        if self.shape.leader is None:
            return slices, slices
        lost = [
            self.slices[child] - self.slices_with_leader[child]
            for child in domain.children
            if self.has_leader[child]
        ]
        return slices, slices - min(lost, default=0)

    def values_of(self, domain: Domain) -> tuple[int, int, int, int, bool]:
        """Return pods, pods with leader, slices, slices with leader, and whether the leader fits."""
        number = domain.number
        return (
            self.pods[number],
            self.pods_with_leader[number],
            self.slices[number],
            self.slices_with_leader[number],
            self.has_leader[number],
        )


def _sum(values: list[int], numbers: Iterable[int], unit: int) -> int:
    of = values.__getitem__
    return sum(map(of, numbers)) if unit == 1 else sum(_round_down(of(number), unit) for number in numbers)


def _round_down(pods: int, unit: int) -> int:
    return pods - pods % unit
