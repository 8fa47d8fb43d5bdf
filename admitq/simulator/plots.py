"""Render the charts of a run as SVG files.

Only this module needs the packages of the extra ``plots``. Import it only when a user requests plots.
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

import vl_convert

from admitq.simulator.charts import Specification
from admitq.simulator.run import Simulation
from admitq.simulator.run_charts import charts

_VEGA_LITE: Final = "6.4"
"""The version of Vega-Lite that renders; another version may lay charts out differently."""


def render_svg(chart: Specification) -> str:
    """Render a chart as SVG, with its title and description for screen readers."""
    svg = vl_convert.vegalite_to_svg({**chart}, vl_version=_VEGA_LITE, allowed_base_urls=[])
    opening, root_end, content = svg.partition(">")
    described = f"<title>{escape(chart['title'])}</title><desc>{escape(chart['description'])}</desc>"
    return f'{opening} role="img"{root_end}{described}{content}\n'


def plots(simulation: Simulation) -> dict[str, str]:
    """Return all charts of a run that has ended as SVG, by file name."""
    return _render(charts(simulation))


def write_plots(charts_by_name: Mapping[str, Specification], folder: Path) -> None:
    """Write charts as SVG into an existing folder.

    Args:
        charts_by_name: the charts, by file name without suffix.
        folder: the folder.

    Raises:
        OSError: a file cannot be written.
    """
    for name, svg in _render(charts_by_name).items():
        (folder / name).write_text(svg, encoding="utf-8")


def _render(charts_by_name: Mapping[str, Specification]) -> dict[str, str]:
    return {f"{name}.svg": render_svg(chart) for name, chart in charts_by_name.items()}
