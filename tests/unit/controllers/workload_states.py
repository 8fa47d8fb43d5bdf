"""Random states of a Workload and of its queues, whether or not they can occur."""

from typing import Any

from hypothesis import strategies as st

from admitq.translate.messages import Explanation
from tests.unit.controllers.builders import (
    ADMISSION,
    NAMES,
    cluster_queue,
    condition,
    local_queue,
    timestamp,
    workload,
)

ConditionState = tuple[bool, str] | None
QUOTA: list[ConditionState] = [
    None,
    (True, "QuotaReserved"),
    *((False, reason) for reason in ("WaitingForQuota", "AdmissionGated", "Suspended", "Misconfigured")),
    *(
        (False, reason)
        for reason in ("PendingEvaluation", "Deactivated", "OnHold", "Inadmissible", "Pending")
    ),
]
ADMITTED: list[ConditionState] = [None, (True, "Admitted"), (False, "UnsatisfiedAdmissionChecks")]
EVICTED: list[ConditionState] = [
    None,
    (False, "QuotaReserved"),
    *(
        (True, reason)
        for reason in ("Preempted", "PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped")
    ),
    *((True, reason) for reason in ("Deactivated", "DeactivatedDueToMaximumExecutionTimeExceeded")),
]
REQUEUED: list[ConditionState] = [
    None,
    *((True, reason) for reason in ("Preempted", "Reactivated", "BackoffFinished")),
    *((False, reason) for reason in ("PodsReadyTimeout", "AdmissionCheck", "DeactivatedDueToAdmissionCheck")),
    *((False, reason) for reason in ("LocalQueueStopped", "ClusterQueueStopped")),
]
PODS_READY: list[ConditionState] = [
    None,
    (True, "Started"),
    *((False, reason) for reason in ("WaitForStart", "WaitForRecovery")),
]
GATES: list[dict[str, Any]] = [
    {},
    *(
        {"annotations": {NAMES.admission_gated_by: gates}}
        for gates in ("a.example/x", "a.example/x,b.example/y")
    ),
]
MESSAGES = {"AdmissionGated": "Admission is gated by: a.example/x"}
QUEUE_INPUTS: list[Any] = [
    {},
    {"local_queue": None},
    *({"local_queue": local_queue(policy)} for policy in ("Hold", "HoldAndDrain")),
    {"cluster_queue": None, "cluster_queue_active": False},
    {"cluster_queue": cluster_queue("HoldAndDrain"), "cluster_queue_active": False},
    {"cluster_queue": cluster_queue(deletionTimestamp=timestamp(0)), "cluster_queue_active": False},
    {"cluster_queue_active": None},
    {"cluster_queue": cluster_queue(checks=[{"name": "c"}])},
    *(
        {"cluster_queue": cluster_queue(checks=[{"name": "c", "onFlavors": [flavor]}], flavors=["f", "g"])}
        for flavor in ("f", "g")
    ),
    {"inadmissible": Explanation("Misconfigured", "because")},
    {"bypassed": Explanation("WaitingForQuota", "like another")},
]


def draw_workload(data: st.DataObject) -> dict[str, Any]:
    """Draw a Workload in any state."""
    quota = data.draw(st.sampled_from(QUOTA))
    reserved = quota is not None and quota[0]
    conditions = {
        "QuotaReserved": quota,
        "Admitted": data.draw(st.sampled_from(ADMITTED)) if reserved else None,
        "Evicted": data.draw(st.sampled_from(EVICTED)),
        "Requeued": data.draw(st.sampled_from(REQUEUED)),
        "PodsReady": data.draw(st.sampled_from(PODS_READY)),
        "DeactivationTarget": data.draw(st.sampled_from([None, (True, "AdmissionCheck")])),
        "Finished": data.draw(st.sampled_from([None, None, None, (True, "OutOfSync")])),
    }
    parts: dict[str, Any] = {"admission": ADMISSION} if reserved else {}
    if (state := data.draw(st.sampled_from([None, "Pending", "Ready", "Retry", "Rejected"]))) is not None:
        requeue_after, count = (
            data.draw(st.sampled_from(values)) for values in ([None, 0, 30, 1000], [None, 0, 1])
        )
        listed = {"name": "c", "state": state, "lastTransitionTime": timestamp(0), "message": "m"}
        parts["admissionChecks"] = [{**listed, "requeueAfterSeconds": requeue_after, "retryCount": count}]
    if data.draw(st.booleans()):
        parts["requeueState"] = {
            "count": 1,
            "requeueAt": data.draw(st.sampled_from([timestamp(0), timestamp(400)])),
        }
    spec: dict[str, Any] = {"active": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        spec["maximumExecutionTimeSeconds"] = 100
    return workload(
        *(
            condition(type_, *state_and_reason, MESSAGES.get(state_and_reason[1], "m"))
            for type_, state_and_reason in conditions.items()
            if state_and_reason
        ),
        metadata=data.draw(st.sampled_from(GATES)),
        spec=spec,
        **parts,
    )
