"""Answers about submitted workloads: bounds of time, and what viewers see."""

import pytest

from admitq.asking.submissions import SubmissionAnswer, submission_answers
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.submission import SubmissionVerdict
from admitq.core.model import ObjectKey
from admitq.translate.viewers import EVERYTHING, Viewer
from tests.unit.asking.test_answers import FULL, HOUR, NOW, OURS, job, observing_state


def submitted(seconds: float = 60, viewer: Viewer = EVERYTHING) -> SubmissionAnswer:
    """Return the answer about a workload that waits behind workloads of two namespaces."""
    key = ObjectKey("ours", "new")
    return submission_answers(
        observing_state(*FULL),
        [job("ours/new", queued_at=NOW)],
        [key],
        now=NOW,
        branch_from=copying_branch,
        estimate_of=lambda _: HOUR,
        viewer=viewer,
        seconds=seconds,
    )[key]


def test_workload_that_waits_has_a_start_and_changes_that_admit_it() -> None:
    answer = submitted()
    assert answer.verdict is SubmissionVerdict.WAITS
    assert answer.json["forecast"]["p50"] is not None
    assert answer.json["explanation"]["changes"]["alternatives"]


def test_search_and_simulations_end_when_the_time_is_over() -> None:
    answer = submitted(seconds=-1)
    assert answer.json["forecast"]["bounds"] == ["RealTime"]
    assert answer.json["explanation"]["changes"]["alternatives"] == []


@pytest.mark.parametrize(("viewer", "is_named"), [(EVERYTHING, True), (OURS, False)])
def test_names_of_other_namespaces_are_hidden_from_a_viewer_of_one(viewer: Viewer, is_named: bool) -> None:
    answer = submitted(viewer=viewer)
    assert ("theirs" in str(answer.json)) is ("theirs" in str(answer.lines)) is is_named
