"""The topology request of a podset in a stored Workload (semantics, Workload: topologyRequest)."""

from collections.abc import Mapping
from typing import Any

from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq_api.stored_fields import MalformedField, require_int, require_list, require_object, require_text


def read_topology_request(raw: Mapping[str, Any], field: str) -> TopologyRequest | None:
    """Read where pods must be placed together; None if they may be placed anywhere.

    The fields that only number pods, and the podset group, are not part of the result. Of several levels, the
    required one counts before the preferred one, and this one before an unconstrained placement.

    Raises:
        MalformedField: a field has another type, or slices have a level without a size, or no positive size.
    """
    required = require_text(raw.get("required"), f"{field}.required") or None
    preferred = require_text(raw.get("preferred"), f"{field}.preferred") or None
    is_level_set = required is not None or preferred is not None
    request = TopologyRequest(
        required=required,
        preferred=preferred if required is None else None,
        unconstrained=_read_switch(raw, "unconstrained", field) and not is_level_set,
        slices=_read_layers(raw, field) or _read_slices(raw, field),
    )
    return None if request.is_empty else request


def _read_switch(raw: Mapping[str, Any], name: str, field: str) -> bool:
    value = raw.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedField(f"{field}.{name}", "must be true or false")
    return value is True


def _read_slices(raw: Mapping[str, Any], field: str) -> tuple[SliceLayer, ...]:
    level = require_text(raw.get("podSetSliceRequiredTopology"), f"{field}.podSetSliceRequiredTopology")
    return (SliceLayer(level, _read_size(raw, "podSetSliceSize", field)),) if level else ()


def _read_layers(raw: Mapping[str, Any], field: str) -> tuple[SliceLayer, ...]:
    name = "podsetSliceRequiredTopologyConstraints"
    layers: list[SliceLayer] = []
    for index, item in enumerate(require_list(raw.get(name), f"{field}.{name}")):
        path = f"{field}.{name}[{index}]"
        layer = require_object(item, path)
        level = require_text(layer.get("topology"), f"{path}.topology")
        if not level:
            raise MalformedField(f"{path}.topology", "must be set")
        layers.append(SliceLayer(level, _read_size(layer, "size", path)))
    return tuple(layers)


def _read_size(raw: Mapping[str, Any], name: str, field: str) -> int:
    size = require_int(raw.get(name), f"{field}.{name}")
    if size < 1:
        raise MalformedField(f"{field}.{name}", "must be greater than 0")
    return size
