"""Quantities over time: their integral, their peak, and their mean in each of a fixed number of time buckets.

The memory does not depend on the length of the run: a longer run has wider buckets. When the time exceeds the
last bucket, each pair of buckets becomes one. Integrals are exact.
"""

from typing import Final

BUCKETS: Final = 1024
"""The maximum number of buckets; a run uses at least half of them."""

_FIRST_WIDTH: Final = 1_000_000
"""The width of the first buckets in nanoseconds."""


class Grid:
    """The buckets that all quantities of a run share."""

    __slots__ = ("end", "width")

    def __init__(self) -> None:
        self.width = _FIRST_WIDTH
        self.end = self.width * BUCKETS

    def reach(self, now: int) -> None:
        """Widen the buckets until they contain this instant."""
        while now >= self.end:
            self.width *= 2
            self.end *= 2


class Level:
    """A quantity that changes in steps."""

    __slots__ = ("_grid", "_since", "_sums", "_width", "peak", "value")

    def __init__(self, grid: Grid, now: int = 0) -> None:
        self._grid = grid
        self._width = grid.width
        self._sums: list[int] = []
        self._since = now
        self.value = 0
        self.peak = 0

    @property
    def integral(self) -> int:
        """Value times nanoseconds."""
        return sum(self._sums)

    def change(self, by: int, now: int) -> None:
        """Change the value from this instant on."""
        if now > self._since:
            self._pass(now)
        self.value += by
        self.peak = max(self.peak, self.value)

    def settle(self, now: int) -> None:
        """Add the time up to this instant to the integral."""
        if now > self._since:
            self._pass(now)

    def _pass(self, now: int) -> None:
        value, since = self.value, self._since
        self._since = now
        if not value:
            return
        grid = self._grid
        if now >= grid.end:
            grid.reach(now)
        while self._width < grid.width:
            self._halve()
        width, sums = self._width, self._sums
        first, last = since // width, (now - 1) // width
        if len(sums) <= last:
            sums.extend([0] * (last + 1 - len(sums)))
        if first == last:
            sums[first] += value * (now - since)
            return
        sums[first] += value * ((first + 1) * width - since)
        full = value * width
        for index in range(first + 1, last):
            sums[index] += full
        sums[last] += value * (now - last * width)

    def _halve(self) -> None:
        sums = self._sums
        if len(sums) % 2:
            sums.append(0)
        self._sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
        self._width *= 2

    def bucket_means(self, end: int) -> list[float]:
        """Return the mean in each bucket. The last bucket ends at the given instant."""
        self.settle(end)
        self._grid.reach(max(0, end - 1))
        while self._width < self._grid.width:
            self._halve()
        width = self._width
        count = -(-end // width)
        sums = [*self._sums, *([0] * (count - len(self._sums)))][:count]
        means = [total / width for total in sums]
        if means and end % width:
            means[-1] = sums[-1] / (end % width)
        return means
