"""The gates of an object: who has to agree before it is admitted (semantics, admission-gated-by)."""

from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names


def list_gates(obj: JsonObject, names: Names) -> list[str]:
    """The gates that an object's annotation lists, as they stand there but for spaces around them.

    An annotation that is left empty holds nothing back: the last gate was taken off.
    """
    listed = value_at(obj, ("metadata", "annotations", names.admission_gated_by), "")
    return [gate.strip() for gate in listed.split(",")] if isinstance(listed, str) and listed else []


def list_holding_gates(obj: JsonObject, names: Names) -> list[str]:
    """The gates that hold an object back: an empty name, which was stored before any check, holds nothing."""
    return [gate for gate in list_gates(obj, names) if gate]
