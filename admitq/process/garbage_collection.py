"""Settings of the garbage collector for processes that keep many objects and create few reference cycles."""

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Literal

_THRESHOLDS: Final = (20_000, 5, 2)
"""How many new objects start a collection, and after how many collections older objects are included.

Python's default of 700 objects is less than one admission cycle creates."""

_LONG_SECONDS: Final = 0.02
"""After a collection that takes longer, later collections skip the objects that it found in use."""


def reduce_collections() -> None:
    """Collect garbage rarely, and skip long-lived objects once a collection of them takes long.

    A collection stops the whole process. With the objects of 50,000 workloads, a full collection would stop
    it for a third of a second. Skipped objects are still freed when nothing refers to them. Only reference
    cycles among them are never freed.
    """
    gc.set_threshold(*_THRESHOLDS)
    if _spare_after_long not in gc.callbacks:
        gc.callbacks.append(_spare_after_long)


def exclude_current_objects() -> None:
    """Make later collections skip all objects that exist now."""
    gc.collect()
    gc.freeze()


@contextmanager
def spare_loaded_objects() -> Generator[None]:
    """Run no collection in the block, which loads many objects, and make later collections skip these.

    A collection during or after the load would traverse all of them, and find nearly nothing.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


_began = 0.0


def _spare_after_long(phase: Literal["start", "stop"], _info: dict[str, Any]) -> None:
    global _began  # noqa: PLW0603  # Python calls this before and after each collection, and has one collector for the process.
    if phase == "start":
        _began = time.perf_counter()
    elif time.perf_counter() - _began > _LONG_SECONDS:
        gc.freeze()
