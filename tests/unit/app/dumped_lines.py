"""The state that the lines of a dump in a log make together."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from admitq.core.dump import Dump, DumpedObjects


def assembled(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The dump, as JSON values. Values of a part must follow one another."""
    objects: dict[str, Any] = {"is": "DumpedObjects", **{each.name: [] for each in fields(DumpedObjects)}}
    whole: dict[str, Any] = {"is": "Dump", **{each.name: [] for each in fields(Dump)}, "objects": objects}
    for line in lines:
        values, name, of = json.loads(line["values"]), line["part"], whole
        if name.startswith("objects."):
            of, name = objects, name.removeprefix("objects.")
        if isinstance(values, list):
            assert line["begin"] == len(of[name])
            of[name] += values
        else:
            of[name] = values
    return whole
