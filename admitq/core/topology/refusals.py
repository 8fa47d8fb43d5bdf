"""Reasons why a topology has no place for pods, as values (semantics, Placement algorithm)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class NodeObstacle(StrEnum):
    """Why no pod of a shape fits on a node."""

    AFFINITY = "affinity"
    NODE_SELECTOR = "nodeSelector"
    RESOURCE = "resource"
    TAINT = "taint"
    TOPOLOGY_DOMAIN = "topologyDomain"
    """The node is outside of the domain in which the pods of the podset must stay."""


class NodeExclusion(NamedTuple):
    """Why no pod fits on a node. ``name`` is that of the resource, or the text of the taint."""

    obstacle: NodeObstacle
    name: str = ""


class LayerShortfall(NamedTuple):
    """How many slices of a layer fit, and how many are wanted. ``level`` is the label of the level."""

    level: str
    fitting: int
    wanted: int


@dataclass(frozen=True, slots=True)
class NoRoomInTopology:
    """Not all pods fit.

    Attributes:
        topology: the name of the Topology.
        unit: the number of pods of a slice; 1 without slices.
        fitting: how many slices fit at most.
        wanted: how many slices are wanted.
        nodes: the number of nodes of the flavor.
        excluded: the number of nodes on which no pod fits, by reason, sorted.
        layers: with slices in slices, how many of each fit; else empty.
    """

    topology: str
    unit: int
    fitting: int
    wanted: int
    nodes: int = 0
    excluded: tuple[tuple[NodeExclusion, int], ...] = ()
    layers: tuple[LayerShortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class NoSuchLevel:
    """The topology does not have the requested level. ``of_slices``: it is the level of slices."""

    level: str
    of_slices: bool = False


@dataclass(frozen=True, slots=True)
class SlicesAboveRequest:
    """The slices would be wider than the requested domain."""

    slices: str
    requested: str


@dataclass(frozen=True, slots=True)
class LayerNotBelow:
    """A smaller slice is not on a narrower level than the slice that consists of it."""

    level: str
    outer: str


@dataclass(frozen=True, slots=True)
class LayerNotDivisor:
    """The number of pods of a smaller slice does not divide that of the slice that consists of it."""

    size: int
    outer: int


@dataclass(frozen=True, slots=True)
class TwoTopologies:
    """A podset was assigned flavors with different topologies for its resources."""

    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaleDomain:
    """The pods of a failed host are not placed again: other pods are in a domain that does not exist.

    ``domain`` has the values that identify it.
    """

    domain: tuple[str, ...]


LevelRefusal = NoSuchLevel | SlicesAboveRequest | LayerNotBelow | LayerNotDivisor
TopologyRefusal = NoRoomInTopology | LevelRefusal | TwoTopologies | StaleDomain
