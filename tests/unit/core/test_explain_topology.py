"""Why a workload without a place waits: the room of each level, and the workloads that would free enough."""

import pytest

from admitq.core import events as happened
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.changes import Change, FinishWorkloads
from admitq.core.asking.cheapest_changes import find_cheapest_changes
from admitq.core.asking.explain import explain
from admitq.core.asking.explanations import FlavorVerdict
from admitq.core.model import PodSet
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.rooms import TopologyRoom
from tests.unit.core.racks import RACK, Racks, racks
from tests.unit.core.small_cluster import group, key, queue


def verdicts(cluster: Racks, name: str = "w") -> tuple[FlavorVerdict, ...]:
    explanation = explain(cluster.state, key(name), cluster.now)
    assert explanation is not None
    return explanation.flavors


def room_of(cluster: Racks, name: str = "w") -> TopologyRoom:
    (verdict,) = verdicts(cluster, name)
    assert verdict.room is not None
    return verdict.room


def changes_for(cluster: Racks, name: str = "w") -> list[tuple[Change, ...]]:
    found = find_cheapest_changes(cluster.state, key(name), cluster.now, copying_branch(cluster.state))
    return [each.changes for each in found.alternatives]


def finishes(cluster: Racks) -> list[Change]:
    return [change for (change,) in changes_for(cluster) if isinstance(change, FinishWorkloads)]


def filled(*sizes: int) -> Racks:
    """Racks with running workloads ``a``, ``b``, … of so many pods."""
    cluster = racks()
    for name, size in zip("abcd", sizes, strict=False):
        cluster.submit_pods(name, size)
        cluster.run(name)
    return cluster


def test_explanation_names_the_closest_rack() -> None:
    cluster = filled(6, 3)
    cluster.submit_pods("w", 6)
    cluster.run()
    room = room_of(cluster)
    assert (room.fits, room.wanted, room.closest) == (False, 6, ("r2",))
    assert [(level.fitting, level.limit) for level in room.levels] == [(5, "cpu"), (4, "cpu")]
    assert not verdicts(cluster)[0].fits


def test_workload_that_waits_for_quota_has_a_place() -> None:
    cluster = racks(cpu=2)
    cluster.submit_pods("w", 3)
    cluster.run()
    assert room_of(cluster).fits
    assert not verdicts(cluster)[0].fits


def test_earlier_podsets_take_room() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = tuple(
        PodSet(name, count, template, topology_request=RACK)
        for name, count in (("first", 8), ("second", 5), ("third", 4))
    )
    cluster.submit("w", "cq", pod_sets=pod_sets)
    cluster.submit("z", "cq", pod_sets=(*pod_sets[:2], PodSet("third", 9, template, topology_request=RACK)))
    cluster.run()
    rooms = [verdict.room for verdict in verdicts(cluster)]
    assert [room and room.levels[0].fitting for room in rooms] == [8, 8, 3]


def test_refused_flavors_and_requests_have_no_room() -> None:
    cluster = racks()
    cluster.submit_pods("w", 1, TopologyRequest(required="block"))
    cluster.submit_pods(
        "x", 1, TopologyRequest(required="kubernetes.io/hostname", slices=(SliceLayer("rack", 1),))
    )
    cluster.run()
    assert [verdicts(cluster, name)[0].room for name in "wx"] == [None, None]


def test_flavor_without_its_topology_has_no_room() -> None:
    cluster = racks()
    cluster.submit_pods("w", 9)
    cluster.send(happened.TopologyDeleted("racks"))
    assert verdicts(cluster)[0].room is None


@pytest.mark.parametrize(
    ("running", "wanted", "left"),
    [
        ((6, 3), 6, "b"),
        ((4, 4, 4, 1), 8, "cd"),
        ((3, 3, 7), 8, "ab"),
        ((6, 3), 9, ""),
    ],
    ids=["the workload in the closest rack", "all of the rack", "several", "no empty rack is enough"],
)
def test_workloads_of_the_closest_rack_would_free_enough(
    running: tuple[int, ...], wanted: int, left: str
) -> None:
    cluster = filled(*running)
    cluster.submit_pods("w", wanted)
    cluster.run()
    before = cluster.used_hosts()
    expected = [FinishWorkloads(tuple(key(name) for name in left))] if left else []
    assert finishes(cluster) == expected
    assert cluster.used_hosts() == before


def test_workloads_that_need_not_end_are_left_out() -> None:
    cluster = racks()
    for name in ("r1-a", "r1-b", "r2-b"):
        cluster.send(happened.NodeDeleted(name))
    for name, count, cpu in (("small", 2, 500), ("large", 1, 3000)):
        template = template_requesting({"cpu": cpu})
        cluster.submit(name, "cq", pod_sets=(PodSet("main", count, template, topology_request=RACK),))
        cluster.run(name)
    template = template_requesting({"cpu": 3000})
    cluster.submit("w", "cq", pod_sets=(PodSet("main", 1, template, topology_request=RACK),))
    cluster.run()
    before = cluster.used_hosts()
    assert finishes(cluster) == [FinishWorkloads((key("large"),))]
    assert cluster.used_hosts() == before


def test_workloads_need_not_end_for_room_that_there_is() -> None:
    cluster = racks(cpu=2)
    cluster.submit_pods("a", 1)
    cluster.run("a")
    cluster.submit_pods("w", 2)
    cluster.run()
    assert finishes(cluster) == [FinishWorkloads((key("a"),))]
    cluster.put(queue("cq", 0))
    assert finishes(cluster) == []


def test_workloads_of_other_trees_free_room_too() -> None:
    cluster = racks()
    cluster.put(queue("other", 100_000, resource_groups=group(("default", 100_000))))
    for name in "ab":
        cluster.submit_pods(name, 8, queue="other")
        cluster.run(name)
    cluster.submit_pods("w", 8)
    cluster.run()
    assert finishes(cluster) == [FinishWorkloads((key("a"),))]


def test_only_the_pods_that_an_elastic_job_adds_need_room() -> None:
    cluster = Racks(CoreSettings(placement=Placement(keeps_pods=True)))
    cluster.put(queue("cq", 100_000))
    any_host = TopologyRequest(unconstrained=True)
    for name in ("r1-a", "r1-b", "r2-b"):
        cluster.send(happened.NodeDeleted(name))
    cluster.submit_pods("first", 3, any_host)
    cluster.run("first")
    template = template_requesting({"cpu": 1000})
    for name, count in (("same", 3), ("larger", 5)):
        pod_sets = (PodSet("main", count, template, topology_request=any_host),)
        cluster.submit(name, "cq", pod_sets=pod_sets, replaces=key("first"))
        room = verdicts(cluster, name)[0].room
        assert (name, room and (room.total, room.wanted)) == (
            name,
            None if name == "same" else (1, 2),
        )
        cluster.delete(name)
