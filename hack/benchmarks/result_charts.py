"""The plots of docs/performance.md as Vega-Lite specifications."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.simulator.charts import PALETTE, Specification, chart
from benchmarks.published_figures import PUBLISHED_RUNS
from benchmarks.stored_results import OWN_MANAGER, StoredResult, StoredResults

PROCESSES: Final[Mapping[str, str]] = {
    "manager": "admitq manager",
    "webhook": "admitq webhook",
    "api_server": "kube-apiserver",
    "etcd": "etcd",
    "harness": "benchmark",
}
"""The titles of processes in plots and tables, by their keys in results."""

BOUND: Final = "shortest possible time"
_PERCENTILES: Final = ("p50", "p99")
_WIDTH: Final = 620
_BAR_HEIGHT: Final = 26
_LINES_HEIGHT: Final = 260
_TEXT_COLOUR: Final = "#1f2328"


def result_charts(results: StoredResults) -> dict[str, Specification]:
    """Return all plots for which there are results, by file name without suffix."""
    shapes = throughput_results(results)
    plots: dict[str, Specification] = {}
    if shapes:
        plots["throughput"] = throughput_chart(shapes)
        plots["throughput-cpu"] = cpu_chart(shapes)
    if (depth := results.get("depth")) is not None:
        plots["depth"] = depth_chart(depth)
    if (webhook := results.get("webhook")) is not None:
        plots["webhook"] = webhook_chart(webhook)
    return plots


def throughput_results(results: StoredResults) -> dict[str, StoredResult]:
    """Return the results of published load shapes, by shape."""
    found = {shape: results.get(shape) for shape in PUBLISHED_RUNS}
    return {shape: result for shape, result in found.items() if result is not None}


def throughput_runs(shape: str, result: StoredResult) -> Iterator[tuple[str, float]]:
    """Yield the runs of a load shape with their seconds: the bound, admitq, and what others published."""
    yield BOUND, float(result.figures["bound_s"])
    yield OWN_MANAGER, float(result.figures["wall_s"])
    for run in PUBLISHED_RUNS[shape]:
        yield f"another queue manager, {run.machine}", run.wall_s


def throughput_chart(shapes: Mapping[str, StoredResult]) -> Specification:
    """Return the plot of the time of each load shape, beside its bound and the published times."""
    rows = [
        {"shape": _shape_title(shape, result), "run": run, "seconds": seconds}
        for shape, result in shapes.items()
        for run, seconds in throughput_runs(shape, result)
    ]
    names = list(dict.fromkeys(row["run"] for row in rows))
    x = {"field": "seconds", "type": "quantitative", "title": "seconds"}
    y = {"field": "run", "type": "nominal", "sort": names, "title": None, "axis": {"labelLimit": 260}}
    colour = {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": names, "range": ["#8c959f", PALETTE[0], *[PALETTE[1]] * len(names)]},
        "legend": None,
    }
    times = "; ".join(f"{row['shape']}, {row['run']}: {row['seconds']:g} s" for row in rows)
    return chart(
        "Time until all workloads have finished",
        f"Bar chart. {times}.",
        data={"values": rows},
        facet={"field": "shape", "type": "nominal", "sort": list(map(_shape_title, shapes, shapes.values()))},
        columns=1,
        spec={
            "width": _WIDTH,
            "height": _BAR_HEIGHT * len(names),
            "layer": [
                {"mark": "bar", "encoding": {"x": x, "y": y, "color": colour}},
                _value_labels(x, y),
            ],
        },
        resolve={"scale": {"x": "independent"}},
    )


def cpu_chart(shapes: Mapping[str, StoredResult]) -> Specification:
    """Return the plot of the CPU time of each load shape, by process."""
    rows = [
        {"shape": _shape_title(shape, result), "process": title, "order": order, "seconds": seconds}
        for shape, result in shapes.items()
        for order, (key, title) in enumerate(PROCESSES.items())
        if (seconds := result.figures["cpu_s"].get(key)) is not None
    ]
    texts = "; ".join(f"{row['shape']}, {row['process']}: {row['seconds']:g} s" for row in rows)
    return chart(
        "CPU time by process",
        f"Stacked bar chart of CPU-seconds. {texts}.",
        data={"values": rows},
        width=_WIDTH,
        height=_BAR_HEIGHT * 2 * len(shapes),
        mark="bar",
        encoding={
            "x": {"field": "seconds", "type": "quantitative", "title": "CPU-seconds"},
            "y": {
                "field": "shape",
                "type": "nominal",
                "sort": None,
                "title": None,
                "axis": {"labelLimit": 260},
            },
            "color": _colours("process", list(PROCESSES.values())),
            "order": {"field": "order", "type": "quantitative"},
        },
    )


def depth_chart(result: StoredResult) -> Specification:
    """Return the plot of the time to admission of a newcomer, by the number of Workloads that wait."""
    rows = [
        {"depth": one["depth"], "figure": figure, "milliseconds": one["admit_s"][figure] * 1_000}
        for one in result.figures["depths"]
        for figure in _PERCENTILES
    ]
    texts = "; ".join(
        f"{row['depth']:,} waiting, {row['figure']}: {row['milliseconds']:.3g} ms" for row in rows
    )
    return chart(
        "Time to admission of a newcomer that fits",
        f"Line chart with a logarithmic axis of Workloads that wait. {texts}.",
        data={"values": rows},
        width=_WIDTH,
        height=_LINES_HEIGHT,
        mark={"type": "line", "point": True},
        encoding={
            "x": {
                "field": "depth",
                "type": "quantitative",
                "title": "Workloads that wait (logarithmic)",
                "scale": {"type": "log"},
                "axis": {"values": sorted({row["depth"] for row in rows}), "format": ",d"},
            },
            "y": {"field": "milliseconds", "type": "quantitative", "title": "milliseconds"},
            "color": _colours("figure", _PERCENTILES),
        },
    )


def webhook_chart(result: StoredResult) -> Specification:
    """Return the plot of the latency of reviews, by case."""
    cases = latency_cases(result)
    rows = [
        {"case": name, "figure": figure, "milliseconds": case[f"{figure}_ms"]}
        for name, case in cases.items()
        for figure in _PERCENTILES
    ]
    texts = "; ".join(f"{row['case']}, {row['figure']}: {row['milliseconds']:g} ms" for row in rows)
    y = {"field": "case", "type": "nominal", "sort": list(cases), "title": None, "axis": {"labelLimit": 260}}
    x = {
        "field": "milliseconds",
        "type": "quantitative",
        "title": "milliseconds (logarithmic)",
        "scale": {"type": "log"},
    }
    return chart(
        "Latency of reviews",
        f"Dot plot on a logarithmic axis. {texts}.",
        data={"values": rows},
        width=_WIDTH,
        height=_BAR_HEIGHT * 1.5 * len(cases),
        layer=[
            {
                "mark": {"type": "line", "color": "#8c959f"},
                "encoding": {"x": x, "y": y, "detail": {"field": "case", "type": "nominal"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": _colours("figure", _PERCENTILES)},
            },
        ],
    )


def latency_cases(result: StoredResult) -> dict[str, Mapping[str, Any]]:
    """Return the cases of a result of `hack/bench webhook` with latencies, by name."""
    return {name: case for name, case in result.figures["cases"].items() if case.get("p99_ms") is not None}


def _shape_title(shape: str, result: StoredResult) -> str:
    return f"{shape}: {result.figures['workloads']:,} workloads"


def _value_labels(x: Specification, y: Specification) -> Specification:
    """Return the layer with the value at the end of each bar."""
    return {
        "mark": {"type": "text", "align": "left", "dx": 4, "color": _TEXT_COLOUR},
        "encoding": {"x": x, "y": y, "text": {"field": x["field"], "format": ",.0f"}},
    }


def _colours(field: str, names: Sequence[str]) -> Specification:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": [*PALETTE[: len(names)]]},
        "legend": {"columns": 5},
    }
