from typing import Any

import pytest

from admitq_api.selectors import (
    check_dns_label,
    check_dns_subdomain,
    check_label_value,
    check_qualified_name,
    validate_selector,
)

WELL_FORMED = {
    check_dns_label: ["a", "a-b", "0", "x" * 63],
    check_dns_subdomain: ["a", "a.b-c.d", "x" * 253, "1.2"],
    check_qualified_name: ["a", "A_b.c-d", "example.com/name", "x" * 63, "a.b/" + "x" * 63],
    check_label_value: ["", "a", "A_b.c-d", "x" * 63],
}
MALFORMED = {
    check_dns_label: ["", "-a", "a-", "A", "a.b", "a_b", "x" * 64, "a\n", "ä"],
    check_dns_subdomain: ["", ".a", "a.", "a..b", "A", "a/b", "x" * 254, "a\n"],
    check_qualified_name: ["", "/a", "a/", "a/b/c", "-a", "a b", "x" * 64, "A.b/c", "a\n"],
    check_label_value: ["-", "a/b", "x" * 64, " ", "a\n"],
}


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, texts in WELL_FORMED.items() for text in texts]
)
def test_well_formed_name_is_accepted(check: Any, text: str) -> None:
    assert check(text) is None


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, texts in MALFORMED.items() for text in texts]
)
def test_malformed_name_is_rejected_with_remedy(check: Any, text: str) -> None:
    assert "must" in check(text)


def with_expression(requirement: Any) -> Any:
    return {"matchExpressions": [requirement]}


SELECTORS = [
    (None, []),
    ({}, []),
    ({"matchLabels": {"a": "b"}}, []),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", ""]}]}, []),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, []),
    ([], ["s: Invalid value: []"]),
    ({"matchLabel": {"a": "b"}}, ['s.matchLabel: Unsupported value: "matchLabel"']),
    (
        with_expression({"key": "a", "operator": "In", "values": ["b"], "value": "c"}),
        ['s.matchExpressions[0].value: Unsupported value: "value"'],
    ),
    ({"matchLabels": []}, ["s.matchLabels: Invalid value"]),
    ({"matchLabels": {"a b": "c"}}, ['s.matchLabels: Invalid value: "a b"']),
    ({"matchLabels": {"a": 1}}, ["s.matchLabels[a]: Invalid value: 1"]),
    ({"matchLabels": {"a": "b c"}}, ['s.matchLabels[a]: Invalid value: "b c"']),
    ({"matchExpressions": {}}, ["s.matchExpressions: Invalid value"]),
    (with_expression(3), ["s.matchExpressions[0]: Invalid value: 3"]),
    (with_expression({"operator": "Exists"}), ["s.matchExpressions[0].key: Required value"]),
    (
        with_expression({"key": "a", "operator": "in"}),
        ['s.matchExpressions[0].operator: Unsupported value: "in"'],
    ),
    (with_expression({"key": "a", "operator": "In"}), ["s.matchExpressions[0].values: Required value"]),
    (
        with_expression({"key": "a", "operator": "Exists", "values": ["b"]}),
        ["s.matchExpressions[0].values: Forbidden"],
    ),
    (
        with_expression({"key": "a", "operator": "In", "values": ["-"]}),
        ['s.matchExpressions[0].values[0]: Invalid value: "-"'],
    ),
    (
        with_expression({"key": "a", "operator": "In", "values": "b"}),
        ["s.matchExpressions[0].values: Invalid value"],
    ),
    (
        {"matchLabels": {"a": 1}, "matchExpressions": [{"operator": "x"}]},
        ["s.matchLabels[a]", "s.matchExpressions[0].key", "s.matchExpressions[0].operator"],
    ),
]


@pytest.mark.parametrize(("selector", "expected"), SELECTORS)
def test_selector_problems_are_all_reported_with_path(selector: Any, expected: Any) -> None:
    problems = [str(problem) for problem in validate_selector(selector, "s")]
    assert len(problems) == len(expected)
    assert all(problem.startswith(start) for problem, start in zip(problems, expected, strict=True))
