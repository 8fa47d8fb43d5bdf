"""Which of its representations a client accepts: the object, or a table of it."""

from collections.abc import Iterator, Mapping
from typing import Final

_OBJECT: Final = frozenset({"application/json", "application/*", "*/*"})
_TABLE: Final[Mapping[str, str]] = {"as": "Table", "g": "meta.k8s.io", "v": "v1"}
"""The parameters by which kubectl requests a table."""


def wants_table(accept: str) -> bool | None:
    """Return whether a client prefers a table to the object; None if it accepts neither.

    Args:
        accept: the header of that name; empty for any representation.
    """
    if not accept.strip():
        return False
    for media_type, parameters in _iterate_media_types(accept):
        if "as" not in parameters:
            if media_type in _OBJECT:
                return False
        elif media_type == "application/json" and _TABLE.items() <= parameters.items():
            return True
    return None


def _iterate_media_types(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the media types of the header, in its order, which is the order of preference of all clients."""
    for each in accept.split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        yield media_type.lower(), {key.strip().lower(): value.strip() for key, _, value in pairs}
