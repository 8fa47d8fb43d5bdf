"""Questions of ``kubectl admitq`` about a running cluster, and about its dump."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.kinds import list_core_resources
from admitq.runtime.resources import JOBS, NODES, PODS
from admitq_api.labels import DEFAULT_GROUP
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.documented_commands import (
    comparable,
    documented_commands,
    one_runs_and_one_waits,
    run_in_shell,
    with_names,
)
from tests.controlplane.stage import Stage
from tests.controlplane.tenants import tenant
from tests.controlplane.user_programs import kubectl

FINISHED = '"event":"state dump: finished"'
"""The last line of a state dump in a log."""


async def waiting_behind_a_running_job(stage: Stage) -> str:
    """Create a job that runs and one that waits for its quota, and return the Workload that waits."""
    await stage.active_queues()
    await stage.job("first", cpu=3)
    await stage.until_running("first")
    await stage.job("second", cpu=2)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    return (await stage.workload("second"))["metadata"]["name"]


async def test_explanation_of_the_cluster_is_that_of_its_dump(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    name = await waiting_behind_a_running_job(stage)
    shown = await plugin("explain", "job/second")
    assert f"Workload {stage.namespace}/{name}: Pending" in shown
    assert "cpu: requests 2, 1 free of at most 4: 1 missing" in shown
    assert await plugin("explain", name) == shown
    assert await plugin("explain", "workload", name) == shown
    completed = await kubectl(
        admitq_running.cluster, "__complete", "admitq", "explain", f"--namespace={stage.namespace}", ""
    )
    assert {"job/first", "job/second", name} <= set(completed.splitlines())
    document = json.loads(await plugin("explain", name, "-o", "json"))
    assert "\n".join([*document["text"], ""]) == shown
    wanted = ",".join(map(str, (*list_core_resources(stage.kinds), NODES, PODS)))
    dump = tmp_path / "dump.yaml"
    dump.write_text(await kubectl(admitq_running.cluster, "get", wanted, "-A", "-o", "yaml"))
    from_dump = ("job/second", f"--from={dump}", f"--api-group={stage.names.group}")
    assert await plugin("explain", *from_dump) == shown
    live, dumped = await plugin("eta", name), await plugin("eta", *from_dump)
    assert live.splitlines()[0] == dumped.splitlines()[0] == f"Workload {stage.namespace}/{name}"
    assert all("not before " in each for each in (live, dumped))


async def test_explanation_of_the_cluster_is_that_of_the_state_dump_of_its_manager(
    stage: Stage, plugin: Plugin, admitq_running: Installation
) -> None:
    name = await waiting_behind_a_running_job(stage)
    log = admitq_running.log("manager")
    finished = log.read_text().count(FINISHED)
    manager = admitq_running.process("manager")
    assert manager is not None
    manager.signal(signal.SIGUSR2)

    async def is_dumped() -> bool:
        return log.read_text().count(FINISHED) > finished

    await stage.until(is_dumped)
    assert await plugin("explain", name, f"--from={log}") == await plugin("explain", name)


async def test_missing_workload_is_reported(stage: Stage, plugin: Plugin) -> None:
    with pytest.raises(AssertionError, match=f"error: workload {stage.namespace}/missing does not exist\n"):
        await plugin("explain", "missing")
    with pytest.raises(AssertionError, match="error: no job/missing exists\n"):
        await plugin("explain", "job/missing")


async def test_commands_about_a_waiting_job_print_the_documented_output(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    if stage.names.group != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    workloads = await one_runs_and_one_waits(stage)
    commands = documented_commands("why-is-it-pending.md", stage)
    assert len(commands) == 4
    for part in commands:
        command, _, expected = with_names(part, workloads).partition("\n")
        shown = await run_in_shell(admitq_running, command, tmp_path)
        assert comparable(shown) == comparable(expected), command


def job_manifest(
    stage: Stage, name: str, *, cpu: Any, queue: str | None = "lq", **spec: Any
) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {} if queue is None else {stage.names.queue_name: queue}
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


async def test_checked_jobs_have_the_verdicts_of_the_api_server_and_of_the_core(
    stage: Stage, plugin: Plugin, tmp_path: Path
) -> None:
    await waiting_behind_a_running_job(stage)
    file = tmp_path / "jobs.json"

    async def check(*objects: dict[str, Any]) -> str:
        file.write_text("\n---\n".join(map(json.dumps, objects)))
        return await plugin("check", f"--filename={file}")

    fits = job_manifest(stage, "fits", cpu=1)
    shown = await check(fits, job_manifest(stage, "unqueued", cpu=1, queue=None))
    assert shown.splitlines() == [
        f"Job {stage.namespace}/fits: would be admitted now",
        f"  Queues: LocalQueue {stage.namespace}/lq, ClusterQueue {stage.own('cq')}",
        f"  Podset main: 1 pod, cpu of flavor {stage.own('f')}",
        f"Job {stage.namespace}/unqueued: accepted, and not queued, because it names no queue",
    ]
    with pytest.raises(AssertionError, match=f"Job {stage.namespace}/large: would wait\n  Starts: ") as waits:
        await check(job_manifest(stage, "large", cpu=2))
    assert "cpu: requests 2, 1 free of at most 4: 1 missing" in str(waits.value)
    with pytest.raises(AssertionError, match=f"Job {stage.namespace}/huge: would never be admitted\n"):
        await check(job_manifest(stage, "huge", cpu=9))
    with pytest.raises(AssertionError, match=f"Job {stage.namespace}/first: refused\n  .*already exists"):
        await check(job_manifest(stage, "first", cpu=1))
    refused = job_manifest(stage, "bad", cpu=1)
    refused["metadata"]["labels"][stage.names.max_exec_time] = "soon"
    with pytest.raises(
        AssertionError, match=f"Job {stage.namespace}/bad: refused\n  admission webhook .* denied"
    ):
        await check(refused)
    assert [one["metadata"]["name"] for one in (await stage.client.list(JOBS, stage.namespace))[0]] == [
        "first",
        "second",
    ]


async def test_exit_status_of_check_is_the_verdict(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    await waiting_behind_a_running_job(stage)
    command = f"kubectl admitq check -f job.json -n {stage.namespace} > /dev/null; echo $?"
    for cpu, status in ((1, 0), (2, 3), (9, 4)):
        (tmp_path / "job.json").write_text(json.dumps(job_manifest(stage, "new", cpu=cpu)))
        assert await run_in_shell(admitq_running, command, tmp_path) == f"{status}\n", cpu


async def test_user_of_one_namespace_learns_which_objects_are_refused(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    name = await waiting_behind_a_running_job(stage)
    kubeconfig = json.loads(admitq_running.cluster.kubeconfig.read_bytes())
    (tmp_path / "jobs.json").write_text(json.dumps(job_manifest(stage, "new", cpu=1)))
    async with tenant(stage, admitq_running.cluster) as own:
        kubeconfig["users"][0]["user"]["as"] = f"tenant-{own.namespace}"
        (tmp_path / "kubeconfig.json").write_text(json.dumps(kubeconfig))
        options = f"--kubeconfig=kubeconfig.json --namespace={stage.namespace}"
        check = f"kubectl admitq check -f jobs.json {options}; echo $?"
        accepted = await run_in_shell(admitq_running, check, tmp_path)
        assert accepted.startswith("error: all objects are accepted, but whether jobs would run is unknown: ")
        assert accepted.endswith("or for the visibility API, which needs less.\n1\n")
        refused = job_manifest(stage, "first", cpu=1)
        (tmp_path / "jobs.json").write_text(json.dumps(refused))
        shown = await run_in_shell(admitq_running, check, tmp_path)
        assert f"Job {stage.namespace}/first: refused\n" in shown
        assert shown.endswith("\n4\n")
        explain = f"kubectl admitq explain {name} {options}"
        assert " of all namespaces cannot be listed: " in await run_in_shell(
            admitq_running, explain, tmp_path
        )
