"""Reasons of pending Workloads, and admission gates."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq.translate.messages import Explanation
from tests.unit.controllers.builders import NAMES, condition, condition_of, local_queue, timestamp, workload
from tests.unit.controllers.workload.decisions import NOT_ADMITTED, apply_plan, events_of, plan_for, settle


def test_new_workload_in_active_queue_causes_no_write() -> None:
    assert plan_for(workload()) == ActionPlan(requeue_after=2.0)
    assert plan_for(workload(), now=2) == ActionPlan()


def test_bypassed_workload_gets_reason_in_first_report() -> None:
    bypassed = Explanation("WaitingForQuota", "like another")
    obj = settle(workload(), now=2, bypassed=bypassed)
    assert condition_of(obj, "QuotaReserved") == ("False", "WaitingForQuota", "like another")


@pytest.mark.parametrize(
    ("obj", "inputs", "reason", "message"),
    [
        (workload(), {"local_queue": None}, "Misconfigured", "LocalQueue lq doesn't exist"),
        (
            workload(),
            {"local_queue": local_queue(deletionTimestamp=timestamp(0))},
            "Misconfigured",
            "LocalQueue lq is terminating or missing",
        ),
        (workload(), {"local_queue": local_queue("Hold")}, "Suspended", "LocalQueue lq is inactive"),
        (workload(), {"cluster_queue": None}, "Misconfigured", "ClusterQueue cq doesn't exist"),
        (workload(), {"cluster_queue_active": False}, "Suspended", "ClusterQueue cq is inactive"),
        (
            workload(),
            {"inadmissible": Explanation("Misconfigured", "because")},
            "Misconfigured",
            "because",
        ),
        (
            workload(condition("QuotaReserved", False, "PendingEvaluation")),
            {"bypassed": Explanation("WaitingForQuota", "like another")},
            "WaitingForQuota",
            "like another",
        ),
        (
            workload(condition("QuotaReserved", False, "Misconfigured", "LocalQueue lq doesn't exist")),
            {},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(condition("QuotaReserved", False, "Suspended", "ClusterQueue cq is inactive")),
            {},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(),
            {"settings": {"explicit_pending": True}},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(),
            {"local_queue": None, "settings": {"detailed_reasons": False}},
            "Inadmissible",
            "LocalQueue lq doesn't exist",
        ),
    ],
)
def test_pending_workload_reports_reason(obj: dict[str, Any], inputs: Any, reason: str, message: str) -> None:
    reported = apply_plan(obj, plan_for(obj, **inputs))
    assert condition_of(reported, "QuotaReserved") == ("False", reason, message)
    assert condition_of(reported, "Admitted") == (
        "False",
        "NoReservation",
        "The workload has no reservation",
    )


@pytest.mark.parametrize(
    "reason", ["WaitingForQuota", "NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForPreemptedWorkloads"]
)
def test_reason_of_evaluation_is_kept(reason: str) -> None:
    obj = workload(condition("QuotaReserved", False, reason, "m"), NOT_ADMITTED)
    assert plan_for(obj).actions == ()


def test_misconfiguration_found_by_evaluation_is_kept() -> None:
    message = "resources didn't satisfy LimitRange constraints: too much"
    obj = workload(condition("QuotaReserved", False, "Misconfigured", message), NOT_ADMITTED)
    assert plan_for(obj).actions == ()


MISMATCH = Explanation("Misconfigured", "workload namespace doesn't match ClusterQueue selector")


def test_a4_namespace_mismatch_is_cleared_as_soon_as_the_namespace_matches() -> None:
    mismatched = settle(workload(), inadmissible=MISMATCH)
    assert condition_of(mismatched, "QuotaReserved") == ("False", *MISMATCH)
    assert settle(mismatched, inadmissible=MISMATCH) == mismatched
    matched = settle(mismatched)
    message = "Workload is pending evaluation in the scheduling queue"
    assert condition_of(matched, "QuotaReserved") == ("False", "PendingEvaluation", message)


REQUEUED_CONDITIONS = (
    condition("Evicted", True, "Preempted", "Preempted to accommodate another workload"),
    condition("QuotaReserved", False, "PendingEvaluation", "Preempted to accommodate another workload"),
    NOT_ADMITTED,
)


def test_a4_message_of_eviction_is_kept_until_next_evaluation() -> None:
    assert plan_for(workload(*REQUEUED_CONDITIONS, condition("Requeued", True, "Preempted"))).actions == ()


def test_a4_message_of_eviction_is_replaced_when_queue_is_stopped() -> None:
    stopped = settle(workload(*REQUEUED_CONDITIONS), local_queue=local_queue("Hold"))
    assert condition_of(stopped, "QuotaReserved") == ("False", "Suspended", "LocalQueue lq is inactive")


def test_a4_message_of_eviction_is_replaced_when_workload_is_bypassed() -> None:
    bypassed = Explanation("WaitingForQuota", "like another")
    assert condition_of(settle(workload(*REQUEUED_CONDITIONS), bypassed=bypassed), "QuotaReserved") == (
        "False",
        *bypassed,
    )


def test_a4_message_of_a_former_eviction_is_replaced() -> None:
    former = condition("Evicted", False, "QuotaReserved", "Previously: " + REQUEUED_CONDITIONS[0]["message"])
    obj = settle(workload(former, *REQUEUED_CONDITIONS[1:]))
    message = "Workload is pending evaluation in the scheduling queue"
    assert condition_of(obj, "QuotaReserved") == ("False", "PendingEvaluation", message)


def test_workload_is_not_reported_while_core_does_not_know_its_cluster_queue() -> None:
    assert plan_for(workload(), cluster_queue_active=None).actions == ()


def test_reason_on_hold_is_kept() -> None:
    obj = workload(condition("QuotaReserved", False, "OnHold", "Job is on hold"), NOT_ADMITTED)
    assert plan_for(obj, local_queue=None).actions == ()


def test_deactivation_is_not_reported_without_detailed_reasons() -> None:
    obj = settle(workload(spec={"active": False}), settings={"detailed_reasons": False})
    assert condition_of(obj, "QuotaReserved") is None


GATED: dict[str, Any] = {"annotations": {NAMES.admission_gated_by: "a.example/x,b.example/y"}}

GATED_CONDITION = condition("QuotaReserved", False, "AdmissionGated", "Admission is gated by: a.example/x")


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("conditions", [[], [condition("PodsReady", False, "WaitForStart", "m")]])
@pytest.mark.parametrize(
    ("metadata", "inputs"),
    [({}, {"local_queue": None}), (GATED, {})],
    ids=["without a queue", "gated"],
)
def test_first_quota_report_includes_missing_pods_ready_condition(
    metadata: dict[str, Any], inputs: Any, conditions: list[dict[str, Any]], tracked: bool
) -> None:
    obj = workload(*conditions, metadata=metadata)
    settings = {} if tracked else {"pods_ready": None}
    reported = apply_plan(obj, plan_for(obj, settings=settings, **inputs))
    assert condition_of(reported, "QuotaReserved") is not None
    awaited = ("False", "WaitForStart", "Not all pods are ready or succeeded")
    expected = ("False", "WaitForStart", "m") if conditions else awaited if tracked else None
    assert condition_of(reported, "PodsReady") == expected


def test_gated_workload_reports_its_admission_gates() -> None:
    plan = plan_for(workload(metadata=GATED))
    gated = apply_plan(workload(metadata=GATED), plan)
    message = "Admission is gated by: a.example/x,b.example/y"
    assert condition_of(gated, "QuotaReserved") == ("False", "AdmissionGated", message)
    assert events_of(plan) == [
        ("Normal", "AdmissionGated", f"Workload admission is gated by: {message[23:]}")
    ]
    assert settle(gated) == gated


@pytest.mark.parametrize(
    ("spec", "inputs", "reason"),
    [
        ({}, {"local_queue": None}, "Misconfigured"),
        ({}, {"local_queue": local_queue("Hold")}, "Suspended"),
        ({}, {"cluster_queue": None, "cluster_queue_active": False}, "Misconfigured"),
        ({}, {"cluster_queue_active": False}, "Suspended"),
        ({}, {"inadmissible": Explanation("Misconfigured", "because")}, "Misconfigured"),
        ({"active": False}, {}, "Deactivated"),
    ],
)
def test_gated_workload_reports_reasons_other_than_gates_first(spec: Any, inputs: Any, reason: str) -> None:
    pending = settle(workload(metadata=GATED, spec=spec), **inputs)
    assert condition_of(pending, "QuotaReserved")[1] == reason
    gated = settle(workload(GATED_CONDITION, metadata=GATED, spec=spec))
    assert condition_of(settle(gated, **inputs), "QuotaReserved")[1] == reason


@pytest.mark.parametrize(
    ("annotations", "settings"),
    [({}, {}), ({NAMES.admission_gated_by: ""}, {}), (GATED["annotations"], {"admission_gates": False})],
    ids=["annotation removed", "annotation empty", "feature gate is off"],
)
def test_workload_waits_for_quota_when_its_admission_gates_are_cleared(
    annotations: Any, settings: Any
) -> None:
    obj = workload(GATED_CONDITION, metadata={"annotations": annotations})
    plan = plan_for(obj, settings=settings)
    assert condition_of(apply_plan(obj, plan), "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "AdmissionGatedBy cleared, waiting for quota reservation",
    )
    assert events_of(plan) == [
        ("Normal", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
    ]


def test_changed_admission_gates_are_reported() -> None:
    obj = workload(GATED_CONDITION, metadata=GATED)
    assert condition_of(settle(obj), "QuotaReserved")[2].endswith("a.example/x,b.example/y")


def test_reason_of_preemption_gate_is_kept() -> None:
    message = "Workload requires preemption, but it's gated"
    obj = workload(condition("QuotaReserved", False, "AdmissionGated", message), NOT_ADMITTED)
    assert plan_for(obj).actions == ()
