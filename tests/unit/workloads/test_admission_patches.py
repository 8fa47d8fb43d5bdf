"""Patches of a Workload's status for a reservation and for a refusal."""

from typing import Any

import pytest

from admitq.core.model import SECOND, Admission, PodSetAssignment
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME
from admitq.workloads.admission_patches import pending_patch, queued_since, reservation_patch, topology_patch
from admitq_api import conditions

NOW = conditions.parse_time("2026-03-01T10:00:00Z")
ADMISSION = Admission(
    "research",
    (PodSetAssignment("main", (("cpu", "spot"),), (("cpu", 1500), ("memory", 2**30)), 3),),
)


def workload(*state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-03-01T09:59:00Z",
        },
        "status": {"conditions": list(state), **status},
    }


def condition(type_: str, status: str, reason: str = "R", message: str = "m") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T09:59:30Z",
    }


def states(patch: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        item["type"]: (item["status"], item["reason"], item["message"])
        for item in patch["status"]["conditions"]
    }


def test_reservation_without_checks_admits_in_the_same_patch() -> None:
    patch = reservation_patch(workload(), ADMISSION, admit=True, now=NOW)
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert states(patch) == {
        "QuotaReserved": ("True", "QuotaReserved", "Quota reserved in ClusterQueue research"),
        "Admitted": ("True", "Admitted", "The workload is admitted"),
        "PodsReady": ("False", "WaitForStart", "Not all pods are ready or succeeded"),
    }
    assert patch["status"]["admission"] == {
        "clusterQueue": "research",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {"cpu": "spot"},
                "resourceUsage": {"cpu": "1500m", "memory": "1Gi"},
                "count": 3,
            }
        ],
    }
    assert {item["observedGeneration"] for item in patch["status"]["conditions"]} == {2}


def test_reservation_keeps_true_pods_ready_condition() -> None:
    ready = condition("PodsReady", "True", "Started")
    patch = reservation_patch(workload(ready), ADMISSION, admit=True, now=NOW)
    assert states(patch)["PodsReady"] == ("True", "Started", "m")


def test_reservation_without_tracking_has_no_pods_ready_condition() -> None:
    patch = reservation_patch(workload(), ADMISSION, admit=True, now=NOW, tracks_pods_ready=False)
    assert "PodsReady" not in states(patch)


def test_reservation_with_unready_checks_does_not_admit() -> None:
    patch = reservation_patch(workload(), ADMISSION, admit=False, now=NOW)
    assert states(patch)["Admitted"] == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


def test_reservation_sets_former_eviction_and_preemption_to_false() -> None:
    evicted = condition("Evicted", "True", "Preempted", "Preempted to make room")
    preempted = condition("Preempted", "True", "InClusterQueue", "higher priority")
    patch = reservation_patch(workload(evicted, preempted), ADMISSION, admit=True, now=NOW)
    assert states(patch)["Evicted"] == ("False", "QuotaReserved", "Previously: Preempted to make room")
    assert states(patch)["Preempted"] == ("False", "QuotaReserved", "Previously: higher priority")


def test_resource_requests_are_removed_only_on_admission() -> None:
    requests = [{"name": "main", "resources": {"cpu": "1"}}]
    admitted = reservation_patch(workload(resourceRequests=requests), ADMISSION, admit=True, now=NOW)
    reserved = reservation_patch(workload(resourceRequests=requests), ADMISSION, admit=False, now=NOW)
    assert admitted["status"]["resourceRequests"] is None
    assert "resourceRequests" not in reserved["status"]


def test_reservation_keeps_conditions_of_other_programs() -> None:
    patch = reservation_patch(workload(condition("example.org/Own", "True")), ADMISSION, admit=True, now=NOW)
    assert states(patch)["example.org/Own"] == ("True", "R", "m")


def test_refusal_has_reason_message_and_requests() -> None:
    patch = pending_patch(
        workload(),
        reason="WaitingForQuota",
        message="2 more needed",
        resource_requests=(("main", (("cpu", 2000),)),),
        now=NOW,
    )
    assert patch is not None
    assert states(patch) == {
        "QuotaReserved": ("False", "WaitingForQuota", "2 more needed"),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
        "PodsReady": ("False", "WaitForStart", "Not all pods are ready or succeeded"),
    }
    assert patch["status"]["resourceRequests"] == [{"name": "main", "resources": {"cpu": "2"}}]


def test_refusal_that_status_contains_is_not_written_again() -> None:
    requests = (("main", (("cpu", 2000),)),)
    first = pending_patch(workload(), reason="A", message="b", resource_requests=requests, now=NOW)
    assert first is not None
    stored = workload()
    stored["status"] = first["status"]
    later = NOW + 60 * SECOND
    assert pending_patch(stored, reason="A", message="b", resource_requests=requests, now=later) is None
    changed = pending_patch(stored, reason="A", message="c", resource_requests=requests, now=later)
    assert changed is not None
    assert changed["status"]["conditions"][0]["lastTransitionTime"] == "2026-03-01T10:00:00Z"


def test_a2_refusal_removes_leftover_admission_even_if_status_contains_it() -> None:
    first = pending_patch(workload(), reason="A", message="b", resource_requests=(), now=NOW)
    assert first is not None
    assert "admission" not in first["status"]
    stored = workload(
        *first["status"]["conditions"], admission={"clusterQueue": "q", "podSetAssignments": []}
    )
    second = pending_patch(stored, reason="A", message="b", resource_requests=(), now=NOW)
    assert second is not None
    assert second["status"]["admission"] is None
    assert second["status"]["conditions"] == first["status"]["conditions"]


def test_a4_refusal_of_cycle_replaces_message_of_eviction() -> None:
    stored = workload(
        condition("Evicted", "True", "Preempted", "for another"),
        condition("QuotaReserved", "False", "PendingEvaluation", "for another"),
    )
    patch = pending_patch(stored, reason="WaitingForQuota", message="2 more", resource_requests=(), now=NOW)
    assert patch is not None
    assert states(patch)["QuotaReserved"] == ("False", "WaitingForQuota", "2 more")
    assert states(patch)["Evicted"] == ("True", "Preempted", "for another")


def test_a2_reservation_overwrites_leftover_admission() -> None:
    stored = workload(condition("QuotaReserved", "False"), admission={"clusterQueue": "old"})
    patch = reservation_patch(stored, ADMISSION, admit=True, now=NOW)
    assert patch["status"]["admission"]["clusterQueue"] == "research"


def test_queued_since_is_creation_or_last_requeue() -> None:
    assert NOW - queued_since(workload()) == 60 * SECOND
    assert NOW - queued_since(workload(condition("Requeued", "True"))) == 30 * SECOND
    assert NOW - queued_since(workload(condition("Requeued", "False"))) == 60 * SECOND


@pytest.mark.parametrize(("by_hostname_prefix", "slices"), [(True, 2), (False, 1)])
def test_gate_decides_whether_host_prefixes_have_their_own_slices(
    by_hostname_prefix: bool, slices: int
) -> None:
    hosts = [f"{pool}-of-this-cluster-{number}" for pool in ("left", "right") for number in range(100, 200)]
    topology = TopologyAssignment(("kubernetes.io/hostname",), tuple(((host,), 1) for host in hosts))
    admission = Admission("research", (PodSetAssignment("main", (), (), 200, topology=topology),))
    patch = reservation_patch(
        workload(), admission, admit=True, now=NOW, by_hostname_prefix=by_hostname_prefix
    )
    [written] = patch["status"]["admission"]["podSetAssignments"]
    assert len(written["topologyAssignment"]["slices"]) == slices


def test_delayed_request_is_ready_when_its_topology_assignment_is_written() -> None:
    stored = {"clusterQueue": "research", "podSetAssignments": [{"delayedTopologyRequest": "Pending"}]}
    topology = TopologyAssignment(("rack",), ((("r1",), 1),))
    admission = Admission("research", (PodSetAssignment("main", (), (), 1, topology=topology),))
    obj = workload(admission=stored)
    for patch in (
        reservation_patch(obj, admission, admit=True, now=NOW),
        topology_patch(obj, admission),
    ):
        [written] = patch["status"]["admission"]["podSetAssignments"]
        assert written["delayedTopologyRequest"] == "Ready"


def test_topology_assignment_changes_nothing_else() -> None:
    obj = workload(admission={"clusterQueue": "research"})
    patch = topology_patch(obj, Admission("research", ()))
    assert patch == {
        "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
        "status": {"admission": {"clusterQueue": "research", "podSetAssignments": []}},
    }


@pytest.mark.parametrize(
    ("listed", "left"), [(["a"], None), (["a", "b"], [{"name": "b"}]), (["b"], [{"name": "b"}])]
)
def test_topology_assignment_without_a_failed_host_unlists_it(listed: list[str], left: object) -> None:
    hosts = TopologyAssignment((HOST_NAME,), ((("b",), 1), (("c",), 1)))
    admission = Admission("research", (PodSetAssignment("main", (), (), 2, topology=hosts),))
    obj = workload()
    obj["status"]["unhealthyNodes"] = [{"name": name} for name in listed]
    patch = topology_patch(obj, admission)
    assert patch["status"]["unhealthyNodes"] == left
