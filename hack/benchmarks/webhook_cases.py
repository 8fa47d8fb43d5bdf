"""The cases of `hack/bench webhook`, their figures, and the search for the highest rate."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from benchmarks.measures import percentile_of_unsorted
from benchmarks.webhook_load import SentReviews


@dataclass(frozen=True)
class ReviewCase:
    """One measurement.

    Attributes:
        kind: the reviewed objects: ``jobs`` of 5 KB, or ``objects`` of 200 KB.
        replicas: number of webhooks.
        share: share of the rate of the benchmark at which reviews are sent.
        p99_ms: the bound of p99, in milliseconds.
        is_beside_hostile: whether hostile objects are reviewed at the same time.
        is_search: whether to search for the highest rate at which p99 is within its bound.
    """

    kind: str
    replicas: int
    share: float
    p99_ms: float
    is_beside_hostile: bool = False
    is_search: bool = False


_JOBS, _OBJECTS = 1.0, 1 / 15

CASES: Final[Mapping[str, ReviewCase]] = {
    "jobs": ReviewCase("jobs", 1, _JOBS, 10),
    "jobs-beside-hostile": ReviewCase("jobs", 1, _JOBS, 100, is_beside_hostile=True),
    "objects": ReviewCase("objects", 1, _OBJECTS, 100),
    "objects-beside-hostile": ReviewCase("objects", 1, _OBJECTS, 1_000, is_beside_hostile=True),
    "highest-jobs-1": ReviewCase("jobs", 1, _JOBS, 10, is_search=True),
    "highest-jobs-2": ReviewCase("jobs", 2, _JOBS, 10, is_search=True),
    "highest-jobs-4": ReviewCase("jobs", 4, _JOBS, 10, is_search=True),
    "highest-objects-1": ReviewCase("objects", 1, _OBJECTS, 100, is_search=True),
}
"""All cases by name."""

TARGETS: Final = ("jobs", "jobs-beside-hostile")
"""The cases with bounds that are targets."""


@dataclass(frozen=True)
class CorePlan:
    """The cores of a case.

    Attributes:
        servers: the cores of each webhook and of its child process.
        others: the cores of the load. If a webhook has cores of its own, they contain none of these.
        is_separate: whether each webhook has a core of its own.
    """

    servers: tuple[tuple[int, ...], ...]
    others: tuple[int, ...]
    is_separate: bool


def plan_cores(cores: Sequence[int], replicas: int) -> CorePlan:
    """Give each webhook a core of its own, if at least one core is left for the load."""
    if len(cores) > replicas:
        return CorePlan(tuple((core,) for core in cores[:replicas]), tuple(cores[replicas:]), True)
    return CorePlan((tuple(cores),) * replicas, tuple(cores), False)


def latency_figures(sent: SentReviews) -> dict[str, Any]:
    """Return the figures of sent reviews; latencies are in milliseconds, from the time they were due."""
    answered = len(sent.latencies)
    return {
        "reviews_per_s": round(answered / sent.seconds, 1),
        "p50_ms": _ms(sent.latencies, 50),
        "p99_ms": _ms(sent.latencies, 99),
        "p999_ms": _ms(sent.latencies, Fraction(999, 10)),
        "max_ms": _ms(sent.latencies, 100),
        "outcomes": dict(sorted(sent.outcomes.items())),
        "unanswered": sent.unanswered,
        "connections": sent.connections,
        "lateness_p99_ms": _ms(sent.lateness, 99),
        "lateness_max_ms": _ms(sent.lateness, 100),
    }


def holds(sent: SentReviews, p99_ms: float) -> bool:
    """Whether all reviews were answered, 99 of 100 of them in this time."""
    p99 = percentile_of_unsorted(sent.latencies, 99)
    return not sent.unanswered and p99 is not None and p99 * 1000 <= p99_ms


def is_late(sent: SentReviews, p99_ms: float) -> bool:
    """Whether the load itself used so much of this time that p99 says little about the webhook."""
    p99 = percentile_of_unsorted(sent.lateness, 99)
    return p99 is None or p99 * 1000 > p99_ms / 4


async def find_highest_rate(
    does_hold: Callable[[float], Awaitable[bool]],
    *,
    start: float,
    growth: float = 1.5,
    precision: float = 0.05,
) -> float | None:
    """Return the highest rate that holds, to within ``precision``; None if no rate near ``start`` does.

    The rate grows by ``growth`` until it does not hold, or shrinks until it does. Then the interval between
    the two is halved. A rate that fails is tried again, because other processes may have disturbed it.
    """

    async def holds_in_two_attempts(rate: float) -> bool:
        return await does_hold(rate) or await does_hold(rate)

    low, high = 0.0, start
    while await holds_in_two_attempts(high):
        low, high = high, high * growth
    while not low:
        lower = high / growth
        if lower < start / 10:
            return None
        if await holds_in_two_attempts(lower):
            low = lower
        else:
            high = lower
    while high > low * (1 + precision):
        middle = (low + high) / 2
        if await holds_in_two_attempts(middle):
            low = middle
        else:
            high = middle
    return low


def _ms(seconds: Sequence[float], percent: int | Fraction) -> float | None:
    value = percentile_of_unsorted(seconds, percent)
    return None if value is None else round(value * 1000, 2)
