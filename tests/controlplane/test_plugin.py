"""``kubectl admitq``, run as users run it: by kubectl, as a process of its own."""

import json
from pathlib import Path

import pytest

from admitq.runtime.resources import DEPLOYMENTS, NAMESPACES
from admitq_api.labels import DEFAULT_GROUP, GROUPS
from admitq_api.version import VERSION
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.documented_commands import (
    comparable,
    documented_commands,
    documented_file,
    run_in_shell,
    with_names,
)
from tests.controlplane.stage import Stage
from tests.controlplane.user_programs import kubectl


async def test_stopped_cluster_queue_drains_and_resumes(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job()
    await stage.until_running()
    name, shown = stage.own("cq"), f"clusterqueue.{stage.names.group}/{stage.own('cq')}"
    assert await plugin("stop", "clusterqueue", name, "--keep-already-running") == f"{shown} stopped\n"
    await stage.until_active(stage.kinds.cluster_queues, name, active=False)
    await stage.until_running()
    assert await plugin("stop", "cq", name) == f"{shown} stopped\n"
    await stage.until_running(running=False)
    assert await plugin("resume", "cq", name) == f"{shown} resumed\n"
    await stage.until_running()


async def test_stopped_local_queue_drains_and_resumes(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job()
    await stage.until_running()
    shown = f"localqueue.{stage.names.group}/lq"
    assert await plugin("stop", "localqueue", "lq") == f"{shown} stopped\n"
    await stage.until_running(running=False)
    assert (await stage.get(stage.kinds.local_queues, "lq"))["spec"]["stopPolicy"] == "HoldAndDrain"
    assert await plugin("resume", "lq", "lq") == f"{shown} resumed\n"
    await stage.until_running()


async def test_stopped_workload_is_deactivated_and_resumes(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job()
    await stage.until_running()
    name = (await stage.workload())["metadata"]["name"]
    shown = f"workload.{stage.names.group}/{name}"
    assert await plugin("stop", "workload", name) == f"{shown} stopped\n"
    await stage.until_running(running=False)
    assert await plugin("resume", "kwl", name) == f"{shown} resumed\n"
    await stage.until_running()


async def test_unknown_queue_is_reported_with_the_command_that_lists_queues(
    stage: Stage, plugin: Plugin
) -> None:
    listed = f"kubectl get localqueues.{stage.names.group} -n {stage.namespace} lists what exists"
    with pytest.raises(AssertionError, match=f'(?s)error: .*"missing" not found.*{listed}'):
        await plugin("stop", "lq", "missing")


async def test_group_that_is_not_served_is_reported_with_the_group_that_is(
    stage: Stage, plugin: Plugin
) -> None:
    (other,) = set(GROUPS) - {stage.names.group}
    with pytest.raises(AssertionError, match=f"does not serve {other}\nUse --api-group {stage.names.group}"):
        await plugin("stop", "lq", "lq", f"--api-group={other}")


async def test_context_that_does_not_exist_is_reported(plugin: Plugin) -> None:
    with pytest.raises(AssertionError, match=r"error: .*contexts contains no context 'missing'"):
        await plugin("stop", "lq", "lq", "--context=missing")


async def test_version_shows_the_plugin_and_the_image_of_the_manager(stage: Stage, plugin: Plugin) -> None:
    labels = {"app.kubernetes.io/part-of": "admitq", "app.kubernetes.io/component": "manager"}
    pod = {"containers": [{"name": "manager", "image": "example.com/admitq:1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    await stage.create(DEPLOYMENTS, "manager", {"metadata": {"labels": labels}, "spec": spec})
    assert await plugin("version") == (
        f"Client version: {VERSION}\n"
        f"API group: {stage.names.group}\n"
        f"Manager {stage.namespace}/manager: example.com/admitq:1\n"
    )
    assert json.loads(await plugin("version", "--output=json")) == {
        "clientVersion": VERSION,
        "apiGroup": stage.names.group,
        "managers": [
            {"namespace": stage.namespace, "name": "manager", "image": "example.com/admitq:1"},
        ],
    }


async def test_commands_of_the_guide_print_the_documented_output(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    if stage.names.group != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    commands = documented_commands("kubectl-plugin.md", stage)
    assert len(commands) == 32
    (tmp_path / "jobs.yaml").write_text(documented_file("kubectl-plugin.md", "jobs.yaml"))
    kinds = stage.kinds
    # A dump of the whole cluster would have the queues of other tests, too: the answer depends on these.
    queues = (
        f"{kinds.resource_flavors}/{stage.own('f')}",
        f"{kinds.cluster_queues}/{stage.own('cq')}",
        f"{kinds.local_queues}/default",
        f"{NAMESPACES}/{stage.namespace}",
    )
    workloads: dict[str, str] = {}
    for part in commands:
        if "admitq list" in part and not workloads:
            workloads = await run_documented_jobs(stage)
        command, _, expected = with_names(part, workloads).partition("\n")
        if "--from queues.yaml" in command:
            dump = await kubectl(
                admitq_running.cluster, "get", *queues, "--namespace", stage.namespace, "-o", "yaml"
            )
            (tmp_path / "queues.yaml").write_text(dump)
        printed = await run_in_shell(admitq_running, command, tmp_path)
        shown, documented = comparable(printed), comparable(expected)
        if command == "kubectl admitq top":
            # It shows the queues of other tests, too, with columns for their resources.
            assert {line for line in documented if not line.startswith("NAME ")} <= set(shown)
        else:
            assert shown == documented, command


async def run_documented_jobs(stage: Stage) -> dict[str, str]:
    """Create the jobs that the guide lists, and return the names of their Workloads."""
    await stage.until_active(stage.kinds.local_queues, "default")
    await stage.job("train", queue="default")
    await stage.until_running("train")
    await stage.until_condition("PodsReady", "Started", "train")
    await stage.job("large", queue="default", cpu=9)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota", "large")

    async def are_counted() -> bool:
        statuses = [
            (await stage.get(resource, name))["status"]
            for resource, name in (
                (stage.kinds.local_queues, "default"),
                (stage.kinds.cluster_queues, stage.own("cq")),
            )
        ]
        return [(one["pendingWorkloads"], one["admittedWorkloads"]) for one in statuses] == [(1, 1)] * 2

    await stage.until(are_counted)
    return {job: (await stage.workload(job))["metadata"]["name"] for job in ("train", "large")}
