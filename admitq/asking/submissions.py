"""Would it run? An answer about manifests that are submitted now."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from admitq.asking.answers import HORIZON
from admitq.asking.patience import percent_used
from admitq.core.asking.branch import Branch
from admitq.core.asking.course import EstimateOf, ForecastBounds
from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.asking.forecast import Forecast, forecast
from admitq.core.asking.submission import Submission, SubmissionVerdict, try_submission
from admitq.core.events import Event
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.translate.submissions import submission_json, submission_lines
from admitq.translate.viewers import EVERYTHING, Viewer

_SEARCH_PERCENT: Final = 50
"""The part of the time for the search for changes, in percent. Simulations have the rest."""


class SubmissionAnswer(NamedTuple):
    """What becomes of a submitted workload: the verdict, JSON values, and lines of text."""

    verdict: SubmissionVerdict
    json: Mapping[str, Any]
    lines: Sequence[str]


def submission_answers(
    state: AdmissionState,
    events: Sequence[Event],
    submitted: Sequence[ObjectKey],
    *,
    now: Instant,
    branch_from: Callable[[AdmissionState], Branch],
    estimate_of: EstimateOf,
    viewer: Viewer = EVERYTHING,
    seconds: float,
) -> dict[ObjectKey, SubmissionAnswer]:
    """Return what becomes of submitted workloads, and when those start that wait.

    Args:
        state: a disposable state.
        events: the events of the submission, in the order in which the state observes them.
        submitted: the workloads in question.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch_from: returns a function that asks questions about a state.
        estimate_of: returns the estimated run time of a workload, also of submitted ones.
        viewer: what the reader may see.
        seconds: the time for the answer. Half of it is for the search for changes, the rest for simulations.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    used = percent_used(seconds)
    assume_due_decisions(state, now)
    branch = branch_from(state)
    submissions: Sequence[Submission] = branch(
        partial(
            try_submission,
            events=events,
            submitted=submitted,
            now=now,
            branch_from=branch_from,
            has_time=lambda: used() < _SEARCH_PERCENT,
        )
    )
    waiting = [each.workload for each in submissions if each.verdict is SubmissionVerdict.WAITS]
    starts: Mapping[ObjectKey, Forecast] = {}
    if waiting:
        bounds = ForecastBounds(used, HORIZON)
        starts = forecast(
            waiting, now=now, branch=branch, estimate_of=estimate_of, bounds=bounds, events=events
        )
    return {
        each.workload: SubmissionAnswer(
            each.verdict,
            submission_json(each, starts.get(each.workload), viewer),
            submission_lines(each, starts.get(each.workload), now, viewer),
        )
        for each in submissions
    }
