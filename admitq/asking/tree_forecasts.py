"""Forecasts of all pending workloads of a cohort tree: made in a child process, and read for one workload.

The child process sends the result of each course when it ends. The results are kept as packed numbers: those
of 10,000 workloads have 90 kB, and the receiver need not unpack them to receive them.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from admitq.asking.answers import HORIZON
from admitq.asking.patience import percent_used
from admitq.core.asking.branch import Branch
from admitq.core.asking.course import Bound, CourseResult, EstimateOf, ForecastBounds, Reached
from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.asking.forecast import Forecast, read_forecast, run_courses
from admitq.core.asking.run_times import RunTimeSource
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState

_BOUNDS: Final = (None, *Bound)
"""The bounds by the numbers that stand for them."""

_INSTANTS: Final = "q"
"""The type code of instants in arrays."""


class PackedCourse(NamedTuple):
    """The result of a course about several workloads, in their order."""

    instants: bytes
    bounds: bytes
    samples: int
    sources: Mapping[RunTimeSource, int]


def pack_course(result: CourseResult, asked: Sequence[ObjectKey]) -> PackedCourse:
    """Return the result of a course about workloads that all existed in it."""
    reached = [result.reached[key] for key in asked]
    return PackedCourse(
        array(_INSTANTS, (each.at for each in reached)).tobytes(),
        bytes(_BOUNDS.index(each.bound) for each in reached),
        result.samples,
        result.sources,
    )


def run_tree_courses(
    state: AdmissionState,
    asked: Sequence[ObjectKey],
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    seconds: float,
) -> Iterator[PackedCourse]:
    """Run the courses about pending workloads of a cohort tree, and yield the result of each when it ends.

    Args:
        state: a disposable state.
        asked: the workloads. All of them exist.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about this state, as it is at each call.
        estimate_of: returns the estimated run time of a workload.
        seconds: the time for all courses.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    bounds = ForecastBounds(percent_used(seconds), HORIZON)
    assume_due_decisions(state, now, asked)
    for result in run_courses(asked, now=now, branch=branch, estimate_of=estimate_of, bounds=bounds):
        yield pack_course(result, asked)


@dataclass(slots=True, eq=False)
class TreeForecast:
    """The results of the courses about the workloads of a cohort tree so far.

    Args:
        asked: the workloads.
        now: the instant of the forecast, in nanoseconds since the Unix epoch.
    """

    asked: Sequence[ObjectKey]
    now: Instant
    courses: list[PackedCourse] = field(default_factory=list[PackedCourse], init=False)
    _places: dict[ObjectKey, int] = field(init=False)

    def __post_init__(self) -> None:
        """Index the workloads."""
        self._places = {key: place for place, key in enumerate(self.asked)}

    def read(self, key: ObjectKey) -> Forecast | None:
        """Return the forecast of a workload; None without a course, or if it is not one of the workloads."""
        place = self._places.get(key)
        if place is None or not self.courses:
            return None
        return read_forecast(key, [_unpack(course, key, place) for course in self.courses])


def _unpack(course: PackedCourse, key: ObjectKey, place: int) -> CourseResult:
    """Return the result of a course for one workload."""
    at = memoryview(course.instants).cast(_INSTANTS)[place]
    reached = Reached(at, _BOUNDS[course.bounds[place]])
    return CourseResult({key: reached}, course.samples, course.sources)
