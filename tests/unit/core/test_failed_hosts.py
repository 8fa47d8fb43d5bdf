"""Pods of a failed host get another place in a second pass, or their workload is evicted."""

from dataclasses import replace

from admitq.core import events as happened
from admitq.core.instructions import AssignTopology, EvictForNodeFailures, ReportSecondPass
from admitq.core.model import SECOND, CheckState, PodSet, QueueingStrategy, ResourceFlavor
from admitq.core.refusals import NoFlavorFits
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.topology.domains import HOST_NAME
from admitq.core.topology.request import TopologyRequest
from admitq.core.topology.topologies import PodOnNode
from tests.unit.core.racks import PLACES, RACK, Racks, racks
from tests.unit.core.small_cluster import key, queue

ANYWHERE = TopologyRequest(unconstrained=True)
RETRIES = CoreSettings(placement=Placement(evicts_unplaced=False))


def running(count: int, request: TopologyRequest = RACK, settings: CoreSettings = PLACES) -> Racks:
    """A cluster in which workload ``a`` with so many pods of 1 CPU runs; a host has 4 CPUs."""
    cluster = racks(settings=settings)
    cluster.submit_pods("a", count, request)
    cluster.run("a")
    return cluster


def fail(cluster: Racks, *hosts: str, gone: bool = True) -> None:
    """Let hosts of workload ``a`` fail, and run the second pass."""
    for name in hosts if gone else ():
        cluster.send(happened.NodeDeleted(name))
    cluster.change("a", unhealthy_nodes=hosts)
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + SECOND
    cluster.now += SECOND
    cluster.decide()


def test_pods_of_a_failed_host_move_within_their_rack() -> None:
    cluster = running(3)
    assert cluster.places() == {"a": {"r1-a": 3}}
    cluster.submit_pods("b", 2)
    cluster.run("b")
    assert cluster.places() == {"b": {"r1-b": 2}}
    cluster.add_node("r1-c")
    cluster.change("b", unhealthy_nodes=("r1-b",))
    cluster.now += SECOND
    cluster.decide()
    # Room for two is in rack r1 on the new host alone: the failed one gets no pods, although it is ready.
    assert cluster.places() == {"b": {"r1-c": 2}}
    assert cluster.used_hosts() == ["r1-a", "r1-c"]


def test_only_the_pods_of_the_failed_host_move() -> None:
    cluster = running(6, ANYWHERE)
    assert cluster.places() == {"a": {"r1-a": 4, "r1-b": 2}}
    fail(cluster, "r1-a")
    assert cluster.places() == {"a": {"r1-b": 2, "r2-a": 4}}
    # Until the write is observed, the new places are counted, and no second pass is due.
    assert cluster.used_hosts() == ["r1-b", "r2-a"]
    assert cluster.state.next_wakeup(cluster.now) is None
    (moved,) = [each for each in cluster.instructions if isinstance(each, AssignTopology)]
    cluster.change("a", admission=moved.admission, unhealthy_nodes=())
    assert cluster.state.next_wakeup(cluster.now) is None
    assert cluster.used_hosts() == ["r1-b", "r2-a"]


def test_an_assignment_that_cannot_be_written_is_searched_again() -> None:
    cluster = running(6, ANYWHERE)
    fail(cluster, "r1-a")
    cluster.send(happened.TopologyAssignmentFailed(cluster.workloads["a"].key, "uid-a"))
    assert cluster.used_hosts() == ["r1-a", "r1-b"]
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + SECOND


def test_a_host_that_is_healthy_again_keeps_its_pods() -> None:
    cluster = running(6, ANYWHERE)
    cluster.change("a", unhealthy_nodes=("r1-a",))
    cluster.change("a", unhealthy_nodes=())
    assert cluster.state.next_wakeup(cluster.now) is None


def test_all_pods_of_a_workload_on_one_host_may_move_to_another_rack() -> None:
    cluster = running(3)
    cluster.submit_pods("b", 3)
    cluster.run("b")
    cluster.change("b", finished=True)
    cluster.send(happened.NodeDeleted("r1-b"))
    fail(cluster, "r1-a")
    assert cluster.places() == {"a": {"r2-a": 3}}


def test_a_second_failed_host_gets_no_pods() -> None:
    cluster = running(4, ANYWHERE)
    assert cluster.places() == {"a": {"r1-a": 4}}
    cluster.change("a", unhealthy_nodes=("r1-a", "r1-b", "r2-a"))
    cluster.now += SECOND
    cluster.decide()
    assert cluster.places() == {"a": {"r2-b": 4}}


def test_without_another_place_the_workload_is_evicted() -> None:
    cluster = running(8)
    fail(cluster, "r1-a")
    assert cluster.instructions == [EvictForNodeFailures(cluster.workloads["a"].key, "uid-a", ("r1-a",))]
    # If the eviction is not observed, it is decided again.
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + 2 * SECOND
    cluster.change("a", evicted=True, unhealthy_nodes=())
    assert cluster.state.next_wakeup(cluster.now) is None


def test_without_the_gate_the_search_is_repeated() -> None:
    cluster = running(8, settings=RETRIES)
    fail(cluster, "r1-a")
    (report,) = cluster.instructions
    assert isinstance(report, ReportSecondPass)
    assert isinstance(report.refusal, NoFlavorFits)
    cluster.add_node("r1-c")
    cluster.now += 2 * SECOND
    cluster.decide()
    assert cluster.places() == {"a": {"r1-b": 4, "r1-c": 4}}


def test_an_inactive_queue_evicts_nothing() -> None:
    cluster = running(8)
    cluster.send(happened.ClusterQueueDeleted("cq"))
    fail(cluster, "r1-a")
    (report,) = cluster.instructions
    assert isinstance(report, ReportSecondPass)


def test_a_flavor_without_its_topology_evicts_nothing() -> None:
    cluster = running(8)
    cluster.send(happened.TopologyDeleted("racks"))
    fail(cluster, "r1-a", gone=False)
    (report,) = cluster.instructions
    assert isinstance(report, ReportSecondPass)


def test_only_admitted_workloads_have_second_passes_while_admission_waits_for_pods() -> None:
    cluster = running(6, ANYWHERE, settings=replace(PLACES, block_admission=True))
    cluster.submit_pods("b", 1)
    cluster.submit_pods("later", 1)
    admission = cluster.workloads["a"].admission
    assert admission is not None
    (part,) = admission.pod_set_assignments
    delayed = replace(part, topology=None, lacks_topology_assignment=True, count=1)
    ready = (("check", CheckState.READY),)
    cluster.change(
        "later", admission=replace(admission, pod_set_assignments=(delayed,)), admission_checks=ready
    )
    cluster.run()
    fail(cluster, "r1-a")
    assert cluster.places() == {"a": {"r1-b": 2, "r2-a": 4}}
    assert cluster.state.next_wakeup(cluster.now) is None
    cluster.change("a", pods_ready=True)
    cluster.decide()
    assert cluster.places()["later"] == {"r1-b": 1}


def test_podsets_move_one_after_the_other() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = tuple(PodSet(name, 2, template, topology_request=ANYWHERE) for name in ("one", "two"))
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    assert cluster.domains_by_pod_set() == {"one": {"r1-a": 2}, "two": {"r1-a": 2}}
    fail(cluster, "r1-a")
    assert cluster.domains_by_pod_set() == {"one": {"r1-b": 2}, "two": {"r1-b": 2}}
    assert cluster.used_hosts() == ["r1-b"]


def test_a_podset_that_the_workload_does_not_have_stays() -> None:
    cluster = running(2)
    admission = cluster.workloads["a"].admission
    assert admission is not None
    (part,) = admission.pod_set_assignments
    foreign = replace(admission, pod_set_assignments=(part, replace(part, name="foreign")))
    cluster.change("a", admission=foreign)
    fail(cluster, "r1-a")
    assert cluster.domains_by_pod_set() == {"main": {"r1-b": 2}, "foreign": {"r1-a": 2}}


def test_resources_in_two_topologies_are_refused() -> None:
    cluster = running(2)
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("other", topology_name="racks")))
    admission = cluster.workloads["a"].admission
    assert admission is not None
    (part,) = admission.pod_set_assignments
    both = replace(part, flavors=(("cpu", "default"), ("memory", "other")))
    cluster.change("a", admission=replace(admission, pod_set_assignments=(both,)))
    fail(cluster, "r1-a")
    assert [type(each) for each in cluster.instructions] == [EvictForNodeFailures]


def test_podsets_on_other_hosts_stay() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = tuple(PodSet(name, 4, template, topology_request=ANYWHERE) for name in ("one", "two"))
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    assert cluster.domains_by_pod_set() == {"one": {"r1-a": 4}, "two": {"r1-b": 4}}
    fail(cluster, "r1-a")
    assert cluster.domains_by_pod_set() == {"one": {"r2-a": 4}, "two": {"r1-b": 4}}


def test_a_leader_on_another_host_stays() -> None:
    cluster = racks()
    template = template_requesting({"cpu": 1000})
    pod_sets = tuple(
        PodSet(name, count, template, topology_request=RACK, group="g")
        for name, count in (("leader", 1), ("workers", 5))
    )
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    assert cluster.domains_by_pod_set() == {"leader": {"r1-a": 1}, "workers": {"r1-a": 3, "r1-b": 2}}
    cluster.add_node("r1-c")
    fail(cluster, "r1-b")
    assert cluster.domains_by_pod_set() == {"leader": {"r1-a": 1}, "workers": {"r1-a": 3, "r1-c": 2}}


def test_a_strict_head_takes_part_in_the_cycle_with_a_second_pass_that_leaves_room() -> None:
    cluster = racks(cohort="team", queueing_strategy=QueueingStrategy.STRICT_FIFO)
    cluster.put(queue("other", 100_000, "team"))
    cluster.submit_pods("a", 3)
    cluster.submit_pods("b", 8)
    cluster.run("a", "b")
    cluster.send(happened.PodOfOthersChanged(key("system"), PodOnNode("r1-b", (("cpu", 1000),))))
    whole_host = TopologyRequest(required=HOST_NAME)
    cluster.submit_pods("first", 4, whole_host)
    assert cluster.decide() == []
    cluster.submit_pods("second", 4, whole_host, queue="other")
    cluster.change("a", unhealthy_nodes=("r1-a",))
    cluster.now += SECOND
    assert cluster.decide() == ["first"]
