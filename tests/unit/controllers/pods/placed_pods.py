"""Workloads with topology assignments, their pods and their nodes, for tests of controllers."""

from collections.abc import Mapping
from typing import Any

from admitq_api.topology_assignments import Domain, encode
from tests.unit.controllers.builders import NAMES, OWNER, admitted, timestamp

HOST = "kubernetes.io/hostname"
INDEX = "example.com/index"
GROUP_INDEX = "example.com/group"
OF_GROUP: dict[str, Any] = {"owner": None, "metadata": {"annotations": {NAMES.is_group_workload: "true"}}}
"""Parts of the Workload of a group of pods."""


def hosts(text: str) -> list[Domain]:
    """Return the domains of a text such as ``a:2 b:1``: hosts with their numbers of pods."""
    return [((name,), int(count)) for name, count in (part.split(":") for part in text.split())]


def pod(
    name: str,
    index: object = None,
    *,
    on: str = "",
    group: object = None,
    podset: str = "main",
    workload: str = "job-j-1",
    **parts: Any,
) -> dict[str, Any]:
    """Return a gated pod with this index, or one that was ungated into a host."""
    labels: dict[str, str] = {NAMES.podset: podset}
    labels |= {} if index is None else {INDEX: str(index)}
    labels |= {} if group is None else {GROUP_INDEX: str(group)}
    selector: Mapping[str, str] = {"pool": "spot", **({HOST: on} if on else {})}
    gates = [*parts.pop("gates", ()), *(() if on else (NAMES.topology_gate,))]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "creationTimestamp": timestamp(parts.pop("at", 0)),
            "labels": labels,
            "annotations": {NAMES.workload: workload, **parts.pop("annotations", {})},
            "ownerReferences": [OWNER],
            **({"deletionTimestamp": timestamp(1)} if parts.pop("deleted", False) else {}),
        },
        "spec": {
            "nodeSelector": dict(selector),
            "schedulingGates": [{"name": gate} for gate in gates],
            **({"nodeName": parts.pop("node")} if "node" in parts else {}),
        },
        "status": {"phase": parts.pop("phase", "Pending")},
    }


def node(
    host: str, *taints: dict[str, Any], ready: str = "True", since: float = 0, name: str = ""
) -> dict[str, Any]:
    """Return a trimmed node of a host, which is ready or not since so many seconds."""
    name = name or f"node-{host}"
    state = {"type": "Ready", "status": ready, "lastTransitionTime": timestamp(since)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": {HOST: host}},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [state]},
    }


def placed_workload(assigned: str = "a:2 b:1", request: Any = None, **parts: Any) -> dict[str, Any]:
    """Return an admitted Workload of one podset with these hosts, and with the index of its pods."""
    domains = hosts(assigned)
    count = sum(pods for _, pods in domains)
    request = {"podIndexLabel": INDEX} if request is None else request
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "main", "count": count, "topologyAssignment": encode((HOST,), domains)}
        ],
    }
    spec = {"podSets": [{"name": "main", "count": count, "template": {}, "topologyRequest": request}]}
    return admitted(admission=admission, spec=spec, **parts)
