"""Elastic jobs in a topology: running pods keep their places, and only additional pods get places."""

from dataclasses import replace

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, CheckState, PodSet
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME
from admitq.core.topology.request import TopologyRequest
from admitq.core.topology.topologies import Place, places_beyond
from tests.unit.core.racks import Racks, racks
from tests.unit.core.small_cluster import LOWER, key, preempted

ANY = TopologyRequest(unconstrained=True)
KEEPS = CoreSettings(placement=Placement(keeps_pods=True))


def pods(count: int, name: str = "main") -> PodSet:
    return PodSet(name, count, template_requesting({"cpu": 1000}), topology_request=ANY)


def running(*counts: int, settings: CoreSettings = KEEPS) -> Racks:
    """A cluster in which workload ``first`` runs, with podsets of these numbers of pods."""
    cluster = racks(settings=settings, preemption=LOWER)
    grow(cluster, "first", *counts)
    cluster.run("first")
    return cluster


def grow(cluster: Racks, name: str, *counts: int, replaces: str | None = None, priority: int = 0) -> None:
    pod_sets = tuple(pods(count, f"part-{place}") for place, count in enumerate(counts))
    original = None if replaces is None else key(replaces)
    cluster.submit(name, "cq", priority=priority, pod_sets=pod_sets, replaces=original)


def usage(cluster: Racks) -> dict[str, int]:
    """The number of pods that are counted on each host."""
    topology = cluster.state.queries.world.topologies.get("default")
    assert topology is not None
    return {host: dict(used)["cpu"] // 1000 for (host,), used in topology.tree.usage().items()}


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        ((3,), (5,), [{"r1-a": 3, "r1-b": 2}]),
        ((5,), (6,), [{"r1-a": 4, "r1-b": 2}]),
        ((2, 2), (2, 4), [{"r1-a": 2}, {"r1-a": 2, "r1-b": 2}]),
        ((6, 1), (3, 4), [{"r1-a": 3}, {"r1-b": 1, "r2-a": 3}]),
        ((0, 1), (2, 1), [{"r1-a": 2}, {"r1-a": 1}]),
    ],
    ids=["grows", "fills its last host", "one podset grows", "one shrinks", "no pods before"],
)
def test_job_that_grows_keeps_its_places(
    before: tuple[int, ...], after: tuple[int, ...], places: list[dict[str, int]]
) -> None:
    cluster = running(*before)
    grow(cluster, "second", *after, replaces="first")
    cluster.run("second")
    admission = cluster.workloads["second"].admission
    assert admission is not None
    assigned = [part.topology for part in admission.pod_set_assignments]
    assert [{} if each is None else {name: n for (name,), n in each.domains} for each in assigned] == places
    cluster.state.validate()
    cluster.finish("first")
    total: dict[str, int] = {}
    for each in places:
        for host, count in each.items():
            total[host] = total.get(host, 0) + count
    assert usage(cluster) == total
    cluster.state.validate()


def test_pods_of_both_are_counted_once_while_both_hold_quota() -> None:
    cluster = running(3)
    grow(cluster, "second", 5, replaces="first")
    cluster.run("second")
    assert usage(cluster) == {"r1-a": 3, "r1-b": 2}
    cluster.restart()
    assert usage(cluster) == {"r1-a": 3, "r1-b": 2}


def test_only_additional_pods_need_room() -> None:
    cluster = running(12)
    grow(cluster, "second", 16, replaces="first")
    cluster.run("second")
    assert usage(cluster) == {"r1-a": 4, "r1-b": 4, "r2-a": 4, "r2-b": 4}


def test_without_the_gate_all_pods_are_placed_beside_those_that_run() -> None:
    cluster = running(12, settings=CoreSettings(placement=Placement()))
    grow(cluster, "second", 13, replaces="first")
    assert cluster.decide() == []


def test_additional_pods_preempt_for_their_place_alone() -> None:
    cluster = running(8)
    cluster.submit_pods("other", 8)
    cluster.run("other")
    grow(cluster, "second", 10, replaces="first", priority=1)
    assert preempted(cluster.cycles()) == ["other"]
    cluster.leave("other")
    cluster.run("second")
    assert usage(cluster) == {"r1-a": 4, "r1-b": 4, "r2-a": 2}


def test_job_larger_than_the_cluster_has_no_place_beside_its_own_pods() -> None:
    cluster = running(8)
    grow(cluster, "second", 17, replaces="first", priority=1)
    assert cluster.decide() == []


def test_pods_are_placed_again_if_a_host_is_gone() -> None:
    cluster = running(3)
    cluster.send(happened.NodeDeleted("r1-a"))
    grow(cluster, "second", 4, replaces="first")
    cluster.run("second")
    assert cluster.places()["second"] == {"r1-b": 4}


def test_places_that_wait_for_a_check_keep_those_of_the_original() -> None:
    cluster = running(3)
    grow(cluster, "second", 5, replaces="first")
    cluster.run("second")
    admission = cluster.workloads["second"].admission
    assert admission is not None
    parts = tuple(
        replace(part, topology=None, lacks_topology_assignment=True) for part in admission.pod_set_assignments
    )
    cluster.change(
        "second",
        admission=replace(admission, pod_set_assignments=parts),
        admitted=False,
        admission_checks=(("nodes", CheckState.READY),),
    )
    cluster.now += 2 * SECOND
    cluster.cycles()
    assert cluster.places()["second"] == {"r1-a": 3, "r1-b": 2}


def on(*domains: tuple[str, int], levels: tuple[str, ...] = (HOST_NAME,), cpu: int = 1) -> Place:
    named = tuple((tuple(name.split("/")), count) for name, count in domains)
    return Place(("f",), TopologyAssignment(levels, named), (("cpu", cpu),))


@pytest.mark.parametrize(
    ("original", "beyond"),
    [
        ((), (on(("a", 3), ("b", 1)),)),
        ((on(("a", 2)),), (on(("a", 1), ("b", 1)),)),
        ((on(("r/a", 2), ("r/b", 4), levels=("rack", HOST_NAME)),), (on(("a", 1)),)),
        ((on(("a", 3)), on(("b", 1))), ()),
        ((on(("a", 3), cpu=2),), (on(("a", 3), ("b", 1)),)),
    ],
    ids=["no original", "some pods", "all levels of hosts", "all pods", "other requests"],
)
def test_places_beyond_those_of_the_original(original: tuple[Place, ...], beyond: tuple[Place, ...]) -> None:
    assert places_beyond((on(("a", 3), ("b", 1)),), original) == beyond
