"""Quota of cohort trees, computed from the usage of ClusterQueues (semantics, Quota tree).

- subtree S: nominal of a ClusterQueue; of a cohort its own nominal plus what each child lends, S - L.
- local L: max(0, S - lendingLimit) where a lending limit is set, else 0.
- usage U: of a ClusterQueue what its workloads use; of a cohort Σ max(0, U - L) of its children.
- available: at the root S - U; else max(0, L - U) + P, where P is what is available at the parent, and
  at most (S - L) - max(0, U - L) + B with a borrowing limit B.
- potential: at the root S; else min(L + potential of the parent, S + B).
- height: of a ClusterQueue 0; of a cohort 1 more than its highest child cohort, 0 without children.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.model import ClusterQueue, Cohort, ResourceGroup, ResourceQuota

Usage = Mapping[FlavorResource, int]

_NO_QUOTA = ResourceQuota(0)


class Node(NamedTuple):
    """A ClusterQueue (``cohort`` false) or a cohort by name."""

    cohort: bool
    name: str


def queue_node(name: str) -> Node:
    """Return the node of a ClusterQueue."""
    return Node(cohort=False, name=name)


def cohort_node(name: str) -> Node:
    """Return the node of a cohort."""
    return Node(cohort=True, name=name)


class Level(NamedTuple):
    """A borrow level, and whether it is below the root of the tree."""

    level: int
    may_reclaim: bool


def _quotas(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, ResourceQuota]:
    return {
        FlavorResource(flavor.name, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources
    }


class Shape:
    """The part of trees that does not change with usage: parents, quotas, children and weights."""

    def __init__(self, queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> None:
        named = {queue.cohort for queue in queues.values()} | {cohort.parent for cohort in cohorts.values()}
        self.parents: dict[Node, Node | None] = {}
        self.quotas: dict[Node, dict[FlavorResource, ResourceQuota]] = {}
        for name in sorted({each for each in named if each is not None} | set(cohorts)):
            spec = cohorts.get(name, Cohort(name))
            self.parents[cohort_node(name)] = None if spec.parent is None else cohort_node(spec.parent)
            self.quotas[cohort_node(name)] = _quotas(spec.resource_groups)
        for name, queue in sorted(queues.items()):
            self.parents[queue_node(name)] = None if queue.cohort is None else cohort_node(queue.cohort)
            self.quotas[queue_node(name)] = _quotas(queue.resource_groups)
        self.children: dict[Node, list[Node]] = {node: [] for node in self.parents}
        for node, above in self.parents.items():
            if above is not None:
                self.children[above].append(node)
        self.weights = {cohort_node(name): cohort.fair_weight for name, cohort in cohorts.items()}
        self.weights |= {queue_node(name): queue.fair_weight for name, queue in queues.items()}
        self.amounts: dict[tuple[str, Node, FlavorResource], int] = {}
        """Amounts that were computed before, and do not change with usage."""


_recent: list[tuple[dict[str, ClusterQueue], dict[str, Cohort], Shape]] = []
"""The last shapes, latest last: a history needs trees much more often than it changes queues."""
_RECENT = 4


def shape_of(queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> Shape:
    """Return the shape of these trees, computed once for equal queues and cohorts."""
    for index in range(len(_recent) - 1, -1, -1):
        of_queues, of_cohorts, shape = _recent[index]
        if of_queues == queues and of_cohorts == cohorts:
            _recent.append(_recent.pop(index))
            return shape
    shape = Shape(queues, cohorts)
    _recent.append((dict(queues), dict(cohorts), shape))
    del _recent[:-_RECENT]
    return shape


class Tree:
    """All cohort trees, with the usage of ClusterQueues, which can be added and removed."""

    def __init__(self, queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> None:
        shape = shape_of(queues, cohorts)
        self.parents, self.quotas, self.children = shape.parents, shape.quotas, shape.children
        self.weights = shape.weights
        self._uses: dict[Node, dict[FlavorResource, int]] = {queue_node(name): {} for name in queues}
        self._fixed = shape.amounts
        self._now: dict[tuple[str, Node, FlavorResource], int] = {}

    # --- shape ------------------------------------------------------------------------------------

    def path(self, node: Node) -> list[Node] | None:
        """Return the node and its ancestors; None if cohorts form a circle."""
        path = [node]
        while (above := self.parents[path[-1]]) is not None:
            if above in path:
                return None
            path.append(above)
        return path

    def ancestors(self, node: Node) -> list[Node]:
        """Return the cohorts above, nearest first."""
        path = self.path(node)
        assert path is not None, "the cohorts form a circle"
        return path[1:]

    def root(self, node: Node) -> Node:
        """Return the root of a node's tree."""
        return [node, *self.ancestors(node)][-1]

    def queues_below(self, node: Node) -> list[str]:
        """Return the ClusterQueues of a subtree."""
        if not node.cohort:
            return [node.name]
        return [name for child in self.children[node] for name in self.queues_below(child)]

    def height(self, node: Node) -> int:
        """Return the number of cohort levels below a node; 1 if it has only ClusterQueues below."""
        if not self.children[node]:
            return 0
        return 1 + max((self.height(child) for child in self.children[node] if child.cohort), default=0)

    # --- usage of ClusterQueues -------------------------------------------------------------------

    def add(self, queue: str, usage: Usage, sign: int = 1) -> None:
        """Add usage of a ClusterQueue. Usage of a ClusterQueue that does not exist is ignored."""
        uses = self._uses.get(queue_node(queue))
        if uses is not None:
            for pair, amount in usage.items():
                uses[pair] = uses.get(pair, 0) + sign * amount
            self._now.clear()

    def remove(self, queue: str, usage: Usage) -> None:
        """Remove usage of a ClusterQueue."""
        self.add(queue, usage, -1)

    def pairs(self, node: Node) -> set[FlavorResource]:
        """Return every (flavor, resource) with quota or usage in the subtree."""
        below = (self.pairs(child) for child in self.children[node])
        return set(self.quotas[node]).union(self._uses.get(node, ()), *below)

    # --- amounts ----------------------------------------------------------------------------------

    def quota(self, node: Node, pair: FlavorResource) -> ResourceQuota:
        """Return the node's own quota."""
        return self.quotas[node].get(pair, _NO_QUOTA)

    def nominal(self, node: Node, pair: FlavorResource) -> int:
        """Return the node's own nominal quota."""
        return self.quota(node, pair).nominal

    def subtree_quota(self, node: Node, pair: FlavorResource) -> int:
        """Return S."""
        return self._once(self._fixed, "S", node, pair, self._subtree)

    def _subtree(self, node: Node, pair: FlavorResource) -> int:
        lent = (self.subtree_quota(child, pair) - self.local(child, pair) for child in self.children[node])
        return self.nominal(node, pair) + sum(lent)

    def local(self, node: Node, pair: FlavorResource) -> int:
        """Return L."""
        limit = self.quota(node, pair).lending_limit
        return 0 if limit is None else max(0, self.subtree_quota(node, pair) - limit)

    def usage(self, node: Node, pair: FlavorResource) -> int:
        """Return U."""
        return self._once(self._now, "U", node, pair, self._usage)

    def _usage(self, node: Node, pair: FlavorResource) -> int:
        if not node.cohort:
            return self._uses[node].get(pair, 0)
        return sum(max(0, self.usage(child, pair) - self.local(child, pair)) for child in self.children[node])

    def unused_local_quota(self, node: Node, pair: FlavorResource) -> int:
        """Return the unused amount of the part that is not lent."""
        return max(0, self.local(node, pair) - self.usage(node, pair))

    def available(self, node: Node, pair: FlavorResource) -> int:
        """Return the amount that is available."""
        return self._once(self._now, "available", node, pair, self._available)

    def _available(self, node: Node, pair: FlavorResource) -> int:
        subtree, local, usage = self.subtree_quota(node, pair), self.local(node, pair), self.usage(node, pair)
        above = self.parents[node]
        if above is None:
            return subtree - usage
        from_parent = self.available(above, pair)
        limit = self.quota(node, pair).borrowing_limit
        if limit is not None:
            from_parent = min(from_parent, (subtree - local) - max(0, usage - local) + limit)
        return max(0, local - usage) + from_parent

    def potential(self, node: Node, pair: FlavorResource) -> int:
        """Return the amount that would be available without usage."""
        return self._once(self._fixed, "potential", node, pair, self._potential)

    def _potential(self, node: Node, pair: FlavorResource) -> int:
        above = self.parents[node]
        if above is None:
            return self.subtree_quota(node, pair)
        most = self.local(node, pair) + self.potential(above, pair)
        limit = self.quota(node, pair).borrowing_limit
        return most if limit is None else min(most, self.subtree_quota(node, pair) + limit)

    def fits(self, queue: str, usage: Usage) -> bool:
        """Whether these amounts are available."""
        node = queue_node(queue)
        return all(not amount or amount <= self.available(node, pair) for pair, amount in usage.items())

    def exceeds(self, node: Node, pairs: Iterable[FlavorResource]) -> bool:
        """Whether usage exceeds the quota of the node's subtree for some of these pairs."""
        return any(self.usage(node, pair) > self.subtree_quota(node, pair) for pair in pairs)

    def borrows_with(self, node: Node, pair: FlavorResource, amount: int) -> bool:
        """Whether the node would use more than its quota with this amount added."""
        return self.subtree_quota(node, pair) < self.usage(node, pair) + amount

    def level(self, queue: str, pair: FlavorResource, amount: int) -> Level:
        """Return the borrow level of an amount."""
        node = queue_node(queue)
        above = self.ancestors(node)
        if not above or not self.borrows_with(node, pair, amount):
            return Level(0, bool(above))
        remaining = amount - self.unused_local_quota(node, pair)
        for ancestor in above:
            if not self.borrows_with(ancestor, pair, remaining):
                return Level(self.height(ancestor), self.parents[ancestor] is not None)
            remaining -= self.unused_local_quota(ancestor, pair)
        return Level(self.height(above[-1]), may_reclaim=False)

    def _once(
        self,
        memory: dict[tuple[str, Node, FlavorResource], int],
        name: str,
        node: Node,
        pair: FlavorResource,
        compute: Callable[[Node, FlavorResource], int],
    ) -> int:
        key = (name, node, pair)
        if key not in memory:
            memory[key] = compute(node, pair)
        return memory[key]
