"""Amounts over time, percentiles, and resource usage of processes."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from admitq.core.percentiles import percentile
from localcluster.processes import Usage


class AmountOverTime:
    """An amount that changes at known instants: its mean over time and its peak."""

    def __init__(self) -> None:
        self.value = 0
        self.peak = 0
        self._since = 0.0
        self._area = 0.0
        self._begin: float | None = None

    def change(self, by: int, now: float) -> None:
        """Change the amount at the instant `now`, in seconds, which never decreases."""
        self._advance(now)
        self.value += by
        self.peak = max(self.peak, self.value)

    def mean(self, now: float) -> float:
        """Return the mean until `now`, from the first change or from the call of `begin`."""
        self._advance(now)
        length = now - (self._begin or 0.0)
        return self._area / length if length > 0 else float(self.value)

    def begin(self, now: float) -> None:
        """Start the time of the mean."""
        self._begin = self._since = now

    def _advance(self, now: float) -> None:
        if self._begin is None:
            self.begin(now)
        self._area += self.value * (now - self._since)
        self._since = now


def percentile_of_unsorted(values: Sequence[float], percent: int | Fraction) -> float | None:
    """Return the smallest value that at least this percentage of the values does not exceed, or None."""
    return percentile(sorted(values), percent) if values else None


def usage_by_process(
    before: Mapping[str, Usage], after: Iterable[tuple[str, Usage | None]]
) -> dict[str, dict[str, Any]]:
    """Return CPU seconds since `before` and the highest resident memory (MB) of each process.

    A process that died has no figures, and is marked as dead.
    """
    result: dict[str, dict[str, Any]] = {}
    for name, usage in after:
        if usage is None:
            result[name] = {"cpu_s": None, "rss_mb": None, "died": True}
            continue
        earlier = before[name].cpu_seconds if name in before else 0.0
        result[name] = {
            "cpu_s": round(usage.cpu_seconds - earlier, 1),
            "rss_mb": round(usage.peak_rss_mib * 1.048576),
        }
    return result
