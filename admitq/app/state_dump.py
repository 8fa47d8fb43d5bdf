"""Dumps of the core's state to the log: the numbers of cached objects, quota, queues and their workloads.

The state is copied in one step, so that it is consistent. A separate thread encodes and logs the copy, so
that no other work waits. Log collectors cut long lines, so each line has only some values of one part. The
values of all lines of a part, in order, are the whole part. The assembled dump can be loaded into a core.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Final

import orjson

from admitq.core import dump
from admitq.core.dump import Dump, DumpedObjects
from admitq.core.state import AdmissionState
from admitq.process.logs import logger

log = logger(__name__)

PER_LINE: Final = 100
"""How many objects one line holds."""


def split_dump(state: Dump | DumpedObjects, prefix: str = "") -> Iterator[tuple[str, int, object]]:
    """Yield the parts of a state, with JSON values.

    Yields:
        The name of a part, the position of the first value in the part, and the values. Observed objects are
        separate parts, such as ``objects.workloads``.
    """
    for part in fields(state):
        name, value = prefix + part.name, getattr(state, part.name)
        if isinstance(value, DumpedObjects):
            yield from split_dump(value, f"{name}.")
        # A plain tuple is a list of objects. A named tuple is one object.
        elif isinstance(value, tuple) and not hasattr(value, "_fields"):
            for begin in range(0, len(value), PER_LINE):  # type: ignore[reportUnknownArgumentType]
                yield name, begin, dump.encode(value[begin : begin + PER_LINE])  # type: ignore[reportUnknownArgumentType]
        else:
            yield name, 0, dump.encode(value)


class StateDumper:
    """Dumps the state on demand, one dump at a time.

    Args:
        state: the core.
        cached: returns the number of cached objects of each resource.
    """

    def __init__(self, state: AdmissionState, cached: Callable[[], Mapping[str, int]]) -> None:
        self._state = state
        self._cached = cached
        self._writing: threading.Thread | None = None

    def begin(self) -> None:
        """Copy the state and start to log it. Do nothing if the previous dump is still running."""
        if self._writing is not None and self._writing.is_alive():
            log.warning("state dump already running")
            return
        if self._state.is_in_cycle:
            log.warning("state dump refused while state is rebuilt")
            return
        state, cached = self._state.to_dump(), self._cached()
        self._writing = threading.Thread(target=_write, args=(state, cached), name="dump", daemon=True)
        self._writing.start()

    def wait(self) -> None:
        """Wait until the dump that was started last is logged."""
        if self._writing is not None:
            self._writing.join()


def _write(state: Dump, cached: Mapping[str, int]) -> None:
    log.info("state dump: cached objects", objects=dict(cached))
    for part, begin, values in split_dump(state):
        log.info(
            "state dump: part of state", part=part, first_index=begin, values=orjson.dumps(values).decode()
        )
    log.info("state dump: finished")
