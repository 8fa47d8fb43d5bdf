"""Priorities of Workloads: the stated one and the boost by an annotation."""

import re
from contextlib import suppress
from typing import Final, NamedTuple

from admitq.translate.read_options import ReadOptions
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField, require_int, require_object

_SIGNED_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32: Final = range(-(2**31), 2**31)


class StatedPriority(NamedTuple):
    """The priority in the spec of a Workload, and the boost by its annotation; the sum is effective."""

    base: int
    boost: int


def read_priority(obj: JsonObject, names: Names, how: ReadOptions) -> StatedPriority:
    """Read the priority of a Workload.

    Raises:
        MalformedField: the priority or the boost is not a 32-bit integer.
    """
    base = require_int(require_object(obj.get("spec"), "spec").get("priority") or 0, "spec.priority")
    annotations = require_object(obj["metadata"].get("annotations"), "metadata.annotations")
    boost = annotations.get(names.priority_boost) if how.allows_priority_boost else None
    if boost is None:
        return StatedPriority(base, 0)
    if not _SIGNED_INTEGER.fullmatch(boost) or int(boost) not in _INT32:
        field = f"metadata.annotations[{names.priority_boost}]"
        raise MalformedField(field, "must be a whole number of 32 bits, such as 10 or -10")
    return StatedPriority(base, int(boost))


def read_priority_leniently(obj: JsonObject, names: Names, how: ReadOptions) -> StatedPriority:
    """Read the priority of a Workload; an invalid boost counts as 0, and so does an invalid priority."""
    with suppress(MalformedField):
        return read_priority(obj, names, how)
    return StatedPriority(read_base_priority_leniently(obj), 0)


def read_base_priority_leniently(obj: JsonObject) -> int:
    """Read the priority in the spec of a Workload; 0 if it is absent or invalid."""
    stated = require_object(obj.get("spec"), "spec").get("priority")
    return stated if isinstance(stated, int) else 0
