"""Keys, labels and times of objects of any kind."""

import sys
from collections.abc import Mapping

from admitq.core.model import Instant, Labels, ObjectKey
from admitq_api import conditions
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_text


def key_of(obj: JsonObject) -> ObjectKey:
    """Return namespace and name of an object."""
    metadata = obj["metadata"]
    # Many objects share a namespace, and then also its memory.
    return ObjectKey(sys.intern(metadata.get("namespace", "")), metadata["name"])


def read_labels(values: Mapping[str, str] | None, field: str = "labels") -> Labels:
    """Read labels, sorted by key.

    Raises:
        MalformedField: a value is not a string.
    """
    return tuple(sorted([(key, require_text(value, field)) for key, value in (values or {}).items()]))


def read_time(value: str | None) -> Instant:
    """Read a time; 0 if it is absent."""
    return conditions.parse_time(value) if value else 0
