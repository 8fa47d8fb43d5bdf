"""A course: one simulation forward from now, with estimated run times.

Workloads that run end after their remaining run time. Pending workloads start as the cycles of the manager
decide, and end after their run time. Decisions are carried out at once (``execution``). A forecast rests on
several courses (``forecast``).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from admitq.core.asking.due_decisions import pause_other_trees
from admitq.core.asking.execution import Execution
from admitq.core.asking.run_times import WHOLE, RunTimeEstimate, RunTimeSource
from admitq.core.events import Event
from admitq.core.instructions import Preempt
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.state import AdmissionState

EstimateOf = Callable[[Workload], RunTimeEstimate]
"""Returns the estimated run time of a workload that runs or is pending."""

EARLY: Final = 0
LATE: Final = 2
"""The numbers of the early and the late course. All other courses are drawn."""

_EARLY_QUANTILE: Final = WHOLE // 10
_LATE_QUANTILE: Final = WHOLE - _EARLY_QUANTILE

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


class CourseQuestion(NamedTuple):
    """What a course is asked: the workloads, the present instant, estimated run times, and bounds."""

    asked: tuple[ObjectKey, ...]
    now: Instant
    estimate_of: EstimateOf
    bounds: ForecastBounds


class Reached(NamedTuple):
    """Until when a course ran for a workload: its start, or where a bound ended the course."""

    at: Instant
    bound: Bound | None = None


class CourseResult(NamedTuple):
    """What a course gives.

    Attributes:
        reached: until when it ran for each asked workload that exists.
        samples: the number of finished workloads that its estimates of run times rest on.
        sources: how many estimates rest on each source.
    """

    reached: Mapping[ObjectKey, Reached]
    samples: int
    sources: Mapping[RunTimeSource, int]


_MASK: Final = (1 << 64) - 1


def _draw(uid: str, course: int) -> int:
    """Return a quantile that depends on uid and course like a random number (the mixer of SplitMix64)."""
    bits = int.from_bytes(uid.encode(), "little") % ((1 << 61) - 1)
    bits = (bits * 0x9E3779B97F4A7C15 + course * 0xD1B54A32D192ED03) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return (bits ^ (bits >> 31)) >> 32


@dataclass(slots=True, eq=False)
class Course:
    """One simulation forward from now.

    Args:
        state: a disposable state.
        question: what the course is asked.
        number: the number of the course, which decides about run times.
        until: the percentage of the caller's time at which the course ends.
    """

    state: AdmissionState
    question: CourseQuestion
    number: int
    until: int
    execution: Execution = field(init=False)
    waiting: set[ObjectKey] = field(default_factory=set[ObjectKey])
    """Asked workloads that have not started."""
    reached: dict[ObjectKey, Reached] = field(default_factory=dict[ObjectKey, Reached])
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

    def run(self, events: Sequence[Event]) -> CourseResult:
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
                self.reached[key] = Reached(entry.reserved_at)
            else:
                self.waiting.add(key)
        names = pause_other_trees(self.state, self.waiting)
        pending = sum(len(world.cluster_queues[name].queue.members) for name in names)
        self.is_crowded = pending > _CROWDED
        for entry in list(world.workloads.values()):
            if entry.held is not None and entry.held.cluster_queue in names:
                self._expect_end(entry.workload, execution.now - entry.reserved_at)
        at, bound = self._advance()
        self.reached.update((key, Reached(at, bound)) for key in self.waiting)
        samples = sum(estimate.samples for estimate in self.distributions.values())
        return CourseResult(self.reached, samples, dict(self.sources))

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
            self.reached[workload.key] = Reached(self.execution.now)
        self._expect_end(workload, 0)

    def _stopped(self, workload: Workload, _preemption: Preempt | None) -> None:
        self.epochs[workload.key] += 1

    def _expect_end(self, workload: Workload, elapsed: Instant) -> None:
        self.epochs[workload.key] += 1
        estimate = self.question.estimate_of(workload)
        self.sources[estimate.source] += 1
        self.distributions[id(estimate.durations)] = estimate
        remaining = estimate.remaining_at(self._quantile_of(workload), max(0, elapsed))
        if remaining is None and self.number == EARLY:
            remaining = 0  # It may end at any time.
        if remaining is not None:
            end = self.execution.now + remaining
            if self.is_crowded:
                end -= end % (SECOND << max(0, (remaining // SECOND).bit_length() - _ROUNDED_BITS))
            end = max(end, self.execution.now)
            heapq.heappush(self.ends, (end, workload.key, self.epochs[workload.key]))

    def _quantile_of(self, workload: Workload) -> int:
        if self.number == EARLY:
            return _EARLY_QUANTILE
        return _LATE_QUANTILE if self.number == LATE else _draw(workload.uid, self.number)

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
