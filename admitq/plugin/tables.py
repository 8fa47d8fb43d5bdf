"""Tables as kubectl prints them, with colours on a terminal only."""

import os
import sys
from collections.abc import Sequence
from typing import Final

GREEN: Final = "32"
YELLOW: Final = "33"
RED: Final = "31"
FAINT: Final = "2"

COLORS: Final = {
    "ADMITTED": GREEN,
    "QUOTARESERVED": YELLOW,
    "PENDING": YELLOW,
    "FINISHED": FAINT,
    "True": GREEN,
    "False": RED,
    "Running": GREEN,
    "Failed": RED,
    "Pending": YELLOW,
    "ok": GREEN,
    "warning": YELLOW,
    "error": RED,
}
"""The colours of cells with these texts, as codes of ANSI terminals."""

GAP: Final = "   "


def has_colors() -> bool:
    """Return whether standard output shows colours: it is a terminal, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def render_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, colored: bool) -> str:
    """Return a table as text, with aligned columns and without a line end after the last row."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [_line(titles, widths, colored=False)]
    lines += [_line(row, widths, colored=colored) for row in rows]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], *, colored: bool) -> str:
    last = len(cells) - 1
    padded = [cell if index == last else cell.ljust(widths[index]) for index, cell in enumerate(cells)]
    if colored:
        padded = [paint(text, COLORS.get(cell, "")) for text, cell in zip(padded, cells, strict=True)]
    return GAP.join(padded).rstrip()


def paint(text: str, color: str) -> str:
    """Return a text in a colour; the text itself without one."""
    return f"\033[{color}m{text}\033[0m" if color else text


def safe_text(text: str) -> str:
    """Return a text without characters that control the terminal. Objects may contain any text."""
    return "".join(character if character.isprintable() else " " for character in text)
