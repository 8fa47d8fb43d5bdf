"""Other programs reserve and release quota of the same Workloads, by every kind of write."""

import time
from typing import Any

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, condition_of

ANOTHER_PROGRAM = "another-program"


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    written = format_time(time.time_ns())
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "by hand",
        "lastTransitionTime": written,
    }


RELEASED = ("QuotaReserved", "False", "Pending")
RESERVED = ("QuotaReserved", "True", "QuotaReserved")
NO_LONGER_EVICTED = ("Evicted", "False", "QuotaReserved")


def admission_in(stage: Stage) -> dict[str, Any]:
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": "1"},
    }
    return {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}


async def apply_status(
    stage: Stage, manager: str, *written: tuple[str, str, str], **status: Any
) -> dict[str, Any]:
    """Apply the status of the Workload of ``j`` as another program would, and return the answer."""
    workloads = stage.kinds.workloads
    name = (await stage.workload())["metadata"]["name"]
    applied = {
        "apiVersion": workloads.api_version,
        "kind": workloads.kind,
        "metadata": {"name": name, "namespace": stage.namespace},
        "status": {"conditions": [condition(*one) for one in written], **status},
    }
    return await stage.client.apply(workloads, applied, field_manager=manager, subresource="status")


async def until_running(stage: Stage) -> dict[str, Any]:
    """Wait until the Workload of ``j`` is admitted and its Job runs; return the Workload."""

    async def running() -> dict[str, Any]:
        workload = await stage.workload()
        assert (condition_of(workload, "Admitted") or ("",))[0] == "True", workload["status"]
        assert value_at(workload, ("status", "admission", "clusterQueue")) == stage.own("cq")
        assert not (await stage.get(JOBS, "j"))["spec"]["suspend"]
        return workload

    return await eventually(running, what="the Job to run")


async def until_waiting(stage: Stage) -> dict[str, Any]:
    """Wait until the Workload of ``j`` has neither quota nor an admission; return it."""

    async def waiting() -> dict[str, Any]:
        workload = await stage.workload()
        assert (condition_of(workload, "QuotaReserved") or ("",))[0] == "False", workload["status"]
        assert "admission" not in workload["status"], workload["status"]
        assert (await stage.get(JOBS, "j"))["spec"]["suspend"]
        queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
        assert value_at(queue, ("status", "reservingWorkloads")) == 0
        return workload

    return await eventually(waiting, what="the Workload to wait")


async def set_quota(stage: Stage, cpu: int) -> None:
    flavor = {"name": stage.own("f"), "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"resourceGroups": groups}})


async def set_active(stage: Stage, active: bool) -> None:
    name = (await stage.workload())["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": active}})


async def test_a2_reservation_of_another_program_is_released_completely(stage: Stage) -> None:
    manager = stage.names.field_manager("admission")
    await stage.queues(cpu=1)
    await stage.job()
    await _apply_without_admission_by_same_manager_is_undone(stage, manager)
    await _admission_without_reservation_holds_nothing_and_is_removed(stage)
    for field_manager in (ANOTHER_PROGRAM, manager):
        await _reservation_of_another_program_is_released(stage, field_manager)


async def _apply_without_admission_by_same_manager_is_undone(stage: Stage, manager: str) -> None:
    admitted = await until_running(stage)
    owners = [
        one["manager"]
        for one in admitted["metadata"]["managedFields"]
        if one["operation"] == "Apply" and "f:admission" in value_at(one, ("fieldsV1", "f:status"), {})
    ]
    assert owners == [manager]
    released = await apply_status(stage, manager, RELEASED)
    assert "admission" not in released["status"]
    readmitted = await until_running(stage)
    assert readmitted["metadata"]["resourceVersion"] != released["metadata"]["resourceVersion"]


async def _admission_without_reservation_holds_nothing_and_is_removed(stage: Stage) -> None:
    await set_quota(stage, 0)

    async def released() -> bool:
        before = await stage.workload()
        others = [one for one in before["status"]["conditions"] if one["type"] != "QuotaReserved"]
        status = {**before["status"], "conditions": [*others, condition(*RELEASED)]}
        try:
            written = await stage.client.replace(
                stage.kinds.workloads, {**before, "status": status}, "status"
            )
        except ApiError as error:
            if not error.is_conflict:
                raise
            return False
        return "admission" in written["status"]

    await eventually(released, what="the condition to be written alone")
    await until_waiting(stage)

    async def requests() -> Any:
        return (await stage.workload())["status"].get("resourceRequests")

    await stage.until(requests, [{"name": "main", "resources": {"cpu": "1"}}])
    await set_quota(stage, 1)
    admitted = await until_running(stage)
    assert "resourceRequests" not in admitted["status"]
    await set_quota(stage, 0)
    await set_active(stage, False)
    await until_waiting(stage)
    await set_active(stage, True)


async def _reservation_of_another_program_is_released(stage: Stage, field_manager: str) -> None:
    await until_waiting(stage)
    await apply_status(stage, field_manager, RESERVED, NO_LONGER_EVICTED, admission=admission_in(stage))
    await until_running(stage)
    await set_active(stage, False)
    released = await until_waiting(stage)
    assert condition_of(released, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    await set_active(stage, True)
    # This write does not list the conditions of the eviction.
    await apply_status(stage, field_manager, RELEASED)
    await until_waiting(stage)
