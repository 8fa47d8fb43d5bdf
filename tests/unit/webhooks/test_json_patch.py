"""JSON patches transform one object into another; they are empty for equal objects."""

from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.json_patch import create_json_patch, create_pointer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "~", "/"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "~1", "c/d", ""]), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "~1", "c/d", ""]), VALUES, max_size=4)


def canonical(value: Any) -> bytes:
    """Return the value as JSON, which distinguishes true from 1."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


@given(OBJECTS, OBJECTS)
def test_json_patch_transforms_old_object_into_new(before: dict[str, Any], after: dict[str, Any]) -> None:
    patched = jsonpatch.apply_patch(before, create_json_patch(before, after))
    assert canonical(patched) == canonical(after)


@given(OBJECTS)
def test_json_patch_of_equal_objects_is_empty(obj: dict[str, Any]) -> None:
    assert create_json_patch(obj, orjson.loads(orjson.dumps(obj))) == []


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {"a": {"b": 1}}, [{"op": "add", "path": "/a", "value": {"b": 1}}]),
        ({"a": {}}, {"a": {"b": 1}}, [{"op": "add", "path": "/a/b", "value": 1}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 2}]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [{"op": "replace", "path": "/a/1", "value": 3}]),
        ({"a": [1, 2]}, {"a": [2]}, [{"op": "replace", "path": "/a", "value": [2]}]),
    ],
)
def test_json_patch_changes_smallest_part(before: Any, after: Any, patch: Any) -> None:
    assert create_json_patch(before, after) == patch


def test_json_pointer_escapes_keys() -> None:
    assert create_pointer(("metadata", "labels", "a.b/c~d", 0)) == "/metadata/labels/a.b~1c~0d/0"
