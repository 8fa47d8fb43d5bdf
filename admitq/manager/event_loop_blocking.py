"""Measures how long decisions block the event loop, and decides when they must yield to it."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from admitq.metrics.registry import Metrics

MAX_BLOCKING_SECONDS: Final = 0.02
"""The time after which decisions yield to the event loop, which runs watches, writes and probes."""

WINDOW_SECONDS: Final = 60.0
"""The metric covers the current and the former window, so that an alert on it resolves."""

LONGEST_BLOCKING_METRIC: Final = "decision_longest_stretch_seconds"


class BlockingTimer:
    """Measures how long decisions block the event loop.

    Args:
        metrics: has the gauge of the longest time.
        clock: monotonic clock in seconds.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._began = self._window_began = clock()
        self._longest = self._longest_before = 0.0
        metrics.update_on_scrape(self._set_metric)

    @property
    def should_yield(self) -> bool:
        """Whether the event loop has been blocked for ``MAX_BLOCKING_SECONDS``."""
        return self._clock() - self._began >= MAX_BLOCKING_SECONDS

    @property
    def longest_seconds(self) -> float:
        """The longest blocking time of the current and the former window, in seconds."""
        self._change_window()
        return max(self._longest, self._longest_before)

    def start(self) -> None:
        """Start to measure: the event loop has just run other tasks."""
        self._began = self._clock()

    def stop(self) -> None:
        """Stop to measure: the event loop runs other tasks now."""
        self._count(self._clock() - self._began)

    async def yield_to_loop(self) -> None:
        """Let the event loop run other tasks."""
        self.stop()
        await asyncio.sleep(0)
        self.start()

    @contextmanager
    def measure(self) -> Generator[None]:
        """Measure a context as a blocking time of its own."""
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
