"""What is known of the starts of workloads in one cohort tree, while the tree and they are as they were."""

from dataclasses import dataclass, field, fields, replace
from typing import Final, NamedTuple

from admitq.asking.tree_forecasts import PackedCourse, TreeForecast
from admitq.core.asking.cohort_tree import (
    TreeSettings,
    WaitingWorkload,
    find_waiting,
    list_waiting,
    read_tree_settings,
)
from admitq.core.asking.forecast import Forecast
from admitq.core.model import Instant, ObjectKey, WorkloadRequest
from admitq.core.state import AdmissionState
from admitq.translate.forecasts import TreePhase, TreeProgress

_FIRST_ANSWERS: Final = 1000
"""How many answers from before the first results are kept for each tree."""

_COMPARED: Final = tuple(each.name for each in fields(WorkloadRequest) if each.name != "generation")
"""The fields on which the start of a workload depends."""


class KeptStart(NamedTuple):
    """A known forecast of a start, its instant, and the progress of the forecast of the tree."""

    forecast: Forecast
    as_of: Instant
    tree: TreeProgress


class _FirstAnswer(NamedTuple):
    """The answer to a question about a workload from before the first results of its tree."""

    waiting: WaitingWorkload
    forecast: Forecast
    now: Instant


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of one forecast, and what the tree was like at its begin."""

    settings: TreeSettings
    waiting: dict[ObjectKey, WaitingWorkload]
    forecast: TreeForecast


@dataclass(slots=True, eq=False)
class KeptTree:
    """A cohort tree with its forecasts.

    Args:
        names: the ClusterQueues of the tree.

    Attributes:
        phase: the phase of the latest forecast.
        is_repeated: whether another forecast follows the present one.
        ends_at: when the results are dropped, in seconds of a monotonic clock; None before the end of the
            latest forecast.
    """

    names: frozenset[str]
    phase: TreePhase = field(default=TreePhase.WAITING, init=False)
    is_repeated: bool = field(default=False, init=False)
    ends_at: float | None = field(default=None, init=False)
    _results: list[_Results] = field(default_factory=list[_Results], init=False)
    """The results of the latest forecast that began, and of the one before while the latest one runs."""
    _first_answers: dict[ObjectKey, _FirstAnswer] = field(
        default_factory=dict[ObjectKey, _FirstAnswer], init=False
    )

    @property
    def progress(self) -> TreeProgress:
        """The phase of the latest forecast, and how many of its simulations have ended."""
        is_begun = self.phase is not TreePhase.WAITING
        return TreeProgress(self.phase, len(self._results[-1].forecast.courses) if is_begun else 0)

    # --- forecasts --------------------------------------------------------------------------------

    def repeat(self) -> None:
        """Let another forecast wait. The results of the last one stay until that ends."""
        self.phase, self.is_repeated, self.ends_at = TreePhase.WAITING, False, None

    def begin(self, state: AdmissionState, now: Instant) -> tuple[ObjectKey, ...]:
        """Begin a forecast. Return its workloads."""
        waiting = {each.workload.key: each for each in list_waiting(state, self.names)}
        asked = tuple(waiting)
        new = _Results(read_tree_settings(state, self.names), waiting, TreeForecast(asked, now))
        self._results = [*self._results[-1:], new]
        self.phase = TreePhase.RUNNING
        return asked

    def add_course(self, course: PackedCourse) -> None:
        """Add the result of a course of the forecast that runs."""
        self._results[-1].forecast.courses.append(course)

    def end(self, phase: TreePhase, ends_at: float) -> None:
        """End the forecast that runs. Its results are kept until a time of a monotonic clock."""
        self.phase, self.ends_at = phase, ends_at
        self._results = self._results[-1:]
        if self._results[-1].forecast.courses:
            self._first_answers.clear()

    # --- answers ----------------------------------------------------------------------------------

    def add_first_answer(self, state: AdmissionState, key: ObjectKey, answer: Forecast, now: Instant) -> None:
        """Keep the answer to a question about a workload until better results arrive."""
        waiting = find_waiting(state, key)
        if waiting is not None and len(self._first_answers) < _FIRST_ANSWERS:
            self._first_answers[key] = _FirstAnswer(waiting, answer, now)

    def includes(self, state: AdmissionState, key: ObjectKey) -> bool:
        """Whether the latest forecast that began is about a workload and its tree as they are now."""
        return bool(self._results) and _is_current(self._results[-1], state, key)

    def find(self, state: AdmissionState, key: ObjectKey, now: Instant) -> KeptStart | None:
        """Return the best forecast of a workload: the latest with a median, or else the latest.

        Returns:
            The forecast. None if there is none, if the workload or the tree has changed, or if the workload
            should have started by now.
        """
        known: list[KeptStart] = []
        first = self._first_answers.get(key)
        if first is not None and _is_same(state, first.waiting):
            known.append(KeptStart(first.forecast, first.now, self.progress))
        for results in self._results:
            start = results.forecast.read(key) if _is_current(results, state, key) else None
            if start is not None:
                known.append(KeptStart(start, results.forecast.now, self.progress))
        if not known:
            return None
        best = next((each for each in reversed(known) if each.forecast.p50 is not None), known[-1])
        if best.forecast.p50 is not None and best.forecast.p50 <= now:
            return None
        # It has not started by now.
        not_before = max(best.forecast.not_before, now)
        return best._replace(forecast=replace(best.forecast, not_before=not_before))


def _is_current(results: _Results, state: AdmissionState, key: ObjectKey) -> bool:
    """Whether a workload and its tree are as they were when a forecast began."""
    waiting = results.waiting.get(key)
    if waiting is None or not _is_same(state, waiting):
        return False
    return read_tree_settings(state, [queue.name for queue in results.settings.cluster_queues]) == (
        results.settings
    )


def _is_same(state: AdmissionState, former: WaitingWorkload) -> bool:
    """Whether a workload still waits in the same ClusterQueue with the same request."""
    now = find_waiting(state, former.workload.key)
    return (
        now is not None
        and now.cluster_queue == former.cluster_queue
        and all(getattr(now.workload, name) == getattr(former.workload, name) for name in _COMPARED)
    )
