"""The objects of a load shape, and the status patches with which the harness plays the jobs."""

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

from admitq.core.topology.domains import HOST_NAME
from admitq.runtime.kinds import kinds_of
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.labels import Names
from benchmarks.throughput_shapes import (
    RACK,
    LoadShape,
    NodeLayout,
    PlannedWorkload,
    cohort_name,
    queue_name,
)

NAMESPACE: Final = "bench"
"""The namespace of all LocalQueues and Workloads."""

_FLAVOR: Final = "default"
_TOPOLOGY: Final = "racks"
_BLOCK: Final = "example.com/block"
_BLOCK_OF_NODES: Final = "block-0"


def flavor(shape: LoadShape, names: Names) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of the only flavor."""
    placement = {"nodeLabels": {_BLOCK: _BLOCK_OF_NODES}, "topologyName": _TOPOLOGY}
    spec = {} if shape.nodes is None else placement
    return kinds_of(names).resource_flavors.path(), _object(names, "ResourceFlavor", _FLAVOR, spec)


def topologies(shape: LoadShape, names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of the topology of the nodes, if there are nodes."""
    if shape.nodes is not None:
        levels = [{"nodeLabel": label} for label in (_BLOCK, RACK, HOST_NAME)]
        yield kinds_of(names).topologies.path(), _object(names, "Topology", _TOPOLOGY, {"levels": levels})


def nodes(layout: NodeLayout) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of each node. It is ready once `untaint` has removed its taints."""
    amounts = {"cpu": str(layout.cpu), "memory": "384Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    for number in range(layout.hosts):
        rack, host = divmod(number, layout.hosts_of_rack)
        name = node_name(rack, host)
        labels = {_BLOCK: _BLOCK_OF_NODES, RACK: f"rack-{rack}", HOST_NAME: name}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        metadata = {"name": name, "labels": labels}
        yield "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def untaint(layout: NodeLayout) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the merge patch that remove the taints of each node.

    The API server taints new nodes as not ready, and no controller of nodes runs.
    """
    for path, node in nodes(layout):
        yield f"{path}/{node['metadata']['name']}", {"spec": {"taints": None}}


def node_name(rack: int, host: int) -> str:
    """Return the name of a node of a rack."""
    return f"node-{rack}-{host:02}"


def cluster_queues(shape: LoadShape, names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of each ClusterQueue."""
    quota = {
        "name": "cpu",
        "nominalQuota": str(shape.nominal_cpu),
        "borrowingLimit": str(shape.borrowing_limit_cpu),
    }
    group = {"coveredResources": ["cpu"], "flavors": [{"name": _FLAVOR, "resources": [quota]}]}
    for number in range(shape.queues):
        spec = {
            "cohortName": cohort_name(shape, number),
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {
                "reclaimWithinCohort": shape.reclaim_within_cohort,
                "withinClusterQueue": shape.within_cluster_queue,
            },
        }
        path = kinds_of(names).cluster_queues.path()
        yield path, _object(names, "ClusterQueue", queue_name(number), spec)


def local_queues(shape: LoadShape, names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of each LocalQueue."""
    path = kinds_of(names).local_queues.path(NAMESPACE)
    for number in range(shape.queues):
        name = queue_name(number)
        yield path, _object(names, "LocalQueue", name, {"clusterQueue": name})


def workload(planned: PlannedWorkload, names: Names) -> dict[str, Any]:
    """Return a Workload with one podset of equal pods with one container."""
    container = {
        "name": "work",
        "image": "example.com/work:1",
        "resources": {"requests": {"cpu": str(planned.kind.cpu_of_pod)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set: dict[str, Any] = {"name": "main", "count": planned.kind.pods, "template": template}
    if planned.kind.topology_request is not None:
        pod_set["topologyRequest"] = dict(planned.kind.topology_request)
    spec = {
        "queueName": queue_name(planned.queue),
        "priority": planned.kind.priority,
        "podSets": [pod_set],
    }
    return _object(names, "Workload", planned.name, spec)


def finish_operations() -> list[dict[str, Any]]:
    """Return the JSON patch of a job that succeeds.

    It appends one condition. So it needs neither the other conditions nor a resourceVersion, and the harness
    never has to repeat it because of a write by another program.
    """
    condition = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "The job succeeded",
        "lastTransitionTime": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return [{"op": "add", "path": "/status/conditions/-", "value": condition}]


def release_patch(evicted: dict[str, Any], now_ns: int) -> dict[str, Any] | None:
    """Return the merge patch by which the job of an evicted Workload releases its quota.

    Args:
        evicted: the Workload. Its job no longer runs.
        now_ns: the time, in nanoseconds.
    """
    transition = StatusTransition(evicted, now_ns)
    transition.requeue(Reason.PENDING_EVALUATION)
    return transition.patch()


def _object(names: Names, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
