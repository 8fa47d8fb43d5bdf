"""Parts of CEL expressions that several match conditions have.

``object`` and ``oldObject`` are the new and the stored object.
"""

from collections.abc import Iterable
from typing import Final

from admitq_api.labels import KeyKind, Names

LONGEST_LABEL_VALUE: Final = 63
"""Most characters of the value of a label."""

MOST_ENTRIES: Final = 16
"""The webhook is called if a list or map that a condition iterates over has more entries. Otherwise the cost
of the condition would grow with the object."""


def differs(field: str) -> str:
    """Return the expression that is true if a field was added, removed or changed.

    The object that contains the field must exist before and after, for example the metadata.
    """
    return (
        f"has(object.{field}) != has(oldObject.{field})"
        f" || (has(object.{field}) && object.{field} != oldObject.{field})"
    )


def map_at(path: str) -> str:
    """Return the expression for the map at a path, or for an empty map if there is none."""
    steps = path.split(".")
    found = " && ".join(f"has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1))
    return f"({found} ? {path} : {{}})"


def list_of(texts: Iterable[str]) -> str:
    """Return a list of texts, which must not contain quotes."""
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"


def keys(names: Names, *kinds: KeyKind) -> str:
    """Return the list of the keys of these kinds."""
    return list_of(row.key for row in names.list_rows() if row.kind in kinds)
