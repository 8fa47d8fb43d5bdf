"""Amounts by resource name, read from quantities and written as quantities."""

from fractions import Fraction
from typing import Any

from admitq.core.amounts import Amounts
from admitq.core.model import ExactAmounts, ResourceProblem
from admitq_api.quantity import QuantityError, format_quantity, parse_quantity
from admitq_api.stored_fields import require_exact_amount, require_object


def read_exact_amounts(raw: Any, field: str) -> ExactAmounts:
    """Read amounts without rounding.

    Raises:
        MalformedField: a quantity is not readable.
    """
    return tuple(
        sorted(
            (name, require_exact_amount(value, f"{field}[{name}]"))
            for name, value in require_object(raw, field).items()
        )
    )


def read_countable_amounts(raw: Any, field: str, problems: list[ResourceProblem]) -> ExactAmounts:
    """Read amounts without rounding; skip invalid and negative ones and add them to ``problems``."""
    result: dict[str, Fraction] = {}
    for resource, quantity in require_object(raw, field).items():
        try:
            value = parse_quantity(quantity)
        except QuantityError as error:
            problems.append(ResourceProblem(f"{field}[{resource}]", str(error)))
            continue
        if value < 0:
            problems.append(ResourceProblem(f"{field}[{resource}]", "must not be negative"))
            continue
        result[resource] = value
    return tuple(sorted(result.items()))


def format_quantities(of: Amounts) -> dict[str, str]:
    """Format amounts as quantities by resource name; an unlimited amount becomes the largest quantity."""
    return {resource: format_quantity(resource, value) for resource, value in of}
