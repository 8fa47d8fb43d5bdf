"""Simulated nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localcluster.api import Api, ApiFailure


class NodeOptionError(Exception):
    """A label or taint has the wrong form."""


@dataclass(frozen=True)
class NodeTaint:
    """A node taint; the effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class NodePool:
    """A number of equal nodes.

    Attributes:
        count: number of nodes.
        cpu: allocatable CPU of each, as a Kubernetes quantity.
        memory: allocatable memory of each, as a Kubernetes quantity.
        pods: maximum number of pods of each.
        prefix: prefix of their names: `node-0`, `node-1`, …
        labels: labels in addition to the well-known ones.
        taints: taints of each.
        resources: allocatable amounts of other resources.
    """

    count: int = 100
    cpu: str = "10"
    memory: str = "10Gi"
    pods: int = 110
    prefix: str = "node"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The names of the nodes."""
        return [f"{self.prefix}-{number}" for number in range(self.count)]


def create(api: Api, pool: NodePool) -> None:
    """Create the nodes of a pool. Nodes that exist are not changed."""
    for name in pool.names():
        try:
            api.request("POST", "/api/v1/nodes", _node(name, pool))
        except ApiFailure as failure:
            if failure.status != 409:
                raise


def ready_count(api: Api) -> int:
    """Return how many nodes are ready and accept pods."""
    nodes = api.request("GET", "/api/v1/nodes")["items"]
    return sum(_is_ready(node) for node in nodes)


def parse_label(text: str) -> tuple[str, str]:
    """Parse a label of the form `key=value`.

    Raises:
        NodeOptionError: it has another form.
    """
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise NodeOptionError(f"{text!r} does not have the form key=value")
    return key, value


def parse_taint(text: str) -> NodeTaint:
    """Parse a taint of the form `key=value:Effect` or `key:Effect`, as for kubectl.

    Raises:
        NodeOptionError: it has another form.
    """
    key_and_value, separator, effect = text.rpartition(":")
    key, _, value = key_and_value.partition("=")
    if not key or not separator or effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
        raise NodeOptionError(
            f"{text!r} does not have the form key=value:Effect "
            "with the effect NoSchedule, PreferNoSchedule or NoExecute"
        )
    return NodeTaint(key, value, effect)


def _node(name: str, pool: NodePool) -> dict[str, Any]:
    amounts = {"cpu": pool.cpu, "memory": pool.memory, "pods": str(pool.pods), **pool.resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **pool.labels,
            },
        },
        "spec": {
            "taints": [
                {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints
            ]
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def _is_ready(node: dict[str, Any]) -> bool:
    # The API server taints a new node until the node lifecycle controller finds it ready.
    if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", [])):
        return False
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
