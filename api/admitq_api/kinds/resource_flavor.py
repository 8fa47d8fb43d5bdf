"""ResourceFlavor: a group of nodes for which quota is defined separately, such as spot nodes."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from admitq_api.kinds.common import Subdomain, Taint, Toleration
from admitq_api.schema import ATOMIC_LIST, ATOMIC_MAP, ApiKind, ApiModel, ValidationRule, immutable_with_spec

_KEEPS_TOPOLOGY: Final = "topologyName is immutable once it is set"


class ResourceFlavorSpec(ApiModel):
    """The nodes of the flavor, and what is added to pods that use it."""

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
    """The labels of the nodes. They are added to the node selectors of pods."""

    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """The taints of the nodes. Only pods that tolerate them can use the flavor."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """Tolerations that are added to pods."""

    topology_name: Subdomain | None = None
    """The Topology of the nodes. If set, pods are assigned to domains of the topology."""


class ResourceFlavor(ApiKind):
    """A group of nodes for which quota is defined separately, such as spot nodes."""

    plural: ClassVar[str] = "resourceflavors"
    short_names: ClassVar[tuple[str, ...]] = ("flavor", "flavors", "rf")
    rules = (immutable_with_spec("topologyName", _KEEPS_TOPOLOGY),)

    spec: ResourceFlavorSpec | None = None
    """The nodes of the flavor, and what is added to pods that use it."""
