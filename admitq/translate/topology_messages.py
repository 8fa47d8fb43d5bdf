"""Messages of reasons why a topology has no place for pods (semantics, Placement algorithm)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from admitq.core.topology.refusals import (
    LayerNotBelow,
    LayerNotDivisor,
    NodeExclusion,
    NodeObstacle,
    NoRoomInTopology,
    NoSuchLevel,
    SlicesAboveRequest,
    StaleDomain,
    TopologyRefusal,
    TwoTopologies,
)


def _no_room(of: NoRoomInTopology) -> str:
    what = "slice(s)" if of.unit > 1 else "pod(s)"
    if of.layers:
        fitting = (
            f"{layer.fitting}/{layer.wanted} slice(s) fit on level {layer.level}" for layer in of.layers
        )
        text = "; ".join(["doesn't allow to fit", *fitting])
    elif of.fitting:
        text = f"allows to fit only {of.fitting} out of {of.wanted} {what}"
    else:
        text = f"doesn't allow to fit any of {of.wanted} {what}"
    excluded = exclusions_text(of.excluded)
    nodes = f"Total nodes: {of.nodes}" + (f"; excluded: {excluded}" if excluded else "")
    return f'topology "{of.topology}" {text}. {nodes}'


def exclusions_text(excluded: Iterable[tuple[NodeExclusion, int]]) -> str:
    """Return on how many nodes no pod fits, by reason."""
    return ", ".join(sorted(f"{_describe(exclusion)}: {count}" for exclusion, count in excluded))


def _describe(exclusion: NodeExclusion) -> str:
    has_name = exclusion.obstacle in {NodeObstacle.RESOURCE, NodeObstacle.TAINT}
    return f'{exclusion.obstacle} "{exclusion.name}"' if has_name else str(exclusion.obstacle)


TOPOLOGY_TEXTS: Final[Mapping[type[TopologyRefusal], Callable[[Any], str]]] = {
    NoRoomInTopology: _no_room,
    NoSuchLevel: lambda of: (
        f"no requested topology level for slices: {of.level}"
        if of.of_slices
        else f"no requested topology level: {of.level}"
    ),
    SlicesAboveRequest: lambda of: (
        f"podset slice topology {of.slices} is above the podset topology {of.requested}"
    ),
    LayerNotBelow: lambda of: (
        f"additional slice layer topology {of.level} must be at a lower level than {of.outer}"
    ),
    LayerNotDivisor: lambda of: (
        f"additional slice layer size {of.size} must evenly divide parent layer size {of.outer}"
    ),
    StaleDomain: lambda of: (
        "Cannot replace the node, because the existing topologyAssignment is invalid, "
        f"as it contains the stale domain {','.join(of.domain)}"
    ),
    TwoTopologies: lambda of: (
        f"the resources of the pods were assigned flavors with different topologies: {', '.join(of.flavors)}"
    ),
}
"""The message of each reason."""
