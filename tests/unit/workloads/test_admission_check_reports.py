"""Reports of admission checks change the list of check states."""

from typing import Any

import pytest

from admitq.core.model import CheckState
from admitq.workloads.admission_check_reports import AdmissionCheckReport, update_check
from admitq_api.conditions import MAX_MESSAGE, SECOND, format_time

NOW = 1_800_000_000 * SECOND
BEFORE = format_time(NOW - 60 * SECOND)
EARLIER = format_time(NOW - 30 * SECOND)


def check(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "state": "Pending", "lastTransitionTime": BEFORE, "message": "", **fields}


@pytest.mark.parametrize(
    ("before", "report", "after"),
    [
        pytest.param(
            [check()],
            AdmissionCheckReport("c", CheckState.READY, "m"),
            [check(state="Ready", message="m", lastTransitionTime=format_time(NOW))],
            id="new state has current time",
        ),
        pytest.param(
            [check()],
            AdmissionCheckReport("c", CheckState.READY, since=EARLIER),
            [check(state="Ready", lastTransitionTime=EARLIER)],
            id="new state has given time",
        ),
        pytest.param(
            [check(message="old")],
            AdmissionCheckReport("c", CheckState.PENDING, "new", since=EARLIER),
            [check(message="new")],
            id="unchanged state keeps its time",
        ),
        pytest.param(
            [check(retryCount=2, requeueAfterSeconds=9, podSetUpdates=[{"name": "main"}])],
            AdmissionCheckReport("c", CheckState.PENDING),
            [check(retryCount=2)],
            id="fields without value are removed except retry count",
        ),
        pytest.param(
            [check(retryCount=2)],
            AdmissionCheckReport(
                "c", CheckState.RETRY, pod_set_updates=({"name": "main"},), requeue_after_seconds=0
            ),
            [
                check(
                    state="Retry",
                    lastTransitionTime=format_time(NOW),
                    retryCount=2,
                    requeueAfterSeconds=0,
                    podSetUpdates=[{"name": "main"}],
                )
            ],
            id="all fields of report are written",
        ),
        pytest.param(
            [check(name="a")],
            AdmissionCheckReport("c", CheckState.PENDING),
            [check(name="a"), check(lastTransitionTime=format_time(NOW))],
            id="new check is appended",
        ),
    ],
)
def test_report_changes_only_the_state_of_its_check(
    before: Any, report: AdmissionCheckReport, after: Any
) -> None:
    untouched = [dict(item) for item in before]
    assert update_check(before, report, NOW) == after
    assert before == untouched


def test_long_check_message_is_cut_to_maximum_of_api() -> None:
    [report] = update_check([], AdmissionCheckReport("c", CheckState.PENDING, "x" * (MAX_MESSAGE + 1)), NOW)
    assert len(report["message"]) == MAX_MESSAGE
