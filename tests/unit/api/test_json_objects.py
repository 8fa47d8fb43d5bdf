import copy
from typing import Any

import pytest

from admitq_api.json_objects import (
    create_merge_patch,
    value_at,
    with_value,
    without_value,
    without_value_pruned,
)


def apply_patch(document: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396) like the API server."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_patch(result.get(key), value)
    return result


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("a", "b", 0, "c"), 1),
        (("a", "b", 1), None),
        (("a", "x", "y"), None),
        (("a", 0), None),
        (("text", "a"), None),
        ((), {"a": {"b": [{"c": 1}]}, "text": "t", "null": None}),
        (("null",), None),
    ],
)
def test_value_at_returns_value_or_none_if_path_is_unreachable(path: Any, value: Any) -> None:
    assert value_at({"a": {"b": [{"c": 1}]}, "text": "t", "null": None}, path) == value


def test_value_at_returns_default_for_absent_value() -> None:
    assert value_at({"a": None}, ("a",), []) == []


def test_with_value_does_not_modify_original() -> None:
    original = {"spec": {"template": {"spec": {"x": 1}}, "list": [{"a": 1}, {"b": 2}]}}
    unmodified = copy.deepcopy(original)
    changed = with_value(
        with_value(original, ("spec", "template", "spec", "x"), 2), ("spec", "list", 1, "b"), 3
    )
    assert original == unmodified
    assert changed == {"spec": {"template": {"spec": {"x": 2}}, "list": [{"a": 1}, {"b": 3}]}}


def test_with_value_creates_missing_parents() -> None:
    assert with_value({}, ("metadata", "annotations", "a"), "b") == {"metadata": {"annotations": {"a": "b"}}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", 0, "b"), {"a": [{"c": 2}], "d": None}),
        (("d",), {"a": [{"b": 1, "c": 2}]}),
        (("a", 1, "b"), None),
        (("a", "b"), None),
        (("x", "y"), None),
        (("a", 0), None),
    ],
)
def test_without_value_removes_key_if_path_is_reachable(path: Any, expected: Any) -> None:
    original = {"a": [{"b": 1, "c": 2}], "d": None}
    unmodified = copy.deepcopy(original)
    assert without_value(original, path) == (original if expected is None else expected)
    assert original == unmodified


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {"b": {}}}, {"a": {"b": {}}}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": None}}),
        ({"a": None}, {}, {}),
        ({}, {"a": None}, {}),
        ({"a": {"x": None, "y": 1}}, {"a": {"y": 1}}, {}),
    ],
)
def test_merge_patch_contains_only_differences_and_yields_new_object(
    before: Any, after: Any, patch: Any
) -> None:
    assert create_merge_patch(before, after) == patch
    assert without_nulls(apply_patch(before, patch)) == without_nulls(after)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["a"], {"b": {"c": {"d": 1}, "e": {}}}),
        (["b", "e"], {"a": 1, "b": {"c": {"d": 1}}}),
        (["b", "c", "d"], {"a": 1, "b": {"e": {}}}),
        (["b", "c"], {"a": 1, "b": {"e": {}}}),
        (["b", "x"], {"a": 1, "b": {"c": {"d": 1}, "e": {}}}),
        (["a", "x"], {"a": 1, "b": {"c": {"d": 1}, "e": {}}}),
        (["x", "y"], {"a": 1, "b": {"c": {"d": 1}, "e": {}}}),
    ],
)
def test_without_value_pruned_removes_key_and_emptied_parents(path: Any, expected: Any) -> None:
    document = {"a": 1, "b": {"c": {"d": 1}, "e": {}}}
    before = copy.deepcopy(document)
    assert without_value_pruned(document, path) == expected
    assert document == before
