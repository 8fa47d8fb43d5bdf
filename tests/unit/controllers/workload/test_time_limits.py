"""Time limits: the pods-ready timeout and the maximum execution time."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    ADMITTED,
    POLICY,
    admitted,
    apply_patch,
    condition,
    condition_of,
    instant,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import (
    AWAITED,
    BACKOFF_FINISHED,
    NOT_ADMITTED,
    apply_plan,
    events_of,
    plan_for,
    settle,
)


@pytest.mark.parametrize("make", [reserved, admitted])
def test_a3_pods_are_reported_not_ready_where_another_program_reserved_quota(make: Any) -> None:
    expected = ("False", "WaitForStart", "Not all pods are ready or succeeded")
    assert condition_of(settle(make()), "PodsReady") == expected
    assert condition_of(settle(make(), settings={"pods_ready": None}), "PodsReady") is None
    assert condition_of(settle(make(), cluster_queue=None), "PodsReady") == expected


def test_a3_execution_is_added_up_where_another_program_released_quota_alone() -> None:
    obj = admitted(AWAITED, since=10, accumulatedPastExecutionTimeSeconds=5)
    released = apply_patch(
        obj, {"status": {"conditions": [condition("QuotaReserved", False, "Pending", "m"), ADMITTED]}}
    )
    ended = settle(released, now=40)
    assert condition_of(ended, "Admitted")[1] == "NoReservation"
    assert ended["status"]["accumulatedPastExecutionTimeSeconds"] == 45


def test_a3_execution_is_added_up_where_another_program_ended_the_admission() -> None:
    pending = workload(condition("QuotaReserved", False, "WaitingForQuota", "m"), NOT_ADMITTED)
    unchanged = settle(pending, unrecorded_execution=0)
    assert "accumulatedPastExecutionTimeSeconds" not in unchanged["status"]
    plan = plan_for(pending, unrecorded_execution=30 * SECOND)
    assert apply_plan(pending, plan)["status"]["accumulatedPastExecutionTimeSeconds"] == 30


@pytest.mark.parametrize(
    ("ready", "requeue_after"),
    [
        ([condition("PodsReady", False, "WaitForStart")], 290.0),
        ([condition("PodsReady", False, "WaitForRecovery", since=5)], 95.0),
        ([condition("PodsReady", True, "Started")], None),
    ],
)
def test_admitted_workload_is_reconciled_again_when_pods_ready_timeout_ends(
    ready: list[dict[str, Any]], requeue_after: float | None
) -> None:
    assert plan_for(admitted(*ready), now=10) == ActionPlan(requeue_after=requeue_after)


def test_pods_ready_timeout_is_ignored_when_disabled() -> None:
    assert plan_for(admitted(), now=10_000, settings={"pods_ready": None}) == ActionPlan()


@pytest.mark.parametrize(
    ("ready", "cause"),
    [
        (condition("PodsReady", False, "WaitForStart"), "WaitForStart"),
        (condition("PodsReady", False, "WaitForRecovery"), "WaitForRecovery"),
    ],
)
def test_workload_is_evicted_when_pods_ready_timeout_is_exceeded(ready: dict[str, Any], cause: str) -> None:
    obj = admitted(ready, requeueState={"count": 1})
    plan = plan_for(obj, now=300)
    evicted = apply_plan(obj, plan)
    message = "Exceeded the PodsReady timeout ns/job-j-1"
    assert condition_of(evicted, "Evicted") == ("True", "PodsReadyTimeout", message)
    assert events_of(plan) == [("Normal", f"EvictedDueToPodsReadyTimeoutDueTo{cause}", message)]
    assert evicted["status"]["requeueState"] == {"count": 2, "requeueAt": timestamp(300 + 120)}
    assert evicted["status"]["schedulingStats"]["evictions"] == [
        {"reason": "PodsReadyTimeout", "underlyingCause": cause, "count": 1}
    ]


def test_new_leader_waits_before_it_evicts_for_pods_ready_timeout() -> None:
    obj = admitted(condition("PodsReady", False, "WaitForStart"))
    assert plan_for(obj, now=1010, acting_since=instant(1000)) == ActionPlan(requeue_after=20.0)
    evicted = apply_plan(obj, plan_for(obj, now=1030, acting_since=instant(1000)))
    assert (condition_of(evicted, "Evicted") or ("",))[:2] == ("True", "PodsReadyTimeout")
    short_timeout = {"pods_ready": replace(POLICY, timeout=2 * SECOND)}
    assert plan_for(obj, now=1000, acting_since=instant(1000), settings=short_timeout) == ActionPlan(
        requeue_after=2.0
    )


def test_workload_is_deactivated_when_backoff_limit_is_exceeded() -> None:
    final = settle(admitted(requeueState={"count": 2}), now=300)
    assert final["spec"]["active"] is False
    assert condition_of(final, "Evicted") == (
        "True",
        "DeactivatedDueToRequeuingLimitExceeded",
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    )
    assert "requeueState" not in final["status"]


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, 60), (2, 120), (3, 240), (4, 480), (5, 960), (6, 1920), (7, 3600), (8, 3600), (10**6, 3600)],
)
def test_pods_ready_backoff_doubles_up_to_maximum(count: int, seconds: int) -> None:
    assert POLICY.backoff_seconds(count) == seconds


def test_workload_is_deactivated_when_total_execution_time_is_exceeded() -> None:
    ready = condition("PodsReady", True, "Started")
    spec = {"maximumExecutionTimeSeconds": 100}
    obj = admitted(ready, spec=spec, accumulatedPastExecutionTimeSeconds=40)
    assert plan_for(obj, now=10) == ActionPlan(requeue_after=50.0)
    plan = plan_for(obj, now=60)
    exceeded = apply_plan(obj, plan)
    assert condition_of(exceeded, "DeactivationTarget") == (
        "True",
        "MaximumExecutionTimeExceeded",
        "exceeding the maximum execution time",
    )
    assert events_of(plan) == [
        ("Warning", "MaximumExecutionTimeExceeded", "The maximum execution time (100s) exceeded")
    ]
    final = settle(exceeded, now=61)
    assert condition_of(final, "Evicted")[1] == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "accumulatedPastExecutionTimeSeconds" not in final["status"]


@pytest.mark.parametrize(
    ("limit", "count", "reason"),
    [
        (None, 1000, "PodsReadyTimeout"),
        (0, None, "DeactivatedDueToRequeuingLimitExceeded"),
        (2, 1, "PodsReadyTimeout"),
        (2, 2, "DeactivatedDueToRequeuingLimitExceeded"),
    ],
)
def test_number_of_requeues_is_limited_only_when_configured(
    limit: int | None, count: int | None, reason: str
) -> None:
    obj = admitted(requeueState={} if count is None else {"count": count})
    settings = {"pods_ready": replace(POLICY, backoff_limit=limit)}
    assert condition_of(settle(obj, now=300, settings=settings), "Evicted")[1] == reason


def test_e_maximum_requeue_count_is_kept_at_next_eviction() -> None:
    settings = {"pods_ready": replace(POLICY, backoff_limit=None)}
    evicted = settle(admitted(AWAITED, requeueState={"count": 2**31 - 1}), now=300, settings=settings)
    assert condition_of(evicted, "Evicted")[1] == "PodsReadyTimeout"
    assert evicted["status"]["requeueState"]["count"] == 2**31 - 1


def test_workload_with_zero_timeout_and_backoff_is_evicted_and_requeued_at_once() -> None:
    policy = replace(POLICY, timeout=0, backoff_base_seconds=0)
    evicted = settle(admitted(AWAITED), settings={"pods_ready": policy})
    assert condition_of(evicted, "Evicted")[1] == "PodsReadyTimeout"
    assert condition_of(evicted, "Requeued") == BACKOFF_FINISHED
    assert evicted["status"]["requeueState"] == {"count": 1}
