"""How garbage is collected in processes that keep many objects and leave few circles behind."""

import gc
import time
from typing import Any, Final, Literal

_THRESHOLDS: Final = (20_000, 5, 2)
"""New objects after which circles are looked for among them, and collections after which older ones are
included. One cycle of admission makes more objects than the 700 after which Python looks."""

_LONG_SECONDS: Final = 0.02
"""A collection that takes longer is the last one that goes through the objects which it found in use."""


def reduce_collections() -> None:
    """Look for circles rarely, and go through objects that live on until no collection takes long for them.

    A collection stops the whole process. Without this, one that goes through all objects of 50,000 workloads
    stops it for a third of a second. Objects that are not gone through are freed as before once nothing
    refers to them; only circles among them stay.
    """
    gc.set_threshold(*_THRESHOLDS)
    if _spare_after_long not in gc.callbacks:
        gc.callbacks.append(_spare_after_long)


def exclude_current_objects() -> None:
    """Have collections pass over all objects of this moment, which live on."""
    gc.collect()
    gc.freeze()


_began = 0.0


def _spare_after_long(phase: Literal["start", "stop"], _info: dict[str, Any]) -> None:
    global _began  # noqa: PLW0603  # Python calls it in pairs, and has one collector for the process.
    if phase == "start":
        _began = time.perf_counter()
    elif time.perf_counter() - _began > _LONG_SECONDS:
        gc.freeze()
