"""The topologies of flavors, with the places that workloads hold."""

import pytest

from admitq.core.model import ObjectKey, ResourceFlavor
from admitq.core.settings import Placement
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.topologies import Place, PodOnNode, Topologies

HOST = Node("h", (("rack", "r"), (HOST_NAME, "h")), (), (("cpu", 4000), ("pods", 9)))
ONE_POD = (("cpu", 1000), ("pods", 1))
ON_HOST = TopologyAssignment((HOST_NAME,), ((("h",), 2),))
IN_RACK = TopologyAssignment(("rack",), ((("r",), 2),))
POD = ObjectKey("n", "pod")


def topologies(*, shares_hosts: bool = True) -> Topologies:
    """Flavors ``a`` and ``b`` end with hosts, and flavor ``c`` with racks. All have the same host."""
    found = Topologies(Placement(shares_hosts=shares_hosts))
    found.set_topology("hosts", ("rack", HOST_NAME))
    found.set_topology("racks", ("rack",))
    for name, topology in (("a", "hosts"), ("b", "hosts"), ("c", "racks"), ("d", None), ("e", "missing")):
        found.set_flavor(ResourceFlavor(name, topology_name=topology))
    found.set_node(HOST)
    return found


@pytest.mark.parametrize(
    ("place", "shares_hosts", "concerned"),
    [
        (Place(("a",), ON_HOST, ONE_POD), True, ["a", "b"]),
        (Place(("a",), ON_HOST, ONE_POD), False, ["a"]),
        (Place(("c", "d"), IN_RACK, ONE_POD), True, ["c"]),
        (Place(("gone",), IN_RACK, ONE_POD), True, []),
    ],
)
def test_a_place_counts_in_its_flavor_and_on_shared_hosts(
    place: Place, shares_hosts: bool, concerned: list[str]
) -> None:
    found = topologies(shares_hosts=shares_hosts)
    assert found.move((), (place,)) == {}
    assert [name for name in found.flavors if usage(found, name)] == concerned
    assert found.move((place,), (place,)) == {}
    assert [*found.move((place,), ())] == concerned
    assert not any(usage(found, name) for name in found.flavors)


def usage(found: Topologies, flavor: str) -> object:
    topology = found.get(flavor)
    return None if topology is None else topology.tree.usage()


@pytest.mark.parametrize(("pods", "fits"), [(2, True), (4, True), (5, False)])
def test_places_fit_while_nothing_is_used_beyond_what_is_free(pods: int, fits: bool) -> None:
    found = topologies()
    place = Place(("a",), TopologyAssignment((HOST_NAME,), ((("h",), pods),)), ONE_POD)
    assert found.fit([place]) is fits
    assert usage(found, "a") == {}


def test_places_on_a_host_without_its_node_do_not_fit() -> None:
    found = topologies()
    found.delete_node("h")
    assert not found.fit([Place(("a",), ON_HOST, ONE_POD)])


def test_an_assignment_to_hosts_may_list_all_levels() -> None:
    found = topologies()
    found.hold([Place(("a",), TopologyAssignment(("rack", HOST_NAME), ((("r", "h"), 2),)), ONE_POD)])
    assert usage(found, "a") == {("h",): (("cpu", 2000), ("pods", 2))}


def test_what_did_not_change_concerns_no_flavor() -> None:
    found = topologies()
    assert found.set_node(HOST) == {}
    assert found.set_topology("racks", ("rack",)) is False
    assert found.delete_topology("other") is False
    assert found.set_pod_of_others(POD, None) == {}
    assert found.set_pod_of_others(POD, PodOnNode("h", ())) == {}
    assert found.set_pod_of_others(POD, PodOnNode("h", ())) == {}
    topology = found.get("a")
    found.set_flavor(ResourceFlavor("a", topology_name="hosts"))
    assert found.get("a") is topology


def test_a_flavor_without_its_topology_has_no_nodes() -> None:
    found = topologies()
    assert found.flavors == ["a", "b", "c"]
    assert found.delete_topology("hosts")
    found.delete_flavor("c")
    found.set_flavor(ResourceFlavor("b"))
    assert found.flavors == []
    found.set_topology("hosts", ("rack", HOST_NAME))
    assert found.flavors == ["a"]
