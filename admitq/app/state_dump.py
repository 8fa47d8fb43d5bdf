"""The state of the core, written to the log for whoever asks: what is cached, and who stands in which queue.

It is taken at once, so that it is consistent; it is put into words and written in a thread of its own, which
holds up nobody. A line of the log has a part of it, for log collectors cut what is long: the values of all
lines of one part, in order, make the whole again, and that can be replayed.
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
"""How many objects a line tells of."""


def split_dump(taken: Dump | DumpedObjects, prefix: str = "") -> Iterator[tuple[str, int, object]]:
    """A state in parts, with the values as JSON values.

    Returns:
        Of each part its name, the position of the first value in the part, and the values. Objects that were
        observed are parts of their own, such as ``objects.workloads``.
    """
    for each in fields(taken):
        name, value = prefix + each.name, getattr(taken, each.name)
        if isinstance(value, DumpedObjects):
            yield from split_dump(value, f"{name}.")
        # A list of objects. A named tuple is one object.
        elif isinstance(value, tuple) and not hasattr(value, "_fields"):
            for begin in range(0, len(value), PER_LINE):  # type: ignore[reportUnknownArgumentType]
                yield name, begin, dump.encode(value[begin : begin + PER_LINE])  # type: ignore[reportUnknownArgumentType]
        else:
            yield name, 0, dump.encode(value)


class StateDumper:
    """Writes states on demand, one at a time.

    Args:
        state: whose state it is.
        cached: how many objects of each resource are known.
    """

    def __init__(self, state: AdmissionState, cached: Callable[[], Mapping[str, int]]) -> None:
        self._state = state
        self._cached = cached
        self._writing: threading.Thread | None = None

    def begin(self) -> None:
        """Take the state and have it written; nothing while the last one is still being written."""
        if self._writing is not None and self._writing.is_alive():
            log.warning("state dump already running")
            return
        if self._state.is_in_cycle:
            log.warning("state dump refused during recovery")
            return
        taken, cached = self._state.taken(), self._cached()
        self._writing = threading.Thread(target=_write, args=(taken, cached), name="dump", daemon=True)
        self._writing.start()

    def wait(self) -> None:
        """Wait until what was begun is written."""
        if self._writing is not None:
            self._writing.join()


def _write(taken: Dump, cached: Mapping[str, int]) -> None:
    log.info("state dump: cached objects", objects=dict(cached))
    for part, begin, values in split_dump(taken):
        log.info("state dump: part of state", part=part, begin=begin, values=orjson.dumps(values).decode())
    log.info("state dump: finished")
