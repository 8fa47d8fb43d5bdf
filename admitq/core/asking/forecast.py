"""When will it start? Simulation forward from now, with estimated run times.

A *course* is one simulation on a disposable state. Workloads that run end after their remaining run time.
Pending workloads start as the cycles of the manager decide, and end after their run time. Decisions are
carried out at once (``execution``). A course ends when all asked workloads hold quota, or at a bound.

There are several courses, each with its own run times:

- In the *early* course, all run times are short (the first tenth of their distribution). No start before its
  start is expected.
- In *drawn* courses, each workload has a run time of its own, drawn from its distribution. Their starts are a
  sample of the start: its median is p50.
- In the *late* course, all run times are long (the last tenth). p90 is not before its start. Drawn courses
  alone give a p90 that is too early, because many run times even out, and later submissions are unknown.

Behind many pending workloads, a course takes seconds. So the early and the late course may use only a part of
the caller's time each: what an early course has reached by then is still "not before", and a drawn course can
end.

A course simulates only the cohort trees of the asked workloads: other trees do not influence these. Workloads
that users will submit later are unknown, and are left out. Run times are drawn by a fixed function of the
uid, so that the same question has the same answer.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from admitq.core.asking.branch import Branch
from admitq.core.asking.due_decisions import pause_other_trees
from admitq.core.asking.execution import Execution
from admitq.core.asking.run_times import WHOLE, RunTimeEstimate, RunTimeSource
from admitq.core.events import Event
from admitq.core.instructions import Preempt
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.percentiles import percentile
from admitq.core.state import AdmissionState

EstimateOf = Callable[[Workload], RunTimeEstimate]
"""Returns the estimated run time of a workload that runs or is pending."""

_EARLY: Final = 0
_LATE: Final = 2
"""The numbers of the early and the late course. All other courses are drawn."""

_ALL_TIME: Final = 100
"""All of the caller's time, in percent."""

_EARLY_QUANTILE: Final = WHOLE // 10
_LATE_QUANTILE: Final = WHOLE - _EARLY_QUANTILE

_MANY_DRAWN: Final = 10
"""The number of drawn courses from which on p90 can be read from them alone."""

_PARTS_OF_TIME: Final = 4
"""The early and the late course may each use one of these parts of the time that is left."""

_CROWDED: Final = 200
"""The number of pending workloads from which on run times are rounded down, by at most 1.6 % or a second.

Then several workloads end together, and fewer cycles decide more. This halves the time of a course. Run times
are not known as exactly."""

_ROUNDED_BITS: Final = 7
"""The number of leading bits of the seconds of a run time that are not rounded."""


class Bound(StrEnum):
    """Why a course ended before an asked workload held quota."""

    REAL_TIME = "RealTime"
    """The caller's time for the answer was over."""
    HORIZON = "Horizon"
    """The course reached the horizon."""
    DECISIONS = "Decisions"
    """The course carried out the maximum number of decisions."""
    NOTHING_ENDS = "NothingEnds"
    """No workload ends any more and no timer is due, so that nothing can let the workload start."""


@dataclass(frozen=True, slots=True)
class ForecastBounds:
    """Where courses end at the latest.

    Attributes:
        percent_used: returns how many percent of the caller's time for the answer are over; 100: all.
        horizon: how far a course looks ahead; nanoseconds.
        decisions: the maximum number of decisions of one course.
        courses: the maximum number of courses.
    """

    percent_used: Callable[[], int]
    horizon: Instant
    decisions: int = 1_000_000
    courses: int = 22


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
    question = _Question(tuple(asked), now, estimate_of, bounds)
    (runs,) = _run_courses(branch, question, [tuple(events)])
    return _summarize(question, runs)


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
    question = _Question(tuple(asked), now, estimate_of, bounds)
    before, after = (
        _summarize(question, runs) for runs in _run_courses(branch, question, [(), tuple(events)])
    )
    return {key: Delay(before.get(key), after.get(key)) for key in asked if key in before or key in after}


class _Question(NamedTuple):
    asked: tuple[ObjectKey, ...]
    now: Instant
    estimate_of: EstimateOf
    bounds: ForecastBounds


class _Reached(NamedTuple):
    """Until when a course ran for a workload: its start, or where a bound ended the course."""

    at: Instant
    bound: Bound | None = None


class _CourseResult(NamedTuple):
    reached: Mapping[ObjectKey, _Reached]
    samples: int
    sources: Mapping[RunTimeSource, int]


def _run_courses(
    branch: Branch, question: _Question, variants: Sequence[tuple[Event, ...]]
) -> list[dict[int, _CourseResult]]:
    """Return the results of the courses of each variant by their numbers. All variants get equal courses."""
    results: list[dict[int, _CourseResult]] = [{} for _ in variants]
    percent_used = question.bounds.percent_used
    for number in range(question.bounds.courses):
        for variant, events in enumerate(variants):
            used = percent_used()
            parts = (len(variants) - variant) * (1 if _is_drawn(number) else _PARTS_OF_TIME)
            until = used + (_ALL_TIME - used) // parts
            results[variant][number] = branch(_CourseOf(question, number, events, until))
        if percent_used() >= _ALL_TIME:
            break
    return results


class _CourseOf(NamedTuple):
    """The question how one course goes. It may use the caller's time until so many percent of it are over."""

    question: _Question
    number: int
    events: tuple[Event, ...]
    until: int

    def __call__(self, state: AdmissionState) -> _CourseResult:
        """Change the state, and return the result of the course."""
        return _Course(state, self.question, self.number, self.until).run(self.events)


def _summarize(question: _Question, results: Mapping[int, _CourseResult]) -> dict[ObjectKey, Forecast]:
    forecasts: dict[ObjectKey, Forecast] = {}
    for key in question.asked:
        reached = {number: result.reached[key] for number, result in results.items() if key in result.reached}
        if not reached:
            continue
        # A course that the caller's time ended says only that the start is later than it reached.
        complete = {number: each for number, each in reached.items() if each.bound is not Bound.REAL_TIME}
        drawn = sorted(
            (at if bound is None else _NEVER) for number, (at, bound) in complete.items() if _is_drawn(number)
        )
        p50, p90 = _percentile(drawn, 50), _percentile(drawn, 90)
        late = reached.get(_LATE)
        if p90 is not None and late is not None and late.bound is None:
            p90 = max(p90, late.at)
        elif len(drawn) < _MANY_DRAWN:
            p90 = None
        forecasts[key] = Forecast(
            min(at for at, _ in (reached[_EARLY], *complete.values())),
            p50,
            p90,
            Basis(
                len(drawn),
                results[_EARLY].samples,
                results[_EARLY].sources,
                frozenset(bound for _, bound in reached.values() if bound is not None),
            ),
        )
    return forecasts


_NEVER: Final = 1 << 80
"""An instant after all others: the start in a course that a bound ended."""


def _is_drawn(number: int) -> bool:
    return number not in {_EARLY, _LATE}


def _percentile(ordered: Sequence[Instant], percent: int) -> Instant | None:
    """Return a percentile of instants in ascending order; None if it is not known."""
    if not ordered:
        return None
    instant = percentile(ordered, percent)
    return None if instant == _NEVER else instant


_MASK: Final = (1 << 64) - 1


def _draw(uid: str, course: int) -> int:
    """Return a quantile that depends on uid and course like a random number (the mixer of SplitMix64)."""
    bits = int.from_bytes(uid.encode(), "little") % ((1 << 61) - 1)
    bits = (bits * 0x9E3779B97F4A7C15 + course * 0xD1B54A32D192ED03) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return (bits ^ (bits >> 31)) >> 32


@dataclass(slots=True, eq=False)
class _Course:
    """One simulation forward from now."""

    state: AdmissionState
    question: _Question
    number: int
    until: int
    """The percentage of the caller's time at which the course ends."""
    execution: Execution = field(init=False)
    waiting: set[ObjectKey] = field(default_factory=set[ObjectKey])
    """Asked workloads that have not started."""
    reached: dict[ObjectKey, _Reached] = field(default_factory=dict[ObjectKey, _Reached])
    ends: list[tuple[Instant, ObjectKey, int]] = field(default_factory=list[tuple[Instant, ObjectKey, int]])
    """A heap of ends of workloads, each with the epoch of the workload in which it is valid."""
    epochs: Counter[ObjectKey] = field(default_factory=Counter[ObjectKey])
    """How often each workload has got or lost quota."""
    is_crowded: bool = field(default=False, init=False)
    """Whether run times are rounded."""
    sources: Counter[RunTimeSource] = field(default_factory=Counter[RunTimeSource])
    distributions: dict[int, RunTimeEstimate] = field(default_factory=dict[int, RunTimeEstimate])
    """An estimate of each distribution, by the identity of its run times."""

    def __post_init__(self) -> None:
        """Observe what the decisions do."""
        self.execution = Execution(
            self.state, self.question.now, on_reserved=self._reserved, on_stopped=self._stopped
        )

    def run(self, events: Sequence[Event]) -> _CourseResult:
        """Run the course to its end."""
        execution, world = self.execution, self.state.queries.world
        execution.begin()
        for event in events:
            execution.observe(event)
        for key in self.question.asked:
            entry = world.workloads.get(key)
            if entry is None:
                continue
            if entry.held is not None:
                self.reached[key] = _Reached(entry.reserved_at)
            else:
                self.waiting.add(key)
        names = pause_other_trees(self.state, self.waiting)
        pending = sum(len(world.cluster_queues[name].queue.members) for name in names)
        self.is_crowded = pending > _CROWDED
        for entry in list(world.workloads.values()):
            if entry.held is not None and entry.held.cluster_queue in names:
                self._expect_end(entry.workload, execution.now - entry.reserved_at)
        at, bound = self._advance()
        self.reached.update((key, _Reached(at, bound)) for key in self.waiting)
        samples = sum(estimate.samples for estimate in self.distributions.values())
        return _CourseResult(self.reached, samples, dict(self.sources))

    def _advance(self) -> tuple[Instant, Bound | None]:
        """Simulate until all asked workloads have started, or until a bound. Return the instant reached."""
        execution, bounds = self.execution, self.question.bounds
        horizon = execution.now + bounds.horizon
        while True:
            wake = execution.settle()
            if not self.waiting:
                return execution.now, None
            if bounds.percent_used() >= self.until:
                return execution.now, Bound.REAL_TIME
            if execution.decisions >= bounds.decisions:
                return execution.now, Bound.DECISIONS
            due = [each for each in (self._next_end(), wake) if each is not None]
            if not due:
                return horizon, Bound.NOTHING_ENDS
            if min(due) > horizon:
                return horizon, Bound.HORIZON
            execution.now = min(due)
            self._finish_due()

    # --- ends of workloads ------------------------------------------------------------------------

    def _reserved(self, workload: Workload) -> None:
        if workload.key in self.waiting:
            self.waiting.discard(workload.key)
            self.reached[workload.key] = _Reached(self.execution.now)
        self._expect_end(workload, 0)

    def _stopped(self, workload: Workload, _preemption: Preempt | None) -> None:
        self.epochs[workload.key] += 1

    def _expect_end(self, workload: Workload, elapsed: Instant) -> None:
        self.epochs[workload.key] += 1
        estimate = self.question.estimate_of(workload)
        self.sources[estimate.source] += 1
        self.distributions[id(estimate.durations)] = estimate
        remaining = estimate.remaining_at(self._quantile_of(workload), max(0, elapsed))
        if remaining is None and self.number == _EARLY:
            remaining = 0  # It may end at any time.
        if remaining is not None:
            end = self.execution.now + remaining
            if self.is_crowded:
                end -= end % (SECOND << max(0, (remaining // SECOND).bit_length() - _ROUNDED_BITS))
            end = max(end, self.execution.now)
            heapq.heappush(self.ends, (end, workload.key, self.epochs[workload.key]))

    def _quantile_of(self, workload: Workload) -> int:
        if self.number == _EARLY:
            return _EARLY_QUANTILE
        return _LATE_QUANTILE if self.number == _LATE else _draw(workload.uid, self.number)

    def _next_end(self) -> Instant | None:
        ends = self.ends
        while ends and self.epochs[ends[0][1]] != ends[0][2]:
            heapq.heappop(ends)
        return ends[0][0] if ends else None

    def _finish_due(self) -> None:
        workloads = self.state.queries.world.workloads
        while (end := self._next_end()) is not None and end <= self.execution.now:
            _, key, _ = heapq.heappop(self.ends)
            self.epochs[key] += 1
            self.execution.finish(workloads[key].workload)
