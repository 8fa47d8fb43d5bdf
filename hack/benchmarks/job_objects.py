"""Jobs of equal pods, and the nodes and queues that they need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import NAMESPACES, SERVICE_ACCOUNTS, Resource
from admitq_api.labels import Names
from benchmarks.clusters import is_queue_active
from localcluster.nodes import NodePool
from localcluster.waiting import eventually

NAMESPACE: Final = "bench"
"""The namespace of all Jobs and LocalQueues."""

_FLAVOR: Final = "bench"


@dataclass(frozen=True)
class PodSize:
    """Requests and limits of a pod: milli-CPU and MiB."""

    milli_cpu: int
    memory_mib: int

    def per_node(self, node_cpu: int) -> int:
        """Return the number of pods that fit on a node with this number of CPUs and of Gi."""
        return min(node_cpu * 1000 // self.milli_cpu, node_cpu * 1024 // self.memory_mib)


def node_pool(count: int, node_cpu: int, pod: PodSize) -> NodePool:
    """Return nodes with this number of CPUs and of Gi. Only these limit the number of pods."""
    pods = max(110, pod.per_node(node_cpu) + 10)
    return NodePool(count=count, cpu=str(node_cpu), memory=f"{node_cpu}Gi", pods=pods)


def job(name: str, pods: int, size: PodSize, *, queue: str | None, names: Names) -> dict[str, Any]:
    """Return a Job with pods that run at the same time.

    Args:
        name: the name of the Job.
        pods: the number of its pods.
        size: the size of each.
        queue: the LocalQueue; None for a Job without a queue.
        names: the names of the API group.
    """
    amounts = {"cpu": f"{size.milli_cpu}m", "memory": f"{size.memory_mib}Mi"}
    container = {
        "name": "work",
        "image": "example.com/work:1",
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {} if queue is None else {names.queue_name: queue},
        },
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def queues(cpu_by_queue: Mapping[str, int], names: Names) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield the flavor, and a ClusterQueue and a LocalQueue for each quota: CPUs, and as many Gi, by name."""
    kinds = kinds_of(names)

    def obj(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        return {"apiVersion": names.api_version, "kind": kind, "metadata": metadata, "spec": spec}

    yield kinds.resource_flavors, obj("ResourceFlavor", _FLAVOR, {})
    for name, cpu in cpu_by_queue.items():
        quotas = [
            {"name": "cpu", "nominalQuota": str(cpu)},
            {"name": "memory", "nominalQuota": f"{cpu}Gi"},
        ]
        group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": _FLAVOR, "resources": quotas}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group]}
        yield kinds.cluster_queues, obj("ClusterQueue", name, spec)
        yield kinds.local_queues, obj("LocalQueue", name, {"clusterQueue": name}, NAMESPACE)


async def prepare(client: Client, cpu_by_queue: Mapping[str, int], names: Names) -> None:
    """Create the namespace and the queues. Wait until pods can be created and all queues are active.

    Without quotas, the queue manager and its API are not necessary.
    """
    objects = tuple(queues(cpu_by_queue, names)) if cpu_by_queue else ()
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    await eventually(lambda: client.get(SERVICE_ACCOUNTS, "default", NAMESPACE))
    for resource, obj in objects:
        await eventually(lambda resource=resource, obj=obj: client.create(resource, obj))
    for resource, obj in objects:
        if resource.kind == "ResourceFlavor":
            continue
        await eventually(
            lambda resource=resource, obj=obj: is_queue_active(client, resource, obj),
            what=f"{resource.kind} {obj['metadata']['name']} is active",
        )
