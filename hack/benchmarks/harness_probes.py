"""Samples and figures that show whether a harness limits its load."""

import asyncio
import time
from pathlib import Path
from typing import Final

from benchmarks.measures import percentile_of_unsorted

_LAG_EVERY_S: Final = 0.05


class IdleShare:
    """The share of the machine's CPU time that was idle between the last two samples."""

    def __init__(self) -> None:
        self.value = 0.0
        self._before = _cpu_times()

    def sample(self) -> None:
        """Compute the share since the last sample."""
        after = _cpu_times()
        total = after[1] - self._before[1]
        self.value = (after[0] - self._before[0]) / total if total else self.value
        self._before = after


async def sample_lags(lags: list[float]) -> None:
    """Append the delay of a timer of this event loop to a list, 20 times a second, until cancelled."""
    while True:
        due = time.monotonic() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        lags.append(max(0.0, time.monotonic() - due))


def summary(values: list[float]) -> dict[str, float | int | None]:
    """Return the number of values, their p50, their p99 and the largest."""
    return {
        "count": len(values),
        "p50": rounded(percentile_of_unsorted(values, 50)),
        "p99": rounded(percentile_of_unsorted(values, 99)),
        "max": rounded(max(values, default=None)),
    }


def mean(values: list[float]) -> float | None:
    """Return the mean, or None without values."""
    return sum(values) / len(values) if values else None


def rounded(value: float | None) -> float | None:
    """Return a time in seconds, rounded to milliseconds."""
    return None if value is None else round(value, 3)


def _cpu_times() -> tuple[float, float]:
    """Return the idle and the complete CPU time of the machine since its start, in ticks."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)
