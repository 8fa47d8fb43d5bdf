"""Read the comments of the chart's values.yaml as its documentation.

A comment that begins with ``# --`` describes the key below it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from localcluster.folders import REPOSITORY

VALUES = REPOSITORY / "charts" / "admitq" / "values.yaml"

_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z0-9_.-]+):")
_COMMENT = re.compile(r"^ *# ?(?P<text>.*)$")
_MARK = "-- "


class Value(NamedTuple):
    """One value: its path with dots, its default, and its description."""

    path: str
    default: Any
    description: str


def documented(text: str | None = None) -> list[Value]:
    """Return the values that have a description, in the order of the file."""
    source = VALUES.read_text() if text is None else text
    defaults = yaml.load(source, Loader=yaml.CSafeLoader)
    values: list[Value] = []
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in source.splitlines():
        if match := _COMMENT.match(line):
            comment.append(match["text"].strip())
            continue
        if match := _KEY.match(line):
            indent = len(match["indent"])
            parents = [*(parent for parent in parents if parent[0] < indent), (indent, match["key"])]
            words = " ".join(comment)
            if words.startswith(_MARK):
                path = [key for _, key in parents]
                values.append(Value(".".join(path), _at(defaults, path), words.removeprefix(_MARK)))
        comment = []
    return values


def undocumented(values: list[Value]) -> list[str]:
    """Return the paths that have no description and are not below a path that has one."""
    known = {value.path for value in values}
    defaults = yaml.load(VALUES.read_text(), Loader=yaml.CSafeLoader)
    return [path for path in _leaves(defaults, "", known) if path not in known]


def page() -> str:
    """Return the reference page."""
    rows = [f"| `{value.path}` | `{_shown(value.default)}` | {value.description} |" for value in documented()]
    return "\n".join(
        [
            "# Values of the chart",
            "",
            "Helm refuses other values. Values of `podDefaults` apply to both Deployments. You can also set",
            "each of them under `manager` or `webhook`, which takes precedence.",
            "",
            "| value | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _leaves(value: Any, path: str, known: set[str]) -> Iterator[str]:
    if path in known or not isinstance(value, dict) or not value:
        yield path
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{path}.{key}" if path else str(key), known)


def _at(value: Any, path: list[str]) -> Any:
    for key in path:
        value = value[key]
    return value


def _shown(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) or not value else value
