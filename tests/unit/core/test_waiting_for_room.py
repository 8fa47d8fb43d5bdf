"""A workload without a place waits until a domain can hold more of its pods."""

from dataclasses import replace

import pytest

from admitq.core import events as happened
from admitq.core.model import ClusterQueuePreemption, PodSet, PreemptionPolicy, ResourceFlavor
from admitq.core.requests import template_requesting
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace, amounts_of_pod
from admitq.core.topology.request import TopologyRequest
from admitq.core.topology.topologies import PodOnNode
from tests.unit.core.evaluated import Evaluated
from tests.unit.core.racks import RACK, Racks, host, racks
from tests.unit.core.small_cluster import group, key, queue

ON_HOST = TopologyRequest(required=HOST_NAME)
PREEMPTS = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Evaluated:
    return Evaluated(monkeypatch)


def pods(name: str, cpu: int, count: int = 1) -> PodSet:
    return PodSet(name, count, template_requesting({"cpu": 1000 * cpu}), topology_request=ON_HOST)


def full_racks(cpu: int = 100, preemption: ClusterQueuePreemption | None = None) -> Racks:
    """Return racks with a job of three CPUs and a job of one CPU on each of the four hosts."""
    cluster = racks(cpu, preemption=preemption or ClusterQueuePreemption())
    for requested, names in ((3, ("b1", "b2", "b3", "b4")), (1, ("s1", "s2", "s3", "s4"))):
        for name in names:
            cluster.submit(name, "cq", pod_sets=(pods("main", requested),))
            cluster.run(name)
    return cluster


def test_only_jobs_are_tried_that_more_pods_may_fit_of(evaluated: Evaluated) -> None:
    cluster = full_racks()
    for cpu in (2, 4):
        cluster.submit(f"w{cpu}", "cq", pod_sets=(pods("main", cpu),))
    cluster.run()
    evaluated.take()
    for left, tried, admitted in (
        ("s1", [], []),  # one CPU is free on the first host
        ("s2", [], []),
        ("b2", ["w2", "w4"], ["w2"]),  # all four CPUs are free on the second host
        ("b3", [], []),  # three CPUs are free on the third host; w4 needs four
        ("s3", ["w4"], ["w4"]),
    ):
        cluster.finish(left)
        cluster.run(*admitted)
        assert (left, evaluated.take()) == (left, tried)


def test_any_room_may_help_a_queue_that_preempts(evaluated: Evaluated) -> None:
    cluster = full_racks(preemption=PREEMPTS)
    cluster.submit("w4", "cq", pod_sets=(pods("main", 4),))
    cluster.run()
    evaluated.take()
    cluster.finish("s1")
    cluster.run()
    assert evaluated.take() == ["w4"]


def test_places_assumed_for_other_podsets_do_not_count_as_room(evaluated: Evaluated) -> None:
    cluster = full_racks()
    cluster.finish("b1")
    cluster.submit("w", "cq", pod_sets=(pods("first", 3), pods("second", 2)))
    cluster.run()
    evaluated.take()
    for left, admitted in (("s2", []), ("s3", []), ("b2", ["w"])):
        cluster.finish(left)
        cluster.run(*admitted)
        assert (left, evaluated.take()) == (left, admitted)


def test_a_job_that_also_lacks_quota_waits_for_both(evaluated: Evaluated) -> None:
    cluster = full_racks(cpu=18)
    cluster.submit("w4", "cq", pod_sets=(pods("main", 4),))
    cluster.run()
    evaluated.take()
    for left, tried, admitted in (("s1", [], []), ("s2", ["w4"], []), ("s3", [], []), ("b1", ["w4"], ["w4"])):
        cluster.finish(left)
        cluster.run(*admitted)
        assert (left, evaluated.take()) == (left, tried)


def test_podsets_with_a_choice_of_flavors_are_tried_at_each_return_of_quota(evaluated: Evaluated) -> None:
    cluster = full_racks()
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("other", topology_name="racks")))
    cluster.put(queue("cq", resource_groups=group(("default", 100_000), ("other", 100_000))))
    cluster.submit("w", "cq", pod_sets=(pods("first", 4), pods("second", 4)))
    cluster.run()
    evaluated.take()
    cluster.finish("s1")
    cluster.run()
    assert evaluated.take() == ["w"]


# --- shapes ---------------------------------------------------------------------------------------------


def shape(cpu: int) -> tuple[PodsToPlace]:
    return (PodsToPlace("main", 1, (("cpu", 1000 * cpu),), ON_HOST),)


def on(name: str, count: int) -> TopologyAssignment:
    return TopologyAssignment((HOST_NAME,), (((name,), count),))


ONE_CPU = amounts_of_pod((("cpu", 1000),))


def topology_with(*names: str) -> FlavorTopology:
    topology = FlavorTopology("racks", ("rack", HOST_NAME))
    for name in names:
        topology.tree.set_node(host(name))
    return topology


@pytest.mark.parametrize(
    ("used", "gained", "cpu", "grown"),
    [
        (3, 1, 1, True),  # one pod fits, and none before
        (2, 1, 2, True),
        (1, 1, 2, False),  # one pod fits, as before
        (0, 4, 4, True),
        (3, 4, 2, False),  # none fits
        (6, 2, 1, False),  # pods of others take more than there is
        (4, 0, 1, False),
        (2, -1, 1, False),  # more was taken than was left
    ],
)
def test_a_shape_grows_if_more_of_its_pods_fit_into_a_leaf(
    used: int, gained: int, cpu: int, grown: bool
) -> None:
    topology = topology_with("r1-a", "r1-b")
    topology.add_usage(on("r1-a", used), ONE_CPU)
    waiting = topology.wait_for_room(shape(cpu))
    assert waiting is not None
    gains = {("r1-a",): {"cpu": 1000 * gained, "pods": gained}, ("r9-z",): {"cpu": 9000}}
    assert topology.has_grown(waiting, gains) is grown


def test_a_leader_may_fit_now_although_no_more_workers_do() -> None:
    topology = topology_with("r1-a")
    (workers,), (leader,) = shape(2), shape(1)
    waiting = topology.wait_for_room(
        (replace(workers, count=2, request=RACK), replace(leader, name="leader", request=RACK))
    )
    assert waiting is not None
    topology.add_usage(on("r1-a", 3), ONE_CPU)
    assert topology.has_grown(waiting, {("r1-a",): {"cpu": 1000, "pods": 1}})


def test_hosts_that_exclude_the_pods_do_not_count() -> None:
    topology = topology_with("r1-a")
    (pod,) = shape(1)
    waiting = topology.wait_for_room((replace(pod, node_selector=(("disk", "fast"),)),))
    assert waiting is not None
    assert not topology.has_grown(waiting, {("r1-a",): {"cpu": 4000, "pods": 1}})


def test_a_shape_that_does_not_wait_may_have_grown() -> None:
    topology = topology_with("r1-a")
    waiting, gains = topology.wait_for_room(shape(1)), {("r1-a",): {"cpu": 1000, "pods": 1}}
    assert waiting is not None
    assert [topology.has_grown(waiting, each) for each in ({}, gains, {})] == [False, True, True]
    assert topology.wait_for_room(shape(1)) == waiting
    assert not topology.has_grown(waiting, {})


def test_a_pod_of_others_that_leaves_or_shrinks_makes_room(evaluated: Evaluated) -> None:
    cluster, other = racks(), key("other")
    for name in ("r1-b", "r2-a", "r2-b"):
        cluster.send(happened.NodeDeleted(name))

    def set_other(cpu: int) -> None:
        pod = PodOnNode("r1-a", (("cpu", 1000 * cpu),))
        cluster.send(happened.PodOfOthersChanged(other, pod))

    set_other(4)
    cluster.submit("w", "cq", pod_sets=(pods("main", 2),))
    cluster.run()
    evaluated.take()
    for cpu, admitted in ((3, []), (1, ["w"])):
        set_other(cpu)
        cluster.run(*admitted)
        assert (cpu, evaluated.take()) == (cpu, admitted)


def test_a_restored_state_tries_the_same(evaluated: Evaluated) -> None:
    cluster = full_racks()
    cluster.submit("w4", "cq", pod_sets=(pods("main", 4),))
    cluster.run()
    cluster.state = cluster.state.fork()
    evaluated.take()
    for left, admitted in (("s1", []), ("b1", ["w4"])):
        cluster.finish(left)
        cluster.run(*admitted)
        assert (left, evaluated.take()) == (left, admitted)
