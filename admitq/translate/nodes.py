"""Nodes: the fields that decide where pods are placed (semantics, Topology-aware scheduling)."""

from typing import Any

from admitq.core.amounts import amounts
from admitq.core.topology.domains import Node
from admitq.translate.amounts import read_exact_amounts
from admitq.translate.metadata import read_labels
from admitq.translate.taints import read_taints
from admitq_api.json_objects import JsonObject, object_at, select_fields
from admitq_api.stored_fields import require_list, require_object

_MILLI = 1000
_READY = "Ready"


def trim_node(node: JsonObject) -> dict[str, Any]:
    """Return the part of a node that decides about pods. The kubelet updates the rest all the time."""
    spec, status = object_at(node, ("spec",)), object_at(node, ("status",))
    conditions = [
        select_fields(condition, ("type", "status", "lastTransitionTime"))
        for condition in require_list(status.get("conditions"), "status.conditions")
        if condition.get("type") == _READY
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": select_fields(node["metadata"], ("name", "uid", "resourceVersion", "labels")),
        "spec": select_fields(spec, ("taints", "unschedulable")),
        "status": {**select_fields(status, ("allocatable",)), "conditions": conditions},
    }


def read_node(node: JsonObject) -> Node:
    """Read a node. Allocatable amounts are rounded down. A node that reports no readiness is not ready.

    Raises:
        MalformedField: a field has another type, or a quantity is not readable.
    """
    spec, status = require_object(node.get("spec"), "spec"), require_object(node.get("status"), "status")
    exact = read_exact_amounts(status.get("allocatable"), "status.allocatable")
    return Node(
        name=node["metadata"]["name"],
        labels=read_labels(node["metadata"].get("labels"), "metadata.labels"),
        taints=read_taints(spec.get("taints"), "spec.taints"),
        allocatable=amounts(
            (resource, int(amount * (_MILLI if resource == "cpu" else 1))) for resource, amount in exact
        ),
        ready=any(
            condition.get("type") == _READY and condition.get("status") == "True"
            for condition in require_list(status.get("conditions"), "status.conditions")
        ),
        schedulable=not spec.get("unschedulable"),
    )
