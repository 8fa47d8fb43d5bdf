"""The charts of a comparison as Vega-Lite specifications: both runs in one picture."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from admitq.core.amounts import FlavorResource
from admitq.core.model import SECOND
from admitq.core.percentiles import percentile
from admitq.simulator.charts import (
    HEIGHT,
    MAX_LINES,
    WIDTH,
    Specification,
    TimeAxis,
    amount_unit,
    chart,
    depth_lines,
    level_values,
    line_colour,
    steps,
    sum_levels,
    time_axis,
    waits_lines,
)
from admitq.simulator.run import Simulation

_PERCENT: Final = 90
"""The percentile of waits that the chart of LocalQueues shows."""


def comparison_charts(a: Simulation, b: Simulation) -> dict[str, Specification]:
    """Return all charts of two runs that have ended, by file name without suffix."""
    runs = {"A": a, "B": b}
    names = dict.fromkeys(run.plan.name for run in runs.values())
    title = " and ".join(names)
    waits = {name: sorted(run.measures.all.waits) for name, run in runs.items()}
    charts = {
        "compare-waits": waits_lines(f"{title}: time from submission to admission", waits),
        "compare-waits-by-queue": _queue_waits_chart(title, runs),
        "compare-queue-depth": _depth_chart(title, runs),
    }
    if any(run.measures.preemptions for run in runs.values()):
        charts["compare-preemptions"] = _preemptions_chart(title, runs)
    for pair in sorted({pair for run in runs.values() for pair in run.measures.uses}):
        name = f"compare-use-{pair.flavor}-{pair.resource.replace('/', '-')}"
        charts[name] = _use_chart(title, runs, pair)
    for flavor in sorted({flavor for run in runs.values() for flavor in run.topologies.flavors}):
        if all(run.topologies.pods is not None for run in runs.values()):
            charts[f"compare-room-{flavor}"] = _room_chart(title, runs, flavor)
    return charts


def _depth_chart(title: str, runs: Mapping[str, Simulation]) -> Specification:
    axes = {name: time_axis(run, *runs.values()) for name, run in runs.items()}
    lines = {
        name: (axes[name], sum_levels((meter.waiting for meter in run.measures.queues.values()), axes[name]))
        for name, run in runs.items()
    }
    return depth_lines(f"{title}: workloads waiting", "in all ClusterQueues together, of runs A and B", lines)


def _use_chart(title: str, runs: Mapping[str, Simulation], pair: FlavorResource) -> Specification:
    """Return the chart of a flavor's resource: the use in both runs, and the quota of each as dashed line."""
    axes = {name: time_axis(run, *runs.values()) for name, run in runs.items()}
    uses = {
        name: level_values(run.measures.uses.get(pair), axes[name], pair.resource)
        for name, run in runs.items()
    }
    quotas = {
        name: level_values(run.measures.quotas.get(pair), axes[name], pair.resource)
        for name, run in runs.items()
    }
    peak = max(max(values, default=0.0) for values in (*uses.values(), *quotas.values()))
    unit, size = amount_unit(pair.resource, peak)
    return _paired_lines(
        f"{title}: use of {pair.resource}, flavor {pair.flavor}",
        f"Line chart over time: the use of {pair.resource} of flavor {pair.flavor} by all ClusterQueues in "
        "runs A and B. Dashed lines are the nominal quota of each run.",
        f"{pair.resource} ({unit})" if unit else pair.resource,
        axes,
        {name: [use / size for use in values] for name, values in uses.items()},
        {name: [quota / size for quota in values] for name, values in quotas.items()},
    )


def _room_chart(title: str, runs: Mapping[str, Simulation], flavor: str) -> Specification:
    """Return the chart of the largest job that has room in one domain, and as dashed lines in all nodes."""
    axes = {name: time_axis(run, *runs.values()) for name, run in runs.items()}
    meters = {name: run.topologies.flavors.get(flavor) for name, run in runs.items()}
    requests = next(iter(runs.values())).topologies.pod_requests
    pod = ", ".join(f"{amount:g} {name}" for name, amount in requests.items())
    label = next(meter.tree.levels[meter.rack_level or 0] for meter in meters.values() if meter is not None)
    return _paired_lines(
        f"{title}: largest job that has room in one domain of {label}, pods of {pod}, flavor {flavor}",
        f"Line chart over time: how many pods with these requests fit at most into one domain of {label} in "
        "runs A and B. Dashed lines: how many fit into all nodes together.",
        "pods that fit",
        axes,
        {
            name: level_values(meter and meter.levels[meter.rack_level or 0].largest, axes[name])
            for name, meter in meters.items()
        },
        {name: level_values(meter and meter.levels[0].total, axes[name]) for name, meter in meters.items()},
    )


def _paired_lines(
    title: str,
    description: str,
    y_title: str,
    axes: Mapping[str, TimeAxis],
    solid: Mapping[str, Sequence[float]],
    dashed: Mapping[str, Sequence[float]],
) -> Specification:
    """Return a chart with a solid and a dashed line over time for each run."""
    rows = [
        {"run": name, "time": time, "solid": value, "dashed": other}
        for name, axis in axes.items()
        for time, value, other in steps(axis, solid[name], dashed[name])
    ]
    y = {"type": "quantitative", "title": y_title}
    x = max(axes.values(), key=lambda axis: axis.end).encoding()
    colour = line_colour("run", axes)
    return chart(
        title,
        description,
        width=WIDTH,
        height=HEIGHT,
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
                "encoding": {"x": x, "y": {"field": "solid", **y}, "color": colour},
            },
            {
                "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [5, 3]},
                "encoding": {"x": x, "y": {"field": "dashed", **y}, "color": colour},
            },
        ],
    )


def _queue_waits_chart(title: str, runs: Mapping[str, Simulation]) -> Specification:
    values = {
        name: {
            str(queue): percentile(sorted(counts.waits), _PERCENT) / SECOND / 60
            for queue, counts in run.measures.by_queue.items()
            if counts.waits
        }
        for name, run in runs.items()
    }
    return _bars(f"{title}: waits by LocalQueue", f"wait p{_PERCENT} (minutes)", values)


def _preemptions_chart(title: str, runs: Mapping[str, Simulation]) -> Specification:
    values = {
        name: {
            queue: float(meter.preempted) for queue, meter in run.measures.queues.items() if meter.preempted
        }
        for name, run in runs.items()
    }
    return _bars(f"{title}: preempted workloads by ClusterQueue", "preemptions", values)


def _bars(title: str, figure: str, values: Mapping[str, Mapping[str, float]]) -> Specification:
    """Return a chart with two bars for each queue; with many queues, for those with the largest figures."""
    queues = _largest(values.values())
    rows = [
        {"run": run, "queue": queue, "value": of_run.get(queue, 0.0)}
        for run, of_run in values.items()
        for queue in queues
    ]
    return chart(
        title,
        f"Bar chart: {figure} of each queue, one bar for run A and one for run B. "
        f"The {len(queues)} queues with the largest figures are shown.",
        width=WIDTH,
        height={"step": 14},
        data={"values": rows},
        mark={"type": "bar"},
        encoding={
            "x": {"field": "value", "type": "quantitative", "title": figure},
            "y": {"field": "queue", "type": "nominal", "title": None, "sort": queues},
            "yOffset": {"field": "run"},
            "color": {**line_colour("run", values), "legend": {"symbolType": "square"}},
        },
    )


def _largest(values: Iterable[Mapping[str, float]]) -> list[str]:
    largest: dict[str, float] = {}
    for of_run in values:
        for queue, value in of_run.items():
            largest[queue] = max(largest.get(queue, 0.0), value)
    return sorted(largest, key=lambda queue: (-largest[queue], queue))[:MAX_LINES]
