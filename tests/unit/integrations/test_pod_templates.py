import copy
from typing import Any

import pytest

from admitq.integrations.pod_templates import clean_pod_template, select_entries_to_add, select_items_to_add

WELL_FORMED: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {}, "name": "n"},
    "spec": {
        "containers": [{"name": "c", "env": [{"name": "A"}], "resources": {"requests": {"cpu": 1}}}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{}],
        "priorityClassName": "high",
        "hostNetwork": True,
    },
    "status": {},
}


def test_well_formed_template_is_unchanged() -> None:
    unmodified = copy.deepcopy(WELL_FORMED)
    assert clean_pod_template(WELL_FORMED) == WELL_FORMED == unmodified


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, {}),
        ("template", {}),
        ({"metadata": 1, "spec": []}, {}),
        ({"metadata": {"labels": {"a": 1, "b": "c"}}}, {"metadata": {"labels": {"b": "c"}}}),
        (
            {"spec": {"containers": [None, {"name": "c", "env": 5}]}},
            {"spec": {"containers": [{"name": "c"}]}},
        ),
        (
            {"spec": {"containers": [{"resources": {"requests": "x", "limits": {"cpu": 1}}}]}},
            {"spec": {"containers": [{"resources": {"limits": {"cpu": 1}}}]}},
        ),
        ({"spec": {"nodeSelector": ["a"], "priorityClassName": 1, "tolerations": {}}}, {"spec": {}}),
    ],
)
def test_template_parts_of_wrong_type_are_removed(template: Any, expected: Any) -> None:
    assert clean_pod_template(template) == expected


@pytest.mark.parametrize(
    ("wanted", "base", "own", "expected"),
    [
        ({"a": "1", "b": "2"}, {"a": "1"}, {}, {"b": "2"}),
        ({"a": "1"}, {"a": "1"}, {"a": "1"}, {"a": "1"}),
        ({"a": "1"}, {"a": "2"}, {}, {"a": "1"}),
        ({}, {"a": "1"}, {"b": "2"}, {}),
    ],
)
def test_select_entries_to_add_omits_equal_entries_of_base_unless_own(
    wanted: Any, base: Any, own: Any, expected: Any
) -> None:
    assert select_entries_to_add(wanted, base, own) == expected


def test_select_items_to_add_omits_each_existing_item_once() -> None:
    a, b = {"key": "a"}, {"key": "b"}
    assert select_items_to_add([a, b, a], [a]) == [b, a]
    assert select_items_to_add([a], [a, b]) == []
