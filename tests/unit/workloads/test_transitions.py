"""Transitions of a Workload's status: eviction, release, requeue and finish."""

from typing import Any

import pytest

from admitq.workloads.admission_patches import queued_since
from admitq.workloads.transitions import (
    StatusTransition,
    condition_since,
    count_evictions,
    holds_quota,
    is_active,
    is_finished_or_deleting,
    reserved_cluster_queue,
)
from admitq_api.conditions import SECOND, ConditionType, format_time, parse_time

NOW = parse_time("2026-03-01T10:00:00Z")
BEFORE = "2026-03-01T09:59:00Z"


def condition(type_: str, status: str, reason: str = "R", message: str = "m") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": BEFORE,
    }


def workload(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "resourceVersion": "7", "generation": 2}
    return {"metadata": metadata, "status": {"conditions": list(conditions), **status}}


def condition_of(transition: StatusTransition, type_: str) -> Any:
    conditions = transition.status["conditions"]
    item = next((item for item in conditions if item["type"] == type_), None)
    return item and (item["status"], item["reason"], item["message"])


def test_transition_without_change_has_no_patch() -> None:
    obj = workload(condition("PodsReady", "True", "Started", "m"))
    transition = StatusTransition(obj, NOW)
    transition.set_condition(ConditionType.PODS_READY, True, "Started", "m")
    assert transition.patch() is None


def test_patch_contains_changes_and_version_of_object() -> None:
    transition = StatusTransition(workload(clusterName="c", requeueState={"count": 1}), NOW)
    del transition.status["clusterName"]
    transition.status["requeueState"] = {"count": 2}
    assert transition.patch() == {
        "metadata": {"resourceVersion": "7"},
        "status": {"clusterName": None, "requeueState": {"count": 2}},
    }


LEFTOVER = {"clusterQueue": "cq", "podSetAssignments": []}


def test_a2_write_removes_admission_without_reservation() -> None:
    obj = workload(condition("QuotaReserved", "False"), admission=LEFTOVER)
    assert reserved_cluster_queue(obj) == ""
    assert StatusTransition(obj, NOW).patch() is None
    transition = StatusTransition(obj, NOW)
    transition.status["requeueState"] = {"count": 2}
    patch = transition.patch() or {}
    assert patch["status"] == {"requeueState": {"count": 2}, "admission": None}


def test_a2_write_keeps_admission_of_reservation() -> None:
    obj = workload(condition("QuotaReserved", "True"), admission=LEFTOVER)
    assert reserved_cluster_queue(obj) == "cq"
    transition = StatusTransition(obj, NOW)
    transition.status["requeueState"] = {"count": 2}
    assert (transition.patch() or {})["status"] == {"requeueState": {"count": 2}}


def test_transition_time_of_condition_changes_only_with_its_status() -> None:
    transition = StatusTransition(workload(condition("Evicted", "True", "Preempted", "m")), NOW)
    transition.evict("PodsReadyTimeout", "late")
    [evicted] = transition.status["conditions"]
    assert (evicted["reason"], evicted["lastTransitionTime"]) == ("PodsReadyTimeout", BEFORE)
    assert evicted["observedGeneration"] == 2


def test_eviction_removes_cluster_names_and_closes_preemption_gates() -> None:
    obj = workload(
        condition("BlockedOnPreemptionGates", "True", "PreemptionGated"),
        clusterName="a",
        nominatedClusterNames=["a", "b"],
        unhealthyNodes=[{"name": "n"}],
        preemptionGates=[
            {"name": "g", "position": "Open", "lastTransitionTime": BEFORE},
            {"name": "h", "position": "Closed", "lastTransitionTime": BEFORE},
        ],
        admission={"clusterQueue": "q"},
    )
    transition = StatusTransition(obj, NOW)
    transition.evict("Preempted", "for another")
    status = transition.status
    assert not {"clusterName", "nominatedClusterNames", "unhealthyNodes"} & set(status)
    assert [gate["position"] for gate in status["preemptionGates"]] == ["Closed", "Closed"]
    times = [gate["lastTransitionTime"] for gate in status["preemptionGates"]]
    assert times == [format_time(NOW), BEFORE]
    assert condition_of(transition, "BlockedOnPreemptionGates") == ("False", "Preempted", "for another")
    assert status["admission"] == {"clusterQueue": "q"}


@pytest.mark.parametrize(("state", "retries"), [("Rejected", 2), ("Retry", 3), ("Ready", None)])
def test_c17_retry_count_is_kept_by_reset_of_rejected_check(state: str, retries: int | None) -> None:
    check = {"name": "c", "state": state, "retryCount": 2}
    transition = StatusTransition(workload(admissionChecks=[check]), NOW)
    transition.evict("Deactivated", "m", "AdmissionCheck")
    [reset] = transition.status["admissionChecks"]
    assert reset["message"] == f"Reset to Pending after eviction. Previously: {state}"
    assert (reset["state"], reset.get("retryCount")) == ("Pending", retries)


@pytest.mark.parametrize(
    ("check", "after"),
    [
        ({"state": "Pending", "message": "m", "retryCount": 3}, {"state": "Pending", "retryCount": 3}),
        ({"state": "Ready", "retryCount": 3, "podSetUpdates": [{}]}, {"state": "Pending"}),
        (
            {"state": "Retry", "requeueAfterSeconds": 5},
            {"state": "Pending", "retryCount": 1, "requeueAfterSeconds": 5},
        ),
        ({"state": "Retry", "retryCount": 1}, {"state": "Pending", "retryCount": 2}),
        ({"state": "Rejected", "podSetUpdates": [{}]}, {"state": "Pending"}),
    ],
)
def test_eviction_resets_check_and_counts_its_retries(check: dict[str, Any], after: dict[str, Any]) -> None:
    transition = StatusTransition(workload(admissionChecks=[{"name": "c", **check}]), NOW)
    transition.evict("Preempted", "m")
    [reset] = transition.status["admissionChecks"]
    message = reset.pop("message")
    changed_at = reset.pop("lastTransitionTime", None)
    assert reset == {"name": "c", **after}
    if check["state"] != "Pending":
        assert message == f"Reset to Pending after eviction. Previously: {check['state']}"
        assert changed_at == format_time(NOW)


EARLIER = "2026-03-01T09:58:00Z"


def requeued(changed_at: str, state: str = "Ready") -> dict[str, Any]:
    """Return the status after a requeue. A check and a gate changed at the given time, Evicted at BEFORE."""
    check = {"name": "c", "state": state, "podSetUpdates": [{"name": "main"}]}
    obj = workload(
        condition("Evicted", "True", "Preempted"),
        admission={"clusterQueue": "q"},
        admissionChecks=[{**check, "lastTransitionTime": changed_at}],
        preemptionGates=[{"name": "g", "position": "Open", "lastTransitionTime": changed_at}],
    )
    transition = StatusTransition(obj, NOW)
    transition.requeue("PendingEvaluation")
    return transition.status


def test_e_requeue_resets_checks_and_gates_that_changed_before_eviction() -> None:
    status = requeued(EARLIER)
    message = "Reset to Pending after eviction. Previously: Ready"
    reset = {"name": "c", "state": "Pending", "message": message, "lastTransitionTime": format_time(NOW)}
    assert status["admissionChecks"] == [reset]
    assert status["preemptionGates"][0]["position"] == "Closed"


def test_requeue_keeps_checks_and_gates_that_changed_since_eviction() -> None:
    status = requeued(BEFORE)
    assert status["admissionChecks"][0]["state"] == "Ready"
    assert status["preemptionGates"][0]["position"] == "Open"


def test_e_requeue_resets_check_in_state_retry_since_eviction() -> None:
    [check] = requeued(BEFORE, "Retry")["admissionChecks"]
    assert (check["state"], check["retryCount"]) == ("Pending", 1)
    assert check["message"] == "Reset to Pending after eviction. Previously: Retry"


def test_rejected_check_during_eviction_stays_rejected_after_requeue() -> None:
    [rejected] = requeued(BEFORE, "Rejected")["admissionChecks"]
    assert rejected["state"] == "Rejected", "only its controller changes a rejection"


def test_evictions_are_counted_by_reason_and_cause() -> None:
    obj = workload()
    for reason, cause in (("Preempted", ""), ("Deactivated", "AdmissionCheck"), ("Preempted", "")):
        transition = StatusTransition(obj, NOW)
        transition.evict(reason, "m", cause)
        obj = workload(**{key: value for key, value in transition.status.items() if key != "conditions"})
    assert count_evictions(obj, "Preempted", "") == 2
    assert count_evictions(obj, "Deactivated", "AdmissionCheck") == 1
    assert count_evictions(obj, "Deactivated", "") == 0


MAX_INT32 = 2**31 - 1
"""The largest int32."""


def test_e_counts_of_another_program_are_limited_to_int32() -> None:
    obj = workload(
        condition("Admitted", "True"),
        admission={"clusterQueue": "q"},
        accumulatedPastExecutionTimeSeconds=MAX_INT32,
        admissionChecks=[{"name": "c", "state": "Retry", "retryCount": MAX_INT32}],
        schedulingStats={"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": MAX_INT32}]},
    )
    transition = StatusTransition(obj, NOW)
    transition.evict("Preempted", "m")
    transition.requeue("PendingEvaluation")
    assert transition.status["accumulatedPastExecutionTimeSeconds"] == MAX_INT32
    assert transition.status["admissionChecks"][0]["retryCount"] == MAX_INT32
    assert transition.status["schedulingStats"]["evictions"][0]["count"] == MAX_INT32


def test_e_eviction_is_not_counted_if_list_of_statistics_is_full() -> None:
    others = [{"reason": f"R{number}", "underlyingCause": "", "count": 1} for number in range(256)]
    obj = workload(schedulingStats={"evictions": others})
    transition = StatusTransition(obj, NOW)
    transition.evict("Preempted", "m")
    assert condition_of(transition, "Evicted") == ("True", "Preempted", "m")
    assert transition.status["schedulingStats"]["evictions"] == others
    transition.evict("R7", "m")
    assert transition.status["schedulingStats"]["evictions"][7]["count"] == 2


def test_e_long_eviction_cause_of_another_program_is_cut() -> None:
    transition = StatusTransition(workload(), NOW)
    transition.evict("Deactivated", "m", "C" * 314 + ":::" + "D" * 700)
    cause = "C" * 314
    assert condition_of(transition, "Evicted") == ("True", f"DeactivatedDueTo{cause}", "m")
    [statistics] = transition.status["schedulingStats"]["evictions"]
    assert statistics["underlyingCause"] == cause


def test_release_adds_execution_time_of_admission() -> None:
    obj = workload(
        condition("Admitted", "True"), admission={"clusterQueue": "q"}, accumulatedPastExecutionTimeSeconds=5
    )
    transition = StatusTransition(obj, NOW)
    transition.release("Suspended", "stopped")
    assert transition.status["accumulatedPastExecutionTimeSeconds"] == 65
    assert "admission" not in transition.status
    assert condition_of(transition, "QuotaReserved") == ("False", "Suspended", "stopped")
    assert condition_of(transition, "Admitted") == (
        "False",
        "NoReservation",
        "The workload has no reservation",
    )


def test_release_after_maximum_execution_time_resets_execution_time() -> None:
    evicted = condition("Evicted", "True", "DeactivatedDueToMaximumExecutionTimeExceeded")
    transition = StatusTransition(workload(condition("Admitted", "True"), evicted), NOW)
    transition.release("Deactivated", "m")
    assert "accumulatedPastExecutionTimeSeconds" not in transition.status


@pytest.mark.parametrize("former", [[], [condition("Requeued", "True", "Preempted")]])
def test_requeue_sets_start_of_wait_to_now(former: list[dict[str, Any]]) -> None:
    transition = StatusTransition(workload(condition("Evicted", "True", "Preempted"), *former), NOW)
    transition.requeue("PendingEvaluation")
    assert condition_of(transition, "Requeued") == ("True", "Preempted", "m")
    assert queued_since({"metadata": {}, "status": transition.status}) == NOW


def test_release_without_admission_adds_no_execution_time() -> None:
    transition = StatusTransition(
        workload(condition("QuotaReserved", "True"), condition("Admitted", "False")), NOW
    )
    transition.release("Suspended", "m")
    assert "accumulatedPastExecutionTimeSeconds" not in transition.status


@pytest.mark.parametrize("conditions", [[], [condition("Admitted", "True") | {"lastTransitionTime": "odd"}]])
def test_condition_since_is_none_without_valid_time(conditions: list[dict[str, Any]]) -> None:
    assert condition_since(workload(*conditions), ConditionType.ADMITTED) is None


def test_condition_since_is_in_nanoseconds() -> None:
    assert (
        condition_since(workload(condition("Admitted", "True")), ConditionType.ADMITTED) == NOW - 60 * SECOND
    )


RESERVED, FINISHED = condition("QuotaReserved", "True"), condition("Finished", "True")


@pytest.mark.parametrize(
    ("conditions", "metadata", "holds", "is_over"),
    [
        ([], {}, False, False),
        ([RESERVED], {}, True, False),
        ([RESERVED], {"deletionTimestamp": BEFORE}, True, True),
        ([RESERVED, FINISHED], {}, False, True),
        ([RESERVED, condition("Finished", "False")], {}, True, False),
    ],
)
def test_workload_holds_quota_while_reserved_and_not_finished(
    conditions: list[dict[str, Any]], metadata: dict[str, Any], holds: bool, is_over: bool
) -> None:
    obj = workload(*conditions)
    obj["metadata"] |= metadata
    assert (holds_quota(obj), is_finished_or_deleting(obj)) == (holds, is_over)


@pytest.mark.parametrize(
    ("spec", "active"),
    [({}, True), ({"active": None}, True), ({"active": True}, True), ({"active": False}, False)],
)
def test_workload_is_inactive_only_if_active_is_false(spec: dict[str, Any], active: bool) -> None:
    assert is_active({"spec": spec}) is active
