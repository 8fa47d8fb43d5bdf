"""The room that each level of a topology has for podsets: how much fits, where, and what limits it."""

import pytest

from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.rooms import LevelRoom, TopologyRoom

CPU_FULL = NodeExclusion(NodeObstacle.RESOURCE, "cpu")
SELECTED = NodeExclusion(NodeObstacle.NODE_SELECTOR)


def topology(cpus: dict[str, int]) -> FlavorTopology:
    """Hosts of racks, such as ``r1-a``, with so many CPUs each. Hosts with "x" are not on ssd."""
    placed = FlavorTopology("tree", ("rack", HOST_NAME))
    for name, cpu in cpus.items():
        labels = (("rack", name.partition("-")[0]), (HOST_NAME, name), ("ssd", str("x" not in name)))
        placed.tree.set_node(Node(name, labels, (), (("cpu", cpu), ("pods", 3))))
    return placed


def pods(count: int, name: str = "main", cpu: int = 1, **request: object) -> PodsToPlace:
    return PodsToPlace(name, count, (("cpu", cpu),), TopologyRequest(**request))  # type: ignore[arg-type]


def room_for(placed: FlavorTopology, *unit: PodsToPlace) -> TopologyRoom:
    room = placed.find_room(unit, fits=isinstance(placed.place(unit), dict))
    assert room is not None
    return room


RACKS = {"r1-a": 2, "r1-b": 0, "r1-c": 2, "r2-a": 9, "r2-b": 0}


def test_room_names_the_best_domain_and_its_limit_per_level() -> None:
    assert room_for(topology(RACKS), pods(5, required="rack")) == TopologyRoom(
        "tree",
        unit=1,
        wanted=5,
        has_leader=False,
        fits=False,
        requested="rack",
        may_spread=False,
        is_unconstrained=False,
        total=7,
        levels=(
            LevelRoom("rack", ("r1",), 4, 3, "cpu", ((CPU_FULL, 1),)),
            LevelRoom(HOST_NAME, ("r2", "r2-a"), 3, 1, "pods"),
        ),
    )


def test_limit_is_missing_if_all_slices_fit_into_the_domain() -> None:
    room = room_for(topology(RACKS), pods(4, required="rack"))
    assert room.fits
    assert room.levels[0] == LevelRoom("rack", ("r1",), 4, 3, None, ((CPU_FULL, 1),))


@pytest.mark.parametrize(
    ("request_", "closest"),
    [
        (pods(9, required="rack"), ("r1",)),
        (pods(9, preferred=HOST_NAME), ("r2", "r2-a")),
        (pods(9, unconstrained=True), ()),
    ],
    ids=["required", "preferred", "unconstrained"],
)
def test_closest_domain_is_that_of_the_requested_level(
    request_: PodsToPlace, closest: tuple[str, ...]
) -> None:
    assert room_for(topology(RACKS), request_).closest == closest


def test_slices_are_counted_down_to_their_level() -> None:
    room = room_for(topology(RACKS), pods(7, slices=(SliceLayer("rack", 2),)))
    assert (room.unit, room.wanted, room.total, room.requested) == (2, 4, 3, "rack")
    assert room.levels == (LevelRoom("rack", ("r1",), 2, 3, "cpu", ((CPU_FULL, 1),)),)


def test_domain_without_room_for_the_leader_holds_nothing() -> None:
    placed = topology({"r1-a": 3, "r1-b": 1, "r2-a": 2})
    leader = pods(1, "leader", 2, required="rack")
    room = room_for(placed, pods(3, required="rack"), leader)
    assert (room.has_leader, room.fits) == (True, False)
    assert [(each.domain, each.fitting) for each in room.levels] == [(("r1",), 2), (("r1", "r1-a"), 1)]
    assert room_for(topology({"r1-a": 1}), pods(3, required="rack"), leader).levels[0].fitting == 0


def test_hosts_that_a_node_selector_excludes_have_no_limiting_resource() -> None:
    selecting = PodsToPlace("main", 2, (("cpu", 1),), TopologyRequest(required="rack"), (("ssd", "True"),))
    assert room_for(topology({"r1-x": 9}), selecting).levels[0] == LevelRoom(
        "rack", ("r1",), 0, 1, None, ((SELECTED, 1),)
    )


def test_hosts_without_nodes_do_not_count() -> None:
    placed = topology({"r1-a": 1, "r1-b": 1})
    placed.tree.remove_node("r1-b")
    assert room_for(placed, pods(2, required="rack")).levels[0] == LevelRoom("rack", ("r1",), 1, 1, "cpu")


def test_levels_without_nodes_have_no_room() -> None:
    placed = topology({"r1-a": 1})
    placed.tree.remove_node("r1-a")
    room = room_for(placed, pods(2, preferred="rack"))
    assert (room.levels[0], room.closest) == (LevelRoom("rack", (), 0), ())


def test_request_that_levels_do_not_suit_has_no_room() -> None:
    assert topology(RACKS).find_room((pods(2, required="block"),), fits=False) is None
