import copy
from typing import Any

import pytest

from admitq.integrations.pod_templates import clean_pod_template, select_entries_to_add, select_items_to_add

WELL: dict[str, Any] = {
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


def test_a_template_in_order_is_taken_as_it_is() -> None:
    kept = copy.deepcopy(WELL)
    assert clean_pod_template(WELL) == WELL == kept


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
def test_parts_of_another_type_are_left_out(template: Any, expected: Any) -> None:
    assert clean_pod_template(template) == expected


@pytest.mark.parametrize(
    ("wanted", "base", "own", "beside"),
    [
        ({"a": "1", "b": "2"}, {"a": "1"}, {}, {"b": "2"}),
        ({"a": "1"}, {"a": "1"}, {"a": "1"}, {"a": "1"}),
        ({"a": "1"}, {"a": "2"}, {}, {"a": "1"}),
        ({}, {"a": "1"}, {"b": "2"}, {}),
    ],
)
def test_entries_stand_beside_those_that_say_the_same(wanted: Any, base: Any, own: Any, beside: Any) -> None:
    assert select_entries_to_add(wanted, base, own) == beside


def test_items_that_are_there_already_are_taken_off_once() -> None:
    a, b = {"key": "a"}, {"key": "b"}
    assert select_items_to_add([a, b, a], [a]) == [b, a]
    assert select_items_to_add([a], [a, b]) == []
