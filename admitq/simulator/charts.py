"""The charts of a run as Vega-Lite specifications: use against quota, workloads waiting, waits.

A specification is plain JSON with its data inside. ``plots`` renders it to SVG; a web page can show the same
specification with vega-embed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, log10
from typing import Any, Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.model import SECOND
from admitq.simulator.measures import Measures, WorkloadCounts
from admitq.simulator.run import Simulation
from admitq.simulator.series import Level
from admitq.simulator.units import duration_text, is_bytes, natural

Specification = Mapping[str, Any]
"""A chart in the Vega-Lite language, version 6."""

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
WIDTH: Final = 760
_PANEL_HEIGHT: Final = 110
HEIGHT: Final = 240

_MAX_PANELS: Final = 6
"""With more ClusterQueues than this, one panel shows the sum of all."""
MAX_LINES: Final = 7
"""With more ClusterQueues, LocalQueues or classes than this, a chart shows sums."""
_MAX_POINTS: Final = 400
"""The maximum number of points of a distribution curve: more would not be visible."""

PALETTE: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#6b5b00", "#4d4d4d")
"""The colours of lines, in order. People with any kind of colour vision can tell them apart."""
_OWN, _BORROWED, _QUOTA = "#3b7dd8", "#f2a25c", "#1f2328"

_CONFIG: Final[Specification] = {
    # The renderer contains the first font. So texts have the same width on every machine.
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "background": "white",
    "title": {"anchor": "start", "frame": "group", "fontSize": 15, "offset": 12},
    "axis": {
        "domainColor": "#8c959f",
        "labelFlush": False,
        "gridColor": "#e3e7eb",
        "labelColor": "#57606a",
        "tickColor": "#8c959f",
        "titleColor": "#1f2328",
        "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "legend": {
        "direction": "horizontal",
        "labelFontSize": 12,
        "labelLimit": 300,
        "orient": "top",
        "symbolStrokeWidth": 2,
        "title": None,
    },
    "header": {"labelAnchor": "start", "labelFontSize": 12.5, "labelFontWeight": "bold", "title": None},
    # For screen readers, a chart has one description, and no label for each of its hundreds of steps.
    "mark": {"aria": False},
    "view": {"stroke": None},
}

_TIME_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_BYTE_UNITS: Final = (
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
)
_MIN_UNITS: Final = 3
"""A time axis uses the largest unit that fits at least this often into the run."""

_DURATION_TICKS: Final = (
    *(0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 36_000),
    *(86_400, 864_000, 8_640_000, 86_400_000),
)
"""Ticks of a logarithmic axis of durations, in seconds."""
_DURATION_LABEL: Final = (
    "datum.value < 1 ? format(datum.value * 1000, '~g') + 'ms'"
    " : datum.value < 60 ? format(datum.value, '~g') + 's'"
    " : datum.value < 3600 ? format(datum.value / 60, '~g') + 'm'"
    " : datum.value < 86400 ? format(datum.value / 3600, '~g') + 'h'"
    " : format(datum.value / 86400, '~g') + 'd'"
)


def chart(title: str, description: str, **parts: Any) -> Specification:
    """Return a chart in the style of all charts.

    Args:
        title: the title.
        description: what the chart shows, for screen readers.
        parts: the parts of the specification, such as ``data``, ``mark`` and ``encoding``.
    """
    return {
        "$schema": _SCHEMA,
        "title": title,
        "description": description,
        **parts,
        "config": _CONFIG,
    }


# --- the time axis --------------------------------------------------------------------------------


class TimeAxis(NamedTuple):
    """The time axis of a chart: from 0 to the end of the run, in a unit that suits its length."""

    end: int
    """The end of the run in nanoseconds."""
    unit: str
    unit_seconds: int
    starts: list[float]
    """The start of each time bucket, in the unit."""

    @property
    def length(self) -> float:
        """The length of the run, in the unit."""
        return self.end / SECOND / self.unit_seconds

    def encoding(self) -> Specification:
        """Return the x channel of a chart over time."""
        return {
            "field": "time",
            "type": "quantitative",
            "title": f"time since the start of the run ({self.unit})",
            "scale": {"domain": [0, self.length], "nice": False},
            "axis": {"grid": False, "tickCount": 10},
        }


def _end(simulation: Simulation) -> int:
    measures = simulation.measures
    return max(1, simulation.now if simulation.workloads.unfinished else measures.last_end)


def time_axis(simulation: Simulation, *others: Simulation) -> TimeAxis:
    """Return the time axis of a run, in a unit that suits the longest run of a chart."""
    measures = simulation.measures
    end = _end(simulation)
    measures.grid.reach(end - 1)
    width = measures.grid.width
    longest = max(map(_end, (simulation, *others)))
    unit, unit_seconds = next(
        ((name, size) for name, size in _TIME_UNITS if longest / SECOND >= _MIN_UNITS * size), _TIME_UNITS[-1]
    )
    starts = [index * width / SECOND / unit_seconds for index in range(-(-end // width))]
    return TimeAxis(end, unit, unit_seconds, starts)


def level_values(level: Level | None, axis: TimeAxis, resource: str = "") -> list[float]:
    """Return the values of a level in each bucket, in the resource's own unit."""
    if level is None:
        return [0.0] * len(axis.starts)
    return [natural(resource, value) for value in level.bucket_means(axis.end)]


def sum_levels(levels: Iterable[Level], axis: TimeAxis, resource: str = "") -> list[float]:
    """Return the sums of levels in each bucket, in the resource's own unit."""
    total = [0.0] * len(axis.starts)
    for level in levels:
        total = [a + b for a, b in zip(total, level_values(level, axis, resource), strict=True)]
    return total


def rounded(value: float) -> float:
    """Return the value with six significant digits, which is more than a chart can show."""
    return round(value, 6 - ceil(log10(abs(value)))) if value else 0.0


def steps(axis: TimeAxis, *columns: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Return rows of a time and a value for each column, without rows that are equal to the row before."""
    last: tuple[float, ...] = ()
    for time, *values in zip(axis.starts, *columns, strict=True):
        row = tuple(map(rounded, values))
        if row != last:
            yield (rounded(time), *row)
            last = row
    if last:
        yield (rounded(axis.length), *last)


# --- use ------------------------------------------------------------------------------------------


class _Panel(NamedTuple):
    """The data of one panel: use, the borrowed part of it, and nominal quota."""

    name: str
    use: Sequence[float]
    borrowed: Sequence[float]
    quota: Sequence[float]

    @property
    def peak(self) -> float:
        """The largest value that the panel shows."""
        return max((*self.use, *self.quota), default=0.0)


def use_chart(simulation: Simulation, pair: FlavorResource) -> Specification:
    """Return the chart of a flavor's resource: use by each ClusterQueue, its quota, and what it borrows."""
    axis = time_axis(simulation)
    panels = _panels(simulation.measures, pair, axis)
    unit, size = amount_unit(pair.resource, max(panel.peak for panel in panels))
    rows = [
        {"queue": panel.name, "time": time, "own": own, "use": use, "quota": quota}
        for panel in panels
        for time, own, use, quota in steps(
            axis,
            [(use - borrowed) / size for use, borrowed in zip(panel.use, panel.borrowed, strict=True)],
            [use / size for use in panel.use],
            [quota / size for quota in panel.quota],
        )
    ]
    y_title = f"{pair.resource} ({unit})" if unit else pair.resource
    return chart(
        f"{simulation.plan.name}: use of {pair.resource}, flavor {pair.flavor}",
        _use_description(simulation.measures, pair, summed=len(panels) == 1),
        data={"values": rows},
        facet={"field": "queue", "type": "nominal", "sort": [panel.name for panel in panels]},
        columns=1,
        spec={"width": WIDTH, "height": _PANEL_HEIGHT, "layer": [*_use_layers(panels, axis, y_title)]},
        spacing=14,
    )


def _use_layers(panels: Sequence[_Panel], axis: TimeAxis, y_title: str) -> Iterator[Specification]:
    """Return the layers of a use chart. Empty layers are omitted, also from the legend."""
    x = axis.encoding()
    y = {"type": "quantitative", "title": y_title, "axis": {"tickCount": 4}}
    areas: list[tuple[str, str, Specification]] = []
    if any(use > over for panel in panels for use, over in zip(panel.use, panel.borrowed, strict=True)):
        areas.append(("within quota", _OWN, {"y": {"field": "own", **y}}))
    if any(any(panel.borrowed) for panel in panels):
        areas.append(("borrowed", _BORROWED, {"y": {"field": "use", **y}, "y2": {"field": "own"}}))
    scale = {"domain": [name for name, _, _ in areas], "range": [colour for _, colour, _ in areas]}
    legend = {"symbolType": "square", "symbolStrokeWidth": 0}
    for name, _, channels in areas:
        colour = {"datum": name, "scale": scale, "legend": legend}
        yield {
            "mark": {"type": "area", "interpolate": "step-after"},
            "encoding": {"x": x, **channels, "color": colour},
        }
    if any(any(panel.quota) for panel in panels):
        dash = {
            "datum": "nominal quota",
            "scale": {"domain": ["nominal quota"], "range": [[5, 3]]},
            "legend": {"symbolType": "stroke", "symbolStrokeColor": _QUOTA},
        }
        yield {
            "mark": {"type": "line", "interpolate": "step-after", "color": _QUOTA, "strokeWidth": 1.5},
            "encoding": {"x": x, "y": {"field": "quota", **y}, "strokeDash": dash},
        }


def _panels(measures: Measures, pair: FlavorResource, axis: TimeAxis) -> list[_Panel]:
    """Return a panel for each ClusterQueue that uses or has quota of the resource, or one for their sum."""
    meters = [
        meter for _, meter in sorted(measures.queues.items()) if pair in meter.uses or pair in meter.quotas
    ]
    if len(meters) > _MAX_PANELS:
        return [
            _Panel(
                f"{len(meters)} ClusterQueues together",
                level_values(measures.uses.get(pair), axis, pair.resource),
                sum_levels(
                    (meter.borrows[pair] for meter in meters if pair in meter.borrows), axis, pair.resource
                ),
                level_values(measures.quotas.get(pair), axis, pair.resource),
            )
        ]
    return [
        _Panel(
            meter.spec.name,
            *(
                level_values(levels.get(pair), axis, pair.resource)
                for levels in (meter.uses, meter.borrows, meter.quotas)
            ),
        )
        for meter in meters
    ]


def amount_unit(resource: str, peak: float) -> tuple[str, float]:
    """Return the unit of an axis, and its size in the resource's own unit."""
    if resource == "cpu":
        return "cores", 1
    if not is_bytes(resource):
        return "", 1
    return next(((name, float(size)) for name, size in _BYTE_UNITS if peak >= size), ("bytes", 1.0))


def _use_description(measures: Measures, pair: FlavorResource, *, summed: bool) -> str:
    users = "all ClusterQueues together" if summed else "each ClusterQueue"
    peak = natural(pair.resource, measures.uses[pair].peak)
    return (
        f"Area chart over time: the use of {pair.resource} of flavor {pair.flavor} by {users} within nominal "
        f"quota, the borrowed use, and the nominal quota. The peak of the use is {peak:g}."
    )


# --- workloads waiting ----------------------------------------------------------------------------


def queue_depth_chart(simulation: Simulation) -> Specification:
    """Return the chart of how many workloads wait in each ClusterQueue."""
    axis = time_axis(simulation)
    lines = {name: (axis, values) for name, values in _depths(simulation.measures, axis)}
    return depth_lines(f"{simulation.plan.name}: workloads waiting", "by ClusterQueue", lines)


def depth_lines(title: str, by: str, lines: Mapping[str, tuple[TimeAxis, Sequence[float]]]) -> Specification:
    """Return a chart of how many workloads wait.

    Args:
        title: the title.
        by: what has one line each, for the description.
        lines: the time axis and the values of each line, by name.
    """
    deepest = max((max(values, default=0.0) for _, values in lines.values()), default=0.0)
    axis = max((axis for axis, _ in lines.values()), key=lambda axis: axis.end)
    rows = [
        {"queue": name, "time": time, "waiting": waiting}
        for name, (line_axis, values) in lines.items()
        for time, waiting in steps(line_axis, values)
    ]
    return chart(
        title,
        f"Line chart over time: the number of workloads that wait for admission, {by}. "
        f"The most that a line shows is {deepest:.0f}.",
        width=WIDTH,
        height=HEIGHT,
        data={"values": rows},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        encoding={
            "x": axis.encoding(),
            "y": {
                "field": "waiting",
                "type": "quantitative",
                "title": "workloads waiting",
                "scale": {"domain": [0, max(1, ceil(deepest))], "nice": 5},
                "axis": {"tickMinStep": 1, "tickCount": 5},
            },
            "color": line_colour("queue", lines),
        },
    )


def line_colour(field: str, names: Iterable[str]) -> Specification:
    """Return the colour channel of lines, one colour for each name."""
    listed = list(names)
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": listed, "range": [*PALETTE[: len(listed)]]},
        "legend": {"columns": 4, "symbolType": "stroke"},
    }


def _depths(measures: Measures, axis: TimeAxis) -> Iterator[tuple[str, list[float]]]:
    """Return a line for each ClusterQueue; for many, for their sum and for the three longest queues."""
    meters = [meter for _, meter in sorted(measures.queues.items())]
    if len(meters) > MAX_LINES:
        yield f"{len(meters)} ClusterQueues together", sum_levels((meter.waiting for meter in meters), axis)
        meters = sorted(meters, key=lambda meter: (-meter.waiting.integral, meter.spec.name))[:3]
    for meter in meters:
        yield meter.spec.name, level_values(meter.waiting, axis)


# --- waits ----------------------------------------------------------------------------------------


def waits_chart(simulation: Simulation) -> Specification:
    """Return the chart of waits: for each duration, the share of workloads that waited no longer."""
    return waits_lines(
        f"{simulation.plan.name}: time from submission to admission", _groups(simulation.measures)
    )


def waits_lines(title: str, groups: Mapping[str, Sequence[int]]) -> Specification:
    """Return a chart of the distributions of waits.

    Args:
        title: the title.
        groups: the sorted waits of each line in nanoseconds, by name.
    """
    low, high = _duration_range(groups)
    rows = [
        {"group": name, "wait": wait, "share": share}
        for name, waits in groups.items()
        for wait, share in _distribution(waits, low, high)
    ]
    medians = " ".join(
        f"{name}: half of the workloads waited at most {duration_text(waits[len(waits) // 2] / SECOND)}."
        for name, waits in groups.items()
        if waits
    )
    return chart(
        title,
        f"Cumulative distribution of waits on a logarithmic axis. {medians}",
        width=WIDTH,
        height=HEIGHT,
        data={"values": rows},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        encoding={
            "x": {
                "field": "wait",
                "type": "quantitative",
                "title": f"wait (logarithmic; shorter waits are shown at {duration_text(low)})",
                "scale": {"type": "log", "domain": [low, high], "nice": False},
                "axis": {
                    "values": [tick for tick in _DURATION_TICKS if low <= tick <= high],
                    "labelExpr": _DURATION_LABEL,
                },
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "workloads that waited no longer",
                "scale": {"domain": [0, 1]},
                "axis": {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]},
            },
            "color": line_colour("group", groups),
        },
    )


def _groups(measures: Measures) -> dict[str, list[int]]:
    """Return sorted waits by class, or by LocalQueue if there is only one class."""

    def sorted_waits(passages: Mapping[str, WorkloadCounts]) -> dict[str, list[int]]:
        return {name: sorted(passage.waits) for name, passage in passages.items()}

    by_queue = {str(key): passage for key, passage in sorted(measures.by_queue.items())}
    for passages in (measures.by_class, by_queue):
        if 1 < len(passages) <= MAX_LINES:
            return sorted_waits(passages)
    return sorted_waits({"all workloads": measures.all})


def _duration_range(groups: Mapping[str, Sequence[int]]) -> tuple[float, float]:
    """Return the ends of the axis in seconds.

    The upper end is a tick that no wait exceeds. The lower end is 1 s, or a thousandth of the upper end.
    """
    longest = max((waits[-1] for waits in groups.values() if waits), default=0) / SECOND
    high = next((tick for tick in _DURATION_TICKS if 1 < tick >= longest), _DURATION_TICKS[-1])
    low = max(tick for tick in _DURATION_TICKS if tick <= max(0.001, min(1.0, high / 1000)))
    return low, float(high)


def _distribution(waits: Sequence[int], low: float, high: float) -> Iterator[tuple[float, float]]:
    """Return the visible points of a cumulative distribution, from the low to the high end."""
    if not waits:
        return
    count = len(waits)
    yield low, 0.0
    for rank in sorted({round(index * (count - 1) / _MAX_POINTS) for index in range(_MAX_POINTS + 1)}):
        yield rounded(min(max(waits[rank] / SECOND, low), high)), rounded((rank + 1) / count)
    yield high, 1.0
