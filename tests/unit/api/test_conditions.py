import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api import conditions
from admitq_api.conditions import MAX_MESSAGE, SECOND, ConditionType, Reason

NOW = 1_767_323_045 * SECOND + 999_999_999
LATER = NOW + 60 * SECOND


def reserved(status: str | bool = "True", **changes: Any) -> Any:
    return conditions.with_condition(
        changes.pop("of", []),
        type=ConditionType.QUOTA_RESERVED,
        status=status,
        reason=changes.pop("reason", Reason.QUOTA_RESERVED),
        message=changes.pop("message", "reserved"),
        now=changes.pop("now", NOW),
        **changes,
    )


def test_a_new_condition_is_appended_with_the_time_of_its_transition() -> None:
    assert reserved(observed_generation=3) == [
        {
            "type": "QuotaReserved",
            "status": "True",
            "reason": "QuotaReserved",
            "message": "reserved",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 3,
        }
    ]


def test_the_transition_time_changes_with_the_status_alone() -> None:
    same = reserved(of=reserved(), message="still", now=LATER)
    assert (same[0]["message"], same[0]["lastTransitionTime"]) == ("still", "2026-01-02T03:04:05Z")
    other = reserved(False, of=same, now=LATER)
    assert (other[0]["status"], other[0]["lastTransitionTime"]) == ("False", "2026-01-02T03:05:05Z")


def test_setting_what_is_there_changes_nothing() -> None:
    assert reserved(of=reserved(), now=LATER) == reserved()


def test_others_keep_their_place_and_the_input_its_value() -> None:
    before = [{"type": "A", "status": "True"}, *reserved(), {"type": "B", "status": "False"}]
    kept = copy.deepcopy(before)
    after = reserved("False", of=before, now=LATER)
    assert [one["type"] for one in after] == ["A", "QuotaReserved", "B"]
    assert before == kept


def test_values_are_plain_text_so_that_any_encoder_takes_them() -> None:
    assert all(type(value) is str for value in reserved()[0].values())


@pytest.mark.parametrize("length", [MAX_MESSAGE, MAX_MESSAGE + 1, MAX_MESSAGE * 2])
def test_messages_are_cut_to_what_the_api_server_takes(length: int) -> None:
    message = reserved(message="x" * length)[0]["message"]
    assert len(message) == MAX_MESSAGE
    assert message.endswith("x" if length == MAX_MESSAGE else " ...")


@pytest.mark.parametrize(
    ("of", "found", "holds", "fails"),
    [
        (None, False, False, False),
        ([], False, False, False),
        ([{"type": "Other", "status": "True"}], False, False, False),
        ([{"type": "Admitted", "status": "True"}], True, True, False),
        ([{"type": "Admitted", "status": "False"}], True, False, True),
        ([{"type": "Admitted", "status": "Unknown"}], True, False, False),
        ([{"type": "Admitted"}], True, False, False),
    ],
)
def test_looking_up(of: Any, found: bool, holds: bool, fails: bool) -> None:
    assert (conditions.find_condition(of, ConditionType.ADMITTED) is not None) is found
    assert conditions.is_true(of, ConditionType.ADMITTED) is holds
    assert conditions.is_false(of, ConditionType.ADMITTED) is fails


def test_removing() -> None:
    assert conditions.without_condition([*reserved(), {"type": "B"}], "QuotaReserved") == [{"type": "B"}]
    assert conditions.without_condition(None, "QuotaReserved") == []


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 3 * SECOND // 2),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.123456Z", 123_456_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59Z", -SECOND),
        ("2026-01-02T03:04:05Z", NOW - 999_999_999),
    ],
)
def test_times_are_read(text: str, ns: int) -> None:
    assert conditions.parse_time(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-13-02T03:04:05Z",
        "x2026-01-02T03:04:05Z",
        "٢026-01-02T03:04:05Z",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        conditions.parse_time(text)


@given(st.integers(0, 4_000_000_000))
def test_whole_seconds_survive_writing_and_reading(seconds: int) -> None:
    assert conditions.parse_time(conditions.format_time(seconds * SECOND)) == seconds * SECOND


def test_reasons_of_deactivations_name_the_cause() -> None:
    assert conditions.create_deactivation_reason("") == "Deactivated"
    assert conditions.create_deactivation_reason(Reason.ADMISSION_CHECK) == "DeactivatedDueToAdmissionCheck"


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("Preempted", "Preempted"),
        ("Deactivated", "Deactivated"),
        ("DeactivatedDueToRequeuingLimitExceeded", "Deactivated"),
    ],
)
def test_evictions_are_counted_by_reason_without_the_cause(reason: str, counted: str) -> None:
    assert conditions.get_metric_reason(reason) == counted
