"""StatefulSets that are scaled to zero and up again."""

from typing import Any

import pytest

from admitq.controllers.plan import Delete, Patch
from tests.unit.controllers.builders import condition, reserved, workload
from tests.unit.controllers.serving.objects import of_set, only_patch, plan_for, pod, stateful_set

ON_HOLD = condition("QuotaReserved", False, "OnHold", "StatefulSet scaled to zero; workload on hold")


def test_stateful_set_scaled_to_zero_releases_quota_and_is_queued_when_scaled_up() -> None:
    empty, job = stateful_set(0), stateful_set()
    status = only_patch(plan_for(empty, of_set(reserved(), empty)))["status"]
    quota = next(item for item in status["conditions"] if item["type"] == "QuotaReserved")
    assert (quota["status"], quota["reason"], quota["message"]) == (
        "False",
        "OnHold",
        "StatefulSet scaled to zero; workload on hold",
    )
    assert status["admission"] is None
    assert plan_for(empty, of_set(workload(ON_HOLD), empty)).actions == ()
    quota = only_patch(plan_for(job, of_set(workload(ON_HOLD), job)))["status"]["conditions"][0]
    assert quota["message"] == "Workload no longer on hold; waiting for quota reservation"


@pytest.mark.parametrize(
    ("replicas", "pods", "deleted"), [(0, [], True), (0, [pod(held=False)], False), (3, [], False)]
)
def test_finished_workload_of_a_stateful_set_is_deleted_when_it_is_scaled_to_zero(
    replicas: int, pods: Any, deleted: bool
) -> None:
    job = stateful_set(replicas)
    finished = of_set(workload(condition("Finished", True, "Failed", "by another program")), job)
    actions = plan_for(job, finished, pods=pods).actions
    assert [type(action) for action in actions if not isinstance(action, Patch)] == (
        [Delete] if deleted else []
    )


def test_stateful_set_scaled_to_zero_keeps_quota_while_its_pods_run() -> None:
    empty = stateful_set(0)
    stored = of_set(reserved(), empty)
    plan = plan_for(empty, stored, pods=[pod(held=False)])
    assert [action for action in plan.actions if getattr(action, "obj", {}).get("kind") == "Workload"] == []
    ended = {**pod(held=False), "status": {"phase": "Succeeded"}}
    assert only_patch(plan_for(empty, stored, pods=[ended]))["status"]["admission"] is None


def test_deactivated_workload_of_set_scaled_to_zero_is_not_put_on_hold() -> None:
    """If each of two controllers wrote its own reason, they would overwrite each other forever."""
    empty = stateful_set(0)
    deactivated = condition("QuotaReserved", False, "Deactivated", "The workload is deactivated")
    for quota in (deactivated, ON_HOLD):
        assert plan_for(empty, of_set(workload(quota, spec={"active": False}), empty)).actions == ()


def test_workload_on_hold_follows_pod_count_before_it_is_queued_again() -> None:
    job = stateful_set(5)
    patch = only_patch(plan_for(job, of_set(workload(ON_HOLD), job), pods=[pod()]))
    assert patch["spec"]["podSets"][0]["count"] == 5
