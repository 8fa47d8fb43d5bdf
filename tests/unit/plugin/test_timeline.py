"""The history of a Workload: conditions, checks and events in order."""

from typing import Any

import pytest

from admitq.plugin.timeline import Moment, history_document, history_rows, is_about, moments_of
from admitq_api.conditions import SECOND


def at(seconds: int) -> str:
    return f"1970-01-01T00:00:{seconds:02}Z"


def event(seconds: int, reason: str, **further: Any) -> dict[str, Any]:
    regarding = {"kind": "Job", "name": "j", "uid": "u"}
    return {
        "type": "Normal",
        "reason": reason,
        "note": "Note.",
        "regarding": regarding,
        "eventTime": at(seconds),
        **further,
    }


WORKLOAD = {
    "metadata": {"name": "w", "creationTimestamp": at(1)},
    "status": {
        "conditions": [
            {
                "type": "Admitted",
                "status": "True",
                "reason": "A",
                "message": "M.",
                "lastTransitionTime": at(5),
            },
            {"type": "QuotaReserved", "status": "True", "reason": "Q", "lastTransitionTime": at(3)},
        ],
        "admissionChecks": [{"name": "c", "state": "Ready", "message": "R.", "lastTransitionTime": at(4)}],
    },
}


def test_moments_are_in_the_order_of_their_times() -> None:
    moments = moments_of(WORKLOAD, [event(6, "Started"), event(2, "CreatedWorkload")])
    assert [(moment.about, moment.what, moment.reason) for moment in moments] == [
        ("Workload/w", "created", ""),
        ("Job/j", "event Normal", "CreatedWorkload"),
        ("Workload/w", "QuotaReserved=True", "Q"),
        ("Workload/w", "check c=Ready", ""),
        ("Workload/w", "Admitted=True", "A"),
        ("Job/j", "event Normal", "Started"),
    ]


@pytest.mark.parametrize(
    ("further", "time", "count"),
    [
        ({}, 7, 1),
        ({"series": {"lastObservedTime": at(9), "count": 3}}, 9, 3),
        ({"eventTime": None, "deprecatedLastTimestamp": at(8), "deprecatedCount": 2}, 8, 2),
        ({"eventTime": None, "metadata": {"creationTimestamp": at(6)}}, 6, 1),
        ({"eventTime": None}, None, 1),
    ],
)
def test_event_has_the_time_of_its_last_occurrence(
    further: dict[str, Any], time: int | None, count: int
) -> None:
    (moment,) = [one for one in moments_of(WORKLOAD, [event(7, "E", **further)]) if one.about == "Job/j"]
    assert (moment.time, moment.occurrences) == ("" if time is None else at(time), count)


def test_events_are_selected_by_the_uid_of_their_object() -> None:
    assert is_about(event(1, "E"), {"u", "v"})
    assert not is_about(event(1, "E"), {"v"})


def test_rows_have_ages_and_counts() -> None:
    moments = [Moment(at(1), "Job/j", "event Normal", "R", "A\x1bB", 3), Moment("", "Job/j", "created")]
    assert history_rows(moments, 11 * SECOND) == [
        ["10s (x3)", "Job/j", "event Normal", "R", "A B"],
        ["<unknown>", "Job/j", "created", "", ""],
    ]


def test_document_has_all_fields() -> None:
    assert history_document([Moment("t", "a", "w", "r", "m", 2)]) == [
        {"time": "t", "about": "a", "what": "w", "reason": "r", "message": "m", "occurrences": 2}
    ]
