"""A story of a node that cannot be reached any more, and of what becomes of the pods that hang on it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from admitq.runtime.resources import JOBS, NODES, PODS
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from localcluster import nodes
from localcluster.installation import Installation
from localcluster.nodes import NodePool, Taint
from tests.controlplane.pods_of_jobs import some_pods
from tests.controlplane.stage import Stage, condition_of

ONLY = "story.example.com/only"
HANGS: dict[str, str] = {"kwok.admitq.dev/termination-seconds": "3600"}
"""A pod with this does not end when it is deleted, as if its node did not know."""


@pytest.fixture
async def node(stage: Stage, admitq_running: Installation) -> AsyncGenerator[str]:
    """A node for this story alone."""
    name = create_node(admitq_running, stage.own("lost"))
    yield name
    await stage.client.delete(NODES, name)


def create_node(installation: Installation, prefix: str) -> str:
    """Create a node for pods that tolerate it."""
    pool = NodePool(count=1, prefix=prefix, taints=(Taint(ONLY, "", "NoSchedule"),))
    with installation.cluster.api() as api:
        nodes.create(api, pool)
    return pool.names()[0]


def template(*hosts: str, **annotations: str) -> dict[str, Any]:
    """Pods that run on these nodes, as soon as there is one that can be reached."""
    wish = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*hosts]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}
    return {
        "metadata": {"annotations": {**HANGS, **annotations}},
        "spec": {
            "restartPolicy": "Never",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "tolerations": [{"key": ONLY, "operator": "Exists"}],
            "containers": [
                {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
            ],
        },
    }


async def pod(stage: Stage, name: str, made: dict[str, Any], node: str = "", **metadata: Any) -> None:
    spec = {**made["spec"], **({"nodeName": node} if node else {})}
    await stage.create(PODS, name, {"metadata": {**made["metadata"], **metadata}, "spec": spec})


async def runs_on(stage: Stage, name: str) -> str:
    """The node that a pod runs on, once it does."""
    found = await stage.get(PODS, name)
    assert value_at(found, ("status", "phase")) == "Running", found.get("status")
    return found["spec"]["nodeName"]


async def make_unreachable(stage: Stage, node: str) -> None:
    """What Kubernetes says of a node that it has not heard of for a while; it taints the node for that."""
    unknown = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": format_time(0),
    }
    await stage.change(NODES, node, {"status": {"conditions": [unknown]}}, "status")


async def test_terminating_pods_that_opted_in_are_force_deleted_from_an_unreachable_node(
    stage: Stage, node: str, admitq_running: Installation
) -> None:
    names, held = stage.names, "example.com/held"
    other = f"{stage.own('other')}-0"
    opted_in, wary = template(node, other, **{names.safe_to_forcefully_delete: "true"}), template(node)
    await stage.queues(cpu=4)
    await asyncio.gather(
        # A Job that replaces pods only when they have ended, and a pod that is a job of its own.
        stage.job("j", template=opted_in, podReplacementPolicy="Failed"),
        pod(stage, "queued", opted_in, labels={names.queue_name: "lq"}),
        pod(stage, "opted-in", opted_in, node, finalizers=[held]),
        pod(stage, "wary", wary, node),
        pod(stage, "healthy", opted_in, "node-0"),
    )
    [first] = await some_pods(stage, "j")
    hanging = [first["metadata"]["name"], "queued", "opted-in", "wary"]
    await asyncio.gather(
        *(stage.until(lambda name=name: runs_on(stage, name), node, what=f"{name} runs") for name in hanging),
        stage.until(lambda: runs_on(stage, "healthy"), "node-0"),
    )
    for name in ("healthy", *hanging):
        await stage.client.delete(PODS, name, stage.namespace, grace_seconds=1)
    await make_unreachable(stage, node)
    assert create_node(admitq_running, stage.own("other")) == other

    async def successor() -> bool:
        fresh = [one for one in await stage.pods("j") if one["metadata"]["name"] != hanging[0]]
        return [await runs_on(stage, one["metadata"]["name"]) != node for one in fresh] == [True]

    async def is_free() -> bool:
        return not await stage.workloads("queued")

    async def is_forced() -> Any:
        found = await stage.get(PODS, "opted-in")
        grace = value_at(found, ("metadata", "deletionGracePeriodSeconds"))
        return value_at(found, ("status", "phase")), grace

    await asyncio.gather(
        stage.until(successor, what="a pod in the place of the Job's"),
        stage.until(is_free, what="the quota of the queued pod to be free"),
        *(stage.until_gone(PODS, name) for name in hanging[:2]),
        stage.until(is_forced, ("Failed", 0)),
    )
    told = condition_of(await stage.get(PODS, "opted-in"), f"{stage.names.product_in_reasons}FailureRecovery")
    assert told is not None
    status, reason, note = told
    assert (status, reason) == ("True", f"{stage.names.product_in_reasons}ForcefullyDeleted")
    assert f"node {node} is unreachable" in note
    await stage.until_told("Pod", "opted-in", f"{stage.names.product_in_reasons}ForcefulTermination", note)

    async def failed() -> Any:
        return value_at(await stage.get(JOBS, "j"), ("status", "failed"))

    await stage.until(failed, 1)
    for name in ("wary", "healthy"):
        kept = await stage.get(PODS, name)
        assert "deletionTimestamp" in kept["metadata"]
        assert kept["status"]["phase"] == "Running"
        await stage.client.delete(PODS, name, stage.namespace, grace_seconds=0)
    await stage.change(PODS, "opted-in", {"metadata": {"finalizers": None}})
    await stage.until_gone(PODS, "opted-in")
    await stage.client.delete(NODES, other)
