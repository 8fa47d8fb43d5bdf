"""The shipped scenarios: those that are part of the package, by name."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml

from admitq.simulator.schema import KIND

FOLDER = Path(__file__).parent / "scenarios"


def shipped_scenarios() -> Mapping[str, Path]:
    """Return the files by name, in alphabetical order."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def shipped_descriptions() -> Mapping[str, str]:
    """Return what each shipped scenario shows, by name."""
    return {name: _description(path) for name, path in shipped_scenarios().items()}


def _description(path: Path) -> str:
    for document in yaml.load_all(path.read_bytes(), yaml.CSafeLoader):
        if document["kind"] == KIND:
            return document["spec"]["description"]
    return ""


def similar_scenario(name: str) -> str | None:
    """Return the shipped scenario with the name most similar to a misspelled one, if any is."""
    matches = get_close_matches(Path(name).stem.lower(), shipped_scenarios(), n=1)
    return matches[0] if matches else None
