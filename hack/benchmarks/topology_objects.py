"""Nodes and pods as an API server returns them, with the fields that a kubelet writes."""

from typing import Any

from benchmarks.topology_worlds import TopologySize

_AT = "2026-01-01T00:00:00Z"


def node_object(number: int, size: TopologySize) -> dict[str, Any]:
    """Return a node with labels of a topology, conditions and images."""
    name, rack = size.host(number), number // size.hosts_of_rack
    conditions = [
        {"type": kind, "status": status, "lastHeartbeatTime": _AT, "reason": "Kubelet", "message": "kubelet"}
        for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
    ]
    capacity = {"cpu": "96", "memory": "393216Mi", "ephemeral-storage": "500Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(1000 + number),
            "labels": {
                "block": f"block-{rack // 10:02}",
                "rack": f"rack-{rack:03}",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "large",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": conditions,
            "images": [{"names": [f"registry/image-{at}"], "sizeBytes": 10**8} for at in range(20)],
        },
    }


def pod_object(number: int, size: TopologySize) -> dict[str, Any]:
    """Return a pod of a user without a queue that runs on a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:06}",
            "namespace": "system",
            "uid": f"00000000-0000-0000-0001-{number:012}",
            "resourceVersion": str(100_000 + number),
            "labels": {"app": "agent", "pod-template-hash": f"{number:06}"},
        },
        "spec": {
            "nodeName": size.host(number % size.hosts),
            "containers": [
                {
                    "name": "main",
                    "image": "registry/image-1",
                    "env": [{"name": f"NAME_{at}", "value": "value"} for at in range(5)],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }
            ],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "startTime": _AT},
    }
