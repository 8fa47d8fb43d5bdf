"""The delay before a failed write is retried: one rule for requests and for reservations."""

from typing import Final

from admitq.core.model import SECOND, Instant

RETRY_BASE: Final[Instant] = SECOND // 20
RETRY_MAX: Final[Instant] = 30 * SECOND

_DOUBLINGS: Final = 10
"""The number of doublings after which the delay is at its maximum."""


def retry_delay(failures: int) -> Instant:
    """Return the nanoseconds to wait after consecutive failures. Each further failure doubles them."""
    return min(RETRY_MAX, RETRY_BASE << min(max(0, failures - 1), _DOUBLINGS))
