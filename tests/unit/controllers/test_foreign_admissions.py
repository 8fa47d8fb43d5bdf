"""Reservations and leftover fields that other programs wrote."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.indexes import BY_CLUSTER_QUEUE
from admitq.controllers.plan import ActionPlan, Patch, execute_plan, plan_of
from admitq.controllers.workload.controller import WorkloadController
from admitq.controllers.workload.steps import decide_workload
from admitq.integrations.base import PatchStep
from admitq.runtime.store import Key
from admitq.workloads.transitions import NOT_ALL_PODS_READY
from tests.unit.controllers.builders import (
    ADMISSION,
    KINDS,
    QUEUED,
    admitted,
    cluster_queue,
    condition,
    instant,
    local_queue,
    reserved,
    settings_with,
    workload,
)
from tests.unit.controllers.world import World

RELEASED = condition("QuotaReserved", False, "WaitingForQuota", "2 more needed")
AWAITED = condition("PodsReady", False, "WaitForStart", NOT_ALL_PODS_READY)
NOT_ADMITTED = condition("Admitted", False, "NoReservation", "The workload has no reservation")
REQUESTS = [{"name": "main", "resources": {"cpu": "3"}}]


def plan_for(obj: dict[str, Any]) -> ActionPlan:
    return decide_workload(obj, QUEUED, instant(10))


def patches(plan: ActionPlan) -> list[tuple[str, Any]]:
    """Return the concern of the field manager and the changed status of each write."""
    return [
        (action.concern, step.patch["status"])
        for action in plan.actions
        if isinstance(action, Patch)
        for step in action.steps
    ]


@pytest.mark.parametrize("state", ["Ready", "Pending"])
def test_a2_admitted_condition_is_written_by_the_manager_of_the_admission(state: str) -> None:
    check = {"name": "check", "state": state, "lastTransitionTime": "", "message": ""}
    checks = [{"name": "check"}]
    inputs = replace(QUEUED, cluster_queue=cluster_queue(checks=checks))
    [(concern, status)] = patches(decide_workload(reserved(admissionChecks=[check]), inputs, instant(10)))
    assert concern == "admission"
    assert "Admitted" in {item["type"] for item in status["conditions"]}


def test_a2_reservation_without_admission_is_not_admitted() -> None:
    assert plan_for(reserved(AWAITED, admission=None)).actions == ()


def test_a2_requests_that_another_program_left_are_removed_once_admitted() -> None:
    assert patches(plan_for(admitted(AWAITED, resourceRequests=REQUESTS))) == [
        ("admission", {"resourceRequests": None})
    ]
    assert plan_for(admitted(AWAITED)).actions == ()


def test_a2_leftover_admission_is_removed_with_the_next_write() -> None:
    obj = workload(RELEASED, admission=ADMISSION)
    [(concern, status)] = patches(plan_for(obj))
    assert (concern, status["admission"]) == ("admission", None)
    assert plan_for(workload(RELEASED, NOT_ADMITTED, admission=ADMISSION)).actions == ()


async def test_a2_leftover_admission_does_not_name_the_cluster_queue() -> None:
    world = World()
    stored = {"uid": "u", "resourceVersion": "1"}
    world.put(KINDS.local_queues, local_queue(**stored))
    world.put(KINDS.cluster_queues, cluster_queue(**stored))
    leftover = {**ADMISSION, "clusterQueue": "gone"}
    obj = workload(RELEASED, NOT_ADMITTED, admission=leftover)
    world.put(KINDS.workloads, obj)
    await WorkloadController(world.ctx, world.core).reconcile(Key("ns", "job-j-1"))
    assert world.calls == []


def test_a2_workload_with_leftover_admission_is_not_indexed_by_its_cluster_queue() -> None:
    world = World()
    store = world.stores.of(KINDS.workloads)
    world.put(KINDS.workloads, workload(RELEASED, admission=ADMISSION))
    assert list(store.keys_by_index(BY_CLUSTER_QUEUE, "cq")) == []
    world.put(KINDS.workloads, reserved(metadata={"resourceVersion": "8"}))
    assert len(list(store.keys_by_index(BY_CLUSTER_QUEUE, "cq"))) == 1


@pytest.mark.parametrize(("merge_patches", "call"), [(False, "apply"), (True, "patch")])
async def test_a2_gate_decides_how_the_admission_is_written(merge_patches: bool, call: str) -> None:
    world = World(settings_with(merge_patches=merge_patches))
    obj = reserved()
    world.put(KINDS.workloads, obj)
    change = {"status": {"conditions": [*obj["status"]["conditions"], NOT_ADMITTED]}}
    await execute_plan(
        world.ctx, plan_of(Patch(KINDS.workloads, obj, (PatchStep(change, "status"),), "admission"))
    )
    assert world.calls == [f"{call} workloads/job-j-1/status"]
    written = world.get(KINDS.workloads, "job-j-1")["status"]
    assert written["admission"] == ADMISSION
    assert NOT_ADMITTED in written["conditions"]
