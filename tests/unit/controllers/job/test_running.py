"""Readiness of pods and reclaimable pods of running jobs."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Patch
from tests.unit.controllers.builders import NAMES, admitted, condition, condition_of, job
from tests.unit.controllers.job.decisions import EVICTED, RUNNING, apply_plan, plan_for


@pytest.mark.parametrize(
    ("before", "status", "expected"),
    [
        ([], {"ready": 1}, None),
        ([], {"ready": 3}, ("True", "Started")),
        ([condition("PodsReady", False, "WaitForStart")], {"ready": 3}, ("True", "Started")),
        ([condition("PodsReady", True, "Started")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", False, "WaitForRecovery")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", False, "WaitForRecovery")], {"ready": 3}, ("True", "Recovered")),
        ([condition("PodsReady", True, "Recovered")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", True, "Started")], {"ready": 1, "succeeded": 2}, ("True", "Started")),
    ],
)
def test_pods_ready_condition_follows_readiness_of_job(
    before: Any, status: dict[str, Any], expected: Any
) -> None:
    obj = admitted(*before)
    pods_ready = condition_of(
        apply_plan(obj, plan_for(job(RUNNING, {"active": 3, **status}), obj)), "PodsReady"
    )
    assert (pods_ready and pods_ready[:2]) == expected


def test_readiness_is_not_reported_when_pods_ready_policy_is_disabled() -> None:
    plan = plan_for(job(RUNNING, {"ready": 3}), admitted(), settings={"pods_ready": None})
    assert plan == ActionPlan()


def test_readiness_is_not_reported_during_eviction() -> None:
    obj = admitted(condition("PodsReady", True, "Started"), EVICTED)
    stopping = job({**RUNNING, "suspend": True}, {"active": 1}, annotations={NAMES.stopping: "true"})
    assert plan_for(stopping, obj) == ActionPlan()


@pytest.mark.parametrize(
    ("status", "before", "expected"),
    [
        ({"succeeded": 1}, None, 1),
        ({"succeeded": 2}, [{"name": "main", "count": 1}], 2),
        ({"succeeded": 1}, [{"name": "main", "count": 2}], 2),
        ({}, None, None),
    ],
)
def test_reclaimable_pods_only_grow_while_quota_is_reserved(
    status: dict[str, Any], before: Any, expected: Any
) -> None:
    obj = admitted(condition("PodsReady", True, "Started"), **({"reclaimablePods": before} if before else {}))
    final = apply_plan(obj, plan_for(job(RUNNING, {"ready": 3, **status}), obj))
    expected = None if expected is None else [{"name": "main", "count": expected}]
    assert final["status"].get("reclaimablePods") == expected


def test_reclaimable_pods_are_written_with_their_own_field_manager() -> None:
    obj = admitted(condition("PodsReady", True, "Started"))
    [patch] = plan_for(job(RUNNING, {"ready": 3, "succeeded": 1}), obj).actions
    assert isinstance(patch, Patch)
    assert patch.concern == "reclaimable-pods"
