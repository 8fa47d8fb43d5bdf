"""A limit of concurrent writes that follows the load of the API server.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): the limit grows by one for each round of
writes while the API server is fast enough, and shrinks by a factor when it is too slow or rejects a write.
After a rejection it does not grow for a while: each rejected write waits for about a second until its retry,
so rejections cost more than a limit that is somewhat too small.
"""

import math
from dataclasses import dataclass
from typing import Final

_DECREASE_IF_SLOW: Final = 0.8
_DECREASE_IF_REJECTED: Final = 0.5
NO_GROWTH_AFTER_REJECTION_S: Final = 10.0
"""The seconds for which a limit does not grow after a rejection."""


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """The bounds of a limit.

    Args:
        least: the smallest limit. A limit below 1 is a share of time: with 0.1, one write is in progress
            during a tenth of the time.
        most: the largest limit.
        tolerance: how many times slower than an idle one the API server may be before the limit shrinks.
    """

    least: float
    most: float
    tolerance: float


class AdaptiveLimit:
    """The limit of concurrent writes of one class."""

    def __init__(self, bounds: LimitBounds) -> None:
        self._bounds = bounds
        self.value = bounds.most
        self._writes_before_decrease = 0
        """How many writes must end before the next decrease: those that began before the last one."""
        self._grows_from = float("-inf")

    @property
    def least(self) -> float:
        """The smallest limit."""
        return self._bounds.least

    def adapt(self, slowness: float, now: float, *, is_rejected: bool, is_used: bool) -> None:
        """Adapt the limit after a write.

        Args:
            slowness: how many times slower than an idle one the API server is.
            now: the time in seconds, of any clock that never goes back.
            is_rejected: whether the API server rejected the write because of its load, or did not answer.
            is_used: whether as many writes were in progress as the limit allows. Else the API server has not
                shown that it can do more.
        """
        self._writes_before_decrease = max(0, self._writes_before_decrease - 1)
        if is_rejected:
            self.shrink_after_rejection(now)
        elif slowness > self._bounds.tolerance:
            self._shrink(_DECREASE_IF_SLOW)
        elif is_used and now >= self._grows_from:
            # Below 1, a round is one write.
            step = self.value if self.value < 1 else 1 / self.value
            self.value = min(self._bounds.most, self.value + step)

    def shrink_after_rejection(self, now: float) -> None:
        """Shrink the limit, because the API server rejected a write of this class or of a higher one.

        Args:
            now: the time in seconds, of the same clock as in `adapt`.
        """
        self._grows_from = now + NO_GROWTH_AFTER_REJECTION_S
        self._shrink(_DECREASE_IF_REJECTED)

    def _shrink(self, factor: float) -> None:
        if not self._writes_before_decrease:
            self._writes_before_decrease = math.ceil(self.value)
            self.value = max(self._bounds.least, self.value * factor)
