"""Topologies."""

from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_list, require_object, require_text


def read_levels(topology: JsonObject) -> tuple[str, ...]:
    """Return the labels of the levels of a Topology, the widest first.

    Raises:
        MalformedField: a field has another type.
    """
    levels = require_list(require_object(topology.get("spec"), "spec").get("levels"), "spec.levels")
    return tuple(
        require_text(level.get("nodeLabel"), f"spec.levels[{index}].nodeLabel")
        for index, level in enumerate(levels)
    )
