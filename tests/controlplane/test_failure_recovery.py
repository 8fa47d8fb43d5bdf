"""Pods that terminate on an unreachable node: those that opted in are deleted by force."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from admitq.runtime.resources import JOBS, NODES, PODS
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from localcluster import nodes
from localcluster.installation import Installation
from localcluster.nodes import NodePool, NodeTaint
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import Stage, condition_of

ONLY = "story.example.com/only"
HANGS: dict[str, str] = {"kwok.admitq.dev/termination-seconds": "3600"}
"""A pod with this annotation does not end when it is deleted, as if its node were unreachable."""


@pytest.fixture
async def node(stage: Stage, admitq_running: Installation) -> AsyncGenerator[str]:
    """A node that only pods of this story tolerate."""
    name = create_node(admitq_running, stage.own("lost"))
    yield name
    await stage.client.delete(NODES, name)


def create_node(installation: Installation, prefix: str) -> str:
    """Create a node with a taint that pods of this story tolerate, and return its name."""
    pool = NodePool(count=1, prefix=prefix, taints=(NodeTaint(ONLY, "", "NoSchedule"),))
    with installation.cluster.api() as api:
        nodes.create(api, pool)
    return pool.names()[0]


def template(*hosts: str, **annotations: str) -> dict[str, Any]:
    """A template of pods that run only on these nodes and do not end when they are deleted."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*hosts]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
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


async def create_pod(
    stage: Stage, name: str, pod_template: dict[str, Any], node: str = "", **metadata: Any
) -> None:
    spec = {**pod_template["spec"], **({"nodeName": node} if node else {})}
    await stage.create(PODS, name, {"metadata": {**pod_template["metadata"], **metadata}, "spec": spec})


async def runs_on(stage: Stage, name: str) -> str:
    """The node that a running pod runs on."""
    found = await stage.get(PODS, name)
    assert value_at(found, ("status", "phase")) == "Running", found.get("status")
    return found["spec"]["nodeName"]


async def make_unreachable(stage: Stage, node: str) -> None:
    """Set the condition of a node without heartbeat; Kubernetes then taints the node as unreachable."""
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
    other_node = f"{stage.own('other')}-0"
    await stage.queues(cpu=4)
    job_pod = await create_job_and_pods(stage, node, other_node)
    terminating = [job_pod, "queued", "opted-in", "not-opted-in"]
    await until_pods_run(stage, node, terminating)
    for name in ("healthy", *terminating):
        await stage.client.delete(PODS, name, stage.namespace, grace_seconds=1)
    await make_unreachable(stage, node)
    assert create_node(admitq_running, stage.own("other")) == other_node
    await asyncio.gather(
        until_job_pod_is_replaced(stage, job_pod, node),
        stage.until(lambda: stage.workloads("queued"), [], what="the quota of the queued pod to be free"),
        *(stage.until_gone(PODS, name) for name in (job_pod, "queued")),
        until_pod_is_force_deleted(stage, node),
    )
    await until_job_counts_failed_pod(stage)
    for name in ("not-opted-in", "healthy"):
        kept = await stage.get(PODS, name)
        assert "deletionTimestamp" in kept["metadata"]
        assert kept["status"]["phase"] == "Running"
        await stage.client.delete(PODS, name, stage.namespace, grace_seconds=0)
    await stage.change(PODS, "opted-in", {"metadata": {"finalizers": None}})
    await stage.until_gone(PODS, "opted-in")
    await stage.client.delete(NODES, other_node)


async def create_job_and_pods(stage: Stage, node: str, other_node: str) -> str:
    """Create pods on the node, and one on a healthy node; return the name of the Job's pod."""
    names = stage.names
    opted_in = template(node, other_node, **{names.safe_to_forcefully_delete: "true"})
    await asyncio.gather(
        # The Job replaces pods only after they have ended.
        stage.job("j", template=opted_in, podReplacementPolicy="Failed"),
        create_pod(stage, "queued", opted_in, labels={names.queue_name: "lq"}),
        create_pod(stage, "opted-in", opted_in, node, finalizers=["example.com/held"]),
        create_pod(stage, "not-opted-in", template(node), node),
        create_pod(stage, "healthy", opted_in, "node-0"),
    )
    [pod] = await until_pods_exist(stage, "j")
    return pod["metadata"]["name"]


async def until_pods_run(stage: Stage, node: str, names: list[str]) -> None:
    """Wait until these pods run on the node, and the pod ``healthy`` on its own."""
    await asyncio.gather(
        *(stage.until(lambda name=name: runs_on(stage, name), node, what=f"{name} runs") for name in names),
        stage.until(lambda: runs_on(stage, "healthy"), "node-0"),
    )


async def until_job_pod_is_replaced(stage: Stage, job_pod: str, node: str) -> None:
    """Wait until exactly one other pod of the Job exists, and runs on another node."""

    async def is_replaced() -> bool:
        others = [one for one in await stage.pods("j") if one["metadata"]["name"] != job_pod]
        return [await runs_on(stage, one["metadata"]["name"]) != node for one in others] == [True]

    await stage.until(is_replaced, what="another pod in place of the Job's pod")


async def until_pod_is_force_deleted(stage: Stage, node: str) -> None:
    """Wait until the pod with a finalizer is failed, and check its condition and event."""
    product = stage.names.product_in_reasons

    async def phase_and_grace_period() -> Any:
        pod = await stage.get(PODS, "opted-in")
        grace = value_at(pod, ("metadata", "deletionGracePeriodSeconds"))
        return value_at(pod, ("status", "phase")), grace

    await stage.until(phase_and_grace_period, ("Failed", 0))
    condition = condition_of(await stage.get(PODS, "opted-in"), f"{product}FailureRecovery")
    assert condition is not None
    status, reason, message = condition
    assert (status, reason) == ("True", f"{product}ForcefullyDeleted")
    assert f"node {node} is unreachable" in message
    await stage.until_event("Pod", "opted-in", f"{product}ForcefulTermination", message)


async def until_job_counts_failed_pod(stage: Stage) -> None:
    async def failed() -> Any:
        return value_at(await stage.get(JOBS, "j"), ("status", "failed"))

    await stage.until(failed, 1)
