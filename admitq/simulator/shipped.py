"""The scenarios that come with admitq, by name."""

from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "scenarios"


def shipped_scenarios() -> Mapping[str, Path]:
    """The files by name, in alphabetical order."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
