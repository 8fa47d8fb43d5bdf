"""The entry points by which installed packages add job kinds."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

ENTRY_POINT_GROUP: Final = "admitq.integrations"
"""The group of entry points by which packages add kinds. Each has the name of a kind's framework."""


def list_installed_kinds() -> Sequence[EntryPoint]:
    """Return the entry points of kinds in installed packages, sorted by name."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
