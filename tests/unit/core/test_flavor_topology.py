"""Podsets on the nodes of a flavor: levels, leaders, refusals, and podsets of one workload."""

from dataclasses import replace
from random import Random
from string import ascii_lowercase
from typing import Any

import orjson
import pytest

from admitq.core.model import (
    NodeSelectorTerm,
    PreferredTerm,
    SelectorOperator,
    SelectorRequirement,
    Taint,
    Toleration,
)
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.leaf_room import Layer
from admitq.core.topology.levels import RequestedLevels, find_levels
from admitq.core.topology.refusals import (
    LayerNotBelow,
    LayerNotDivisor,
    LayerShortfall,
    NodeExclusion,
    NodeObstacle,
    NoRoomInTopology,
    NoSuchLevel,
    SlicesAboveRequest,
)
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.rules import USUAL_RULES, PlacementRules
from admitq_api.topology_assignments import encode

LEVELS = ("block", "rack", HOST_NAME)
ONE = (Layer(2, 1),)


def preferred(level: str, *slices: tuple[str, int]) -> TopologyRequest:
    return TopologyRequest(preferred=level, slices=tuple(SliceLayer(*each) for each in slices))


def required(level: str, *slices: tuple[str, int]) -> TopologyRequest:
    return TopologyRequest(required=level, slices=tuple(SliceLayer(*each) for each in slices))


def unconstrained(*slices: tuple[str, int]) -> TopologyRequest:
    return TopologyRequest(unconstrained=True, slices=tuple(SliceLayer(*each) for each in slices))


def levels(level: int, layers: tuple[Layer, ...] = ONE, kind: str = "required") -> RequestedLevels:
    return RequestedLevels(level, layers, kind == "preferred", kind != "required", kind == "unconstrained")


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (required("rack"), levels(1)),
        (preferred(HOST_NAME), levels(2, kind="preferred")),
        (unconstrained(), levels(2, kind="unconstrained")),
        (unconstrained(("rack", 4)), levels(0, (Layer(1, 4),), kind="unconstrained")),
        (required("block", ("rack", 8), (HOST_NAME, 4)), levels(0, (Layer(1, 8), Layer(2, 4)))),
        (required("row"), NoSuchLevel("row")),
        (required("rack", ("row", 2)), NoSuchLevel("row", of_slices=True)),
        (required("rack", ("block", 2)), SlicesAboveRequest("block", "rack")),
        (unconstrained(("rack", 4), ("block", 2)), LayerNotBelow("block", "rack")),
        (unconstrained(("rack", 4), (HOST_NAME, 3)), LayerNotDivisor(3, 4)),
    ],
)
def test_levels_of_requests(request_: TopologyRequest, found: object) -> None:
    assert find_levels(request_, LEVELS) == found


# --- placement ------------------------------------------------------------------------------------------


def topology(
    rooms: dict[str, int],
    tolerations: tuple[Toleration, ...] = (),
    rules: PlacementRules = USUAL_RULES,
) -> FlavorTopology:
    """A topology with hosts such as ``r1-a`` in rack ``r1``, with room for so many pods of one CPU."""
    found = FlavorTopology("tree", ("rack", HOST_NAME), tolerations=tolerations, rules=rules)
    for name, pods in rooms.items():
        found.tree.set_node(node(name, pods))
    return found


def node(name: str, pods: int) -> Node:
    labels = (("rack", name.partition("-")[0]), (HOST_NAME, name))
    return Node(name, labels, allocatable=(("cpu", 1000 * pods), ("pods", 100)))


def pods(count: int, request: TopologyRequest, name: str = "main", cpu: int = 1000) -> PodsToPlace:
    return PodsToPlace(name, count, (("cpu", cpu), ("memory", 0)), request)


def on_hosts(**counts: int) -> TopologyAssignment:
    return TopologyAssignment(
        (HOST_NAME,), tuple(((name.replace("_", "-"),), count) for name, count in counts.items())
    )


ROOMS = {"r1-a": 4, "r1-b": 2, "r2-a": 3, "r2-b": 3}


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        ([pods(5, required("rack"))], {"main": on_hosts(r1_a=4, r1_b=1)}),
        ([pods(6, preferred("rack"))], {"main": on_hosts(r1_a=4, r1_b=2)}),
        ([pods(7, preferred("rack"))], {"main": on_hosts(r1_a=4, r2_a=3)}),
        ([pods(8, preferred("rack", (HOST_NAME, 2)))], {"main": on_hosts(r1_a=4, r1_b=2, r2_a=2)}),
        (
            [pods(1, required("rack"), "leader", 2000), pods(4, required("rack"), "workers")],
            {"leader": on_hosts(r1_a=1), "workers": on_hosts(r1_a=2, r1_b=2)},
        ),
        (
            [pods(0, preferred("rack"), "leader", 9000), pods(2, preferred("rack"), "workers")],
            {"leader": on_hosts(), "workers": on_hosts(r1_b=2)},
        ),
        (
            [pods(0, preferred("rack"), "leader", 9000), pods(0, preferred("rack"), "workers")],
            {"leader": on_hosts(), "workers": on_hosts()},
        ),
    ],
    ids=["rack", "whole rack", "racks", "slices", "leader", "no leader", "no pods"],
)
def test_places(unit: list[PodsToPlace], found: object) -> None:
    placed = topology(ROOMS)
    assert placed.place(unit) == found
    assert placed.tree.usage() == {}


def test_ten_thousand_pods_get_an_assignment_within_the_size_limit_of_objects() -> None:
    """Also on hosts with names that have nothing in common. Objects have at most 1.5 MB."""
    chance = Random(7)  # noqa: S311 a seeded choice, no secret
    names = ["".join(chance.choices(ascii_lowercase, k=60)) for _ in range(10_000)]
    placed = topology({f"r{number // 500}-{name}": 1 for number, name in enumerate(names)})
    found = placed.place([pods(10_000, preferred("rack"))])
    assert isinstance(found, dict)
    domains = found["main"].domains
    assert [count for _, count in domains] == [1] * 10_000
    assert len(orjson.dumps(encode([HOST_NAME], domains))) < 700_000


def test_usage_of_others_is_ignored_on_an_empty_cluster() -> None:
    placed = topology({"r1-a": 2})
    unit = [pods(2, required(HOST_NAME))]
    placed.add_usage(on_hosts(r1_a=1), unit[0].amounts_of_pod)
    assert isinstance(placed.place(unit), NoRoomInTopology)
    assert placed.place(unit, without_usage=True) == {"main": on_hosts(r1_a=2)}


@pytest.mark.parametrize(("resource", "has_room"), [("memory", True), ("cpu", False)])
def test_pods_need_room_for_the_resources_that_they_request(resource: str, has_room: bool) -> None:
    placed = topology({"r1-a": 2})
    placed.add_usage(on_hosts(r1_a=2), (("cpu", 1000), ("pods", 1)))
    assert placed.has_room(on_hosts(r1_a=2), (("cpu", 1000), ("pods", 1)))
    placed.tree.add_usage(("r1-a",), ((resource, 1),), 1)
    assert placed.has_room(on_hosts(r1_a=2), (("cpu", 1000), ("pods", 1))) is has_room
    assert not placed.has_room(on_hosts(r1_b=1), (("cpu", 1000), ("pods", 1)))


def test_without_the_small_gaps_first_large_gaps_are_filled_first() -> None:
    unit = [pods(5, unconstrained())]
    assert topology(ROOMS).place(unit) == {"main": on_hosts(r1_b=2, r2_a=3)}
    placed = topology(ROOMS, rules=PlacementRules(small_gaps_first=False))
    assert placed.place(unit) == {"main": on_hosts(r1_a=4, r1_b=1)}


@pytest.mark.parametrize(
    ("rooms", "unit", "usual", "balanced"),
    [
        (
            {"r1-a": 4, "r1-b": 4, "r1-c": 4, "r1-d": 1},
            [pods(9, preferred(HOST_NAME))],
            {"main": on_hosts(r1_a=4, r1_b=4, r1_d=1)},
            {"main": on_hosts(r1_a=3, r1_b=3, r1_c=3)},
        ),
        (
            {"r1-a": 5, "r1-b": 2, "r2-a": 4, "r2-b": 3},
            [pods(7, preferred(HOST_NAME))],
            {"main": on_hosts(r1_a=5, r1_b=2)},
            {"main": on_hosts(r2_a=4, r2_b=3)},
        ),
        (
            {"r1-a": 5, "r1-b": 4, "r1-c": 3},
            [pods(7, preferred(HOST_NAME))],
            {"main": on_hosts(r1_a=5, r1_c=2)},
            {"main": on_hosts(r1_b=4, r1_c=3)},
        ),
        (
            {"r1-a": 9, "r1-b": 3},
            [pods(3, preferred(HOST_NAME))],
            {"main": on_hosts(r1_b=3)},
            {"main": on_hosts(r1_b=3)},
        ),
        (
            {"r1-a": 4, "r1-b": 2, "r2-a": 3, "r2-b": 3},
            [pods(8, preferred("rack"))],
            {"main": on_hosts(r1_a=4, r1_b=1, r2_a=3)},
            {"main": on_hosts(r1_a=4, r2_a=3, r2_b=1)},
        ),
        (
            {"r1-a": 5, "r1-b": 1, "r2-a": 3, "r2-b": 3, "r3-a": 3, "r3-b": 3},
            [pods(8, preferred("rack"))],
            {"main": on_hosts(r1_a=5, r2_a=3)},
            {"main": on_hosts(r2_a=3, r2_b=1, r3_a=3, r3_b=1)},
        ),
        (
            {"r1-a": 4, "r1-b": 4, "r1-c": 4},
            [pods(1, preferred(HOST_NAME), "leader", 2000), pods(6, preferred(HOST_NAME), "workers")],
            {"leader": on_hosts(r1_a=1), "workers": on_hosts(r1_a=2, r1_b=4)},
            {"leader": on_hosts(r1_a=1), "workers": on_hosts(r1_a=2, r1_b=4)},
        ),
        (
            {"r1-a": 2, "r2-a": 2},
            [pods(4, preferred(HOST_NAME))],
            {"main": on_hosts(r1_a=2, r2_a=2)},
            {"main": on_hosts(r1_a=2, r2_a=2)},
        ),
        (
            {"r1-a": 2, "r1-b": 2},
            [pods(1, preferred(HOST_NAME), "leader", 3000), pods(1, preferred(HOST_NAME), "workers")],
            (0, 1),
            (0, 1),
        ),
        ({"r1-a": 2}, [pods(0, preferred(HOST_NAME))], {"main": on_hosts()}, {"main": on_hosts()}),
        (
            {"r1-a": 2},
            [pods(0, preferred(HOST_NAME), "leader", 9000), pods(0, preferred(HOST_NAME), "workers")],
            {"leader": on_hosts(), "workers": on_hosts()},
            {"leader": on_hosts(), "workers": on_hosts()},
        ),
        (
            {"r1-a": 4, "r1-b": 2},
            [pods(5, required("rack"))],
            {"main": on_hosts(r1_a=4, r1_b=1)},
            {"main": on_hosts(r1_a=4, r1_b=1)},
        ),
    ],
    ids=[
        "equal shares",
        "the siblings with the largest smallest share",
        "the least room that suffices",
        "one host that suffices",
        "racks keep their shares",
        "racks with equally large hosts first",
        "a leader",
        "no siblings hold all",
        "no host holds the leader",
        "no pods",
        "no pods of leader and workers",
        "a required level",
    ],
)
def test_balanced_placement_gives_equal_shares_of_few_domains(
    rooms: dict[str, int], unit: list[PodsToPlace], usual: object, balanced: object
) -> None:
    for rules, found in ((USUAL_RULES, usual), (PlacementRules(balanced=True), balanced)):
        placed = topology(rooms, rules=rules).place(unit)
        shown = (placed.fitting, placed.wanted) if isinstance(placed, NoRoomInTopology) else placed
        assert shown == found, rules


def prefer(*weights: tuple[str, int]) -> tuple[PreferredTerm, ...]:
    return tuple(
        PreferredTerm(
            weight, NodeSelectorTerm((SelectorRequirement(HOST_NAME, SelectorOperator.IN, (host,)),))
        )
        for host, weight in weights
    )


@pytest.mark.parametrize(
    ("count", "request_", "preferred_nodes", "usual", "found"),
    [
        (2, required("rack"), [("r2-a", 1)], on_hosts(r1_b=2), on_hosts(r2_a=2)),
        (4, unconstrained(), [("r2-b", 5)], on_hosts(r1_a=4), on_hosts(r1_a=4)),
        (5, unconstrained(), [("r1-a", 5)], on_hosts(r1_b=2, r2_a=3), on_hosts(r1_a=4, r1_b=1)),
        (5, required("rack"), [("r2-b", 5)], on_hosts(r1_a=4, r1_b=1), on_hosts(r2_a=2, r2_b=3)),
        (6, required("rack"), [("r2-b", 5), ("r1-a", 9)], on_hosts(r1_a=4, r1_b=2), on_hosts(r1_a=4, r1_b=2)),
    ],
    ids=[
        "a rack with a preferred host",
        "a preferred host that does not suffice",
        "preferred hosts first",
        "a preferred host of a rack first",
        "the rack with the highest score",
    ],
)
def test_preferred_nodes_come_first_only_with_the_gate(
    count: int,
    request_: TopologyRequest,
    preferred_nodes: list[tuple[str, int]],
    usual: TopologyAssignment,
    found: TopologyAssignment,
) -> None:
    unit = [replace(pods(count, request_), preferred_node_affinity=prefer(*preferred_nodes))]
    assert topology(ROOMS).place(unit) == {"main": usual}
    assert topology(ROOMS, rules=PlacementRules(prefers_nodes=True)).place(unit) == {"main": found}


def test_full_hosts_and_other_leaves_than_hosts_have_no_score() -> None:
    rules = PlacementRules(prefers_nodes=True)
    unit = [replace(pods(2, required("rack")), preferred_node_affinity=prefer(("r2-a", 1)))]
    full = topology({"r1-a": 4, "r2-a": 0, "r2-b": 9}, rules=rules)
    assert full.place(unit) == {"main": on_hosts(r1_a=2)}
    racks = FlavorTopology("tree", ("rack",), rules=rules)
    for host in ("r1-a", "r2-a"):
        racks.tree.set_node(node(host, 2))
    assert racks.place(unit) == {"main": TopologyAssignment(("rack",), ((("r1",), 2),))}


def test_other_leaves_than_hosts_are_named_by_all_values() -> None:
    placed = FlavorTopology("tree", ("block", "rack"))
    for rack in ("r1", "r2"):
        placed.tree.set_node(
            Node(rack, (("block", "b"), ("rack", rack)), allocatable=(("cpu", 2000), ("pods", 9)))
        )
    assert placed.place([pods(3, required("block"))]) == {
        "main": TopologyAssignment(("block", "rack"), ((("b", "r1"), 2), (("b", "r2"), 1)))
    }


@pytest.mark.parametrize(
    ("request_", "count", "refusal"),
    [
        (required("rack"), 7, NoRoomInTopology("tree", 1, 6, 7, 4)),
        (preferred("rack"), 13, NoRoomInTopology("tree", 1, 12, 13, 4)),
        (required("row"), 1, NoSuchLevel("row")),
        (
            unconstrained(("rack", 4), (HOST_NAME, 2)),
            16,
            NoRoomInTopology(
                "tree", 4, 2, 4, 4, (), (LayerShortfall("rack", 2, 4), LayerShortfall(HOST_NAME, 5, 8))
            ),
        ),
    ],
)
def test_refusals(request_: TopologyRequest, count: int, refusal: object) -> None:
    assert topology(ROOMS).place([pods(count, request_)]) == refusal


def test_a_leader_without_room_leaves_no_room_for_its_workers() -> None:
    unit = [pods(1, required("rack"), "leader", 9000), pods(2, required("rack"), "workers")]
    assert topology(ROOMS).place(unit) == NoRoomInTopology("tree", 1, 0, 2, 4)
    unit = [replace(each, request=preferred("rack")) for each in unit]
    assert topology(ROOMS).place(unit) == NoRoomInTopology("tree", 1, 0, 2, 4)


SSD = NodeSelectorTerm((SelectorRequirement("disk", SelectorOperator.IN, ("ssd",)),))
TAINT = Taint("key", "value", "NoSchedule")
TOLERATION = Toleration("key", "Exists")


@pytest.mark.parametrize(
    ("fields", "of_flavor", "excluded"),
    [
        (
            {"node_selector": (("disk", "ssd"),)},
            (TOLERATION,),
            {NodeExclusion(NodeObstacle.NODE_SELECTOR): 3},
        ),
        ({"required_node_affinity": (SSD,)}, (TOLERATION,), {NodeExclusion(NodeObstacle.AFFINITY): 3}),
        ({}, (), {NodeExclusion(NodeObstacle.TAINT, "key=value:NoSchedule"): 1}),
        ({"tolerations": (TOLERATION,)}, (), {}),
        ({}, (TOLERATION,), {}),
    ],
)
def test_nodes_that_pods_do_not_accept_are_excluded(
    fields: dict[str, Any], of_flavor: tuple[Toleration, ...], excluded: dict[NodeExclusion, int]
) -> None:
    placed = topology({"r1-a": 1, "r1-b": 1, "r2-a": 1}, tolerations=of_flavor)
    labels = (("rack", "r3"), (HOST_NAME, "t"), ("disk", "ssd"))
    placed.tree.set_node(Node("t", labels, (TAINT,), (("cpu", 1000), ("pods", 1))))
    refusal = placed.place([replace(pods(9, required("rack")), **fields)])
    assert isinstance(refusal, NoRoomInTopology)
    assert dict(refusal.excluded) == excluded


def test_few_shapes_are_kept() -> None:
    placed = topology({"r1-a": 4})
    for cpu in [*range(1, 400), 1000]:
        assert isinstance(placed.place([pods(1, required(HOST_NAME), cpu=cpu)]), dict)
