"""Topology: the hierarchy of nodes, such as blocks and racks, from the widest level to the narrowest."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from admitq_api.kinds.common import LabelKey
from admitq_api.schema import ATOMIC_LIST, ApiKind, ApiModel, ValidationRule, immutable_with_spec

HOSTNAME = "kubernetes.io/hostname"

_KEEPS_LEVELS: Final = f"levels are immutable unless {HOSTNAME} is the last one, before and after"


class TopologyLevel(ApiModel):
    """One level of the hierarchy."""

    node_label: LabelKey
    """The key of the node label with the domains of the level as values."""


class TopologySpec(ApiModel):
    """The levels of the hierarchy."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        Field(min_length=1, max_length=16),
        ATOMIC_LIST,
        ValidationRule(
            "self.all(i, self.exists_one(j, j.nodeLabel == i.nodeLabel))", "levels must be unique"
        ),
        ValidationRule(
            f"!self.exists(l, l.nodeLabel == '{HOSTNAME}') || self[size(self) - 1].nodeLabel == '{HOSTNAME}'",
            f"the {HOSTNAME} label can only be used at the last of the levels",
        ),
        ValidationRule(
            f"self == oldSelf || (self[size(self) - 1].nodeLabel == '{HOSTNAME}' "
            f"&& oldSelf[size(oldSelf) - 1].nodeLabel == '{HOSTNAME}')",
            _KEEPS_LEVELS,
        ),
    ]
    """The levels, from the widest to the narrowest."""


class Topology(ApiKind):
    """The hierarchy of nodes, such as blocks and racks, from the widest level to the narrowest."""

    plural: ClassVar[str] = "topologies"
    short_names: ClassVar[tuple[str, ...]] = ("topo",)
    rules = (immutable_with_spec("levels", _KEEPS_LEVELS),)

    spec: TopologySpec | None = None
    """The levels of the hierarchy."""
