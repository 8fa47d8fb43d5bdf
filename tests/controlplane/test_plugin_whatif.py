"""``kubectl admitq whatif`` about a running cluster: its answers come true, and it writes nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.runtime.resources import JOBS, NODES
from admitq_api.labels import DEFAULT_GROUP
from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.documented_commands import (
    WORKLOAD_NAME,
    comparable,
    documented_commands,
    one_runs_and_one_waits,
    run_in_shell,
    with_names,
)
from tests.controlplane.hosts import RACK, TAINT, TEMPLATE, create_flavor, two_racks, until_on_hosts
from tests.controlplane.stage import Stage

GUIDE = "what-if.md"


def without_starts(output: str) -> list[str]:
    """Return what a command printed, without when workloads start: this depends on other stories."""
    return comparable(
        re.sub(r"^(  workload \S+): .*(\bnow|\bnot before .*)$", r"\1: starts", output, flags=re.MULTILINE)
    )


async def versions(stage: Stage) -> list[Any]:
    """Return the versions of the jobs and queues of a story."""
    found, _ = await stage.client.list(JOBS, stage.namespace)
    queues = [
        await stage.client.get(stage.kinds.cluster_queues, stage.own("cq"), None),
        await stage.client.get(stage.kinds.local_queues, "lq", stage.namespace),
    ]
    return [
        (one["metadata"]["name"], one["metadata"]["generation"], one["spec"]) for one in [*found, *queues]
    ]


async def test_answers_come_true_and_nothing_is_written(stage: Stage, plugin: Plugin) -> None:
    names = await one_runs_and_one_waits(stage)
    waiting = f"workload {stage.namespace}/{names['next']}"
    before = await versions(stage)
    quota = f"{stage.own('cq')}:{stage.own('f')}:cpu=5"
    shown = await plugin("whatif", "--quota", quota)
    assert f"Admitted:\n  {waiting} in ClusterQueue {stage.own('cq')}, 1 pod" in shown
    answer = json.loads(await plugin("whatif", "--delete", "job/train-4", "-o", "json"))
    (admitted,) = answer["admitted"]
    assert admitted["workload"] == {"namespace": stage.namespace, "name": names["next"]}
    assert await versions(stage) == before
    await stage.client.delete(JOBS, "train-4", stage.namespace, propagation="Background")
    await stage.until_running("next")


async def test_a_node_that_comes_back_would_give_a_job_its_rack(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    async with two_racks(stage, admitq_running) as hosts:
        cordoned = await stage.client.merge_patch(NODES, hosts[3], {"spec": {"unschedulable": True}})
        await create_flavor(stage)
        await stage.cluster_queue(cpu=40)
        await stage.local_queue()
        [container] = TEMPLATE["spec"]["containers"]
        container = {**container, "resources": {"requests": {"cpu": 6}}}
        template = {
            "metadata": {"annotations": {stage.names.podset_required_topology: RACK}},
            "spec": {**TEMPLATE["spec"], "containers": [container]},
        }
        for name in ("first", "second"):
            await stage.job(name, pods=2, template=template)
            await stage.until_workload_exists(name)
        assert await until_on_hosts(stage, "first", 2) == hosts[:2]
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
        manifest = tmp_path / "node.yaml"
        spec = {"taints": [one for one in cordoned["spec"]["taints"] if one["key"] == TAINT]}
        manifest.write_text(yaml.safe_dump({**cordoned, "spec": spec}))
        workload = (await stage.workload("second"))["metadata"]["name"]
        shown = await plugin("whatif", "--filename", str(manifest))
        assert (
            f"Admitted:\n  workload {stage.namespace}/{workload} in ClusterQueue {stage.own('cq')}" in shown
        )
        await stage.client.merge_patch(NODES, hosts[3], {"spec": {"unschedulable": None}})
        assert await until_on_hosts(stage, "second", 2) == hosts[2:]


async def test_invalid_change_is_reported(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    with pytest.raises(AssertionError, match="error: ClusterQueue missing-cq does not exist"):
        await plugin("whatif", "--stop", "cq/missing-cq")
    with pytest.raises(AssertionError, match=f"there is no Job {stage.namespace}/missing with a Workload"):
        await plugin("whatif", "--delete", "job/missing")


async def test_commands_of_the_guide_print_the_documented_output(
    stage: Stage, plugin: Plugin, admitq_running: Installation, tmp_path: Path
) -> None:
    if stage.names.group != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    names = await one_runs_and_one_waits(stage)
    text = (REPOSITORY / "docs" / "guides" / GUIDE).read_text()
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "small.yaml").write_text(manifest)
    # The Workload of a job that does not exist has a name that never changes.
    names |= {job: name for name, job in WORKLOAD_NAME.findall(text) if job == "small"}
    commands = documented_commands(GUIDE, stage)
    assert len(commands) == 4
    for part in commands:
        command, _, expected = with_names(part, names).partition("\n")
        shown = await run_in_shell(admitq_running, command, tmp_path)
        assert without_starts(shown) == without_starts(expected), command
