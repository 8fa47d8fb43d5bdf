"""The charts of topologies: how full racks are over time, and how large a job could be placed."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from admitq.simulator.charts import (
    HEIGHT,
    WIDTH,
    Specification,
    TimeAxis,
    chart,
    level_values,
    line_colour,
    rounded,
    steps,
    time_axis,
)
from admitq.simulator.run import Simulation
from admitq.simulator.topology_figures import occupied_resource, rack_name
from admitq.simulator.topology_measures import FlavorMeter, RackMeter

_MAX_RACKS: Final = 100
"""The maximum number of racks in a picture."""
_MAX_CELLS: Final = 4_000
_MOST_COLUMNS: Final = 200
_LEAST_ROW_HEIGHT: Final = 6
_COLOURS: Final = ("#eef3fa", "#3b7dd8", "#0b2f66")
"""The colours of an empty, a half full, and a full rack."""


def topology_charts(simulation: Simulation) -> dict[str, Specification]:
    """Return the charts of all flavors with a topology, by file name without suffix."""
    charts: dict[str, Specification] = {}
    for flavor, meter in sorted(simulation.topologies.flavors.items()):
        if meter.racks:
            charts[f"racks-{flavor}"] = _racks_chart(simulation, flavor, meter)
        if simulation.topologies.pods is not None:
            charts[f"room-{flavor}"] = _room_chart(simulation, flavor, meter)
    return charts


# --- racks ----------------------------------------------------------------------------------------


def _racks_chart(simulation: Simulation, flavor: str, meter: FlavorMeter) -> Specification:
    """Return the occupancy of each rack over time: a row for each rack."""
    axis = time_axis(simulation)
    resource = occupied_resource(meter, axis.end) or ""
    racks = sorted(meter.racks.items())
    shown = racks[:_MAX_RACKS]
    columns = max(1, min(_MOST_COLUMNS, _MAX_CELLS // len(shown)))
    rows = [
        {"rack": rack_name(values), **cell}
        for values, rack in shown
        for cell in _cells(axis, _occupancy(rack, resource, axis), columns)
    ]
    count = (
        f"the first {len(shown)} of {len(racks)} racks" if len(shown) < len(racks) else f"{len(racks)} racks"
    )
    height = max(_LEAST_ROW_HEIGHT, HEIGHT // len(shown)) * len(shown)
    return chart(
        f"{simulation.plan.name}: occupancy of racks, {resource} of flavor {flavor}",
        f"Heat map over time with one row for each rack ({count}). Darker means that workloads use more of "
        f"the {resource} of the nodes of the rack.",
        width=WIDTH,
        height=height,
        data={"values": rows},
        mark={"type": "rect"},
        encoding={
            "x": axis.encoding(),
            "x2": {"field": "end"},
            "y": {
                "field": "rack",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"grid": False, "ticks": False, "domain": False, "labelLimit": 200},
            },
            "color": {
                "field": "occupancy",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "range": [*_COLOURS], "clamp": True},
                "legend": {"title": "occupancy", "format": "%", "orient": "right", "direction": "vertical"},
            },
        },
    )


def _occupancy(rack: RackMeter, resource: str, axis: TimeAxis) -> list[float]:
    used = level_values(rack.used.get(resource), axis)
    offered = level_values(rack.offered.get(resource), axis)
    return [part / whole if whole > 0 else 0.0 for part, whole in zip(used, offered, strict=True)]


def _cells(axis: TimeAxis, values: Sequence[float], columns: int) -> Iterator[Mapping[str, Any]]:
    """Yield the cells of one rack. Neighbours of equal occupancy are one cell."""
    width = ceil(len(values) / columns)
    starts = [*axis.starts[::width], axis.length]
    means = [
        round(sum(values[first : first + width]) / len(values[first : first + width]), 2)
        for first in range(0, len(values), width)
    ]
    begin = 0
    for index, mean in enumerate(means):
        if index + 1 == len(means) or means[index + 1] != mean:
            yield {
                "time": rounded(starts[begin]),
                "end": rounded(starts[index + 1]),
                "occupancy": mean,
            }
            begin = index + 1


# --- room -----------------------------------------------------------------------------------------


def _room_chart(simulation: Simulation, flavor: str, meter: FlavorMeter) -> Specification:
    """Return how many pods of the common shape fit: in all domains, and at most in one domain of a level."""
    axis = time_axis(simulation)
    values = {"all nodes together": level_values(meter.levels[0].total, axis)}
    for label, level in zip(meter.tree.levels, meter.levels, strict=True):
        if level.domains > 1:
            values[f"one domain of {label}"] = level_values(level.largest, axis)
    rows = [
        {"line": name, "time": time, "pods": pods}
        for name, column in values.items()
        for time, pods in steps(axis, column)
    ]
    pod = ", ".join(f"{amount:g} {name}" for name, amount in simulation.topologies.pod_requests.items())
    return chart(
        f"{simulation.plan.name}: largest job that has room, pods of {pod}, flavor {flavor}",
        "Lines over time: how many pods with these requests fit into all nodes together, and at most into "
        "one domain of each level. The distance between the lines is capacity that is split into parts.",
        width=WIDTH,
        height=HEIGHT,
        data={"values": rows},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        encoding={
            "x": axis.encoding(),
            "y": {
                "field": "pods",
                "type": "quantitative",
                "title": "pods that fit",
                "axis": {"tickCount": 5},
            },
            "color": line_colour("line", values),
        },
    )
