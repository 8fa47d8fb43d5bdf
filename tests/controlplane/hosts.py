"""Nodes in two racks of one block, and pods that run only there, for stories of topologies."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from admitq.runtime.resources import NODES, PODS
from admitq_api.json_objects import value_at
from localcluster import nodes
from localcluster.installation import Installation
from localcluster.nodes import NodePool, NodeTaint
from tests.controlplane.stage import Stage

HOST, BLOCK, RACK = "kubernetes.io/hostname", "topology.example.com/block", "topology.example.com/rack"
TAINT = "topology.example.com/only"
TOLERATION = {"key": TAINT, "operator": "Exists"}
TEMPLATE: Mapping[str, Any] = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}],
        "tolerations": [TOLERATION],
    }
}


@asynccontextmanager
async def two_racks(stage: Stage, installation: Installation) -> AsyncGenerator[list[str]]:
    """Create four nodes of 10 CPUs in two racks of a block, which only pods of this story tolerate.

    The first two names are in rack ``r1``, the others in rack ``r2``.
    """
    taint = NodeTaint(TAINT, "", "NoSchedule")
    pools = [
        NodePool(
            count=2,
            prefix=f"{rack}-{stage.namespace}",
            labels={BLOCK: stage.own("b"), RACK: stage.own(rack)},
            taints=(taint,),
        )
        for rack in ("r1", "r2")
    ]
    with installation.cluster.api() as api:
        for pool in pools:
            nodes.create(api, pool)
    names = [name for pool in pools for name in pool.names()]
    yield names
    for name in names:
        await stage.client.delete(NODES, name)


async def until_on_nodes(
    stage: Stage, expected: Mapping[str, str | None], key: Callable[[dict[str, Any]], str]
) -> None:
    """Wait until the pods of the story, by ``key``, are on these nodes; None for a pod that is gated."""

    async def current() -> dict[str, str | None]:
        listed, _ = await stage.client.list(PODS, stage.namespace)
        return {key(pod): value_at(pod, ("spec", "nodeName")) for pod in listed}

    await stage.until(current, dict(expected), what="the nodes of the pods")


def completion_index(pod: dict[str, Any]) -> str:
    return pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
