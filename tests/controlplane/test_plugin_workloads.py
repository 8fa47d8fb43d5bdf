"""``kubectl admitq hold``, ``release`` and ``move``, and completion with live names."""

from typing import Any

import pytest

from admitq.runtime.resources import JOBS
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.stage import Stage, condition_of
from tests.controlplane.user_programs import kubectl


async def pending_workload(stage: Stage, job: str = "j", **options: Any) -> str:
    """Create a job, and return the name of its Workload."""
    await stage.job(job, **options)
    await stage.until_workload_exists(job)
    return (await stage.workload(job))["metadata"]["name"]


async def test_held_workload_is_admitted_after_its_release(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues(cpu=1)
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"stopPolicy": "Hold"}})
    await stage.until_active(stage.kinds.cluster_queues, stage.own("cq"), active=False)
    name = await pending_workload(stage)
    shown = f"workload.{stage.names.group}/{name}"
    assert await plugin("hold", "workload", name) == f"{shown} held\n"
    assert await plugin("hold", "kwl", name) == f"{shown} is held already\n"
    await plugin("resume", "cq", stage.own("cq"))
    await stage.until_active(stage.kinds.cluster_queues, stage.own("cq"))
    # A later job is admitted, and the held one is not.
    await stage.job("later")
    await stage.until_running("later")
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is True
    with pytest.raises(AssertionError, match=r"has quota of ClusterQueue .*\nkubectl admitq stop workload"):
        await plugin("hold", "kwl", (await stage.workload("later"))["metadata"]["name"])
    assert await plugin("release", "workload", name) == f"{shown} released\n"
    assert await plugin("release", "workload", name) == f"{shown} is not held\n"
    await stage.client.delete(JOBS, "later", stage.namespace, propagation="Background")
    await stage.until_running()


async def test_released_gates_let_a_job_be_admitted(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    gates = {"annotations": {stage.names.admission_gated_by: "example.com/a,example.com/b"}}
    await stage.job(metadata={**gates, "labels": {stage.names.queue_name: "lq"}})
    await stage.until_workload_exists()
    name = (await stage.workload())["metadata"]["name"]
    with pytest.raises(
        AssertionError, match=r"has the gates example.com/a, example.com/b\n.* --gate example.com/a"
    ):
        await plugin("release", "workload", name)
    with pytest.raises(AssertionError, match=r"has no gate 'example.com/c'\nIt has example.com/a"):
        await plugin("release", "workload", name, "--gate", "example.com/c")
    shown = f"workload.{stage.names.group}/{name} released\n"
    assert await plugin("release", "workload", name, "--gate=example.com/a") == shown

    async def gates_of_workload() -> Any:
        return (await stage.workload())["metadata"].get("annotations", {}).get(stage.names.admission_gated_by)

    await stage.until(gates_of_workload, "example.com/b")
    assert await plugin("release", "workload", name, "--gate=example.com/b") == shown
    await stage.until_running()


async def test_moved_workload_is_admitted_by_the_other_queue(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.closed_queue()
    name = await pending_workload(stage, queue="closed")
    shown = f"workload.{stage.names.group}/{name}"
    with pytest.raises(AssertionError, match=r'error: --to: .*"missing" not found\nkubectl get localqueues'):
        await plugin("move", "workload", name, "--to", "missing")
    assert await plugin("move", "workload", name, "--to", "lq") == f"{shown} moved to localqueue lq\n"
    assert (await stage.get(JOBS, "j"))["metadata"]["labels"][stage.names.queue_name] == "lq"
    await stage.until_running()
    with pytest.raises(AssertionError, match=r"its queue cannot change\nStop it first"):
        await plugin("move", "kwl", name, "--to", "closed")


async def test_workload_without_job_moves(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.closed_queue()
    template = {"spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
    spec = {"queueName": "closed", "podSets": [{"name": "main", "count": 1, "template": template}]}
    await stage.create(stage.kinds.workloads, "alone", {"spec": spec})
    assert (await plugin("move", "workload", "alone", "--to", "lq")).endswith("moved to localqueue lq\n")

    async def is_reserved() -> bool:
        found = condition_of(await stage.get(stage.kinds.workloads, "alone"), "QuotaReserved")
        return found is not None and found[0] == "True"

    await stage.until(is_reserved)


async def test_kubectl_completes_commands_options_and_live_names(
    stage: Stage, plugin: Plugin, admitq_running: Installation
) -> None:
    await stage.active_queues()
    assert (await plugin("version", "--client")).startswith("Client version")
    cluster, space = admitq_running.cluster, f"--namespace={stage.namespace}"

    async def completed(*words: str) -> list[str]:
        lines = (await kubectl(cluster, "__complete", "admitq", *words)).splitlines()
        assert lines[-1] == ":4", lines
        return [line.partition("\t")[0] for line in lines[:-1]]

    assert await completed("sto") == ["stop"]
    assert await completed("stop", "l") == ["localqueue"]
    assert await completed("stop", "lq", space, "") == ["lq"]
    assert await completed("stop", "lq", "-n", stage.namespace, "x") == []
    assert stage.own("cq") in await completed("create", "lq", "new", "-c", "")
    assert stage.namespace in await completed("list", "workloads", "--namespace=")
