"""Topology: how nodes are grouped, from the widest domain to the narrowest."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from admitq_api.kinds.common import LabelKey
from admitq_api.schema import ATOMIC_LIST, Kind, Part, Rule, kept_with_spec

HOSTNAME = "kubernetes.io/hostname"

_KEEPS_LEVELS: Final = f"levels are immutable unless {HOSTNAME} is the last one, before and after"


class TopologyLevel(Part):
    """One level."""

    node_label: LabelKey
    """The label whose values name the domains of the level."""


class TopologySpec(Part):
    """The levels."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        Field(min_length=1, max_length=16),
        ATOMIC_LIST,
        Rule("self.all(i, self.exists_one(j, j.nodeLabel == i.nodeLabel))", "levels must be unique"),
        Rule(
            f"!self.exists(l, l.nodeLabel == '{HOSTNAME}') || self[size(self) - 1].nodeLabel == '{HOSTNAME}'",
            f"the {HOSTNAME} label can only be used at the last of the levels",
        ),
        Rule(
            f"self == oldSelf || (self[size(self) - 1].nodeLabel == '{HOSTNAME}' "
            f"&& oldSelf[size(oldSelf) - 1].nodeLabel == '{HOSTNAME}')",
            _KEEPS_LEVELS,
        ),
    ]
    """The levels, from the widest domain to the narrowest."""


class Topology(Kind):
    """How nodes are grouped, from the widest domain to the narrowest."""

    plural: ClassVar[str] = "topologies"
    short_names: ClassVar[tuple[str, ...]] = ("topo",)
    rules = (kept_with_spec("levels", _KEEPS_LEVELS),)

    spec: TopologySpec | None = None
    """The levels."""
