"""The admission gates of an object, which delay its admission (semantics, admission-gated-by)."""

from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names


def list_gates(obj: JsonObject, names: Names) -> list[str]:
    """Return the gates in an object's annotation, without surrounding spaces.

    An empty annotation means that the last gate was removed.
    """
    listed = value_at(obj, ("metadata", "annotations", names.admission_gated_by), "")
    return [gate.strip() for gate in listed.split(",")] if isinstance(listed, str) and listed else []


def list_holding_gates(obj: JsonObject, names: Names) -> list[str]:
    """Return the gates that delay the admission of an object. Gates with an empty name do not."""
    return [gate for gate in list_gates(obj, names) if gate]
