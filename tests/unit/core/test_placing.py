"""Cycles that assign pods to the domains of topologies."""

from dataclasses import replace
from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.flavor_options import FlavorOptions, find_topology_refusal
from admitq.core.model import FlavorQuotas, PodSet, ResourceFlavor, ResourceGroup, ResourceQuota
from admitq.core.refusals import (
    NoFitReason,
    NoFlavorFits,
    NoPreemptionTargets,
    PodSetRefusals,
    RequestedLevelMissing,
    TopologyMissing,
    TopologyOnly,
    TopologyUnsupported,
    WaitingForTargets,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle, NoRoomInTopology, TwoTopologies
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.topologies import PodOnNode
from tests.unit.core.racks import RACK, Racks, host, racks
from tests.unit.core.small_cluster import LOWER, group, key, preempted, queue

SAME_PLACES = CoreSettings(placement=Placement(places_again=False))


def excluded(*reasons: tuple[NodeObstacle, str, int]) -> tuple[tuple[NodeExclusion, int], ...]:
    return tuple((NodeExclusion(obstacle, name), count) for obstacle, name, count in reasons)


def lacking(room: NoRoomInTopology, reason: NoFitReason = NoFitReason.WAITING_FOR_QUOTA) -> NoFlavorFits:
    return NoFlavorFits((PodSetRefusals("main", (room,)),), reason)


def test_pods_are_placed_in_one_rack() -> None:
    cluster = racks()
    cluster.submit_pods("a", 6)
    cluster.run("a")
    assert cluster.places() == {"a": {"r1-a": 4, "r1-b": 2}}


@pytest.mark.parametrize(
    "request_",
    [
        RACK,
        TopologyRequest(preferred="missing"),
        TopologyRequest(unconstrained=True),
        TopologyRequest(slices=(SliceLayer("rack", 4),)),
    ],
)
def test_topology_requests_are_ignored_if_pods_are_not_placed(request_: TopologyRequest) -> None:
    cluster = racks(settings=CoreSettings())
    cluster.submit_pods("a", 99, request_)
    cluster.run("a")
    assert cluster.places() == {}


def test_a_workload_waits_for_room_although_there_is_quota() -> None:
    cluster = racks()
    for name in "abc":
        cluster.submit_pods(name, 6)
    cluster.run("a", "b")
    room = NoRoomInTopology("racks", 1, 2, 6, 4, excluded((NodeObstacle.RESOURCE, "cpu", 2)))
    assert cluster.refusal("c") == NoPreemptionTargets(lacking(room))
    assert cluster.is_quiet
    cluster.finish("a")
    cluster.run("c")
    assert cluster.places() == {"c": {"r1-a": 4, "r1-b": 2}}


def test_pods_that_no_empty_rack_holds_are_refused_for_their_topology() -> None:
    cluster = racks()
    cluster.submit_pods("a", 9)
    cluster.run()
    room = NoRoomInTopology("racks", 1, 8, 9, 4)
    assert cluster.refusal("a") == lacking(room, NoFitReason.TOPOLOGY_PLACEMENT_FAILED)


@pytest.mark.parametrize(
    "event",
    [
        happened.NodeChanged(host("r1-c")),
        happened.PodOfOthersDeleted(key("other")),
        happened.PodOfOthersChanged(key("other"), PodOnNode("r2-a", (("cpu", 1000),))),
        happened.TopologyChanged("racks", ("rack",)),
    ],
    ids=["a node came", "a pod of others ended", "a pod of others moved", "other levels"],
)
def test_room_that_comes_ends_the_waiting(event: Event) -> None:
    cluster = racks()
    cluster.send(happened.PodOfOthersChanged(key("other"), PodOnNode("r1-a", (("cpu", 1000),))))
    cluster.submit_pods("a", 8)
    cluster.submit_pods("b", 8)
    cluster.run("a")
    assert cluster.places() == {"a": {"r2-a": 4, "r2-b": 4}}
    assert cluster.is_quiet
    cluster.send(event)
    assert not cluster.is_quiet


def test_nothing_fits_on_nodes_that_went_away() -> None:
    cluster = racks()
    for name in ("r1-a", "r2-a", "r2-b"):
        cluster.send(happened.NodeDeleted(name))
    cluster.submit_pods("a", 5)
    cluster.run()
    cluster.add_node("r1-a")
    cluster.run("a")


def test_preemption_frees_one_rack() -> None:
    cluster = racks(preemption=LOWER)
    for name in ("a", "b", "c", "d"):
        cluster.submit_pods(name, 4, TopologyRequest(required=HOST_NAME))
    cluster.run("a", "b", "c", "d")
    cluster.submit_pods("high", 8, priority=1)
    cluster.run()
    preempted_now = preempted(cluster.instructions)
    assert preempted_now == ["a", "b"]
    assert isinstance(cluster.refusal("high"), WaitingForTargets)
    cluster.leave(*preempted_now)
    cluster.run("high")
    assert cluster.places() == {"high": {"r1-a": 4, "r1-b": 4}}


def test_heads_of_two_trees_do_not_share_a_place() -> None:
    cluster = racks()
    cluster.put(queue("other", 100_000))
    cluster.submit_pods("a", 8)
    cluster.submit_pods("b", 8, queue="other")
    cluster.run("a", "b")
    assert cluster.places() == {"a": {"r1-a": 4, "r1-b": 4}, "b": {"r2-a": 4, "r2-b": 4}}


def test_without_the_gate_the_second_head_is_evaluated_again_in_the_next_cycle() -> None:
    cluster = racks(settings=SAME_PLACES)
    cluster.put(queue("other", 100_000))
    cluster.submit_pods("a", 8)
    cluster.submit_pods("b", 8, queue="other")
    assert cluster.decide(limit=1) == ["a"]
    cluster.run("b")
    assert cluster.places() == {"b": {"r2-a": 4, "r2-b": 4}}


def two_flavors() -> Racks:
    """Flavor ``default`` with racks, and flavor ``plain`` without a topology, for ClusterQueue ``cq``."""
    cluster = racks(settings=SAME_PLACES, resource_groups=group(("default", 100_000), ("plain", 100_000)))
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("plain")))
    return cluster


def test_a_head_that_lost_its_place_looks_for_another_in_the_same_flavor() -> None:
    cluster = two_flavors()
    cluster.put(queue("other", 100_000))
    cluster.submit_pods("a", 8, queue="other")
    cluster.submit_pods("b", 8)
    cluster.run("a", "b")
    assert cluster.is_quiet


def test_a_head_that_tries_the_next_flavor_tries_the_first_again_once_it_has_room() -> None:
    cluster = two_flavors()
    cluster.put(queue("other", 100_000))
    for name in "ab":
        cluster.submit_pods(name, 8, queue="other")
    cluster.run("a", "b")
    cluster.submit_pods("c", 8)
    assert cluster.decide(limit=1) == []
    cluster.finish("a")
    cluster.run("c")


def test_a_head_that_lost_the_last_place_to_another_tree_waits_for_room() -> None:
    cluster = racks()
    cluster.put(queue("other", 100_000))
    cluster.submit_pods("a", 8)
    cluster.run("a")
    cluster.submit_pods("b", 8)
    cluster.submit_pods("c", 8, queue="other")
    cluster.run("b")
    assert cluster.is_quiet
    cluster.finish("a")
    cluster.run("c")


def test_fewer_pods_are_placed_if_that_is_allowed() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = (PodSet("main", 12, template, min_count=5, topology_request=RACK),)
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    assert cluster.places() == {"a": {"r1-a": 4, "r1-b": 4}}


def test_a_workload_that_was_admitted_before_keeps_its_place_after_a_restart() -> None:
    cluster = racks()
    cluster.submit_pods("a", 8)
    cluster.run("a")
    cluster.restart()
    cluster.submit_pods("b", 8)
    cluster.run("b")
    assert cluster.places() == {"b": {"r2-a": 4, "r2-b": 4}}


@pytest.mark.parametrize(
    ("flavors", "request_", "refusal"),
    [
        ({"plain": None}, RACK, TopologyUnsupported("plain")),
        ({"default": "racks", "plain": None}, None, TopologyOnly("default")),
        ({"default": "racks"}, TopologyRequest(required="row"), RequestedLevelMissing("default")),
    ],
)
def test_flavors_are_refused_by_their_topology(
    flavors: dict[str, str | None], request_: TopologyRequest | None, refusal: object
) -> None:
    cluster = racks()
    for name, topology in flavors.items():
        cluster.send(happened.ResourceFlavorChanged(ResourceFlavor(name, topology_name=topology)))
    cluster.put(queue("cq", resource_groups=group(*((name, 100_000) for name in flavors))))
    cluster.submit_pods("a", 1, request_)
    cluster.decide()
    found = cluster.refusal("a")
    if isinstance(refusal, TopologyOnly):
        assert cluster.places() == {}, "the plain flavor is assigned"
        assert cluster.workloads["a"].admission is not None
        return
    assert isinstance(found, NoFlavorFits)
    assert refusal in found.parts[0].refusals


def test_a_flavor_without_its_topology_is_refused() -> None:
    """With MultiKueue, the ClusterQueue is active nevertheless."""
    options = FlavorOptions(places_pods=True, topologies={"f": None})
    pod_set = PodSet("main", 1, topology_request=RACK)
    assert find_topology_refusal([pod_set], "f", options) == TopologyMissing("f")


def test_pods_without_a_request_are_placed_if_all_flavors_have_a_topology() -> None:
    cluster = racks()
    cluster.submit_pods("a", 3, None)
    cluster.run("a")
    assert cluster.places() == {"a": {"r1-a": 3}}


def test_resources_of_a_podset_must_have_flavors_of_one_topology() -> None:
    cluster = racks()
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("gpus", topology_name="racks")))
    groups = (
        *group(("default", 100_000)),
        ResourceGroup(("gpu",), (FlavorQuotas("gpus", (("gpu", ResourceQuota(9)),)),)),
    )
    cluster.put(queue("cq", resource_groups=groups))
    template = template_requesting({"cpu": 1000, "gpu": 1})
    cluster.submit("a", "cq", pod_sets=(PodSet("main", 1, template, topology_request=RACK),))
    cluster.run()
    two = PodSetRefusals("main", (TwoTopologies(("default", "gpus")),))
    assert cluster.refusal("a") == NoFlavorFits((two,), NoFitReason.TOPOLOGY_PLACEMENT_FAILED)


def test_a_leader_runs_in_the_rack_of_its_workers() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = (
        PodSet("leader", 1, template_requesting({"cpu": 2000}), group="g", topology_request=RACK),
        PodSet("workers", 6, template, group="g", topology_request=RACK),
    )
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.decide()
    assert cluster.domains_by_pod_set() == {"leader": {"r1-a": 1}, "workers": {"r1-a": 2, "r1-b": 4}}


def test_podsets_of_one_workload_get_different_places() -> None:
    cluster = racks()
    pods = template_requesting({"cpu": 1000})
    pod_sets = tuple(PodSet(name, 8, pods, topology_request=RACK) for name in ("s1", "s2"))
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.decide()
    assert cluster.domains_by_pod_set() == {
        "s1": {"r1-a": 4, "r1-b": 4},
        "s2": {"r2-a": 4, "r2-b": 4},
    }


def test_a_workload_that_no_empty_topology_holds_does_not_wait_for_preemption() -> None:
    cluster = racks(preemption=LOWER)
    cluster.submit_pods("low", 8)
    cluster.run("low")
    pods = template_requesting({"cpu": 1000})
    pod_sets = tuple(PodSet(name, 8, pods, topology_request=RACK) for name in ("s1", "s2", "s3"))
    cluster.submit("high", "cq", priority=1, pod_sets=pod_sets)
    cluster.run()
    assert preempted(cluster.instructions) == []
    refusal = cluster.refusal("high")
    assert isinstance(refusal, NoFlavorFits)
    assert refusal.reason is NoFitReason.TOPOLOGY_PLACEMENT_FAILED


def test_podsets_in_two_flavors_with_the_same_hosts_get_different_places() -> None:
    cluster = racks()
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("others", topology_name="racks")))
    elsewhere = ResourceFlavor("elsewhere", (("pool", "none"),), topology_name="racks")
    cluster.send(happened.ResourceFlavorChanged(elsewhere))
    pod_sets = tuple(
        PodSet(f"s-{name}", 1, template_requesting({name: 1}), topology_request=RACK)
        for name in ("gpu", "disk")
    )
    groups = tuple(
        ResourceGroup((name,), (FlavorQuotas(flavor, ((name, ResourceQuota(9)),)),))
        for name, flavor in (("gpu", "default"), ("disk", "others"))
    )
    cluster.put(queue("cq", resource_groups=groups))
    for rack in ("r1", "r2"):
        labels = (("rack", rack), (HOST_NAME, f"{rack}-a"))
        # Each host has room for one pod, whatever it requests.
        allocatable = (("disk", 9), ("gpu", 9), ("pods", 1))
        cluster.send(happened.NodeChanged(Node(f"{rack}-a", labels, (), allocatable)))
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.decide()
    assert cluster.domains_by_pod_set() == {"s-gpu": {"r1-a": 1}, "s-disk": {"r2-a": 1}}


def test_places_of_a_quarantined_workload_stay_taken() -> None:
    cluster = racks()
    cluster.submit_pods("a", 7)
    cluster.run("a")
    cluster.change("a", pod_sets=())
    assert cluster.used_hosts() == ["r1-a", "r1-b"]
    cluster.submit_pods("b", 8)
    cluster.submit_pods("c", 2)
    cluster.run("b")
    cluster.finish("a")
    cluster.run("c")


@pytest.mark.parametrize("shares_hosts", [True, False])
def test_flavors_with_the_same_hosts_share_them_only_with_the_gate(shares_hosts: bool) -> None:
    cluster = racks(settings=CoreSettings(placement=Placement(shares_hosts=shares_hosts)))
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("others", topology_name="racks")))
    cluster.put(queue("other", resource_groups=group(("others", 100_000))))
    for name in ("a", "b"):
        cluster.submit_pods(name, 8)
    cluster.run("a", "b")
    cluster.submit_pods("c", 8, queue="other")
    cluster.run(*([] if shares_hosts else ["c"]))


def test_quota_and_room_are_missing() -> None:
    cluster = racks(8, preemption=LOWER)
    cluster.submit_pods("a", 8)
    cluster.run("a")
    cluster.submit_pods("high", 8, priority=1)
    cluster.run()
    assert preempted(cluster.instructions) == ["a"]
    cluster.leave("a")
    cluster.run("high")
    assert cluster.places() == {"high": {"r1-a": 4, "r1-b": 4}}


def test_usage_counts_again_when_a_topology_or_flavor_comes_back() -> None:
    cluster = racks()
    cluster.submit_pods("a", 8)
    cluster.run("a")
    for gone, back in (
        (happened.TopologyDeleted("racks"), happened.TopologyChanged("racks", ("rack", HOST_NAME))),
        (
            happened.ResourceFlavorDeleted("default"),
            happened.ResourceFlavorChanged(ResourceFlavor("default", topology_name="racks")),
        ),
    ):
        cluster.send(gone)
        cluster.send(back)
    cluster.submit_pods("b", 8)
    cluster.submit_pods("c", 8)
    cluster.run("b")
    assert cluster.places() == {"b": {"r2-a": 4, "r2-b": 4}}


OVERHEAD = (("cpu", Fraction(3)),)


@pytest.mark.parametrize("ends", [False, True])
def test_usage_counts_again_when_a_runtime_class_changes(ends: bool) -> None:
    cluster = racks()
    if ends:
        cluster.send(happened.RuntimeClassChanged("sandboxed", OVERHEAD))
    template = replace(template_requesting({"cpu": 1000}), runtime_class="sandboxed")
    pod_sets = (PodSet("main", 2, template, topology_request=RACK),)
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    cluster.submit_pods("b", 14, TopologyRequest(unconstrained=True))
    cluster.run(*([] if ends else ["b"]))
    cluster.send(
        happened.RuntimeClassDeleted("sandboxed")
        if ends
        else happened.RuntimeClassChanged("sandboxed", OVERHEAD)
    )
    cluster.run(*(["b"] if ends else []))
    cluster.state.validate()
    topology = cluster.state.queries.world.topologies.get("default")
    assert topology is not None
    cpu = sum(dict(used)["cpu"] for used in topology.tree.usage().values())
    assert cpu == (16_000 if ends else 22_000)


@pytest.mark.parametrize("levels", [("rack", HOST_NAME), ("rack",)], ids=["hosts", "racks"])
@pytest.mark.parametrize("shares_hosts", [True, False])
def test_a_leader_without_requests_takes_a_pod_of_its_domain(
    levels: tuple[str, ...], shares_hosts: bool
) -> None:
    cluster = racks(settings=CoreSettings(placement=Placement(shares_hosts=shares_hosts)))
    cluster.send(happened.TopologyChanged("racks", levels))
    for name in ("r1-b", "r2-a", "r2-b"):
        cluster.send(happened.NodeDeleted(name))
    cluster.send(happened.NodeChanged(replace(host("r1-a"), allocatable=(("cpu", 4000), ("pods", 3)))))
    cluster.submit(
        "a",
        "cq",
        pod_sets=(
            PodSet("leader", 1, template_requesting({}), group="g", topology_request=RACK),
            PodSet("workers", 2, template_requesting({"cpu": 1}), group="g", topology_request=RACK),
        ),
    )
    cluster.run("a")
    cluster.submit_pods("b", 1)
    cluster.run()
