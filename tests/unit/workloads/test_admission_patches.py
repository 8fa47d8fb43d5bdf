"""What is written on a Workload when it gets quota, and when it does not."""

from typing import Any

from admitq.core.model import SECOND, Admission, PodSetAssignment
from admitq.workloads.admission_patches import pending_patch, queued_since, reservation_patch
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


def test_a_reservation_without_checks_admits_in_the_same_guarded_patch() -> None:
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


def test_pod_fields_of_other_writers_are_kept() -> None:
    ready = condition("PodsReady", "True", "Started")
    patch = reservation_patch(workload(ready), ADMISSION, admit=True, now=NOW)
    assert states(patch)["PodsReady"] == ("True", "Started", "m")
    untracked = reservation_patch(workload(), ADMISSION, admit=True, now=NOW, tracks_pods_ready=False)
    assert "PodsReady" not in states(untracked)


def test_a_reservation_with_checks_outstanding_does_not_admit() -> None:
    patch = reservation_patch(workload(), ADMISSION, admit=False, now=NOW)
    assert states(patch)["Admitted"] == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


def test_a_reservation_answers_a_former_eviction_and_preemption() -> None:
    evicted = condition("Evicted", "True", "Preempted", "Preempted to make room")
    preempted = condition("Preempted", "True", "InClusterQueue", "higher priority")
    patch = reservation_patch(workload(evicted, preempted), ADMISSION, admit=True, now=NOW)
    assert states(patch)["Evicted"] == ("False", "QuotaReserved", "Previously: Preempted to make room")
    assert states(patch)["Preempted"] == ("False", "QuotaReserved", "Previously: higher priority")


def test_what_was_asked_for_is_cleared_on_admission_only() -> None:
    asked = [{"name": "main", "resources": {"cpu": "1"}}]
    admitted = reservation_patch(workload(resourceRequests=asked), ADMISSION, admit=True, now=NOW)
    reserved = reservation_patch(workload(resourceRequests=asked), ADMISSION, admit=False, now=NOW)
    assert admitted["status"]["resourceRequests"] is None
    assert "resourceRequests" not in reserved["status"]


def test_conditions_of_others_survive() -> None:
    patch = reservation_patch(workload(condition("example.org/Mine", "True")), ADMISSION, admit=True, now=NOW)
    assert states(patch)["example.org/Mine"] == ("True", "R", "m")


def test_a_refusal_states_reason_message_and_requests() -> None:
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


def test_refusal_in_the_status_is_not_written_again() -> None:
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


def test_a2_refusal_removes_leftover_admission_even_if_it_is_stated_already() -> None:
    first = pending_patch(workload(), reason="A", message="b", resource_requests=(), now=NOW)
    assert first is not None
    assert "admission" not in first["status"]
    stored = workload(
        *first["status"]["conditions"], admission={"clusterQueue": "q", "podSetAssignments": []}
    )
    again = pending_patch(stored, reason="A", message="b", resource_requests=(), now=NOW)
    assert again is not None
    assert again["status"]["admission"] is None
    assert again["status"]["conditions"] == first["status"]["conditions"]


def test_a4_refusal_of_a_cycle_replaces_the_message_of_an_eviction() -> None:
    stored = workload(
        condition("Evicted", "True", "Preempted", "for another"),
        condition("QuotaReserved", "False", "PendingEvaluation", "for another"),
    )
    patch = pending_patch(stored, reason="WaitingForQuota", message="2 more", resource_requests=(), now=NOW)
    assert patch is not None
    assert states(patch)["QuotaReserved"] == ("False", "WaitingForQuota", "2 more")
    assert states(patch)["Evicted"] == ("True", "Preempted", "for another")


def test_a2_new_reservation_overwrites_leftover_admission() -> None:
    stored = workload(condition("QuotaReserved", "False"), admission={"clusterQueue": "old"})
    patch = reservation_patch(stored, ADMISSION, admit=True, now=NOW)
    assert patch["status"]["admission"]["clusterQueue"] == "research"


def test_the_wait_counts_from_creation_or_from_the_last_requeue() -> None:
    assert NOW - queued_since(workload()) == 60 * SECOND
    assert NOW - queued_since(workload(condition("Requeued", "True"))) == 30 * SECOND
    assert NOW - queued_since(workload(condition("Requeued", "False"))) == 60 * SECOND
