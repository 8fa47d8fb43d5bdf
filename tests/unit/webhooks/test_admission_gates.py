"""Changes of the annotation that lists admission gates, also of an invalid stored list."""

from typing import Any

import pytest

from admitq_api.labels import names_for
from admitq_webhooks.validate.admission_gates import validate_update

NAMES = names_for()


def gated(gates: str | None) -> dict[str, Any]:
    annotations = {} if gates is None else {NAMES.admission_gated_by: gates}
    return {"metadata": {"name": "w", "annotations": annotations}}


def list_errors(before: str | None, after: str | None) -> list[str]:
    return [str(error) for error in validate_update(gated(before), gated(after), NAMES)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a.b/c,a.b/d", "a.b/d"),
        ("a.b/c", None),
        ("a.b/c", ""),
        ("bad,a.b/c", "bad"),
        ("bad,a.b/c,worse", "worse,bad"),
        (",a.b/c,a.b/d", ",a.b/d"),
        ("a.b/c,a.b/c,a.b/d", "a.b/c,a.b/c"),
        ("a.b/c,a.b/c", "a.b/c"),
    ],
)
def test_gates_can_be_removed_from_valid_or_invalid_stored_list(
    before: str | None, after: str | None
) -> None:
    assert list_errors(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (None, "a.b/c", "cannot add admission gate after creation"),
        ("", "a.b/c", "cannot add admission gate after creation"),
        ("a.b/c", "a.b/c,a.b/d", "can only remove gates, not add new ones"),
        ("bad", "worse", "can only remove gates, not add new ones"),
    ],
)
def test_added_gate_is_rejected(before: str | None, after: str, message: str) -> None:
    assert any(message in error for error in list_errors(before, after))


@pytest.mark.parametrize(("before", "after"), [("a.b/c", "a.b/c,a.b/c"), ("bad,a.b/c", "bad,a.b/c,a.b/c")])
def test_repeated_gate_is_rejected(before: str, after: str) -> None:
    [error] = list_errors(before, after)
    assert error.endswith('Duplicate value: "a.b/c": name each gate once')
