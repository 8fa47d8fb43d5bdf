"""Figures and paragraphs as text for generated pages."""

import textwrap
from typing import Final

_NONE: Final = "\N{EN DASH}"
_LINE_LENGTH: Final = 120


def number(value: float | None) -> str:
    """Return a figure with three significant digits, but all digits of a whole number."""
    if value is None:
        return _NONE
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def numbers(*values: float | None) -> str:
    """Return several figures, with commas between them."""
    return ", ".join(map(number, values))


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{share * 100:.0f} %"


def cores(value: float) -> str:
    """Return a use of CPU in cores, or in thousandths of a core."""
    return f"{number(value)} cores" if value >= 1 else f"{number(value * 1_000)}m"


def paragraph(text: str) -> str:
    """Return a paragraph with the line length of docs."""
    return textwrap.fill(" ".join(text.split()), _LINE_LENGTH, break_long_words=False, break_on_hyphens=False)
