"""Readiness of pods and reclaimable pods of running jobs."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Patch
from admitq.integrations.kinds.jobset import JOBSET
from tests.unit.controllers.builders import NAMES, TEMPLATE, admitted, condition, condition_of, job
from tests.unit.controllers.job.decisions import (
    EVICTED,
    RUNNING,
    RUNNING_TEMPLATE,
    apply_plan,
    events_of,
    plan_for,
)


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


def _resumed_jobset(assigned: int, ended: int, **pod_set: Any) -> ActionPlan:
    """Return the plan for a running JobSet of three pods. Its admission does not count ended pods."""
    pods = {"parallelism": 3, "completions": 3, "template": RUNNING_TEMPLATE}
    running = {"suspend": False, "replicatedJobs": [{"name": "main", "template": {"spec": pods}}]}
    jobset = {**job(), "kind": "JobSet", "spec": running}
    obj = admitted(
        spec={"podSets": [{"name": "main", "count": 3, "template": TEMPLATE, **pod_set}]},
        admission={"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": assigned}]},
        reclaimablePods=[{"name": "main", "count": ended}],
    )
    settings = {"pods_ready": None}
    return plan_for(jobset, obj, integration=JOBSET, settings=settings)


@pytest.mark.parametrize(("assigned", "ended"), [(2, 1), (0, 3), (2, 2), (3, 0)])
def test_job_resumed_after_pods_ended_keeps_running(assigned: int, ended: int) -> None:
    assert events_of(_resumed_jobset(assigned, ended)) == []


@pytest.mark.parametrize(("assigned", "ended", "pod_set"), [(1, 1, {}), (2, 0, {}), (2, 1, {"minCount": 1})])
def test_job_that_runs_more_pods_than_assigned_and_ended_is_stopped(
    assigned: int, ended: int, pod_set: dict[str, Any]
) -> None:
    exceeds = ("ExceedsAdmission", f"podset main requests 3 pods, {assigned} admitted")
    assert exceeds in events_of(_resumed_jobset(assigned, ended, **pod_set))
