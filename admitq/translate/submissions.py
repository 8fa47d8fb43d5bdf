"""What becomes of submitted workloads, as text and as JSON values."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from admitq.core.asking.forecast import Forecast
from admitq.core.asking.submission import Submission, SubmissionVerdict
from admitq.core.model import Admission, Instant
from admitq.translate.explanations import explanation_json, explanation_lines
from admitq.translate.forecasts import forecast_json, start_text
from admitq.translate.viewers import EVERYTHING, Viewer, workload_json, workloads_text

_VERDICTS: Final[Mapping[SubmissionVerdict, str]] = {
    SubmissionVerdict.ADMITTED: "would be admitted now",
    SubmissionVerdict.WAITS: "would wait",
    SubmissionVerdict.NEVER: "would never be admitted",
}

_HEADER_LINES: Final = 1
"""The number of lines of an explanation that name the workload, which does not exist yet."""


def verdict_text(verdict: SubmissionVerdict) -> str:
    """Return a verdict, to be read after the name of an object."""
    return _VERDICTS[verdict]


def submission_lines(
    submission: Submission, forecast: Forecast | None, now: Instant, viewer: Viewer = EVERYTHING
) -> list[str]:
    """Return what becomes of a workload as lines of text, without its name and the verdict.

    Args:
        submission: what becomes of it.
        forecast: when it starts, if that was asked.
        now: the instant of the submission.
        viewer: what the reader may see.
    """
    lines: list[str] = []
    if submission.admission is not None:
        lines += _admission_lines(submission, submission.admission, viewer)
    if submission.explanation is not None:
        if forecast is not None and submission.verdict is SubmissionVerdict.WAITS:
            lines.append(f"Starts: {start_text(forecast, now)}")
        lines += explanation_lines(submission.explanation, submission.changes, viewer)[_HEADER_LINES:]
    return lines


def _admission_lines(submission: Submission, admission: Admission, viewer: Viewer) -> Iterator[str]:
    yield f"Queues: LocalQueue {submission.local_queue}, ClusterQueue {admission.cluster_queue}"
    for assignment in admission.pod_set_assignments:
        flavors = ", ".join(f"{resource} of flavor {flavor}" for resource, flavor in assignment.flavors)
        pods = "1 pod" if assignment.count == 1 else f"{assignment.count} pods"
        yield f"Podset {assignment.name}: {pods}, {flavors or 'no resources'}"
    if submission.preempted:
        yield f"Preempts: {workloads_text(submission.preempted, viewer)}"
    if submission.checks:
        yield f"Starts after admission checks: {', '.join(submission.checks)}"


def submission_json(
    submission: Submission, forecast: Forecast | None, viewer: Viewer = EVERYTHING
) -> dict[str, Any]:
    """Return what becomes of a workload as JSON values, with the names that the viewer may see."""
    admission, explanation = submission.admission, submission.explanation
    queue = explanation.cluster_queue if admission is None and explanation is not None else None
    return {
        "verdict": str(submission.verdict),
        "workload": workload_json(submission.workload, viewer),
        "localQueue": submission.local_queue.name,
        "clusterQueue": queue if admission is None else admission.cluster_queue,
        "podSets": []
        if admission is None
        else [
            {"name": assignment.name, "count": assignment.count, "flavors": dict(assignment.flavors)}
            for assignment in admission.pod_set_assignments
        ],
        "admissionChecks": list(submission.checks),
        "preempted": [workload_json(key, viewer) for key in submission.preempted],
        "forecast": None if forecast is None else forecast_json(forecast),
        "explanation": None
        if explanation is None
        else explanation_json(explanation, submission.changes, viewer),
    }
