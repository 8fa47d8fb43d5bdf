"""How installed packages add kinds of jobs."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

ENTRY_POINT_GROUP: Final = "admitq.integrations"
"""A package adds a kind by an entry point of this group, which is called as the kind's framework is."""


def list_installed_kinds() -> Sequence[EntryPoint]:
    """The entry points of kinds that installed packages add, by name."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
