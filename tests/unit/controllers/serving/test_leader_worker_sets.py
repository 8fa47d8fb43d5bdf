"""Workloads and pods of LeaderWorkerSets."""

from typing import Any

import pytest

from admitq.controllers.plan import Create, Delete, Patch, RemoveFinalizer
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.workload_names import create_workload_name
from tests.unit.controllers.builders import NAMES, condition, workload
from tests.unit.controllers.serving.objects import held_template, lws, lws_pod, owned, plan_for


def lws_name(index: int) -> str:
    return create_workload_name("LeaderWorkerSet", "leaderworkerset.x-k8s.io", f"l-{index}", "uid-l")


def test_each_group_of_leader_worker_set_gets_workload() -> None:
    plan = plan_for(lws(), kind=LEADER_WORKER_SET)
    workloads: list[Any] = [action.obj for action in plan.actions if isinstance(action, Create)]
    first, second = (obj["metadata"] for obj in workloads)
    assert [first["name"], second["name"]] == [lws_name(0), lws_name(1)]
    index, owner_name = NAMES.component_workload_index, NAMES.job_owner_name
    assert [first["annotations"][index], second["annotations"][index]] == ["0", "1"]
    assert first["annotations"][owner_name] == second["annotations"][owner_name] == "l"
    assert first["ownerReferences"][0]["name"] == "l"
    pod_sets = workloads[0]["spec"]["podSets"]
    assert [(pod_set["name"], pod_set["count"]) for pod_set in pod_sets] == [("leader", 1), ("worker", 2)]


def test_group_without_leader_template_has_one_podset() -> None:
    create = plan_for(lws(1, leader=False), kind=LEADER_WORKER_SET).actions[0]
    assert isinstance(create, Create)
    pod_sets = create.obj["spec"]["podSets"]
    assert [(pod_set["name"], pod_set["count"]) for pod_set in pod_sets] == [("main", 3)]


def of_group(index: int, **parts: Any) -> dict[str, Any]:
    job = lws()
    template = held_template("leaderworkerset")
    pod_sets = [
        {"name": "leader", "count": 1, "template": template},
        {"name": "worker", "count": 2, "template": template},
    ]
    return owned(workload(name=lws_name(index), spec={"podSets": pod_sets}, **parts), job, str(index))


def test_pods_of_leader_worker_set_are_marked_with_group_and_role() -> None:
    pods = [lws_pod(0, 0), lws_pod(0, 1), lws_pod(1, 2)]
    plan = plan_for(lws(), of_group(0), of_group(1), pods=pods, kind=LEADER_WORKER_SET)
    marks: dict[str, Any] = {}
    for action in plan.actions:
        assert isinstance(action, Patch)
        metadata = action.steps[0].patch["metadata"]
        marks[action.obj["metadata"]["name"]] = (
            metadata["annotations"][NAMES.pod_group_name],
            metadata["annotations"][NAMES.role_hash],
            metadata["annotations"][NAMES.pod_group_total_count],
        )
    assert marks == {
        "l-0-0": (lws_name(0), "leader", "3"),
        "l-0-1": (lws_name(0), "worker", "3"),
        "l-1-2": (lws_name(1), "worker", "3"),
    }


@pytest.mark.parametrize(
    ("state", "actions"),
    [
        ({}, [Delete]),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, [RemoveFinalizer]),
    ],
)
def test_workload_of_removed_group_is_deleted_or_released(state: Any, actions: Any) -> None:
    plan = plan_for(lws(1), of_group(0), of_group(1, **state), kind=LEADER_WORKER_SET)
    assert [type(action) for action in plan.actions] == actions


@pytest.mark.parametrize(
    ("updating", "surge", "is_created"),
    [(True, 1, True), (True, "50%", True), (True, 0, False), (False, 1, False)],
)
def test_rollout_creates_workloads_for_surge_groups(updating: bool, surge: Any, is_created: bool) -> None:
    status = {"conditions": [condition("UpdateInProgress", updating, "x")]}
    strategy = {"rollingUpdateConfiguration": {"maxSurge": surge}}
    job = lws(status=status, rolloutStrategy=strategy)
    plan = plan_for(job, of_group(0), of_group(1), pods=[lws_pod(2, 0)], kind=LEADER_WORKER_SET)
    created = [action.obj["metadata"]["name"] for action in plan.actions if isinstance(action, Create)]
    assert created == ([lws_name(2)] if is_created else [])
