"""How much of a caller's time for an answer is over."""

import time
from collections.abc import Callable


def percent_used(seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[], int]:
    """Return a function that returns how many percent of some seconds from now are over.

    It counts on after 100. Without any time, it returns 100 at once.

    Args:
        seconds: the caller's time.
        clock: monotonic, in seconds.
    """
    began = clock()

    def used() -> int:
        return 100 if seconds <= 0 else int((clock() - began) * 100 / seconds)

    return used
