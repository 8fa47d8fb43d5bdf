"""Changes of the annotation that lists admission gates, also of one that was stored before any check."""

from typing import Any

import pytest

from admitq_api.labels import names_for
from admitq_webhooks.validate.admission_gates import validate_update

NAMES = names_for()


def gated(gates: str | None) -> dict[str, Any]:
    annotations = {} if gates is None else {NAMES.admission_gated_by: gates}
    return {"metadata": {"name": "w", "annotations": annotations}}


def refusals(before: str | None, after: str | None) -> list[str]:
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
def test_gates_are_taken_off_one_by_one_when_the_stored_list_is_wrong(
    before: str | None, after: str | None
) -> None:
    assert refusals(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (None, "a.b/c", "cannot add admission gate after creation"),
        ("", "a.b/c", "cannot add admission gate after creation"),
        ("a.b/c", "a.b/c,a.b/d", "can only remove gates, not add new ones"),
        ("bad", "worse", "can only remove gates, not add new ones"),
    ],
)
def test_gate_that_is_added_is_refused(before: str | None, after: str, says: str) -> None:
    assert any(says in refusal for refusal in refusals(before, after))


@pytest.mark.parametrize(("before", "after"), [("a.b/c", "a.b/c,a.b/c"), ("bad,a.b/c", "bad,a.b/c,a.b/c")])
def test_gate_that_is_named_more_often_than_before_is_refused(before: str, after: str) -> None:
    [refusal] = refusals(before, after)
    assert refusal.endswith('Duplicate value: "a.b/c": name each gate once')
