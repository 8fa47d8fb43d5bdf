"""Find the levels of a topology that a podset requests (semantics, Placement algorithm)."""

from typing import NamedTuple

from admitq.core.topology.leaf_room import Layer
from admitq.core.topology.refusals import (
    LayerNotBelow,
    LayerNotDivisor,
    LevelRefusal,
    NoSuchLevel,
    SlicesAboveRequest,
)
from admitq.core.topology.request import SliceLayer, TopologyRequest


class RequestedLevels(NamedTuple):
    """A request, with the indexes of levels.

    Attributes:
        level: the requested level.
        layers: the slices, outermost first. Without slices, each pod is a slice of the lowest level.
        may_widen: whether wider levels may be tried.
        may_spread: whether several domains of the level may be used.
        is_unconstrained: whether the podset requests no domain for all of its pods.
    """

    level: int
    layers: tuple[Layer, ...]
    may_widen: bool
    may_spread: bool
    is_unconstrained: bool


def find_levels(request: TopologyRequest, levels: tuple[str, ...]) -> RequestedLevels | LevelRefusal:
    """Return the requested levels, or why the topology with these levels cannot satisfy the request.

    The level is the required or preferred one. It is the highest one if only slices are requested, and the
    lowest one if nothing is.
    """
    layers = _find_layers(request.slices, levels)
    if not isinstance(layers, tuple):
        return layers
    label = request.required or request.preferred
    if label is None:
        return RequestedLevels(
            0 if request.slices else len(levels) - 1,
            layers,
            may_widen=False,
            may_spread=True,
            is_unconstrained=True,
        )
    if label not in levels:
        return NoSuchLevel(label)
    level = levels.index(label)
    if layers[0].level < level:
        return SlicesAboveRequest(request.slices[0].level, label)
    is_preferred = request.required is None
    return RequestedLevels(
        level, layers, may_widen=is_preferred, may_spread=is_preferred, is_unconstrained=False
    )


def _find_layers(
    slices: tuple[SliceLayer, ...], levels: tuple[str, ...]
) -> tuple[Layer, ...] | NoSuchLevel | LayerNotBelow | LayerNotDivisor:
    if not slices:
        return (Layer(len(levels) - 1, 1),)
    layers: list[Layer] = []
    for label, size in slices:
        if label not in levels:
            return NoSuchLevel(label, of_slices=True)
        layer = Layer(levels.index(label), size)
        if layers and layer.level <= layers[-1].level:
            return LayerNotBelow(label, levels[layers[-1].level])
        if layers and layers[-1].size % size:
            return LayerNotDivisor(size, layers[-1].size)
        layers.append(layer)
    return tuple(layers)
