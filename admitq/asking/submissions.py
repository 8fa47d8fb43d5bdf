"""Would it run? An answer about manifests that are submitted now."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from admitq.asking.answers import HORIZON
from admitq.core.asking.branch import Branch
from admitq.core.asking.course import EstimateOf, ForecastBounds
from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.asking.forecast import Forecast, forecast
from admitq.core.asking.submission import Submission, SubmissionVerdict, try_submission
from admitq.core.events import Event
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.translate.submissions import submission_json, submission_lines


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
        seconds: the time for the answer. Half of it is for the search for changes, the rest for simulations.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    began = time.monotonic()
    assume_due_decisions(state, now)
    branch = branch_from(state)
    submissions: Sequence[Submission] = branch(
        partial(
            try_submission,
            events=events,
            submitted=submitted,
            now=now,
            branch_from=branch_from,
            has_time=lambda: time.monotonic() < began + seconds / 2,
        )
    )
    waiting = [each.workload for each in submissions if each.verdict is SubmissionVerdict.WAITS]
    starts: Mapping[ObjectKey, Forecast] = {}
    if waiting:
        bounds = ForecastBounds(lambda: time.monotonic() > began + seconds, HORIZON)
        starts = forecast(
            waiting, now=now, branch=branch, estimate_of=estimate_of, bounds=bounds, events=events
        )
    return {
        each.workload: SubmissionAnswer(
            each.verdict,
            submission_json(each, starts.get(each.workload)),
            submission_lines(each, starts.get(each.workload), now),
        )
        for each in submissions
    }
