"""Where the pods of a failed host are placed again: slices, required domains, groups, and laws."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, PODS, Node
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.refusals import (
    NodeExclusion,
    NodeObstacle,
    NoRoomInTopology,
    NoSuchLevel,
    StaleDomain,
)
from admitq.core.topology.replacement import PlacedPods, replace_host
from admitq.core.topology.request import SliceLayer, TopologyRequest

LEVELS = ("block", "rack", HOST_NAME)
ROOMS = {f"b{block}-r{rack}-{host}": 4 for block in (1, 2) for rack in (1, 2) for host in "ab"}
"""Hosts with room for so many pods, in two racks of each of two blocks."""


def node(name: str, room: int) -> Node:
    block, rack, _ = name.split("-")
    labels = (("block", block), ("rack", rack), (HOST_NAME, name))
    return Node(name, labels, allocatable=(("cpu", 1000 * room), ("pods", 100)))


def topology(rooms: dict[str, int]) -> FlavorTopology:
    found = FlavorTopology("tree", LEVELS)
    for name, room in rooms.items():
        found.tree.set_node(node(name, room))
    return found


def request(kind: str, *slices: tuple[str, int]) -> TopologyRequest:
    layers = tuple(SliceLayer(*each) for each in slices)
    match kind.split():
        case ["required", level]:
            return TopologyRequest(required=level, slices=layers)
        case ["preferred", level]:
            return TopologyRequest(preferred=level, slices=layers)
        case _:
            return TopologyRequest(unconstrained=True, slices=layers)


def assignment(text: str) -> TopologyAssignment:
    domains = tuple(((name,), int(count)) for name, count in (part.split(":") for part in text.split()))
    return TopologyAssignment((HOST_NAME,), domains)


def placed(text: str, asked: TopologyRequest, name: str = "main") -> PlacedPods:
    of = assignment(text)
    count = sum(pods for _, pods in of.domains)
    return PlacedPods(PodsToPlace(name, count, (("cpu", 1000),), asked), of)


def text_of(of: TopologyAssignment) -> str:
    return " ".join(f"{values[0]}:{count}" for values, count in of.domains)


def replaced(tree: FlavorTopology, unit: Sequence[PlacedPods], host: str) -> dict[str, str] | object:
    """The texts of the new assignments, with the usage of the present ones; the host has no room any more."""
    for pods, of in unit:
        tree.add_usage(of, pods.amounts_of_pod)
    tree.assume(TopologyAssignment((HOST_NAME,), (((host,), 1),)), ((PODS, 1 << 40),))
    found = replace_host(tree, unit, host)
    return {name: text_of(of) for name, of in found.items()} if isinstance(found, dict) else found


@pytest.mark.parametrize(
    ("asked", "before", "taken", "after"),
    [
        # A required domain stays the same.
        (request("required rack"), "b1-r1-a:4 b1-r1-b:2", {}, None),
        (request("required rack"), "b1-r1-a:2 b1-r1-b:1", {}, "b1-r1-b:3"),
        (request("required block"), "b1-r1-a:4 b1-r1-b:2", {}, "b1-r1-b:2 b1-r2-a:4"),
        (request("required block"), "b1-r1-a:4 b1-r1-b:4", {"b1-r2-a": 4, "b1-r2-b": 2}, None),
        # If all pods were on the host, only the request counts.
        (request("required rack"), "b1-r1-a:4", {}, "b1-r1-b:4"),
        (request("required rack"), "b1-r1-a:4", {"b1-r1-b": 1}, "b1-r2-a:4"),
        # A preferred domain may be left, and pods without one go anywhere.
        (request("preferred rack"), "b1-r1-a:4 b1-r1-b:2", {}, "b1-r1-b:2 b1-r2-a:4"),
        (request("unconstrained"), "b1-r1-a:2 b1-r1-b:4", {"b2-r2-b": 2}, "b1-r1-b:4 b2-r2-b:2"),
        # A slice is completed in its own domain.
        (request("unconstrained", ("rack", 4)), "b1-r1-a:2 b1-r1-b:2 b1-r2-a:4", {}, "b1-r1-b:4 b1-r2-a:4"),
        (request("unconstrained", ("rack", 8)), "b1-r1-a:4 b1-r1-b:4", {}, None),
        # A whole slice may go elsewhere.
        (
            request("unconstrained", ("rack", 4)),
            "b1-r1-a:4 b1-r1-b:4",
            {"b1-r2-a": 1, "b1-r2-b": 1},
            "b1-r1-b:4 b1-r2-a:3 b1-r2-b:1",
        ),
        # Slices in slices: two smaller slices of a broken one are placed in the domain of the broken one.
        (
            request("unconstrained", ("block", 8), ("rack", 4)),
            "b1-r1-a:4 b1-r2-a:4",
            {"b1-r1-b": 1},
            "b1-r2-a:4 b1-r2-b:4",
        ),
        (
            request("unconstrained", ("block", 8), ("rack", 4)),
            "b1-r1-a:2 b1-r1-b:2 b1-r2-a:4",
            {},
            "b1-r1-b:4 b1-r2-a:4",
        ),
        # The last slice was incomplete before.
        (
            request("unconstrained", ("rack", 4)),
            "b1-r1-a:1 b1-r1-b:3 b1-r2-a:1",
            {},
            "b1-r1-b:4 b1-r2-a:1",
        ),
        (request("unconstrained", ("rack", 4)), "b1-r1-a:1 b1-r2-a:4", {}, "b1-r1-b:1 b1-r2-a:4"),
        (request("unconstrained", ("rack", 4)), "b1-r1-a:2 b1-r1-b:1", {}, "b1-r1-b:3"),
    ],
)
def test_pods_of_a_failed_host(
    asked: TopologyRequest, before: str, taken: dict[str, int], after: str | None
) -> None:
    tree = topology({name: room - taken.get(name, 0) for name, room in ROOMS.items()})
    found = replaced(tree, [placed(before, asked)], "b1-r1-a")
    assert (found if isinstance(found, dict) else None) == (None if after is None else {"main": after})


@pytest.mark.parametrize(
    ("leader", "workers", "after"),
    [
        ("b1-r1-a:1", "b1-r1-b:3", {"leader": "b1-r1-b:1"}),
        ("b1-r1-b:1", "b1-r1-a:3", {"workers": "b1-r1-b:3"}),
        ("b1-r1-a:1", "b1-r1-a:1 b1-r1-b:2", {"leader": "b1-r1-b:1", "workers": "b1-r1-b:3"}),
        ("b1-r1-a:1", "b1-r1-a:3", {"leader": "b1-r1-b:1", "workers": "b1-r1-b:3"}),
        ("b1-r1-a:1", "b1-r1-b:4", None),
    ],
)
def test_leader_and_workers_stay_together(leader: str, workers: str, after: dict[str, str] | None) -> None:
    asked = request("required rack")
    unit = [placed(leader, asked, "leader"), placed(workers, asked, "workers")]
    found = replaced(topology(ROOMS), unit, "b1-r1-a")
    assert (found if isinstance(found, dict) else None) == after


def test_a_leader_alone_is_no_slice() -> None:
    asked = request("required block", ("rack", 4))
    unit = [placed("b1-r1-a:1", asked, "leader"), placed("b1-r2-a:4", asked, "workers")]
    found = replaced(topology(ROOMS), unit, "b1-r1-a")
    assert found == {"leader": "b1-r1-b:1"}


# --- refusals -------------------------------------------------------------------------------------


def test_nodes_outside_of_the_domain_are_excluded() -> None:
    tree = topology({**ROOMS, "b1-r1-b": 2})
    found = replaced(tree, [placed("b1-r1-a:4 b1-r1-b:2", request("required rack"))], "b1-r1-a")
    assert found == NoRoomInTopology(
        "tree",
        1,
        0,
        4,
        8,
        (
            (NodeExclusion(NodeObstacle.RESOURCE, "cpu"), 1),
            (NodeExclusion(NodeObstacle.RESOURCE, "pods"), 1),
            (NodeExclusion(NodeObstacle.TOPOLOGY_DOMAIN), 6),
        ),
    )


def test_other_pods_in_a_domain_that_is_gone_are_named() -> None:
    tree = topology({name: room for name, room in ROOMS.items() if name != "b1-r1-b"})
    found = replaced(tree, [placed("b1-r1-a:1 b1-r1-b:1", request("unconstrained"))], "b1-r1-a")
    assert found == StaleDomain(("b1-r1-b",))


def test_a_level_that_is_gone_is_refused() -> None:
    found = replaced(topology(ROOMS), [placed("b1-r1-a:1", request("required row"))], "b1-r1-a")
    assert found == NoSuchLevel("row")


# --- laws -----------------------------------------------------------------------------------------

REQUESTS = st.sampled_from(
    [
        request("required rack"),
        request("required block"),
        request("preferred rack"),
        request("unconstrained"),
        request("unconstrained", ("rack", 2)),
        request("required block", ("rack", 4), (HOST_NAME, 2)),
    ]
)


@given(
    rooms=st.fixed_dictionaries({name: st.integers(0, 5) for name in ROOMS}),
    asked=REQUESTS,
    count=st.integers(1, 12),
    data=st.data(),
)
def test_law_other_pods_stay_and_no_host_is_overfull(
    rooms: dict[str, int], asked: TopologyRequest, count: int, data: st.DataObject
) -> None:
    tree = topology(rooms)
    pods = PodsToPlace("main", count, (("cpu", 1000),), asked)
    before = tree.place([pods])
    if not isinstance(before, dict):
        return
    host = data.draw(st.sampled_from([values[0] for values, _ in before["main"].domains]))
    if data.draw(st.booleans(), label="the node is gone"):
        tree.tree.remove_node(host)
    after = replaced(tree, [PlacedPods(pods, before["main"])], host)
    if not isinstance(after, dict):
        return
    was = Counter({values[0]: number for values, number in before["main"].domains})
    now = Counter({values[0]: number for values, number in assignment(after["main"]).domains})
    lost = was.pop(host)
    assert host not in now
    assert now.total() == count
    assert now - was <= now
    assert (now - was).total() == lost
    assert all(number <= rooms[name] for name, number in now.items())
    for level, label in enumerate(LEVELS):
        if asked.required == label and was:
            assert len({tuple(name.split("-"))[: level + 1] for name in now}) == 1
    for label, size in asked.slices:
        level = LEVELS.index(label)
        slices = Counter[tuple[str, ...]]()
        for name, number in now.items():
            slices[(*name.split("-")[:2], name)[: level + 1]] += number
        assert sum(number % size != 0 for number in slices.values()) <= 1
