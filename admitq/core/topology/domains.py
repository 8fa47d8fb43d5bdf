"""The nodes of one flavor as a tree of domains, with the amounts that are free in its leaves.

A *level* of a topology is a label of nodes. A *domain* has the nodes with the same values of the first
labels: a block, a rack, a host. The domains of the last level are *leaves*. If the last level is the label of
host names, a leaf is one host, and its name alone identifies it. Else all values identify it. Several nodes
with the same host name are one leaf, in the domains of the first of these nodes by name.

The free amounts of a leaf are what its nodes can allocate, without what pods of others request, and without
the usage of admitted workloads. The usage stays counted while a leaf has no nodes: a node may come back.

A change of a node, of a pod or of a workload costs what it touches. ``changes_since`` names the changed
leaves: a cache with a value of each leaf computes only these again.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from admitq.core.amounts import Amounts
from admitq.core.model import Labels, Taint

HOST_NAME: Final = "kubernetes.io/hostname"
"""The label with the host name of a node."""

PODS: Final = "pods"
"""The resource for the number of pods of a node."""

LeafName = tuple[str, ...]
"""What identifies a leaf: its host name alone, or else its values of all levels."""

_MOST_CHANGES: Final = 1 << 14
"""The number of remembered changes. A cache that missed more of them computes all leaves again."""


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a node that decide about placement.

    ``allocatable`` is in milli-CPU and whole units. ``schedulable`` is false if the node is cordoned.
    """

    name: str
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    allocatable: Amounts = ()
    ready: bool = True
    schedulable: bool = True


@dataclass(slots=True, eq=False)
class Domain:
    """A domain. Its *number* is its index in lists with a value of each domain; the order has no meaning.

    ``parent`` and ``children`` are numbers; the children are sorted by values. ``nodes`` are those of a leaf.
    """

    number: int
    level: int
    values: tuple[str, ...]
    parent: int | None
    children: list[int] = field(default_factory=list[int])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    allocatable: dict[str, int] = field(default_factory=dict[str, int])
    """What the nodes can allocate, without what pods of others request."""
    used: dict[str, int] = field(default_factory=dict[str, int])
    """The usage of admitted workloads."""
    assumed: dict[str, int] = field(default_factory=dict[str, int])
    """What the podsets take that were placed before other podsets of the same workload."""


class _Placed(NamedTuple):
    """A node in the tree: its values, its leaf, and its allocatable amounts."""

    node: Node
    values: tuple[str, ...]
    leaf: Domain
    amounts: dict[str, int]


class DomainTree:
    """The domains of one flavor.

    Args:
        levels: the labels of the levels, the widest first.
        node_labels: the labels of the flavor. Nodes with other values do not belong to it.
    """

    def __init__(self, levels: Sequence[str], node_labels: Labels = ()) -> None:
        self.levels: Final = tuple(levels)
        self.domains: list[Domain] = []
        """All domains, by number."""
        self.by_level: list[list[int]] = [[] for _ in levels]
        """The numbers of the domains of each level, sorted by values."""
        self._node_labels: Final = node_labels
        self._by_values: dict[tuple[str, ...], Domain] = {}
        self._leaves: dict[LeafName, Domain] = {}
        self._nodes: dict[str, _Placed] = {}
        self._of_others: dict[str, dict[str, int]] = {}
        """What pods of others request, by node, also of nodes that do not belong to the flavor."""
        self._usage: dict[LeafName, dict[str, int]] = {}
        self._changes: list[int] = []
        self._first_change = 0

    @property
    def ends_with_hosts(self) -> bool:
        """Whether a leaf is one host."""
        return self.levels[-1] == HOST_NAME

    @property
    def node_count(self) -> int:
        """The number of nodes that belong to the flavor."""
        return len(self._nodes)

    def values_of(self, number: int) -> tuple[str, ...]:
        """Return the values of a domain, from the widest level on."""
        return self.domains[number].values

    def name_of(self, leaf: Domain) -> LeafName:
        """Return what identifies a leaf."""
        return leaf.values[-1:] if self.ends_with_hosts else leaf.values

    def is_in(self, number: int, above: Domain) -> bool:
        """Whether a domain is in a domain of a wider level, or is this domain."""
        return self.values_of(number)[: above.level + 1] == above.values

    def find_above(self, domain: Domain, level: int) -> Domain:
        """Return the domain of a level, not a narrower one, that a domain is in."""
        return self._by_values[domain.values[: level + 1]]

    def find_leaf(self, name: LeafName) -> Domain | None:
        """Return a leaf that has nodes; None if there is none with this name."""
        leaf = self._leaves.get(name)
        return leaf if leaf is not None and leaf.nodes else None

    def leaf_of_node(self, name: str) -> Domain | None:
        """Return the leaf of a node; None if the node does not belong to the flavor."""
        placed = self._nodes.get(name)
        return None if placed is None else placed.leaf

    # --- changes of nodes, pods and workloads -----------------------------------------------------

    def set_node(self, node: Node) -> bool:
        """Record a node as it is now. Return whether the node belongs to the flavor or did so before."""
        placed = self._nodes.get(node.name)
        if placed is not None and placed.node == node:
            return True
        if placed is not None:
            self._remove(placed)
        labels = dict(node.labels)
        belongs = (
            node.ready
            and node.schedulable
            and all(level in labels for level in self.levels)
            and all(labels.get(key) == value for key, value in self._node_labels)
        )
        if belongs:
            leaf = self._put_in(node, tuple(labels[level] for level in self.levels))
            if len(leaf.nodes) > 1:
                self._arrange(leaf)
        return belongs or placed is not None

    def remove_node(self, name: str) -> bool:
        """Record that a node does not exist. Return whether it belonged to the flavor."""
        placed = self._nodes.get(name)
        if placed is not None:
            self._remove(placed)
        return placed is not None

    def add_requests_of_others(self, node: str, requests: Mapping[str, int]) -> None:
        """Count requests of pods on a node that belong to no admitted workload of a topology.

        Args:
            node: the name of the node. It need not exist yet.
            requests: the amounts, with one of ``pods`` for each pod. Negative amounts undo a call.
        """
        add_multiple(self._of_others.setdefault(node, {}), requests, 1)
        if not self._of_others[node]:
            del self._of_others[node]
        placed = self._nodes.get(node)
        if placed is not None:
            add_multiple(placed.leaf.allocatable, requests, -1)
            self._note(placed.leaf)

    def add_usage(self, name: LeafName, amounts: Iterable[tuple[str, int]], count: int) -> None:
        """Count the usage of so many pods of an admitted workload in a leaf. The leaf need not exist.

        Args:
            name: the leaf.
            amounts: the amounts of one pod, with one of ``pods``.
            count: the number of pods; negative: their usage ends.
        """
        used = self._usage.get(name)
        if used is None:
            leaf = self._leaves.get(name)
            used = self._usage[name] = {} if leaf is None else leaf.used
        add_multiple(used, dict(amounts), count)
        leaf = self._leaves.get(name)
        if leaf is not None:
            self._note(leaf)
        elif not used:
            del self._usage[name]

    def assume(self, name: LeafName, amounts: Iterable[tuple[str, int]], count: int) -> None:
        """Count pods of the workload that is being placed; negative: they are not placed any more.

        A leaf without nodes cannot be chosen, so nothing is counted there.
        """
        leaf = self._leaves.get(name)
        if leaf is not None:
            add_multiple(leaf.assumed, dict(amounts), count)
            self._note(leaf)

    def usage(self) -> dict[LeafName, Amounts]:
        """Return the usage of admitted workloads in each leaf, without leaves that are not used."""
        return {name: tuple(sorted(used.items())) for name, used in self._usage.items() if used}

    def free(self) -> dict[LeafName, Amounts]:
        """Return what is free in each leaf with nodes; negative if more is used than there is."""
        return {
            name: tuple(
                sorted(
                    (resource, leaf.allocatable.get(resource, 0) - leaf.used.get(resource, 0))
                    for resource in leaf.allocatable.keys() | leaf.used.keys()
                )
            )
            for name, leaf in self._leaves.items()
            if leaf.nodes
        }

    # --- changes, for those who cache values of leaves --------------------------------------------

    @property
    def change_count(self) -> int:
        """How many changes of leaves there were."""
        return self._first_change + len(self._changes)

    def changes_since(self, count: int) -> list[int] | None:
        """Return the numbers of leaves that changed after so many changes; None if these are not known."""
        return None if count < self._first_change else self._changes[count - self._first_change :]

    def _note(self, leaf: Domain) -> None:
        self._changes.append(leaf.number)
        if len(self._changes) > 2 * _MOST_CHANGES:
            del self._changes[:_MOST_CHANGES]
            self._first_change += _MOST_CHANGES

    # --- nodes in and out -------------------------------------------------------------------------

    def _remove(self, placed: _Placed) -> None:
        self._take_out(placed)
        if placed.leaf.nodes:
            self._arrange(placed.leaf)

    def _arrange(self, leaf: Domain) -> None:
        """Put nodes with the same host name in again by name, so that not the order of events decides."""
        if self.ends_with_hosts:
            nodes = [self._nodes[name] for name in sorted(leaf.nodes)]
            for placed in nodes:
                self._take_out(placed)
            for placed in nodes:
                self._put_in(placed.node, placed.values)

    def _put_in(self, node: Node, values: tuple[str, ...]) -> Domain:
        leaf = self._leaf(values)
        amounts = dict(node.allocatable)
        add_multiple(leaf.allocatable, amounts, 1)
        add_multiple(leaf.allocatable, self._of_others.get(node.name, {}), -1)
        leaf.nodes[node.name] = node
        self._nodes[node.name] = _Placed(node, values, leaf, amounts)
        self._note(leaf)
        return leaf

    def _take_out(self, placed: _Placed) -> None:
        node, _, leaf, amounts = placed
        add_multiple(leaf.allocatable, amounts, -1)
        add_multiple(leaf.allocatable, self._of_others.get(node.name, {}), 1)
        del leaf.nodes[node.name]
        del self._nodes[node.name]
        self._note(leaf)

    def _leaf(self, values: tuple[str, ...]) -> Domain:
        """Return the leaf with these values. One host has one leaf: that of its first node."""
        name = values[-1:] if self.ends_with_hosts else values
        leaf = self._leaves.get(name)
        if leaf is not None and (leaf.nodes or leaf.values == values):
            return leaf
        leaf = self._leaves[name] = self._domain(values)
        leaf.used = self._usage.setdefault(name, leaf.used)
        return leaf

    def _domain(self, values: tuple[str, ...]) -> Domain:
        domain = self._by_values.get(values)
        if domain is None:
            parent = self._domain(values[:-1]) if len(values) > 1 else None
            number = len(self.domains)
            domain = Domain(number, len(values) - 1, values, None if parent is None else parent.number)
            self._by_values[values] = domain
            self.domains.append(domain)
            for siblings in (self.by_level[domain.level], *([] if parent is None else [parent.children])):
                insort(siblings, number, key=self.values_of)
        return domain


def add_multiple(amounts: dict[str, int], added: Mapping[str, int], times: int) -> None:
    """Add multiples of amounts, and remove amounts of zero."""
    for resource, amount in added.items():
        total = amounts.get(resource, 0) + amount * times
        if total:
            amounts[resource] = total
        else:
            amounts.pop(resource, None)
