"""Field errors have the format of the API server's errors."""

import pytest

from admitq_api.field_errors import ErrorPath, FieldError, join_errors

PATH = ErrorPath("spec").at("groups", 0, "name")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError.invalid(PATH, "x", "is odd"), 'spec.groups[0].name: Invalid value: "x": is odd'),
        (FieldError.invalid(PATH, 7, "is odd"), "spec.groups[0].name: Invalid value: 7: is odd"),
        (
            FieldError.invalid(PATH, {"a": [1]}, "is odd"),
            'spec.groups[0].name: Invalid value: {"a":[1]}: is odd',
        ),
        (FieldError.invalid(PATH, None, "is odd"), "spec.groups[0].name: Invalid value: null: is odd"),
        (
            FieldError.invalid(PATH, "x", "is odd", "make it even"),
            'spec.groups[0].name: Invalid value: "x": is odd; make it even',
        ),
        (FieldError.required(PATH, "name it"), "spec.groups[0].name: Required value: name it"),
        (FieldError.required(PATH), "spec.groups[0].name: Required value"),
        (
            FieldError.not_supported(PATH, "x", ["a", "b"]),
            'spec.groups[0].name: Unsupported value: "x": supported values: "a", "b"',
        ),
        (FieldError.forbidden(PATH, "not now"), "spec.groups[0].name: Forbidden: not now"),
        (FieldError.duplicate(PATH, "x"), 'spec.groups[0].name: Duplicate value: "x"'),
        (FieldError.not_found(PATH, "x"), 'spec.groups[0].name: Not found: "x"'),
        (FieldError.too_long(PATH, 63), "spec.groups[0].name: Too long: may not be more than 63 bytes"),
        (FieldError.too_many(PATH, 9, 8), "spec.groups[0].name: Too many: 9: must have at most 8 items"),
        (FieldError.invalid("", "x", "is odd"), 'Invalid value: "x": is odd'),
        (
            FieldError.invalid(PATH, object, "is odd"),
            "spec.groups[0].name: Invalid value: <class 'object'>: is odd",
        ),
    ],
)
def test_field_error_is_formatted_as_by_api_server(error: FieldError, text: str) -> None:
    assert str(error) == text


def test_long_value_in_field_error_is_truncated() -> None:
    text = str(FieldError.invalid(PATH, "x" * 5000, "is long"))
    assert len(text) < 350
    assert text.endswith("…: is long")


def test_error_path_appends_fields_indexes_and_keys() -> None:
    assert str(ErrorPath().at("spec", "a", 1, 2, "b")) == "spec.a[1][2].b"
    assert str(ErrorPath("metadata.labels").key("a.b/c")) == "metadata.labels[a.b/c]"


def test_joined_errors_are_bracketed_without_duplicates() -> None:
    first, second = FieldError.required("a"), FieldError.required("b")
    assert join_errors([first]) == "a: Required value"
    assert join_errors([first, second, first]) == "[a: Required value, b: Required value]"
