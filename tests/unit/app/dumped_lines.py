"""Assemble the state from the log lines of a dump."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from admitq.core.dump import Dump, DumpedObjects


def assembled(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the dump, as JSON values. Lines of a part must be in order."""
    objects: dict[str, Any] = {"is": "DumpedObjects", **{field.name: [] for field in fields(DumpedObjects)}}
    whole: dict[str, Any] = {"is": "Dump", **{field.name: [] for field in fields(Dump)}, "objects": objects}
    for line in lines:
        values, name, target = json.loads(line["values"]), line["part"], whole
        if name.startswith("objects."):
            target, name = objects, name.removeprefix("objects.")
        if isinstance(values, list):
            assert line["first_index"] == len(target[name])
            target[name] += values
        else:
            target[name] = values
    return whole
