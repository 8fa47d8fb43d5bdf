"""The nodes of stories with operators: those of the flavor, which pods must use, and others."""

from collections.abc import Mapping
from typing import Any, Final

from localcluster.nodes import NodePool, NodeTaint

RESERVED: Final = "reserved"
"""The prefix of the names of the flavor's nodes."""
NODE_LABELS: Final[Mapping[str, str]] = {"example.com/pool": RESERVED}
TOLERATIONS: Final[tuple[Mapping[str, Any], ...]] = (
    {"key": "example.com/reserved", "operator": "Exists", "effect": "NoSchedule"},
)
GPU: Final = "nvidia.com/gpu"
FLAVOR: Final[Mapping[str, Any]] = {"nodeLabels": NODE_LABELS, "tolerations": list(TOLERATIONS)}

POOLS: Final = (
    NodePool(
        count=4,
        cpu="64",
        memory="256Gi",
        prefix=RESERVED,
        labels=NODE_LABELS,
        taints=(NodeTaint("example.com/reserved", "true", "NoSchedule"),),
        resources={GPU: "8"},
    ),
    NodePool(count=4, cpu="64", memory="256Gi", prefix="other"),
)
"""Pods without the selector of the flavor could run on the other nodes, without its toleration only there."""
