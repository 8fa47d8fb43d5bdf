"""How long after failures a write is tried again: one rule for requests and for whole reservations."""

from typing import Final

from admitq.core.model import SECOND, Instant

RETRY_BASE: Final[Instant] = SECOND // 20
RETRY_MAX: Final[Instant] = 30 * SECOND

_DOUBLINGS: Final = 10
"""After so many, the delay has reached its limit."""


def retry_delay(failures: int) -> Instant:
    """Nanoseconds to wait after failures in a row; doubles with each after the first."""
    return min(RETRY_MAX, RETRY_BASE << min(max(0, failures - 1), _DOUBLINGS))
