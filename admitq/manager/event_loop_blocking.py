"""How long decisions keep the event loop from its other work, and when to give it a turn."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from admitq.metrics.registry import Metrics

MAX_BLOCKING_SECONDS: Final = 0.02
"""After so long the event loop gets a turn: watches, writes, probes and the renewal of the lease."""

WINDOW_SECONDS: Final = 60.0
"""The metric shows the longest stretch of this and the former window, so that an alert on it ends."""

LONGEST_BLOCKING_METRIC: Final = "decision_longest_stretch_seconds"


class BlockingTimer:
    """Measures stretches: times in which the event loop gets no turn.

    Args:
        metrics: where the longest stretch is shown.
        clock: seconds that never decrease.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._began = self._window_began = clock()
        self._longest = self._longest_before = 0.0
        metrics.at_reading(self._set_metric)

    @property
    def should_yield(self) -> bool:
        """Whether the event loop has been blocked for ``MAX_BLOCKING_SECONDS``."""
        return self._clock() - self._began >= MAX_BLOCKING_SECONDS

    @property
    def longest_seconds(self) -> float:
        """The longest stretch of this window and the former one, in seconds."""
        self._change_window()
        return max(self._longest, self._longest_before)

    def start(self) -> None:
        """Begin a stretch: the event loop has just had a turn."""
        self._began = self._clock()

    def stop(self) -> None:
        """End a stretch: the event loop gets a turn now."""
        self._count(self._clock() - self._began)

    async def yield_to_loop(self) -> None:
        """Give the event loop a turn."""
        self.stop()
        await asyncio.sleep(0)
        self.start()

    @contextmanager
    def measure(self) -> Generator[None]:
        """Count a call of another task, or a part of a task's stretch, as a stretch of its own."""
        began = self._clock()
        try:
            yield
        finally:
            self._count(self._clock() - began)

    def _count(self, seconds: float) -> None:
        self._change_window()
        self._longest = max(self._longest, seconds)

    def _change_window(self) -> None:
        age = self._clock() - self._window_began
        if age < WINDOW_SECONDS:
            return
        self._longest_before = self._longest if age < 2 * WINDOW_SECONDS else 0.0
        self._longest = 0.0
        self._window_began = self._clock()

    def _set_metric(self) -> None:
        self._metrics.set(LONGEST_BLOCKING_METRIC, self.longest_seconds)
