"""A limit of concurrent writes that follows the load of the API server.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): the limit grows by one for each round of
writes while the API server is fast enough, and shrinks by a factor when it is too slow or rejects a write.
"""

import math
from dataclasses import dataclass
from typing import Final

_DECREASE_IF_SLOW: Final = 0.8
_DECREASE_IF_REJECTED: Final = 0.5


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

    @property
    def least(self) -> float:
        """The smallest limit."""
        return self._bounds.least

    def adapt(self, slowness: float, *, is_rejected: bool, is_used: bool) -> None:
        """Adapt the limit after a write.

        Args:
            slowness: how many times slower than an idle one the API server is.
            is_rejected: whether the API server rejected the write because of its load, or did not answer.
            is_used: whether as many writes were in progress as the limit allows. Else the API server has not
                shown that it can do more.
        """
        self._writes_before_decrease = max(0, self._writes_before_decrease - 1)
        if is_rejected or slowness > self._bounds.tolerance:
            if not self._writes_before_decrease:
                self._writes_before_decrease = math.ceil(self.value)
                factor = _DECREASE_IF_REJECTED if is_rejected else _DECREASE_IF_SLOW
                self.value = max(self._bounds.least, self.value * factor)
        elif is_used:
            # Below 1, a round is one write.
            step = self.value if self.value < 1 else 1 / self.value
            self.value = min(self._bounds.most, self.value + step)
