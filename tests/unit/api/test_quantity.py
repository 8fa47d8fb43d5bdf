from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.quantity import (
    INT64_MAX,
    QuantityError,
    format_amount,
    format_quantity,
    format_rounded_amount,
    parse_amount,
    parse_quantity,
)

CASES: dict[str, Any] = yaml.load(
    Path(__file__).with_name("cases").joinpath("quantities.yaml").read_text(encoding="utf-8"),
    Loader=yaml.CSafeLoader,
)


@pytest.mark.parametrize(("text", "value"), CASES["values"].items())
def test_quantity_is_parsed_to_exact_value(text: str, value: Any) -> None:
    assert parse_quantity(text) == Fraction(value)


@pytest.mark.parametrize("text", [*CASES["refused"], "1" * 5000])
def test_malformed_quantity_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan"), float("inf")])
def test_quantity_that_is_not_text_or_finite_number_is_rejected(value: Any) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(value)


@pytest.mark.parametrize(("number", "value"), [(3, 3), (0.5, Fraction(1, 2)), (1e22, 10**22), (-2, -2)])
def test_json_number_is_parsed_as_quantity(number: int, value: Any) -> None:
    assert parse_quantity(number) == value


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "1n", 1),
        ("cpu", "0.9999m", 1),
        ("cpu", "-1n", -1),
        ("cpu", "1.00000000001", 1001),
        ("cpu", ".001Ki", 1024),
        ("memory", "1Gi", 2**30),
        ("memory", "100m", 1),
        ("memory", ".001Ki", 2),
        ("memory", "-1.5", -2),
        ("memory", "1Pi", 2**50),
        ("nvidia.com/gpu", 2, 2),
        ("pods", "9223372036854775807", INT64_MAX),
        ("pods", "-9223372036854775807", -INT64_MAX),
    ],
)
def test_amount_is_milli_cpu_or_whole_units_rounded_up(resource: str, text: str, expected: Any) -> None:
    assert parse_amount(resource, text) == expected


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("memory", "8Ei"),
        ("memory", "10E"),
        ("memory", "9223372036854775808"),
        ("memory", "1e512"),
        ("memory", "1e1000000"),
        ("memory", "1" * 300),
        ("cpu", "10P"),
        ("cpu", "1E"),
        ("cpu", "8Ei"),
        ("cpu", "9223372036854775807"),
    ],
)
def test_c16_amount_beyond_int64_is_the_largest_amount(resource: str, text: str) -> None:
    assert parse_amount(resource, text) == INT64_MAX
    assert parse_amount(resource, f"-{text}") == -INT64_MAX


def test_c16_largest_cpu_below_saturation_is_exact() -> None:
    assert parse_amount("cpu", "9223372036854775806m") == INT64_MAX - 1


@pytest.mark.parametrize("text", ["8Ei", "1000000Ei", "9007199254740993Ki"])
def test_c16_binary_quantity_is_limited_as_by_kubernetes(text: str) -> None:
    assert parse_quantity(text) == INT64_MAX
    assert parse_quantity(f"-{text}") == -INT64_MAX


def test_c16_huge_exponent_is_parsed_to_printable_value() -> None:
    assert parse_quantity("1e1000000") > 10**1000
    assert len(str(parse_quantity("9" * 2000 + "e1000000"))) < 4300, "Python refuses to print longer integers"


@pytest.mark.parametrize(
    ("resource", "text"),
    [("cpu", "9223372036854775807m"), ("memory", "9223372036854775807"), ("pods", "9223372036854775807")],
)
def test_c16_largest_amount_is_formatted_as_valid_quantity(resource: str, text: str) -> None:
    assert format_quantity(resource, INT64_MAX) == text
    assert parse_amount(resource, text) == INT64_MAX


@pytest.mark.parametrize(
    ("resource", "number", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1, "1m"),
        ("cpu", 500, "500m"),
        ("cpu", 1500, "1500m"),
        ("cpu", 1000, "1"),
        ("cpu", 10_000, "10"),
        ("cpu", 1_000_000, "1k"),
        ("cpu", -2500, "-2500m"),
        ("memory", 0, "0"),
        ("memory", 2**30, "1Gi"),
        ("memory", 9984 * 2**20, "9984Mi"),
        ("memory", 1000, "1k"),
        ("memory", 1023, "1023"),
        ("memory", 2000, "2000"),
        ("memory", 1025, "1025"),
        ("memory", -(2**30), "-1Gi"),
        ("ephemeral-storage", 2**40, "1Ti"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("pods", 10, "10"),
        ("pods", 1500, "1500"),
        ("pods", 10_000, "10k"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("pods", 10**18, "1E"),
        ("pods", 10**18 * 9, "9E"),
        ("cpu", INT64_MAX, "<unlimited>"),
        ("memory", INT64_MAX, "<unlimited>"),
    ],
)
def test_amount_is_formatted_as_by_kubernetes(resource: str, number: int, text: str) -> None:
    assert format_amount(resource, number) == text


@given(
    st.sampled_from(["cpu", "memory", "hugepages-1Gi", "pods", "example.com/widget"]),
    st.integers(-INT64_MAX, INT64_MAX - 1),
)
def test_formatted_amount_parses_to_same_value(resource: str, number: int) -> None:
    assert parse_amount(resource, format_amount(resource, number)) == number


@pytest.mark.parametrize(
    ("resource", "amount", "down", "up"),
    [
        ("cpu", 0, "0", "0"),
        ("cpu", 250, "250m", "250m"),
        ("cpu", 1500, "1.5", "1.5"),
        ("cpu", 12_345, "12.3", "12.4"),
        ("cpu", 123_456, "123", "124"),
        ("cpu", 1_234_567, "1.23k", "1.24k"),
        ("pods", 7, "7", "7"),
        ("pods", 2005, "2k", "2.01k"),
        ("memory", 1000, "1k", "1k"),
        ("memory", 1_234_567_890, "1.14Gi", "1.15Gi"),
        ("memory", 128 * 2**30, "128Gi", "128Gi"),
        ("hugepages-2Mi", 1023 * 2**20, "1023Mi", "1023Mi"),
        ("pods", 10**19 // 8, "1.25E", "1.25E"),
        ("cpu", INT64_MAX, "<unlimited>", "<unlimited>"),
    ],
)
def test_rounded_amount_has_about_three_digits(resource: str, amount: int, down: str, up: str) -> None:
    assert format_rounded_amount(resource, amount) == down
    assert format_rounded_amount(resource, amount, up=True) == up


@given(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, INT64_MAX - 1))
def test_rounded_amounts_enclose_the_amount(resource: str, amount: int) -> None:
    down = parse_amount(resource, format_rounded_amount(resource, amount))
    up = parse_amount(resource, format_rounded_amount(resource, amount, up=True))
    assert down <= amount <= up
    assert up - down <= max(1, amount // 100 + 1)
