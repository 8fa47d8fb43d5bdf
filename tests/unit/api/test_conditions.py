import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api import conditions
from admitq_api.conditions import MAX_MESSAGE, SECOND, ConditionType, Reason

NOW = 1_767_323_045 * SECOND + 999_999_999
LATER = NOW + 60 * SECOND


def set_quota_reserved(status: str | bool = "True", **changes: Any) -> Any:
    return conditions.with_condition(
        changes.pop("of", []),
        type=ConditionType.QUOTA_RESERVED,
        status=status,
        reason=changes.pop("reason", Reason.QUOTA_RESERVED),
        message=changes.pop("message", "reserved"),
        now=changes.pop("now", NOW),
        **changes,
    )


def test_new_condition_is_appended_with_transition_time() -> None:
    assert set_quota_reserved(observed_generation=3) == [
        {
            "type": "QuotaReserved",
            "status": "True",
            "reason": "QuotaReserved",
            "message": "reserved",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 3,
        }
    ]


def test_transition_time_changes_only_with_status() -> None:
    (same,) = set_quota_reserved(of=set_quota_reserved(), message="still", now=LATER)
    assert (same["message"], same["lastTransitionTime"]) == ("still", "2026-01-02T03:04:05Z")
    (changed,) = set_quota_reserved(False, of=[same], now=LATER)
    assert (changed["status"], changed["lastTransitionTime"]) == ("False", "2026-01-02T03:05:05Z")


def test_setting_equal_condition_changes_nothing() -> None:
    assert set_quota_reserved(of=set_quota_reserved(), now=LATER) == set_quota_reserved()


def test_condition_update_keeps_order_and_does_not_modify_input() -> None:
    before = [{"type": "A", "status": "True"}, *set_quota_reserved(), {"type": "B", "status": "False"}]
    unmodified = copy.deepcopy(before)
    after = set_quota_reserved("False", of=before, now=LATER)
    assert [condition["type"] for condition in after] == ["A", "QuotaReserved", "B"]
    assert before == unmodified


def test_condition_values_are_plain_strings() -> None:
    assert all(type(value) is str for value in set_quota_reserved()[0].values())


@pytest.mark.parametrize("length", [MAX_MESSAGE, MAX_MESSAGE + 1, MAX_MESSAGE * 2])
def test_condition_message_is_truncated_to_api_limit(length: int) -> None:
    message = set_quota_reserved(message="x" * length)[0]["message"]
    assert len(message) == MAX_MESSAGE
    assert message.endswith("x" if length == MAX_MESSAGE else " ...")


@pytest.mark.parametrize(
    ("of", "exists", "is_true", "is_false"),
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
def test_condition_lookup_distinguishes_true_false_and_unknown(
    of: Any, exists: bool, is_true: bool, is_false: bool
) -> None:
    assert (conditions.find_condition(of, ConditionType.ADMITTED) is not None) is exists
    assert conditions.is_true(of, ConditionType.ADMITTED) is is_true
    assert conditions.is_false(of, ConditionType.ADMITTED) is is_false


def test_condition_is_removed_by_type() -> None:
    assert conditions.without_condition([*set_quota_reserved(), {"type": "B"}], "QuotaReserved") == [
        {"type": "B"}
    ]
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
def test_timestamp_is_parsed_to_nanoseconds(text: str, ns: int) -> None:
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
def test_malformed_timestamp_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        conditions.parse_time(text)


@given(st.integers(0, 4_000_000_000))
def test_formatted_timestamp_parses_to_same_second(seconds: int) -> None:
    assert conditions.parse_time(conditions.format_time(seconds * SECOND)) == seconds * SECOND


def test_deactivation_reason_contains_cause() -> None:
    assert conditions.create_deactivation_reason("") == "Deactivated"
    assert conditions.create_deactivation_reason(Reason.ADMISSION_CHECK) == "DeactivatedDueToAdmissionCheck"


@pytest.mark.parametrize(
    ("reason", "metric_reason"),
    [
        ("Preempted", "Preempted"),
        ("Deactivated", "Deactivated"),
        ("DeactivatedDueToRequeuingLimitExceeded", "Deactivated"),
    ],
)
def test_eviction_metric_reason_omits_deactivation_cause(reason: str, metric_reason: str) -> None:
    assert conditions.get_metric_reason(reason) == metric_reason
