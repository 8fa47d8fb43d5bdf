"""Quantities as Kubernetes writes them: "500m", "1Gi", "1e3".

`parse` follows the grammar of the API exactly. `amount` turns a quantity into the integers that
quota is counted in: milli-CPU for cpu, whole units (bytes, devices, pods) for everything else.
"""

import re
from fractions import Fraction
from functools import lru_cache

INT64_MAX = 2**63 - 1
"""The largest amount, which as a quota means no limit."""

UNLIMITED_TEXT = "<unlimited>"
"""How the largest amount is printed."""


class QuantityError(ValueError):
    """A value is not a quantity, or not one that can be counted exactly."""


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# The API server takes a number without any digit, like "Ki", for zero, and so must we.
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<exponent>[eE][+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))"
)
_NANO = 10**9
# No quantity that anything is measured in comes near these; without them a few bytes of text
# would ask for a number with millions of digits.
_LONGEST_TEXT = 256
_LARGEST_EXPONENT = 512

_BINARY_RESOURCES = ("memory", "ephemeral-storage")


def parse(value: str | float) -> Fraction:
    """The exact value of a quantity; what is finer than a nano-unit is rounded away from zero.

    Args:
        value: the text of a quantity, or the number that JSON carries for one.

    Raises:
        QuantityError: the value is no quantity.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):  # pyright: ignore[reportUnnecessaryIsInstance] JSON may hold anything
        raise QuantityError(
            f"{value!r} is not a quantity: write a number with an optional suffix, like 500m or 1Gi"
        )
    return _parse(value if isinstance(value, str) else repr(value))


@lru_cache(maxsize=8192)
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
        number *= 2 ** _BINARY[match["binary"]]
    else:
        exponent = int(match["exponent"][1:]) if match["exponent"] else _DECIMAL[match["decimal"]]
        if exponent > _LARGEST_EXPONENT:
            raise QuantityError(f"{text!r} is not a quantity that can be counted: its exponent is too large")
        number *= Fraction(10) ** max(exponent, -_LARGEST_EXPONENT)
    rounded = Fraction(-(-number * _NANO // 1), _NANO)
    return -rounded if match["sign"] == "-" else rounded


def amount(resource: str, value: str | float) -> int:
    """The amount of a resource as an integer: milli-CPU for cpu, whole units for all others.

    What is finer than the unit is rounded away from zero, as Kubernetes does.

    Raises:
        QuantityError: the value is no quantity, or is larger than can be counted.
    """
    exact = parse(value) * (1000 if resource == "cpu" else 1)
    rounded = -(-exact // 1) if exact >= 0 else exact // 1
    if abs(rounded) > INT64_MAX:
        unit = "milli-CPU" if resource == "cpu" else "units"
        raise QuantityError(
            f"{value!r} is too large for {resource}: at most {INT64_MAX} {unit} can be counted"
        )
    return int(rounded)


def format_amount(resource: str, amount: int) -> str:
    """An amount as the quantity that Kubernetes would print for it.

    Memory, ephemeral storage and huge pages are printed with binary suffixes ("1Gi"), everything
    else with decimal ones ("1", "500m", "10k"); the largest amount is printed as unlimited.
    """
    if amount >= INT64_MAX:
        return UNLIMITED_TEXT
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
