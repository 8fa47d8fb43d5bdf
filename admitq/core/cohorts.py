"""Cohort trees: ClusterQueues as leaves, cohorts above them, and quota cells that are linked along the edges.

- A cohort exists while it has a Cohort object, or while another node names it as its parent. Without an
  object, it is implicit and has no quota of its own.
- Parents may be declared in a circle. Then no edge of the circle is linked: each cohort of the circle is the
  root of its subtree. These trees are *cyclic*: their ClusterQueues do not admit workloads. After the removal
  of an edge, the unlinked edges are tried again.
- An edit costs in proportion to the subtree that moves, and to its path to the root.
- Each root counts the changes of its tree (``generation``). It has the index of what the lanes of its
  ClusterQueues wait for (``wake_index``).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.model import ONE, ResourceGroup, ResourceQuota
from admitq.core.quota import Cell, Height
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex


class Lendable(NamedTuple):
    """The amounts that a cohort can lend to its children, at a ``quota_generation`` of the root."""

    generation: int
    by_resource: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Node:
    """A ClusterQueue or cohort of a cohort tree."""

    name: str
    is_cohort: bool
    declared_parent: str | None = None
    """The name of the parent cohort, from the specification. The cohort may have no Cohort object."""
    parent: "Node | None" = None
    """The parent. None if no parent is declared, or if the edge is part of a circle."""
    has_object: bool = False
    """For a cohort: whether its Cohort object exists."""
    cells: dict[FlavorResource, Cell] = field(default_factory=dict[FlavorResource, Cell])
    cluster_queues: dict[str, "Node"] = field(default_factory=dict[str, "Node"])
    cohorts: dict[str, "Node"] = field(default_factory=dict[str, "Node"])
    declared_children: int = 0
    """The number of nodes that declare this one as their parent, linked or not."""
    height: Height = field(default_factory=Height)
    generation: int = 0
    """For a root: a number that differs after any change of quota or usage in the tree."""
    quota_generation: int = 0
    """For a root: a number that differs after any change of quota or shape of the tree."""
    fair_weight: Fraction = ONE
    lendable: "Lendable | None" = None
    """For a cohort: a cache of fair sharing."""
    progress: int = 0
    """For a root: a number that differs after a head of the tree made progress in a cycle."""
    wake_index: WakeIndex = field(default_factory=WakeIndex)
    """For a root: the index of what the lanes of its ClusterQueues wait for."""

    @property
    def root(self) -> "Node":
        """The root of the node's tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def ancestors(self) -> Iterator["Node"]:
        """The cohorts above, nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def is_cyclic(self) -> bool:
        """Whether the tree's parents are declared in a circle."""
        return self.root.declared_parent is not None

    def cohorts_below(self) -> Iterator["Node"]:
        """Yield all cohorts of the subtree, including this node if it is a cohort."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if node.is_cohort:
                yield node
            waiting.extend(node.cohorts.values())

    def cluster_queues_below(self) -> Iterator["Node"]:
        """Yield all ClusterQueues of the subtree, including this node if it is a ClusterQueue."""
        if not self.is_cohort:
            yield self
        for cohort in self.cohorts_below():
            yield from cohort.cluster_queues.values()


def declared_quotas(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, ResourceQuota]:
    """Return the quota of each (flavor, resource) that resource groups cover; 0 if none is stated."""
    quotas: dict[FlavorResource, ResourceQuota] = {}
    for group in groups:
        for flavor in group.flavors:
            for resource in group.covered_resources:
                quotas.setdefault(FlavorResource(flavor.name, resource), quota.NO_QUOTA)
            for resource, amount in flavor.resources:
                quotas[FlavorResource(flavor.name, resource)] = amount
    return quotas


class CohortTrees:
    """All cohort trees. Callers may read nodes; only these methods change them."""

    def __init__(self) -> None:
        self.cluster_queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        self.registrations: dict[str, TreeRegistration] = {}
        """The registrations of ClusterQueues in the wake indexes of their trees, by name."""
        self.changed_cohorts: set[str] = set()
        """Names of cohorts with a status that may have changed. Callers clear the set."""
        self._unlinked_cohorts: dict[str, Node] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """The number of changes of all trees so far. The next change sets a generation to one more."""
        return self._changes

    # --- objects ----------------------------------------------------------------------------------

    def put_cluster_queue(
        self,
        name: str,
        cohort: str | None,
        quotas: Mapping[FlavorResource, ResourceQuota],
        fair_weight: Fraction = ONE,
    ) -> Node:
        """Create a ClusterQueue, or change its cohort, quotas and weight. Its usage stays."""
        node = self.cluster_queues.get(name)
        if node is None:
            node = self.cluster_queues[name] = Node(name, is_cohort=False)
            self.registrations[name] = TreeRegistration(name, node.cells, node.wake_index)
        node.fair_weight = fair_weight
        self._declare_parent(node, cohort)
        self._declare_quotas(node, quotas)
        return node

    def drop_cluster_queue(self, name: str) -> None:
        """Remove a ClusterQueue with its quota and usage."""
        node = self.cluster_queues.pop(name)
        self._declare_parent(node, None)
        del self.registrations[name]

    def put_cohort(
        self,
        name: str,
        parent: str | None,
        quotas: Mapping[FlavorResource, ResourceQuota],
        fair_weight: Fraction = ONE,
    ) -> Node:
        """Create a cohort, or change it: its parent, quotas and weight are those of its Cohort object."""
        node = self._cohort(name)
        node.has_object = True
        node.fair_weight = fair_weight
        self._declare_parent(node, parent)
        self._declare_quotas(node, quotas)
        return node

    def drop_cohort(self, name: str) -> None:
        """Remove the Cohort object. The cohort stays, without quota, while another node names it."""
        node = self.cohorts[name]
        node.has_object = False
        self._declare_quotas(node, {})
        self._declare_parent(node, None)
        self._forget_if_unnamed(node)

    # --- usage ------------------------------------------------------------------------------------

    def add_usage(self, node: Node, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Count usage at a ClusterQueue."""
        cells = node.cells
        for pair, amount in usage:
            # The lookup is inline: a call for each amount would cost more than the count.
            cell = cells.get(pair)
            quota.add_usage(self.cell(node, pair) if cell is None else cell, amount)
        self.touch(node)

    def remove_usage(self, node: Node, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Remove usage that was counted at a ClusterQueue."""
        cells = node.cells
        for pair, amount in usage:
            cell = cells[pair]
            quota.add_usage(cell, -amount)
            if not cell.declared:
                self._drop_idle_cell(node, pair)
        self.touch(node)

    def touch(self, node: Node) -> None:
        """Record that quota or usage changed at a node, and so at the nodes above it."""
        self._changes += 1
        current = node
        while True:
            if current.is_cohort:
                self.changed_cohorts.add(current.name)
            if current.parent is None:
                break
            current = current.parent
        current.generation = self._changes

    def _record_edit(self, node: Node) -> None:
        self.touch(node)
        node.root.quota_generation = self._changes

    def cell(self, node: Node, pair: FlavorResource) -> Cell:
        """Return the cell of a node for a (flavor, resource). Create missing cells at it and above."""
        cell = node.cells.get(pair)
        if cell is not None:
            return cell
        created = child = node.cells[pair] = Cell(node.height)
        for ancestor in node.ancestors:
            existing = ancestor.cells.get(pair)
            if existing is not None:
                quota.attach(child, existing)
                break
            parent = ancestor.cells[pair] = Cell(ancestor.height)
            quota.attach(child, parent)
            child = parent
        return created

    # --- progress ---------------------------------------------------------------------------------

    def count_progress(self, root: Node) -> None:
        """Record that a head of the tree made progress, which may change the results of other heads."""
        self._changes += 1
        root.progress = self._changes

    def restore_counts(self, node: Node, generation: int, progress: int) -> None:
        """Restore the generation and the progress count of a tree from a dump."""
        root = node.root
        root.generation, root.progress = generation, progress
        self._changes = max(self._changes, generation, progress)

    # --- edges ------------------------------------------------------------------------------------

    def _cohort(self, name: str) -> Node:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = Node(name, is_cohort=True)
        return node

    def _forget_if_unnamed(self, node: Node) -> None:
        if not node.has_object and not node.declared_children:
            self.cohorts.pop(node.name, None)
            self.changed_cohorts.add(node.name)

    def _declare_parent(self, node: Node, parent: str | None) -> None:
        if node.declared_parent == parent:
            return
        former = node.declared_parent
        self._unlink(node)
        if node.is_cohort:
            self._unlinked_cohorts.pop(node.name, None)
        node.declared_parent = parent
        if parent is not None:
            parent_node = self._cohort(parent)
            parent_node.declared_children += 1
            self._link(node, parent_node)
        if former is not None:
            former_node = self.cohorts[former]
            former_node.declared_children -= 1
            self._forget_if_unnamed(former_node)
            self._relink_cohorts()

    def _relink_cohorts(self) -> None:
        for node in list(self._unlinked_cohorts.values()):
            assert node.declared_parent is not None  # noqa: S101 narrows the type
            self._link(node, self.cohorts[node.declared_parent])

    def _circle(self, node: Node) -> list[Node]:
        """Return the cohorts of the circle of declared parents that a node is in; empty without circle."""
        visited: dict[str, Node] = {}
        current: Node | None = node
        while current is not None and current.name not in visited:
            visited[current.name] = current
            above = current.declared_parent
            current = None if above is None else self.cohorts[above]
        return list(visited.values()) if current is node else []

    def _link(self, node: Node, parent: Node) -> None:
        if node.is_cohort:
            circle = self._circle(node)
            for cohort in circle:
                self._unlink(cohort)
                self._unlinked_cohorts[cohort.name] = cohort
            if circle:
                return
            self._unlinked_cohorts.pop(node.name, None)
            parent.cohorts[node.name] = node
        else:
            parent.cluster_queues[node.name] = node
        node.parent = parent
        for pair, cell in node.cells.items():
            quota.attach(cell, self.cell(parent, pair))
        self._raise_heights(parent)
        node.wake_index.move(self._registrations_below(node), parent.root.wake_index)
        self._record_edit(node)

    def _unlink(self, node: Node) -> None:
        parent = node.parent
        if parent is None:
            return
        self._record_edit(node)
        del (parent.cohorts if node.is_cohort else parent.cluster_queues)[node.name]
        waiting = parent.root.wake_index
        node.parent = None
        for pair, cell in node.cells.items():
            quota.detach(cell)
            self._drop_idle_cell(parent, pair)
        self._raise_heights(parent)
        waiting.move(self._registrations_below(node), node.wake_index)
        self._record_edit(node)

    def _registrations_below(self, node: Node) -> list[TreeRegistration]:
        return [self.registrations[queue.name] for queue in node.cluster_queues_below()]

    def _raise_heights(self, node: Node | None) -> None:
        while node is not None:
            tallest = max((child.height.value for child in node.cohorts.values()), default=0)
            height = 1 + tallest if node.cohorts or node.cluster_queues else 0
            if height == node.height.value:
                return
            node.height.value = height
            node = node.parent

    # --- quotas -----------------------------------------------------------------------------------

    def _declare_quotas(self, node: Node, quotas: Mapping[FlavorResource, ResourceQuota]) -> None:
        for pair in [pair for pair in node.cells if pair not in quotas]:
            quota.set_quota(node.cells[pair], quota.NO_QUOTA, declared=False)
            self._drop_idle_cell(node, pair)
        for pair, amount in quotas.items():
            quota.set_quota(self.cell(node, pair), amount, declared=True)
        self._record_edit(node)

    def _drop_idle_cell(self, node: Node | None, pair: FlavorResource) -> None:
        while node is not None and (cell := node.cells.get(pair)) is not None and cell.idle:
            quota.detach(cell)
            del node.cells[pair]
            node = node.parent
