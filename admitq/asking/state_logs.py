"""The state of a core from the log of a process that was asked for a state dump (signal SIGUSR2).

The log has the state in parts, one in each line. Lines of other processes and other text are ignored, and a
line may begin with a prefix, as ``kubectl logs --prefix`` writes it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, cast

from admitq.asking.stored_objects import SourceError
from admitq.core.dump import Dump, DumpedObjects, DumpError
from admitq.core.model import Instant
from admitq.core.state import AdmissionState
from admitq_api.conditions import parse_time
from admitq_api.json_objects import JsonObject, text_at

_PART: Final = "state dump: part of state"
_FINISHED: Final = "state dump: finished"
_BEGUN: Final = "state dump: cached objects"
"""The events of the first line, of each part and of the last line of a dump."""

_KIND: Final = "is"
"""The field of a dumped value with the name of its type."""

_OBJECTS: Final = "objects."
"""The begin of the names of parts with observed objects."""


@dataclass(frozen=True, slots=True)
class StateLog:
    """A state from a log, and the time of the dump in nanoseconds since the Unix epoch; 0: unknown."""

    state: AdmissionState
    dumped_at: Instant


def find_state(text: str, shown: str) -> StateLog | None:
    """Return the state of the last finished dump in a log; None if the text is no log with a dump.

    Args:
        text: the text.
        shown: the name of its file in errors.

    Raises:
        SourceError: no dump is complete, or the state cannot be read.
    """
    if _PART not in text:
        return None
    parts: list[JsonObject] = []
    values: dict[str, Any] | None = None
    dumped_at = 0
    for line in _lines(text):
        event = line.get("event")
        if event == _BEGUN:
            parts = []
        elif event == _PART:
            parts.append(line)
        elif event == _FINISHED:
            values, dumped_at = _assemble(parts, shown), _time_of(line)
    if values is None:
        raise SourceError(f"{shown}: the log has no finished state dump: collect it until {_FINISHED!r}")
    try:
        return StateLog(AdmissionState.from_dict(values), dumped_at)
    except DumpError as error:
        raise SourceError(f"{shown}: the state dump cannot be read: {error}") from None


def _lines(text: str) -> Iterator[JsonObject]:
    for line in text.splitlines():
        start = line.find("{")
        if start < 0 or "state dump: " not in line:
            continue
        try:
            entry: Any = json.loads(line[start:])
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield cast("JsonObject", entry)


def _assemble(lines: Iterable[JsonObject], shown: str) -> dict[str, Any]:
    """Return the dump from the lines of its parts. Parts without values have no lines."""
    objects: dict[str, Any] = {
        _KIND: DumpedObjects.__name__,
        **{each.name: [] for each in fields(DumpedObjects)},
    }
    whole: dict[str, Any] = {
        _KIND: Dump.__name__,
        **{each.name: [] for each in fields(Dump)},
        "objects": objects,
    }
    for line in lines:
        name, target = text_at(line, ("part",)), whole
        if name.startswith(_OBJECTS):
            name, target = name.removeprefix(_OBJECTS), objects
        try:
            values: Any = json.loads(text_at(line, ("values",)))
        except ValueError:
            raise SourceError(f"{shown}: part {name} of the state dump is cut off") from None
        if isinstance(values, list):
            if line.get("first_index") != len(target.get(name, ())):
                raise SourceError(f"{shown}: lines of part {name} of the state dump are missing")
            target[name] += values
        else:
            target[name] = values
    return whole


def _time_of(line: JsonObject) -> Instant:
    try:
        return parse_time(text_at(line, ("time",)))
    except ValueError:
        return 0
