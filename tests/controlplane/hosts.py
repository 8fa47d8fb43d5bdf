"""Nodes in two racks of one block, and pods that run only there, for stories of topologies."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from admitq.runtime.resources import NODES, PODS
from admitq_api.json_objects import value_at
from admitq_api.topology_assignments import decode
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


async def create_flavor(stage: Stage) -> None:
    """Create a flavor with the nodes of the story, and its topology of blocks, racks and hosts."""
    levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
    await stage.create(stage.kinds.topologies, stage.own("t"), {"spec": {"levels": levels}})
    await stage.flavor(nodeLabels={BLOCK: stage.own("b")}, topologyName=stage.own("t"))


async def until_on_hosts(stage: Stage, name: str, count: int) -> list[str]:
    """Wait until all pods of a Job are on nodes, and return the names of these, sorted."""
    found: list[str] = []

    async def are_bound() -> bool:
        found[:] = sorted(value_at(pod, ("spec", "nodeName"), "") for pod in await stage.pods(name))
        return len(found) == count and all(found)

    await stage.until(are_bound, what=f"{count} pods of {name} on nodes")
    return found


async def assigned_hosts(stage: Stage, name: str) -> Counter[str]:
    """The number of pods on each host, by the status of the Workload of a job."""
    return hosts_of(await stage.workload(name))


def hosts_of(workload: Mapping[str, Any]) -> Counter[str]:
    """The number of pods on each host, by the status of a Workload."""
    [part] = workload["status"]["admission"]["podSetAssignments"]
    return hosts_of_pod_set(part)


def hosts_of_pod_set(part: Mapping[str, Any]) -> Counter[str]:
    """The number of pods on each host, by the assignment of a podset."""
    levels, domains = decode(part["topologyAssignment"], "topologyAssignment")
    assert levels == (HOST,)
    return Counter({values[0]: count for values, count in domains})
