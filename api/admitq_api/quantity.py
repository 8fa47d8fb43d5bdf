"""Quantities as Kubernetes writes them: "500m", "1Gi", "1e3".

`parse` follows the grammar of the API exactly. `amount` turns a quantity into the integers that
quota is counted in: milli-CPU for cpu, whole units (bytes, devices, pods) for everything else.
Amounts saturate: a quantity that is larger than the largest amount counts as the largest amount.
"""

import re
from fractions import Fraction
from functools import lru_cache

INT64_MAX = 2**63 - 1
"""The largest amount, which as a quota means no limit."""

UNLIMITED_TEXT = "<unlimited>"
"""How the largest amount is printed."""


class QuantityError(ValueError):
    """A value is not a quantity."""


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# The API server takes a number without any digit, like "Ki", for zero, and so must we.
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<exponent>[eE][+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))"
)
_NANO = 10**9
# Without these limits a few bytes of text would ask for a number with millions of digits. Quantities with a
# larger exponent are far beyond the largest amount, and so are treated the same.
_LONGEST_TEXT = 2048
_LONGEST_CACHED_TEXT = 256
_LARGEST_EXPONENT = 1024

_BINARY_RESOURCES = ("memory", "ephemeral-storage")


def parse_quantity(value: str | float) -> Fraction:
    """The value of a quantity as Kubernetes reads it.

    The value is exact, with two exceptions that Kubernetes makes: what is finer than a nano-unit is rounded
    away from zero, and a quantity with a binary suffix is at most the largest amount. Exponents are limited
    to ``_LARGEST_EXPONENT``.

    Args:
        value: the text of a quantity, or the number that JSON carries for one.

    Raises:
        QuantityError: the value is no quantity.
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
    """The amount of a resource as an integer: milli-CPU for cpu, whole units for all others.

    What is finer than the unit is rounded away from zero, as Kubernetes does. What is larger than the largest
    amount becomes the largest amount.

    Raises:
        QuantityError: the value is no quantity.
    """
    exact = parse_quantity(value) * (1000 if resource == "cpu" else 1)
    rounded = -(-exact // 1) if exact >= 0 else exact // 1
    return max(-INT64_MAX, min(INT64_MAX, int(rounded)))


def format_amount(resource: str, amount: int) -> str:
    """An amount as messages print it: the largest amount is printed as unlimited."""
    return UNLIMITED_TEXT if amount >= INT64_MAX else format_quantity(resource, amount)


def format_quantity(resource: str, amount: int) -> str:
    """An amount as the quantity that Kubernetes would print for it, which fields of objects can hold.

    Memory, ephemeral storage and huge pages are printed with binary suffixes ("1Gi"), everything
    else with decimal ones ("1", "500m", "10k").
    """
    if resource == "cpu":
        return _decimal(amount, thousandths=True)
    # Small numbers of bytes read the same in both notations, and are printed in the decimal one.
    if abs(amount) >= 1024 and (resource in _BINARY_RESOURCES or resource.startswith("hugepages-")):
        return _scaled(amount, 1024, ("", *_BINARY))
    return _decimal(amount, thousandths=False)


def _decimal(amount: int, *, thousandths: bool) -> str:
    suffixes = ("", "k", "M", "G", "T", "P", "E")
    return _scaled(amount, 1000, ("m", *suffixes) if thousandths else suffixes)


def _scaled(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    if amount == 0:
        return "0"
    step = 0
    while step < len(suffixes) - 1 and amount % base == 0:
        amount //= base
        step += 1
    return f"{amount}{suffixes[step]}"
