"""Stories of nodes that fail while pods with a topology run there: the pods get other nodes."""

import time
from collections import Counter
from typing import Any

import pytest

from admitq.runtime.resources import NODES, PODS
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from tests.controlplane.hosts import (
    HOST,
    RACK,
    TEMPLATE,
    assigned_hosts,
    completion_index,
    create_flavor,
    two_racks,
    until_on_hosts,
    until_on_nodes,
)
from tests.controlplane.stage import Stage, condition_of

MAINTENANCE = {"key": "example.com/maintenance", "effect": "NoExecute"}


def template(stage: Stage, cpu: int, level: str | None = None) -> dict[str, Any]:
    """A template for pods with these requests, which may require a domain of a level."""
    [container] = TEMPLATE["spec"]["containers"]
    container = {**container, "resources": {"requests": {"cpu": cpu}}}
    required = {} if level is None else {stage.names.podset_required_topology: level}
    return {"metadata": {"annotations": required}, "spec": {**TEMPLATE["spec"], "containers": [container]}}


async def taint(stage: Stage, node: str) -> None:
    """Taint a node. Kubernetes then deletes the pods there that do not tolerate this."""
    obj = await stage.client.get(NODES, node)
    taints = [*value_at(obj, ("spec", "taints"), []), MAINTENANCE]
    await stage.client.merge_patch(
        NODES, node, {"spec": {"taints": taints}}, namespace=None, subresource=None, field_manager="test"
    )


async def hosts_of_pods(stage: Stage) -> list[str]:
    """The hosts in the node selectors of the job's pods, sorted; empty for a pod without one."""
    return sorted(value_at(pod, ("spec", "nodeSelector", HOST), "") for pod in await stage.pods("j"))


@pytest.mark.core
async def test_pods_of_a_tainted_node_move_to_another_one(stage: Stage, admitq_running: Installation) -> None:
    async with two_racks(stage, admitq_running):
        await create_flavor(stage)
        await stage.cluster_queue(cpu=40)
        await stage.local_queue()
        await stage.job(pods=2, template=template(stage, 6), completionMode="Indexed", backoffLimit=9)
        await until_on_hosts(stage, "j", 2)
        by_index = {completion_index(pod): pod["spec"]["nodeName"] for pod in await stage.pods("j")}
        await taint(stage, by_index["1"])

        async def has_moved() -> bool:
            return by_index["1"] not in await assigned_hosts(stage, "j")

        await stage.until(has_moved, what="another assignment")
        hosts = await assigned_hosts(stage, "j")
        [new] = hosts.keys() - set(by_index.values())
        assert hosts == Counter([by_index["0"], new])
        assert await stage.condition("Evicted") is None

        async def is_unlisted() -> bool:
            return not (await stage.workload("j"))["status"].get("unhealthyNodes")

        await stage.until(is_unlisted)
        await until_on_nodes(stage, {"0": by_index["0"], "1": new}, completion_index)


@pytest.mark.parametrize("failures", [1, 2])
async def test_job_without_another_node_in_its_rack_moves_to_another_rack(
    stage: Stage, admitq_running: Installation, failures: int
) -> None:
    """It is evicted once, also if both of its nodes fail."""
    async with two_racks(stage, admitq_running) as names:
        await create_flavor(stage)
        await stage.cluster_queue(cpu=40)
        await stage.local_queue()
        await stage.job(pods=2, template=template(stage, 6, RACK), backoffLimit=9)
        before = await until_on_hosts(stage, "j", 2)
        for node in before[:failures]:
            await taint(stage, node)

        async def evictions() -> list[Any]:
            stats = value_at(await stage.workload("j"), ("status", "schedulingStats", "evictions"), [])
            return [(item["reason"], item["count"]) for item in stats]

        await stage.until(evictions, [("NodeFailures", 1)])

        async def is_in_the_other_rack() -> bool:
            nodes = [value_at(pod, ("spec", "nodeName"), "") for pod in await stage.pods("j")]
            return sorted(nodes) == sorted(set(names) - set(before))

        await stage.until(is_in_the_other_rack)
        _, _, message = await stage.condition("Evicted") or ("", "", "")
        assert await evictions() == [("NodeFailures", 1)]
        # The first failure may be recognized before the second.
        alone = f"Workload was evicted as there was no replacement for unhealthy node(s): {before[0]}"
        both = "Workload eviction triggered due to multiple TAS assigned node failures, including: "
        assert alone in message or (failures == 2 and both + ", ".join(before) in message)


async def test_pod_that_waits_for_a_failed_node_is_ended(stage: Stage, admitq_running: Installation) -> None:
    """The node fails after the pod got its host, and before the scheduler has bound it."""
    async with two_racks(stage, admitq_running):
        await create_flavor(stage)
        await stage.cluster_queue(cpu=40)
        await stage.local_queue()
        held = template(stage, 6)
        held["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
        await stage.job(pods=1, template=held, backoffLimit=9)
        await stage.until(lambda: has_hosts(stage), what="a pod with a host")
        [lost] = await hosts_of_pods(stage)
        [first] = await stage.pods("j")
        await taint(stage, lost)

        async def reason() -> str:
            pod = await stage.get(PODS, first["metadata"]["name"])
            ended = condition_of(pod, f"TerminatedBy{stage.names.product_in_reasons}")
            return "" if ended is None else ended[1]

        await stage.until(reason, "UnschedulableOnAssignedNode")

        async def has_moved() -> bool:
            return lost not in await assigned_hosts(stage, "j")

        await stage.until(has_moved, what="another assignment")


async def test_node_that_flaps_keeps_its_pods(stage: Stage, admitq_running: Installation) -> None:
    async with two_racks(stage, admitq_running):
        await create_flavor(stage)
        await stage.cluster_queue(cpu=40)
        await stage.local_queue()
        await stage.job(pods=2, template=template(stage, 6, RACK))
        before = await until_on_hosts(stage, "j", 2)
        uids = {pod["metadata"]["uid"] for pod in await stage.pods("j")}
        assigned = (await stage.workload("j"))["status"]["admission"]
        for _ in range(100):
            for status in ("False", "True"):
                await set_ready(stage, before[0], status)
        # The next job runs there only once the node counts as ready.
        there = template(stage, 3)
        there["spec"]["nodeSelector"] = {HOST: before[0]}
        await stage.job("later", pods=1, template=there)
        assert await until_on_hosts(stage, "later", 1) == [before[0]]
        status = (await stage.workload("j"))["status"]
        assert status["admission"] == assigned
        assert "unhealthyNodes" not in status
        assert "evictions" not in status.get("schedulingStats", {})
        assert {pod["metadata"]["uid"] for pod in await stage.pods("j")} == uids


async def set_ready(stage: Stage, node: str, status: str) -> None:
    """Report whether a node is ready, as its kubelet would."""
    conditions = value_at(await stage.client.get(NODES, node), ("status", "conditions"))
    now = format_time(time.time_ns())
    ready = {"type": "Ready", "status": status, "reason": "Test", "message": "", "lastTransitionTime": now}
    changed = [one for one in conditions if one["type"] != "Ready"]
    await stage.client.merge_patch(
        NODES, node, {"status": {"conditions": [*changed, ready]}}, namespace=None, subresource="status"
    )


async def has_hosts(stage: Stage) -> bool:
    found = await hosts_of_pods(stage)
    return bool(found) and all(found)
