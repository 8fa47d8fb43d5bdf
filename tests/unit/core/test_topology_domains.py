"""The domains of a flavor, and capacities that follow each change."""

from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import HOST_NAME, DomainTree, Node
from admitq.core.topology.leaf_room import Layer, PodShape
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle

RACK = "example.com/rack"


def host(name: str, rack: str = "r", **fields: int) -> Node:
    amounts = tuple(sorted({"cpu": 4000, "pods": 10, **fields}.items()))
    return Node(name, ((RACK, rack), ("kubernetes.io/hostname", name)), allocatable=amounts)


def tree_of(*nodes: Node) -> DomainTree:
    tree = DomainTree((RACK, HOST_NAME))
    for node in nodes:
        tree.set_node(node)
    return tree


@pytest.mark.parametrize(
    ("node", "belongs"),
    [
        (host("a"), True),
        (replace(host("a"), ready=False), False),
        (replace(host("a"), schedulable=False), False),
        (replace(host("a"), labels=((HOST_NAME, "a"), ("pool", "x"))), False),
        (replace(host("a"), labels=((RACK, "r"), (HOST_NAME, "a"), ("pool", "y"))), False),
    ],
    ids=["usual", "not ready", "cordoned", "without a level", "of another flavor"],
)
def test_nodes_belong_by_readiness_and_labels(node: Node, belongs: bool) -> None:
    tree = DomainTree((RACK, HOST_NAME), (("pool", "x"),))
    if belongs:
        node = replace(node, labels=(*node.labels, ("pool", "x")))
    assert tree.set_node(node) is belongs
    assert tree.node_count == belongs
    assert (tree.find_leaf(("a",)) is not None) is belongs


def test_usage_of_a_host_stays_while_its_node_is_away() -> None:
    tree = tree_of(host("a"))
    tree.add_usage(("a",), (("cpu", 1000), ("pods", 1)), 2)
    tree.remove_node("a")
    assert tree.find_leaf(("a",)) is None
    tree.set_node(host("a", rack="other"))
    leaf = tree.find_leaf(("a",))
    assert leaf is not None
    assert leaf.values == ("other", "a")
    assert leaf.used == {"cpu": 2000, "pods": 2}
    tree.add_usage(("a",), (("cpu", 1000), ("pods", 1)), -2)
    assert tree.usage() == {}


def test_a_node_that_did_not_change_is_no_change() -> None:
    tree = tree_of(host("a"))
    before = tree.change_count
    assert tree.set_node(host("a"))
    assert tree.change_count == before
    assert tree.set_node(replace(host("a"), ready=False))
    assert not tree.set_node(replace(host("a"), ready=False))
    assert not tree.remove_node("a")


def test_host_with_more_usage_than_room_holds_no_pods_and_takes_none_from_its_rack() -> None:
    tree = tree_of(host("a"), host("b"))
    tree.add_usage(("a",), (("cpu", 1000),), 9)
    assert dict(tree.free()["a",])["cpu"] == -5000
    assert rack_rooms(tree, PodShape((("cpu", 1000), ("pods", 1)), (Layer(0, 1),))) == {("r",): 4}


def test_usage_of_a_host_that_never_had_a_node_ends() -> None:
    tree = tree_of()
    for pods in (2, -1, -1):
        tree.add_usage(("a",), (("pods", 1),), pods)
    assert tree.usage() == {}


def test_usage_counts_that_came_before_the_node() -> None:
    tree = tree_of()
    tree.add_usage(("a",), (("cpu", 1000),), 1)
    tree.add_requests_of_others("a", {"cpu": 500})
    tree.set_node(host("a"))
    leaf = tree.find_leaf(("a",))
    assert leaf is not None
    assert (leaf.allocatable["cpu"], leaf.used["cpu"]) == (3500, 1000)


def test_two_racks_of_the_same_name_in_two_blocks_are_two_domains() -> None:
    tree = DomainTree(("block", RACK))
    for block in "ab":
        tree.set_node(Node(f"n-{block}", (("block", block), (RACK, "r")), allocatable=(("pods", 1),)))
    assert [tree.values_of(number) for number in tree.by_level[1]] == [("a", "r"), ("b", "r")]


def test_nodes_with_one_host_name_are_one_leaf_in_the_rack_of_the_first_by_name() -> None:
    """Whatever the order of events, and also after nodes that were there before have left."""
    nodes = [replace(host("h", rack), name=name) for name, rack in (("a", "r"), ("b", "s"), ("c", "r"))]
    for names in (kept for count in (1, 2, 3) for kept in combinations("abc", count)):
        for order in permutations(nodes):
            for end in permutations([node.name for node in nodes if node.name not in names]):
                tree = tree_of(*order)
                tree.add_usage(("h",), (("cpu", 1000),), 1)
                for name in end:
                    tree.remove_node(name)
                leaf = tree.find_leaf(("h",))
                assert leaf is not None
                assert leaf.values == ("s" if names[0] == "b" else "r", "h")
                assert list(leaf.nodes) == list(names)
                assert dict(tree.free()["h",]) == {"cpu": 4000 * len(names) - 1000, "pods": 10 * len(names)}
                shape = PodShape((("cpu", 1000), ("pods", 1)), (Layer(0, 1),))
                assert rack_rooms(tree, shape) == {leaf.values[:1]: 4 * len(names) - 1}


def rack_rooms(tree: DomainTree, shape: PodShape) -> dict[tuple[str, ...], int]:
    """How many pods fit into each rack in which any do."""
    capacities = Capacities(tree, shape)
    capacities.refresh()
    return {tree.values_of(number): room for number in tree.by_level[0] if (room := capacities.pods[number])}


def test_too_many_changes_are_not_remembered() -> None:
    tree = tree_of(host("a"))
    before = tree.change_count
    for _ in range(50_000):
        tree.add_usage(("a",), (("cpu", 1),), 1)
    assert tree.changes_since(before) is None
    recent = tree.change_count
    tree.add_usage(("a",), (("cpu", 1),), 1)
    assert tree.changes_since(recent) == [tree.by_level[1][0]]


@pytest.mark.parametrize(
    ("node", "exclusion"),
    [
        (host("a"), None),
        (host("a", cpu=100), NodeExclusion(NodeObstacle.RESOURCE, "cpu")),
        (host("a", pods=0), NodeExclusion(NodeObstacle.RESOURCE, "pods")),
    ],
)
def test_nodes_without_room_are_counted_by_the_scarcest_resource(
    node: Node, exclusion: NodeExclusion | None
) -> None:
    capacities = Capacities(tree_of(node), PodShape((("cpu", 1000), ("pods", 1)), (Layer(1, 1),)))
    capacities.refresh()
    assert +capacities.excluded == ({} if exclusion is None else {exclusion: 1})


SHAPES = (
    PodShape((("cpu", 1000), ("pods", 1)), (Layer(1, 1),)),
    PodShape((("cpu", 1000), ("pods", 1)), (Layer(0, 4), Layer(1, 2))),
    PodShape((("cpu", 2000), ("pods", 1)), (Layer(0, 2),), (("cpu", 1000), ("pods", 1))),
)

hosts = st.sampled_from("abcd")


class FollowsChanges(RuleBasedStateMachine):
    """Capacities that are kept equal capacities that are computed anew from the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = tree_of()
        self.nodes: dict[str, Node] = {}
        self.of_others: dict[str, int] = {}
        self.usage: dict[str, int] = {}
        self.kept = [
            Capacities(self.tree, shape, without_usage=without)
            for shape in SHAPES
            for without in (False, True)
        ]

    @rule(name=hosts, host_name=hosts, rack=st.sampled_from("rs"), cpu=st.integers(0, 6), ready=st.booleans())
    def set_node(self, name: str, host_name: str, rack: str, cpu: int, ready: bool) -> None:
        self.nodes[name] = replace(host(host_name, rack, cpu=1000 * cpu), name=name, ready=ready)
        self.tree.set_node(self.nodes[name])

    @rule(name=hosts)
    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.tree.remove_node(name)

    @rule(name=hosts, pods=st.integers(0, 3))
    def set_pods_of_others(self, name: str, pods: int) -> None:
        change = pods - self.of_others.get(name, 0)
        self.of_others[name] = pods
        self.tree.add_requests_of_others(name, {"cpu": 700 * change, "pods": change})

    @rule(name=hosts, pods=st.integers(0, 3))
    def set_usage(self, name: str, pods: int) -> None:
        self.tree.add_usage((name,), (("cpu", 1000), ("pods", 1)), pods - self.usage.get(name, 0))
        self.usage[name] = pods

    @invariant()
    def capacities_are_those_of_a_new_tree(self) -> None:
        tree = tree_of(*self.nodes.values())
        for name, pods in self.of_others.items():
            tree.add_requests_of_others(name, {"cpu": 700 * pods, "pods": pods})
        for name, pods in self.usage.items():
            tree.add_usage((name,), (("cpu", 1000), ("pods", 1)), pods)
        assert tree.usage() == self.tree.usage()
        for kept in self.kept:
            kept.refresh()
            anew = Capacities(tree, kept.shape, without_usage=kept in self.kept[1::2])
            anew.refresh()
            assert described(self.tree, kept) == described(tree, anew)
            assert +kept.excluded == +anew.excluded


def described(tree: DomainTree, capacities: Capacities) -> dict[tuple[str, ...], object]:
    """The capacities of domains that can hold anything, by their values."""
    values = {domain.values: capacities.values_of(domain) for domain in tree.domains}
    return {name: found for name, found in values.items() if any(found)}


TestCapacitiesFollowChanges = FollowsChanges.TestCase
TestCapacitiesFollowChanges.settings = settings(max_examples=60, stateful_step_count=25)
