"""When will it start? Simulation forward from now, with estimated run times.

There are several courses, each a simulation (``course``) with its own run times:

- In the *early* course, all run times are short (the first tenth of their distribution). No start before its
  start is expected.
- In *drawn* courses, each workload has a run time of its own, drawn from its distribution. Their starts are a
  sample of the start: its median is p50.
- In the *late* course, all run times are long (the last tenth). p90 is not before its start. Drawn courses
  alone give a p90 that is too early, because many run times even out, and later submissions are unknown.

A course ends when all asked workloads hold quota, or at a bound. The courses about all pending workloads of a
cohort tree have, for each of them, the same start as the courses about it alone. They only take longer.

Behind many pending workloads, a course takes seconds. So the early and the late course may use only a part of
the caller's time each: what an early course has reached by then is still "not before", and a drawn course can
end.

A course simulates only the cohort trees of the asked workloads: other trees do not influence these. Workloads
that users will submit later are unknown, and are left out. Run times are drawn by a fixed function of the
uid, so that the same question has the same answer.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.core.asking.branch import Branch
from admitq.core.asking.course import (
    EARLY,
    LATE,
    Bound,
    Course,
    CourseQuestion,
    CourseResult,
    EstimateOf,
    ForecastBounds,
)
from admitq.core.asking.run_times import RunTimeSource
from admitq.core.events import Event
from admitq.core.model import Instant, ObjectKey
from admitq.core.percentiles import percentile
from admitq.core.state import AdmissionState

_ALL_TIME: Final = 100
"""All of the caller's time, in percent."""

_MANY_DRAWN: Final = 10
"""The number of drawn courses from which on p90 can be read from them alone."""

_PARTS_OF_TIME: Final = 4
"""The early and the late course may each use one of these parts of the time that is left."""


class Basis(NamedTuple):
    """What a forecast rests on."""

    courses: int
    """The number of drawn courses in which the workload started, or that reached another bound than time."""
    samples: int
    """The number of finished workloads that the estimates of run times rest on."""
    sources: Mapping[RunTimeSource, int]
    """How many estimates of workloads rest on each source."""
    bounds: frozenset[Bound]
    """The bounds that courses reached before the workload started."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a workload is expected to get quota.

    Attributes:
        not_before: the earliest start of all courses; the instant that the early course reached, if the
            caller's time ended it and no start is earlier.
        p50: the median of the starts; None if it is not known.
        p90: the instant before which nine of ten starts are; None if it is not known.
        basis: what this rests on.
    """

    not_before: Instant
    p50: Instant | None
    p90: Instant | None
    basis: Basis


class Delay(NamedTuple):
    """Two forecasts of one workload: without and with hypothetical events. None: it does not exist there."""

    before: Forecast | None
    after: Forecast | None

    @property
    def by(self) -> Instant | None:
        """By how much the events delay the median start; nanoseconds, negative if the start is earlier.

        None if one of both medians is not known.
        """
        if self.before is None or self.after is None:
            return None
        if self.before.p50 is None or self.after.p50 is None:
            return None
        return self.after.p50 - self.before.p50


def forecast(
    asked: Collection[ObjectKey],
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    bounds: ForecastBounds,
    events: Sequence[Event] = (),
) -> Mapping[ObjectKey, Forecast]:
    """Return when workloads are expected to get quota. Workloads that do not exist have no forecast.

    A workload that holds quota already has started when it reserved it.

    Args:
        asked: the workloads.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about the state.
        estimate_of: returns estimated run times.
        bounds: where the simulation ends at the latest.
        events: hypothetical events before the simulation.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    results = list(
        run_courses(asked, now=now, branch=branch, estimate_of=estimate_of, bounds=bounds, events=events)
    )
    return _read_all(asked, results)


def run_courses(
    asked: Collection[ObjectKey],
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    bounds: ForecastBounds,
    events: Sequence[Event] = (),
) -> Iterator[CourseResult]:
    """Run the courses of a forecast, and yield the result of each when it ends.

    ``read_forecast`` reads a forecast from the results so far. The arguments are those of ``forecast``.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    question = CourseQuestion(tuple(asked), now, estimate_of, bounds)
    for (result,) in _run_variants(branch, question, [tuple(events)]):
        yield result


def delays(
    asked: Collection[ObjectKey],
    events: Sequence[Event],
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    bounds: ForecastBounds,
) -> Mapping[ObjectKey, Delay]:
    """Return by how much hypothetical events delay workloads.

    Both forecasts draw the same run times, so that only the events differ. The arguments are those of
    ``forecast``.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    question = CourseQuestion(tuple(asked), now, estimate_of, bounds)
    results = list(_run_variants(branch, question, [(), tuple(events)]))
    before, after = (_read_all(asked, [pair[variant] for pair in results]) for variant in range(2))
    return {key: Delay(before.get(key), after.get(key)) for key in asked if key in before or key in after}


def read_forecast(key: ObjectKey, results: Sequence[CourseResult]) -> Forecast | None:
    """Return the forecast of a workload from the results of courses; None if it did not exist in them.

    Args:
        key: one of the asked workloads.
        results: the results of the first courses, in order; at least one.
    """
    reached = {number: result.reached[key] for number, result in enumerate(results) if key in result.reached}
    if not reached:
        return None
    # A course that the caller's time ended says only that the start is later than it reached.
    complete = {number: each for number, each in reached.items() if each.bound is not Bound.REAL_TIME}
    drawn = sorted(
        (at if bound is None else _NEVER) for number, (at, bound) in complete.items() if _is_drawn(number)
    )
    p50, p90 = _percentile(drawn, 50), _percentile(drawn, 90)
    late = reached.get(LATE)
    if p90 is not None and late is not None and late.bound is None:
        p90 = max(p90, late.at)
    elif len(drawn) < _MANY_DRAWN:
        p90 = None
    early = results[EARLY]
    return Forecast(
        min(at for at, _ in (reached[EARLY], *complete.values())),
        p50,
        p90,
        Basis(
            len(drawn),
            early.samples,
            early.sources,
            frozenset(bound for _, bound in reached.values() if bound is not None),
        ),
    )


def _read_all(asked: Collection[ObjectKey], results: Sequence[CourseResult]) -> dict[ObjectKey, Forecast]:
    forecasts = ((key, read_forecast(key, results)) for key in asked)
    return {key: found for key, found in forecasts if found is not None}


def _run_variants(
    branch: Branch, question: CourseQuestion, variants: Sequence[tuple[Event, ...]]
) -> Iterator[tuple[CourseResult, ...]]:
    """Run each course with the events of each variant. Yield its results, in the order of the variants."""
    percent_used = question.bounds.percent_used
    for number in range(question.bounds.courses):
        results: list[CourseResult] = []
        for variant, events in enumerate(variants):
            used = percent_used()
            parts = (len(variants) - variant) * (1 if _is_drawn(number) else _PARTS_OF_TIME)
            until = used + (_ALL_TIME - used) // parts
            results.append(branch(_CourseOf(question, number, events, until)))
        yield tuple(results)
        if percent_used() >= _ALL_TIME:
            return


class _CourseOf(NamedTuple):
    """The question how one course goes. It may use the caller's time until so many percent of it are over."""

    question: CourseQuestion
    number: int
    events: tuple[Event, ...]
    until: int

    def __call__(self, state: AdmissionState) -> CourseResult:
        """Change the state, and return the result of the course."""
        return Course(state, self.question, self.number, self.until).run(self.events)


_NEVER: Final = 1 << 80
"""An instant after all others: the start in a course that a bound ended."""


def _is_drawn(number: int) -> bool:
    return number not in {EARLY, LATE}


def _percentile(ordered: Sequence[Instant], percent: int) -> Instant | None:
    """Return a percentile of instants in ascending order; None if it is not known."""
    if not ordered:
        return None
    instant = percentile(ordered, percent)
    return None if instant == _NEVER else instant
