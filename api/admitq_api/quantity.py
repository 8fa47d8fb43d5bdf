"""Quantities as Kubernetes writes them: "500m", "1Gi", "1e3".

`parse_quantity` follows the grammar of the API exactly. `parse_amount` converts a quantity to an integer
amount, in which quota is counted: milli-CPU for cpu, whole units (bytes, devices, pods) for all other
resources. A quantity above the largest amount counts as the largest amount.
"""

import re
from fractions import Fraction
from functools import lru_cache

INT64_MAX = 2**63 - 1
"""The largest amount. As a quota it means no limit."""

UNLIMITED_TEXT = "<unlimited>"
"""The text of the largest amount in messages."""


class QuantityError(ValueError):
    """The value is not a quantity."""


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# The API server accepts a number without digits, such as "Ki", as zero.
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<exponent>[eE][+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))"
)
_NANO = 10**9
# Without these limits, a short text could request a number with millions of digits. Quantities with a larger
# exponent are far above the largest amount, so the result is the same.
_LONGEST_TEXT = 2048
_LONGEST_CACHED_TEXT = 256
_LARGEST_EXPONENT = 1024

_DECIMAL_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")
_BINARY_RESOURCES = ("memory", "ephemeral-storage")


def parse_quantity(value: str | float) -> Fraction:
    """Return the value of a quantity, as Kubernetes parses it.

    The value is exact, with two exceptions that Kubernetes makes: fractions of a nano-unit are rounded away
    from zero, and a quantity with a binary suffix is at most the largest amount. Exponents are limited to
    ``_LARGEST_EXPONENT``.

    Args:
        value: the text of a quantity, or a JSON number.

    Raises:
        QuantityError: the value is not a quantity.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):  # pyright: ignore[reportUnnecessaryIsInstance] JSON may hold anything
        raise QuantityError(
            f"{value!r} is not a quantity: write a number with an optional suffix, like 500m or 1Gi"
        )
    text = value if isinstance(value, str) else repr(value)
    return _parse_cached(text) if len(text) <= _LONGEST_CACHED_TEXT else _parse(text)


def _parse(text: str) -> Fraction:
    match = _GRAMMAR.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if match is None:
        shown = text if len(text) <= 64 else text[:60] + "..."
        raise QuantityError(
            f"{shown!r} is not a quantity: write a number with an optional suffix, like 500m or 1Gi"
        )
    part = match["part"] or ""
    digits = int(match["whole"] + part or "0")
    if digits == 0:
        return Fraction(0)
    number = Fraction(digits, 10 ** len(part))
    if match["binary"]:
        number = min(number * 2 ** _BINARY[match["binary"]], INT64_MAX)
    else:
        exponent = int(match["exponent"][1:]) if match["exponent"] else _DECIMAL[match["decimal"]]
        number *= Fraction(10) ** max(-_LARGEST_EXPONENT, min(exponent, _LARGEST_EXPONENT))
    rounded = Fraction(-(-number * _NANO // 1), _NANO)
    return -rounded if match["sign"] == "-" else rounded


_parse_cached = lru_cache(maxsize=8192)(_parse)


def parse_amount(resource: str, value: str | float) -> int:
    """Return the amount of a resource as an integer: milli-CPU for cpu, whole units for all other resources.

    Fractions of the unit are rounded away from zero, as in Kubernetes. Values above the largest amount become
    the largest amount.

    Raises:
        QuantityError: the value is not a quantity.
    """
    exact = parse_quantity(value) * (1000 if resource == "cpu" else 1)
    rounded = -(-exact // 1) if exact >= 0 else exact // 1
    return max(-INT64_MAX, min(INT64_MAX, int(rounded)))


def format_amount(resource: str, amount: int) -> str:
    """Return the text of an amount for messages. The largest amount is written as unlimited."""
    return UNLIMITED_TEXT if amount >= INT64_MAX else format_quantity(resource, amount)


def format_rounded_amount(resource: str, amount: int, *, up: bool = False) -> str:
    """Return the text of an amount that is not negative, with about three digits: "1.25Gi", "12.3", "250m".

    Args:
        resource: the resource.
        amount: the amount. The largest amount is written as unlimited.
        up: whether to round up instead of down.
    """
    if amount >= INT64_MAX:
        return UNLIMITED_TEXT
    if not amount:
        return "0"
    if amount >= 1024 and _is_binary(resource):
        return _rounded(amount, 1024, ("", *_BINARY), up=up)
    suffixes = ("m", *_DECIMAL_SUFFIXES) if resource == "cpu" else _DECIMAL_SUFFIXES
    return _rounded(amount, 1000, suffixes, up=up)


def _rounded(amount: int, base: int, suffixes: tuple[str, ...], *, up: bool) -> str:
    step, unit = 0, 1
    while step < len(suffixes) - 1 and amount >= unit * base:
        step, unit = step + 1, unit * base
    # Numbers with three digits or more before the point have none after it.
    scale = 1 if amount >= 100 * unit else 10 if amount >= 10 * unit else 100
    scaled = -(-amount * scale // unit) if up else amount * scale // unit
    whole, part = divmod(scaled, scale)
    digits = f".{part:0{len(str(scale)) - 1}}".rstrip("0") if part else ""
    return f"{whole}{digits}{suffixes[step]}"


def format_quantity(resource: str, amount: int) -> str:
    """Return the quantity of an amount, in the notation of Kubernetes.

    Memory, ephemeral storage and huge pages have binary suffixes ("1Gi"), all other resources have decimal
    suffixes ("1", "500m", "10k").
    """
    if resource == "cpu":
        return _decimal(amount, thousandths=True)
    # Small numbers of bytes are the same in both notations.
    if abs(amount) >= 1024 and _is_binary(resource):
        return _scaled(amount, 1024, ("", *_BINARY))
    return _decimal(amount, thousandths=False)


def _decimal(amount: int, *, thousandths: bool) -> str:
    return _scaled(amount, 1000, ("m", *_DECIMAL_SUFFIXES) if thousandths else _DECIMAL_SUFFIXES)


def _is_binary(resource: str) -> bool:
    return resource in _BINARY_RESOURCES or resource.startswith("hugepages-")


def _scaled(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    if amount == 0:
        return "0"
    step = 0
    while step < len(suffixes) - 1 and amount % base == 0:
        amount //= base
        step += 1
    return f"{amount}{suffixes[step]}"
