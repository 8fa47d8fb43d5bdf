"""Pictures as SVG: self-contained files that are legible on light and on dark ground.

Text, grid and ground take their colours from a style that follows the reader's colour scheme; the colours of
data are the same on both, chosen to be told apart with any kind of colour vision.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

PALETTE: Final = ("#3b7dd8", "#e0783a", "#2f9e77", "#9063cd", "#cf4a5c", "#2798a6", "#b98a14", "#7d8896")
"""Colours of series, in their order."""

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_STYLE: Final = f"""
    svg {{ color-scheme: light dark; }}
    text {{ font-family: {FONT}; font-size: 12px; fill: #57606a; }}
    .ground {{ fill: #ffffff; }}
    .title {{ font-size: 15px; font-weight: 600; fill: #1f2328; }}
    .panel {{ font-size: 12.5px; font-weight: 600; fill: #1f2328; }}
    .tick {{ font-size: 11px; font-variant-numeric: tabular-nums; }}
    .grid {{ stroke: #d8dee4; stroke-width: 1; }}
    .axis {{ stroke: #8c959f; stroke-width: 1; }}
    .quota {{ stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 5 3; fill: none; }}
    .hatch {{ stroke: #ffffff; stroke-width: 1.6; }}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #9aa4af; }}
      .ground {{ fill: #0d1117; }}
      .title, .panel {{ fill: #e6edf3; }}
      .grid {{ stroke: #2a313a; }}
      .axis {{ stroke: #6e7681; }}
      .quota {{ stroke: #e6edf3; }}
      .hatch {{ stroke: #0d1117; }}
    }}
"""


class Area(NamedTuple):
    """A rectangle on the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


class Picture:
    """A picture under construction.

    Args:
        title: what it shows; also read out to those who cannot see it.
        description: the same at more length.
        width: in pixels.
        height: in pixels.
    """

    def __init__(self, title: str, description: str, width: int, height: int) -> None:
        self._title, self._description = title, description
        self._width, self._height = width, height
        self._hatches: dict[str, str] = {}
        self._body: list[str] = []

    def text(self, left: float, top: float, text: str, *, style: str = "", anchor: str = "start") -> None:
        """A line of text; ``top`` is where its letters stand."""
        styled = f' class="{style}"' if style else ""
        anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._body.append(
            f'<text x="{number(left)}" y="{number(top)}"{styled}{anchored}>{escape(text)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        start, end = f'x1="{number(x1)}" y1="{number(y1)}"', f'x2="{number(x2)}" y2="{number(y2)}"'
        self._body.append(f'<line {start} {end} class="{style}"/>')

    def path(
        self, steps: str, *, stroke: str = "", fill: str = "none", style: str = "", opacity: float = 1
    ) -> None:
        """A path, stroked or filled."""
        looks = f' class="{style}"' if style else f' fill="{fill}"'
        if stroke:
            looks += f' stroke="{stroke}" stroke-width="1.8" stroke-linejoin="round"'
        if opacity < 1:
            looks += f' fill-opacity="{opacity:g}"'
        self._body.append(f'<path d="{steps}"{looks}/>')

    def swatch(self, left: float, top: float, fill: str) -> None:
        """A small square for a legend; the text that belongs to it stands at the same ``top`` plus 9."""
        place = f'x="{number(left)}" y="{number(top)}" width="11" height="11" rx="2"'
        self._body.append(f'<rect {place} fill="{fill}"/>')

    def hatched(self, colour: str) -> str:
        """A fill of a colour with stripes of the ground."""
        name = self._hatches.setdefault(colour, f"hatch-{len(self._hatches) + 1}")
        return f"url(#{name})"

    def to_text(self) -> str:
        """The file."""
        size = f'width="{self._width}" height="{self._height}" viewBox="0 0 {self._width} {self._height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
            f'  <title id="title">{escape(self._title)}</title>',
            f'  <desc id="description">{escape(self._description)}</desc>',
            f"  <style>{_STYLE}  </style>",
        ]
        if self._hatches:
            lines.append("  <defs>")
            lines.extend(_hatch(name, colour) for colour, name in self._hatches.items())
            lines.append("  </defs>")
        lines.append(f'  <rect width="{self._width}" height="{self._height}" class="ground"/>')
        lines.extend(f"  {part}" for part in self._body)
        return "\n".join([*lines, "</svg>", ""])


def _hatch(name: str, colour: str) -> str:
    return (
        f'    <pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{colour}"/>'
        f'<line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>'
    )


def steps(xs: Sequence[float], ys: Iterable[float], end: float) -> str:
    """The path of a quantity that has each value from one place to the next, the last one up to the end."""
    parts: list[str] = []
    last = ""
    for x, y in zip(xs, ys, strict=True):
        at = number(y)
        if at == last:
            continue
        parts.append(f"M{number(x)},{at}" if not parts else f"H{number(x)}V{at}")
        last = at
    return "".join((*parts, f"H{number(end)}")) if parts else ""


def between(xs: Sequence[float], upper: Sequence[float], lower: Sequence[float], end: float) -> str:
    """The outline of what lies between two such quantities; empty where there is nothing between them."""
    shapes: list[str] = []
    start: int | None = None
    for index in range(len(xs) + 1):
        open_here = index < len(xs) and number(upper[index]) != number(lower[index])
        if open_here and start is None:
            start = index
        elif not open_here and start is not None:
            stop = xs[index] if index < len(xs) else end
            shapes.append(_outline(xs[start:index], upper[start:index], lower[start:index], stop))
            start = None
    return "".join(shapes)


def _outline(xs: Sequence[float], upper: Sequence[float], lower: Sequence[float], end: float) -> str:
    back: list[str] = []
    last = number(lower[-1])
    back.append(f"V{last}")
    for index in range(len(xs) - 1, 0, -1):
        following = number(lower[index - 1])
        if following != last:
            back.append(f"H{number(xs[index])}V{following}")
            last = following
    return steps(xs, upper, end) + "".join(back) + f"H{number(xs[0])}Z"
