"""ResourceFlavor: a kind of nodes that quota is counted for by itself."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from admitq_api.kinds.common import Subdomain, Taint, Toleration
from admitq_api.schema import ATOMIC_LIST, ATOMIC_MAP, ApiKind, ApiModel, ValidationRule, immutable_with_spec

_KEEPS_TOPOLOGY: Final = "topologyName is immutable once it is set"


class ResourceFlavorSpec(ApiModel):
    """Which nodes, and what their pods need."""

    rules = (
        ValidationRule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
            "at least one of nodeLabels is required when topologyName is set",
            ".nodeLabels",
        ),
        ValidationRule(
            "!has(oldSelf.topologyName) || "
            "(has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            _KEEPS_TOPOLOGY,
            ".topologyName",
        ),
    )

    node_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=8), ATOMIC_MAP
    ] = Field(default_factory=dict)
    """The labels of the nodes; pods get them as node selector."""

    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """The taints of the nodes; only pods that tolerate them use the flavor."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """Tolerations that pods get."""

    topology_name: Subdomain | None = None
    """The Topology of the nodes; with it, pods get their places."""


class ResourceFlavor(ApiKind):
    """A kind of nodes that quota is counted for by itself."""

    plural: ClassVar[str] = "resourceflavors"
    short_names: ClassVar[tuple[str, ...]] = ("flavor", "flavors", "rf")
    rules = (immutable_with_spec("topologyName", _KEEPS_TOPOLOGY),)

    spec: ResourceFlavorSpec | None = None
    """Which nodes, and what their pods need."""
