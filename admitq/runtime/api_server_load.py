"""How slow the API server is, estimated from the response times of writes."""

import math
import time
from collections.abc import Callable
from typing import Final

_IDLE_TIME_DOUBLES_IN_S: Final = 600.0
_LEAST_WEIGHT: Final = 0.05
_MEMORY_S: Final = 1.0
_FORGOTTEN_IN_S: Final = 10.0
_SHORTEST_S: Final = 0.0005
"""Shorter response times are measured as this. Ratios of such times would say nothing about load."""


class ApiServerLoad:
    """Estimates how many times longer the API server takes for a write than an idle one.

    The time of an idle server is the shortest response time of the same operation. It grows slowly: after a
    lasting change, such as another network, it is learned again within minutes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle_seconds: dict[str, tuple[float, float]] = {}
        """By operation, the response time of an idle server, and when it was last updated."""
        self._slowness = 1.0
        self._recorded_at = clock()

    @property
    def slowness(self) -> float:
        """The factor by which the API server is slower than an idle one; 1 if it is idle."""
        return self._slowness_at(self._clock())

    def record(self, operation: str, seconds: float) -> None:
        """Record the response time of a write.

        Args:
            operation: what was written, such as ``patch workloads/status``; times of different operations
                are not comparable.
            seconds: the time from the request to the response.
        """
        now, seconds = self._clock(), max(seconds, _SHORTEST_S)
        idle, updated_at = self._idle_seconds.get(operation, (seconds, now))
        idle = min(seconds, idle * 2 ** ((now - updated_at) / _IDLE_TIME_DOUBLES_IN_S))
        self._idle_seconds[operation] = idle, now
        weight = max(_LEAST_WEIGHT, 1 - math.exp((self._recorded_at - now) / _MEMORY_S))
        before = self._slowness_at(now)
        self._slowness = before + weight * (seconds / idle - before)
        self._recorded_at = now

    def _slowness_at(self, now: float) -> float:
        """Return the slowness. Without further writes it returns to 1, as nothing shows that it lasts."""
        return 1 + (self._slowness - 1) * math.exp((self._recorded_at - now) / _FORGOTTEN_IN_S)
