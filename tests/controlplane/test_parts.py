"""Partial installations: core, job controllers and webhooks separately; objects in any order."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from admitq.runtime.resources import JOBS, Resource
from admitq_api.conditions import format_time
from localcluster.installation import Installation
from tests.controlplane.disabled_webhooks import disabled_webhooks
from tests.controlplane.pods_of_jobs import set_pod_status
from tests.controlplane.stage import Stage, condition_of

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True)

OWN_LEASE = "jobs"
"""The lease of the process that runs the job controllers alone."""


def pod_sets(cpu: str) -> list[dict[str, Any]]:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}
    return [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]


async def create_workload(stage: Stage, name: str = "w", *, cpu: str = "1") -> dict[str, Any]:
    """Create a Workload that no job owns."""
    return await stage.create(
        stage.kinds.workloads, name, {"spec": {"queueName": "lq", "podSets": pod_sets(cpu)}}
    )


async def until_workload(stage: Stage, type_: str, status: str, name: str = "w") -> dict[str, Any]:
    """Wait until a condition of a Workload that no job owns has this status."""

    async def found() -> str:
        condition = condition_of(await stage.get(stage.kinds.workloads, name), type_)
        return condition[0] if condition else ""

    await stage.until(found, status, what=f"condition {type_} of {name}")
    return await stage.get(stage.kinds.workloads, name)


def reserved(stage: Stage, cpu: str = "1") -> dict[str, Any]:
    """The status that another program writes when it reserves quota."""
    now = format_time(time.time_ns())
    admitted = {"status": "True", "message": "", "lastTransitionTime": now}
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": cpu},
    }
    return {
        "admission": {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]},
        "conditions": [
            {**admitted, "type": type_, "reason": type_} for type_ in ("QuotaReserved", "Admitted")
        ],
    }


async def allow_lease(stage: Stage, installation: Installation) -> None:
    """Let the manager's account use a second lease; the chart allows the one of its configuration."""
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rule = {**leases, "verbs": ["get", "update"], "resourceNames": [OWN_LEASE]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": OWN_LEASE}
    account = {
        "kind": "ServiceAccount",
        "name": f"{installation.prefix}-manager",
        "namespace": installation.namespace,
    }
    for resource, fields in (
        (ROLES, {"rules": [rule]}),
        (ROLE_BINDINGS, {"roleRef": role, "subjects": [account]}),
    ):
        metadata = {"name": OWN_LEASE, "namespace": installation.namespace}
        await stage.client.create(
            resource,
            {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields},
        )


@pytest.fixture
async def start_parts(admitq_alone: Installation) -> AsyncGenerator[Callable[..., Any]]:
    """A function that starts a manager with some components; the manager with all components is stopped."""
    running: list[int] = []
    await asyncio.to_thread(admitq_alone.stop, ("manager",))

    async def start(components: str, **config: Any) -> None:
        replica = len(running)
        running.append(replica)
        await asyncio.to_thread(
            admitq_alone.start,
            ("manager",),
            replica=replica,
            arguments=(f"--components={components}",),
            config=config,
        )

    yield start
    for replica in running:
        await asyncio.to_thread(admitq_alone.stop, ("manager",), replica=replica)
    await asyncio.to_thread(admitq_alone.start, ("manager",))


@asynccontextmanager
async def without_webhooks(stage: Stage, installation: Installation) -> AsyncGenerator[None]:
    """Stop the webhook process and remove its configurations within a block."""
    await asyncio.to_thread(installation.stop, ("webhook",))
    try:
        async with disabled_webhooks(stage.client, stage.names):
            yield
    finally:
        await asyncio.to_thread(installation.start, ("webhook",))


async def test_e_core_and_jobs_in_separate_processes_run_a_job_to_its_end(
    admitq_alone: Installation, start_parts: Callable[..., Any], stage_alone: Stage
) -> None:
    stage = stage_alone
    await start_parts("core,cycle")
    await stage.queues()
    await stage.job()
    # Without job controllers the queues admit Workloads. A job stays suspended and has no Workload.
    await create_workload(stage)
    await until_workload(stage, "Admitted", "True")
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is True
    assert await stage.workloads() == []

    await allow_lease(stage, admitq_alone)
    await start_parts("jobs", leaderElection={"resourceName": OWN_LEASE})
    await stage.until_condition("Admitted", "Admitted")
    await stage.until_running()
    await set_pod_status(stage, ready=True)
    await stage.until_condition("PodsReady", "Started")
    await set_pod_status(stage, phase="Succeeded")
    await stage.until_finished()

    async def admitted() -> int:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
        return status["admittedWorkloads"]

    await stage.until(admitted, 1, what="the ClusterQueue counts the Workload without a job alone")


async def test_e_job_controllers_without_core_start_and_stop_a_job_that_another_program_admits(
    start_parts: Callable[..., Any], stage_alone: Stage
) -> None:
    stage = stage_alone
    await start_parts("jobs")
    await stage.queues()
    await stage.job()
    await stage.until_workload_exists()
    name = (await stage.workload())["metadata"]["name"]
    assert condition_of(await stage.workload(), "QuotaReserved") is None, "no controller writes why it waits"

    status = reserved(stage)
    await stage.change(stage.kinds.workloads, name, {"status": status}, "status")
    await stage.until_running()
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "by another program",
        "lastTransitionTime": format_time(time.time_ns()),
    }
    conditions = [*status["conditions"], evicted]
    await stage.change(stage.kinds.workloads, name, {"status": {"conditions": conditions}}, "status")
    await stage.until_running(running=False)
    await stage.until_condition("QuotaReserved", "PendingEvaluation")


async def test_e_webhooks_without_controllers_suspend_jobs_and_accept_workloads(
    admitq_alone: Installation, start_parts: Callable[..., Any], stage_alone: Stage
) -> None:
    stage = stage_alone
    await stage.queues(cpu=2)
    assert (await stage.job())["spec"]["suspend"] is True
    created = await create_workload(stage)
    assert created["spec"].get("active", True)
    await stage.change(stage.kinds.workloads, "w", {"status": reserved(stage)}, "status")
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is True
    assert await stage.workloads() == []
    webhook = admitq_alone.process("webhook")
    assert webhook is not None
    assert webhook.alive()

    # Controllers that start later continue from this state.
    await start_parts("core,jobs,cycle")
    await stage.until_running()

    async def reserving() -> int:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq"))).get("status") or {}
        return status.get("reservingWorkloads", 0)

    await stage.until(reserving, 2, what="the ClusterQueue counts both Workloads")


async def test_e_controllers_without_webhooks_admit_workloads_and_start_suspended_jobs(
    admitq_alone: Installation, stage_alone: Stage
) -> None:
    stage = stage_alone
    async with without_webhooks(stage, admitq_alone):
        await stage.queues()
        await create_workload(stage)
        await until_workload(stage, "Admitted", "True")
        await stage.job(suspend=True)
        await stage.until_running()
        await set_pod_status(stage, phase="Succeeded")
        await stage.until_finished()


async def test_e_workload_created_before_its_queues_and_flavor_is_admitted(stage: Stage) -> None:
    await create_workload(stage)
    await until_workload(stage, "QuotaReserved", "False")
    await stage.local_queue()
    await stage.cluster_queue()
    await stage.until_active(stage.kinds.cluster_queues, stage.own("cq"), active=False)
    await stage.flavor()
    await until_workload(stage, "Admitted", "True")


async def test_e_flavor_without_queues_is_not_held_when_deleted(stage: Stage) -> None:
    await stage.flavor()
    await stage.client.delete(stage.kinds.resource_flavors, stage.own("f"))
    await stage.until_gone(stage.kinds.resource_flavors, stage.own("f"))
