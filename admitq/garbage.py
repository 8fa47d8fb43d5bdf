"""How garbage is collected in processes that keep many objects and leave few circles behind."""

import gc
from typing import Final

_YOUNG: Final = 20_000
"""New objects after which circles are looked for; one cycle of admission makes more than Python's own 700."""


def collect_rarely() -> None:
    """Look for circles among new objects after more of them than Python does of itself."""
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


def spare_what_is_there() -> None:
    """Have collections pass over all objects of this moment, which live on."""
    gc.collect()
    gc.freeze()
