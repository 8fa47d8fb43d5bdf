"""Errors read as the API server's own do."""

import pytest

from admitq_api.field_errors import ErrorPath, FieldError, join_errors

HERE = ErrorPath("spec").at("groups", 0, "name")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError.invalid(HERE, "x", "is odd"), 'spec.groups[0].name: Invalid value: "x": is odd'),
        (FieldError.invalid(HERE, 7, "is odd"), "spec.groups[0].name: Invalid value: 7: is odd"),
        (
            FieldError.invalid(HERE, {"a": [1]}, "is odd"),
            'spec.groups[0].name: Invalid value: {"a":[1]}: is odd',
        ),
        (FieldError.invalid(HERE, None, "is odd"), "spec.groups[0].name: Invalid value: null: is odd"),
        (
            FieldError.invalid(HERE, "x", "is odd", "make it even"),
            'spec.groups[0].name: Invalid value: "x": is odd; make it even',
        ),
        (FieldError.required(HERE, "name it"), "spec.groups[0].name: Required value: name it"),
        (FieldError.required(HERE), "spec.groups[0].name: Required value"),
        (
            FieldError.not_supported(HERE, "x", ["a", "b"]),
            'spec.groups[0].name: Unsupported value: "x": supported values: "a", "b"',
        ),
        (FieldError.forbidden(HERE, "not now"), "spec.groups[0].name: Forbidden: not now"),
        (FieldError.duplicate(HERE, "x"), 'spec.groups[0].name: Duplicate value: "x"'),
        (FieldError.not_found(HERE, "x"), 'spec.groups[0].name: Not found: "x"'),
        (FieldError.too_long(HERE, 63), "spec.groups[0].name: Too long: may not be more than 63 bytes"),
        (FieldError.too_many(HERE, 9, 8), "spec.groups[0].name: Too many: 9: must have at most 8 items"),
        (FieldError.invalid("", "x", "is odd"), 'Invalid value: "x": is odd'),
        (
            FieldError.invalid(HERE, object, "is odd"),
            "spec.groups[0].name: Invalid value: <class 'object'>: is odd",
        ),
    ],
)
def test_each_kind_of_error_has_its_words(error: FieldError, text: str) -> None:
    assert str(error) == text


def test_long_values_are_cut() -> None:
    text = str(FieldError.invalid(HERE, "x" * 5000, "is long"))
    assert len(text) < 350
    assert text.endswith("…: is long")


def test_paths_are_built_step_by_step() -> None:
    assert str(ErrorPath().at("spec", "a", 1, 2, "b")) == "spec.a[1][2].b"
    assert str(ErrorPath("metadata.labels").key("a.b/c")) == "metadata.labels[a.b/c]"


def test_several_errors_stand_in_brackets_and_repeated_ones_are_said_once() -> None:
    first, second = FieldError.required("a"), FieldError.required("b")
    assert join_errors([first]) == "a: Required value"
    assert join_errors([first, second, first]) == "[a: Required value, b: Required value]"
