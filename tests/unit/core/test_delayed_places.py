"""Workloads that get quota first and their places later, once their admission checks are ready."""

from dataclasses import replace

import pytest

from admitq.core import events as happened
from admitq.core.instructions import AssignTopology, ReportSecondPass, ReserveQuota
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    CheckState,
    PodSet,
    PodSetUpdate,
    ResourceFlavor,
    Toleration,
)
from admitq.core.refusals import NoFitReason, NoFlavorFits, PodSetRefusals
from admitq.core.requests import template_requesting
from admitq.core.topology.refusals import NodeExclusion, NodeObstacle, NoRoomInTopology
from tests.unit.core.racks import PLACES, RACK, Racks, host
from tests.unit.core.small_cluster import group, key, queue

PROVISION = "example.com/provision"
MULTIKUEUE = "example.com/multikueue"
SETTINGS = replace(PLACES, provisioning_controller=PROVISION, multikueue_controller=MULTIKUEUE)
CHECK = AdmissionCheckRule("check")


def provisioned(*rules: AdmissionCheckRule, controller: str = PROVISION) -> Racks:
    """A cluster with one AdmissionCheck of a controller, which these rules of the ClusterQueue name."""
    cluster = Racks(SETTINGS)
    cluster.send(happened.AdmissionCheckChanged(AdmissionCheck("check", controller, active=True)))
    cluster.put(queue("cq", 100_000, admission_checks=rules or (CHECK,)))
    return cluster


def with_ready_check(cluster: Racks, name: str = "a", *updates: PodSetUpdate) -> None:
    cluster.change(name, admission_checks=(("check", CheckState.READY),), pod_set_updates=updates)


def run_second_pass(cluster: Racks) -> None:
    """Run the cycle of the next second pass, and observe the topology assignments that it decides."""
    due = cluster.state.next_wakeup(cluster.now)
    assert due is not None
    cluster.now = due
    cluster.decide()
    decided = cluster.instructions
    for each in decided:
        if isinstance(each, AssignTopology):
            cluster.change(each.key.name, admission=each.admission, admitted=True)
    cluster.instructions = decided


def lacks_places(cluster: Racks, name: str = "a") -> list[str]:
    admission = cluster.workloads[name].admission
    assert admission is not None
    return [part.name for part in admission.pod_set_assignments if part.lacks_topology_assignment]


def test_pods_get_their_places_once_the_nodes_are_provisioned() -> None:
    cluster = provisioned()
    for name in ("r1-a", "r1-b", "r2-a", "r2-b"):
        cluster.send(happened.NodeDeleted(name))
    cluster.submit_pods("a", 4)
    cluster.run("a")
    assert lacks_places(cluster) == ["main"]
    assert not any(each.admit for each in cluster.instructions if isinstance(each, ReserveQuota))
    cluster.add_node("r1-a")
    assert cluster.is_quiet
    with_ready_check(cluster)
    run_second_pass(cluster)
    assert cluster.places() == {"a": {"r1-a": 4}}
    assert cluster.state.next_wakeup(cluster.now) is None


def test_a_workload_without_a_place_keeps_its_quota_and_is_tried_again() -> None:
    cluster = provisioned()
    cluster.submit_pods("a", 9)
    cluster.run("a")
    with_ready_check(cluster)
    run_second_pass(cluster)
    room = NoRoomInTopology("racks", 1, 8, 9, 4)
    refusal = NoFlavorFits((PodSetRefusals("main", (room,)),), NoFitReason.TOPOLOGY_PLACEMENT_FAILED)
    assert cluster.instructions == [ReportSecondPass(key("a"), "uid-a", refusal)]
    cluster.add_node("r2-c")
    run_second_pass(cluster)
    assert cluster.places() == {"a": {"r2-a": 4, "r2-b": 4, "r2-c": 1}}


def test_places_are_counted_before_they_are_written() -> None:
    cluster = provisioned()
    for name in "ab":
        cluster.submit_pods(name, 8)
    cluster.run("a", "b")
    for name in "ab":
        with_ready_check(cluster, name)
    cluster.now += SECOND
    cluster.cycles()
    found = [each for each in cluster.instructions if isinstance(each, AssignTopology)]
    racks = {
        values[0].partition("-")[0]
        for each in found
        for part in each.admission.pod_set_assignments
        if part.topology is not None
        for values, _ in part.topology.domains
    }
    assert (len(found), racks) == (2, {"r1", "r2"})
    cluster.restart()
    cluster.submit_pods("c", 1)
    cluster.run("c")
    with_ready_check(cluster, "c")
    run_second_pass(cluster)
    assert [type(each) for each in cluster.instructions] == [ReportSecondPass]


@pytest.mark.parametrize("ending", ["failed", "evicted", "finished", "deleted", "changed by others"])
def test_places_that_are_not_written_are_free_again(ending: str) -> None:
    cluster = provisioned()
    cluster.submit_pods("a", 8)
    cluster.run("a")
    with_ready_check(cluster)
    cluster.now += SECOND
    cluster.cycles()
    assert list(cluster.places()) == ["a"]
    assert cluster.used_hosts() == ["r1-a", "r1-b"]
    admission = cluster.workloads["a"].admission
    assert admission is not None
    match ending:
        case "failed":
            cluster.send(happened.TopologyAssignmentFailed(key("a"), "uid-a"))
        case "evicted":
            cluster.evict("a")
        case "finished":
            cluster.finish("a")
        case "deleted":
            cluster.delete("a")
        case _:
            parts = tuple(replace(part, count=3) for part in admission.pod_set_assignments)
            cluster.change("a", admission=replace(admission, pod_set_assignments=parts))
    assert cluster.used_hosts() == []


def test_places_that_are_being_written_are_counted_by_a_new_state() -> None:
    def waiting() -> Racks:
        cluster = provisioned()
        cluster.submit_pods("a", 8)
        cluster.run("a")
        with_ready_check(cluster)
        return cluster

    decided, rebuilt = waiting(), waiting()
    decided.now += SECOND
    decided.cycles()
    (instruction,) = [each for each in decided.instructions if isinstance(each, AssignTopology)]
    rebuilt.state.assume(replace(instruction, uid="uid-of-a-former-workload"), now=rebuilt.now)
    assert rebuilt.used_hosts() == []
    rebuilt.state.assume(instruction, now=rebuilt.now)
    rebuilt.state.instructions()
    rebuilt.state.validate()
    assert rebuilt.used_hosts() == ["r1-a", "r1-b"]
    other = replace(instruction.admission.without_places(), cluster_queue="other")
    rebuilt.change("a", admission=other)
    rebuilt.state.assume(instruction, now=rebuilt.now)
    assert rebuilt.used_hosts() == []
    rebuilt.change("a", admission=instruction.admission)
    rebuilt.state.assume(instruction, now=rebuilt.now)
    assert rebuilt.used_hosts() == ["r1-a", "r1-b"]


def test_a_late_failure_of_another_workload_changes_nothing() -> None:
    cluster = provisioned()
    cluster.submit_pods("a", 8)
    cluster.run("a")
    with_ready_check(cluster)
    cluster.now += SECOND
    cluster.cycles()
    cluster.send(happened.TopologyAssignmentFailed(key("a"), "uid-of-a-former-workload"))
    cluster.send(happened.TopologyAssignmentFailed(key("b"), "uid-b"))
    cluster.submit_pods("b", 8)
    assert cluster.used_hosts() == ["r1-a", "r1-b"]


def test_node_selectors_and_tolerations_of_checks_decide_about_nodes() -> None:
    cluster = provisioned()
    new = host("r3-new")
    labelled = replace(new, labels=(*new.labels, ("pool", "new")))
    cluster.send(happened.NodeChanged(labelled))
    cluster.submit_pods("a", 4)
    cluster.run("a")
    with_ready_check(cluster, "a", PodSetUpdate("main", (("pool", "new"),), (Toleration("t", "Exists"),)))
    run_second_pass(cluster)
    assert cluster.places() == {"a": {"r3-new": 4}}


def test_unsuitable_nodes_are_named_when_a_second_pass_fails() -> None:
    cluster = provisioned()
    cluster.submit_pods("a", 4)
    cluster.run("a")
    with_ready_check(cluster, "a", PodSetUpdate("main", (("pool", "new"),)))
    run_second_pass(cluster)
    excluded = ((NodeExclusion(NodeObstacle.NODE_SELECTOR), 4),)
    room = NoRoomInTopology("racks", 1, 0, 4, 4, excluded)
    (report,) = cluster.instructions
    assert isinstance(report, ReportSecondPass)
    assert report.refusal == NoFlavorFits(
        (PodSetRefusals("main", (room,)),), NoFitReason.TOPOLOGY_PLACEMENT_FAILED
    )


def test_only_flavors_with_such_a_check_are_placed_later() -> None:
    cluster = provisioned(AdmissionCheckRule("check", ("spot",)))
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("spot", topology_name="racks")))
    cluster.put(
        queue(
            "cq",
            resource_groups=group(("default", 4000), ("spot", 100_000)),
            admission_checks=(AdmissionCheckRule("check", ("spot",)),),
        )
    )
    cluster.submit_pods("a", 4)
    cluster.submit_pods("b", 4)
    cluster.run("a", "b")
    assert (lacks_places(cluster, "a"), lacks_places(cluster, "b")) == ([], ["main"])


def test_a_check_of_another_controller_does_not_delay_places() -> None:
    cluster = provisioned(controller="example.com/budget")
    cluster.submit_pods("a", 4)
    cluster.run("a")
    assert cluster.places() == {"a": {"r1-a": 4}}


def test_a_check_that_changes_its_controller_delays_the_next_workload() -> None:
    cluster = provisioned(controller="example.com/budget")
    cluster.submit_pods("a", 9)
    cluster.run()
    assert isinstance(cluster.refusal("a"), NoFlavorFits)
    cluster.send(happened.AdmissionCheckChanged(AdmissionCheck("check", "example.com/c", active=True)))
    assert cluster.is_quiet
    cluster.send(happened.AdmissionCheckChanged(AdmissionCheck("check", PROVISION, active=True)))
    cluster.run("a")
    assert lacks_places(cluster) == ["main"]


def test_with_multikueue_neither_nodes_nor_topologies_are_needed() -> None:
    cluster = provisioned(controller=MULTIKUEUE)
    cluster.send(happened.TopologyDeleted("racks"))
    cluster.submit_pods("a", 400 // 5)
    cluster.run("a")
    assert lacks_places(cluster) == ["main"]


def test_a_reservation_of_another_program_may_name_unknown_podsets() -> None:
    cluster = provisioned()
    cluster.submit_pods("a", 4)
    cluster.run("a")
    admission = cluster.workloads["a"].admission
    assert admission is not None
    (part,) = admission.pod_set_assignments
    unknown = replace(part, name="unknown")
    cluster.change("a", admission=replace(admission, pod_set_assignments=(part, unknown)))
    with_ready_check(cluster)
    run_second_pass(cluster)
    assert (lacks_places(cluster), cluster.places()) == ([], {"a": {"r1-a": 4}})


def test_podsets_of_one_workload_get_different_places_in_a_second_pass() -> None:
    cluster = provisioned()
    pods = template_requesting({"cpu": 1000})
    pod_sets = tuple(PodSet(name, 8, pods, topology_request=RACK) for name in ("s1", "s2"))
    cluster.submit("a", "cq", pod_sets=pod_sets)
    cluster.run("a")
    with_ready_check(cluster)
    run_second_pass(cluster)
    assert cluster.domains_by_pod_set() == {
        "s1": {"r1-a": 4, "r1-b": 4},
        "s2": {"r2-a": 4, "r2-b": 4},
    }
