"""``kubectl admitq delete workload``, and the commands that kubectl runs itself."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, Resource
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.stage import Stage


async def exists(stage: Stage, resource: Resource, name: str) -> bool:
    try:
        await stage.get(resource, name)
    except ApiError as error:
        if not error.is_not_found:
            raise
        return False
    return True


async def workload_of(stage: Stage, job: str) -> str:
    await stage.until_workload_exists(job)
    return (await stage.workload(job))["metadata"]["name"]


async def answered(
    stage: Stage, installation: Installation, answer: str, *arguments: str
) -> tuple[int | None, str]:
    """Run a command of the plugin with this standard input; return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        str(installation.cluster.program("kubectl")),
        "admitq",
        *arguments,
        f"--namespace={stage.namespace}",
        env={**os.environ, **installation.cluster.environment()},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(answer.encode())
    return process.returncode, output.decode()


@pytest.mark.usefixtures("plugin")
async def test_workload_is_deleted_with_its_job_after_confirmation(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.active_queues()
    await stage.job("train")
    await stage.until_running("train")
    name = await workload_of(stage, "train")
    asked = (
        "This operation will also delete:\n"
        f"  - job.batch/train of workload {stage.namespace}/{name}\n"
        "Do you want to proceed (y/n)? "
    )
    delete = ("delete", "workload", name)
    for answer in ("n\n", ""):
        status, output = await answered(stage, admitq_running, answer, *delete)
        assert (status, output.replace("? \n", "? ")) == (1, f"{asked}Deletion is canceled\n")
    assert await exists(stage, JOBS, "train")
    assert await answered(stage, admitq_running, "y\n", *delete) == (0, f"{asked}job.batch/train deleted\n")
    await stage.until_gone(JOBS, "train")
    await stage.until_gone(stage.kinds.workloads, name)
    assert await stage.pods("train") == []


async def test_dry_run_deletes_nothing(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job("train")
    name = await workload_of(stage, "train")
    assert await plugin("delete", "kwl", name, "--dry-run=client") == "job.batch/train deleted (dry run)\n"
    shown = "job.batch/train deleted (server dry run)\n"
    assert await plugin("delete", "kwl", name, "--dry-run=server") == shown
    assert await exists(stage, JOBS, "train")
    with pytest.raises(AssertionError, match=r'workloads.* "missing" not found'):
        await plugin("delete", "workload", name, "missing", "--yes")
    assert await exists(stage, JOBS, "train")


async def test_all_workloads_of_a_namespace_are_deleted_with_their_jobs_and_pods(
    stage: Stage, other_stage: Stage, plugin: Plugin
) -> None:
    await stage.active_queues()
    await other_stage.active_queues()
    await other_stage.job("stays")
    await workload_of(other_stage, "stays")
    await stage.job("train")
    await workload_of(stage, "train")
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}
    await stage.create(stage.kinds.workloads, "alone", {"spec": spec})
    shown = {"job.batch/train deleted", f"workload.{stage.names.group}/alone deleted"}
    assert set((await plugin("delete", "workload", "--all", "-y")).splitlines()) == shown
    await stage.until_gone(JOBS, "train")
    await stage.until_gone(stage.kinds.workloads, "alone")
    assert await exists(other_stage, JOBS, "stays")


TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/c:1"}]}}


async def test_kubectl_commands_get_the_kind_of_the_served_group(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    group, queue = stage.names.group, stage.own("cq")
    assert await plugin("get", "lq", "lq", "-o", "name") == f"localqueue.{group}/lq\n"
    assert f"clusterqueue.{group}/{queue}\n" in await plugin("get", "clusterqueue", "--output=name")
    described = await plugin("describe", "localqueue", "lq")
    assert f"API Version:  {group}/" in described
    patch = '{"spec":{"stopPolicy":"Hold"}}'
    shown = f"clusterqueue.{group}/{queue}"
    assert await plugin("patch", "cq", queue, "--type", "merge", "-p", patch) == f"{shown} patched\n"
    assert (await stage.get(stage.kinds.cluster_queues, queue))["spec"]["stopPolicy"] == "Hold"
    assert await plugin("delete", "lq", "lq", "--dry-run=server", "-o", "name") == f"localqueue.{group}/lq\n"


async def test_edit_opens_the_editor_of_kubectl(
    stage: Stage, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await stage.active_queues()
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\n{sys.executable} -c "{EDIT}" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(editor))
    assert await plugin("edit", "lq", "lq") == f"localqueue.{stage.names.group}/lq edited\n"
    assert (await stage.get(stage.kinds.local_queues, "lq"))["spec"]["stopPolicy"] == "Hold"


EDIT = (
    "import pathlib, sys; file = pathlib.Path(sys.argv[1]); "
    "file.write_text(file.read_text().replace('stopPolicy: None', 'stopPolicy: Hold'))"
)


@pytest.mark.usefixtures("plugin")
async def test_exit_status_is_that_of_kubectl(stage: Stage, admitq_running: Installation) -> None:
    status, output = await answered(stage, admitq_running, "", "get", "lq", "missing")
    assert status == 1
    assert output.startswith("Error from server (NotFound)")
    status, output = await answered(stage, admitq_running, "", "get", "cq", "--output=wrong")
    assert status == 1
    assert "unable to match a printer" in output
