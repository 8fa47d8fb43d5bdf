"""The result of the load `depth`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.api_calls import ApiCallKey
from benchmarks.depth_newcomers import NewcomerTimes
from benchmarks.harness_probes import summary
from benchmarks.measures import percentile_of_unsorted
from benchmarks.throughput_costs import LoadCosts
from benchmarks.throughput_managers import MANAGER

MOST_RATIO: Final = 2.0
"""The p99 beside most Workloads may be this multiple of that beside fewest."""


@dataclass(frozen=True)
class ManagerStart:
    """The start of a manager beside Workloads that wait, until it is at rest.

    Attributes:
        rest_s: the seconds until it is at rest.
        cpu_s: its CPU seconds until then.
        calls: its calls until then, as it counted them.
    """

    rest_s: float
    cpu_s: float
    calls: Counter[ApiCallKey]


@dataclass(frozen=True)
class DepthFigures:
    """What was measured beside one number of Workloads that wait.

    Attributes:
        depth: the number of Workloads that wait.
        times: the times of the newcomers that were admitted.
        costs: the costs during these times.
        start: the start of the manager before.
    """

    depth: int
    times: Sequence[NewcomerTimes]
    costs: LoadCosts
    start: ManagerStart

    @property
    def p99(self) -> float | None:
        """The 99th percentile of the times to admission, in seconds."""
        return percentile_of_unsorted([times.waited for times in self.times], 99)

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the result."""
        count = max(1, len(self.times))
        return {
            "depth": self.depth,
            "admitted": len(self.times),
            "admit_s": summary([times.waited for times in self.times]),
            "create_s": summary([times.created for times in self.times]),
            "end_s": summary([times.ended for times in self.times]),
            "cpu_ms_per_newcomer": {
                name: None if seconds is None else round(seconds * 1000 / count, 1)
                for name, seconds in self.costs.figures("cpu_s").items()
            },
            "rss_mb": self.costs.figures("rss_mb"),
            "writes_per_newcomer": {
                name: round(writes / count, 2) for name, writes in self.costs.writes().items()
            },
            "manager_writes": writes_by_kind(self.costs.writers[MANAGER]),
            "start_rest_s": round(self.start.rest_s, 1),
            "start_cpu_s": round(self.start.cpu_s, 1),
            "start_writes": writes_by_kind(self.start.calls),
        }


def result_of(figures: Sequence[DepthFigures], newcomers: int) -> tuple[dict[str, Any], bool]:
    """Return the part of the result that the measurements decide, and whether it meets the bound.

    Args:
        figures: the measurements, from the fewest Workloads that wait to the most.
        newcomers: the number of newcomers of each.
    """
    first, last = figures[0].p99, figures[-1].p99
    ratio = None if not first or last is None else last / first
    result = {
        "newcomers": newcomers,
        "depths": [one.as_json() for one in figures],
        "ratio": None if ratio is None else round(ratio, 2),
    }
    all_admitted = all(len(one.times) == newcomers for one in figures)
    return result, all_admitted and ratio is not None and ratio <= MOST_RATIO


def writes_by_kind(calls: Counter[ApiCallKey]) -> dict[str, int]:
    """Return the number of calls that change objects, by verb, resource and code."""
    return {str(key): count for key, count in sorted(calls.items()) if key.is_write and count}
