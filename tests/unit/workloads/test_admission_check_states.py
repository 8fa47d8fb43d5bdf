"""How a statement about a check changes the list of checks."""

from typing import Any

import pytest

from admitq.core.model import AdmissionCheckState
from admitq.workloads.admission_check_states import AdmissionCheckReport, update_check
from admitq_api.conditions import MAX_MESSAGE, SECOND, format_time

NOW = 1_800_000_000 * SECOND
BEFORE = format_time(NOW - 60 * SECOND)
EARLIER = format_time(NOW - 30 * SECOND)


def check(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "state": "Pending", "lastTransitionTime": BEFORE, "message": "", **fields}


@pytest.mark.parametrize(
    ("before", "stated", "after"),
    [
        pytest.param(
            [check()],
            AdmissionCheckReport("c", AdmissionCheckState.READY, "m"),
            [check(state="Ready", message="m", lastTransitionTime=format_time(NOW))],
            id="a-new-state-has-a-new-time",
        ),
        pytest.param(
            [check()],
            AdmissionCheckReport("c", AdmissionCheckState.READY, since=EARLIER),
            [check(state="Ready", lastTransitionTime=EARLIER)],
            id="the-time-given-counts",
        ),
        pytest.param(
            [check(message="old")],
            AdmissionCheckReport("c", AdmissionCheckState.PENDING, "new", since=EARLIER),
            [check(message="new")],
            id="the-same-state-keeps-its-time",
        ),
        pytest.param(
            [check(retryCount=2, requeueAfterSeconds=9, podSetUpdates=[{"name": "main"}])],
            AdmissionCheckReport("c", AdmissionCheckState.PENDING),
            [check(retryCount=2)],
            id="what-is-not-stated-goes-but-for-the-retries",
        ),
        pytest.param(
            [check(retryCount=2)],
            AdmissionCheckReport(
                "c", AdmissionCheckState.RETRY, pod_set_updates=({"name": "main"},), requeue_after_seconds=0
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
            id="what-is-stated-is-written",
        ),
        pytest.param(
            [check(name="a")],
            AdmissionCheckReport("c", AdmissionCheckState.PENDING),
            [check(name="a"), check(lastTransitionTime=format_time(NOW))],
            id="a-new-name-is-appended",
        ),
    ],
)
def test_a_statement_changes_one_check(before: Any, stated: AdmissionCheckReport, after: Any) -> None:
    untouched = [dict(one) for one in before]
    assert update_check(before, stated, NOW) == after
    assert before == untouched


def test_a_message_is_cut_to_what_the_api_takes() -> None:
    [stated] = update_check(
        [], AdmissionCheckReport("c", AdmissionCheckState.PENDING, "x" * (MAX_MESSAGE + 1)), NOW
    )
    assert len(stated["message"]) == MAX_MESSAGE
