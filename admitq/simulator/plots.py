"""The pictures of a run: use against quota with what is borrowed, depth of queues, distributions of waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.model import SECOND
from admitq.simulator.axes import Tick, amount_ticks, count_ticks, log_time_ticks, time_ticks, top
from admitq.simulator.measures import Measures, Passage
from admitq.simulator.report import natural
from admitq.simulator.run import Simulation
from admitq.simulator.series import Level
from admitq.simulator.svg import PALETTE, Area, Picture, between, number, steps
from admitq.simulator.units import duration_text, is_bytes

_WIDTH: Final = 860
_LEFT, _RIGHT = 64, 24
_HEAD: Final = 62
"""Height of title and legend."""
_FOOT: Final = 44
"""Height of the labels of the time axis."""
_PANEL: Final = 118
_GAP: Final = 34
_MOST_PANELS: Final = 6
_MOST_LINES: Final = 7
_MOST_POINTS: Final = 400
"""Points of a curve of waits: more cannot be seen."""

_OWN, _BORROWED = PALETTE[0], PALETTE[1]


def pictures(simulation: Simulation) -> dict[str, str]:
    """All pictures of a run that has ended, by file name."""
    found = {"queue-depth.svg": queue_depth(simulation), "waits.svg": waits(simulation)}
    for pair in sorted(simulation.measures.uses):
        found[f"use-{pair.flavor}-{pair.resource.replace('/', '-')}.svg"] = use(simulation, pair)
    return found


def write_plots(simulation: Simulation, folder: Path) -> None:
    """Write all pictures of a run into a folder.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(simulation).items():
        (folder / name).write_text(text, encoding="utf-8")


# --- the time axis --------------------------------------------------------------------------------


class _Clock(NamedTuple):
    """The time axis: the buckets that courses are told in, and where they stand on the picture."""

    end: int
    xs: list[float]
    area: Area
    ticks: list[Tick]

    @property
    def seconds(self) -> float:
        return self.end / SECOND

    def at(self, seconds: float) -> float:
        return self.area.left + self.area.width * seconds / self.seconds


def _clock(simulation: Simulation, area: Area) -> _Clock:
    measures = simulation.measures
    end = max(1, measures.last_end if not simulation.workloads.courses else simulation.now)
    measures.grid.reach(end - 1)
    width = measures.grid.width
    buckets = -(-end // width)
    xs = [area.left + area.width * (index * width) / end for index in range(buckets)]
    return _Clock(end, xs, area, time_ticks(end / SECOND))


def _course(level: Level | None, clock: _Clock, resource: str = "") -> list[float]:
    if level is None:
        return [0.0] * len(clock.xs)
    return [natural(resource, value) for value in level.course(clock.end)]


def _draw_frame(picture: Picture, area: Area, ticks: Sequence[Tick]) -> None:
    """The grid and the labels of the upright axis."""
    for tick in ticks:
        y = area.bottom - area.height * tick.at / top(ticks)
        picture.line(area.left, y, area.right, y, "axis" if not tick.at else "grid")
        picture.text(area.left - 8, y + 3.8, tick.label, style="tick", anchor="end")


def _draw_clock(picture: Picture, clock: _Clock, bottom: float) -> None:
    for tick in clock.ticks:
        x = clock.at(tick.at)
        picture.line(x, bottom, x, bottom + 4, "axis")
        picture.text(x, bottom + 18, tick.label, style="tick", anchor="middle")
    picture.text(clock.area.right, bottom + 35, "time since the start", style="tick", anchor="end")


def _legend(picture: Picture, entries: Sequence[tuple[str, str]], top_at: float) -> None:
    """Squares of colour with their names; an entry whose colour is empty has the line of a quota."""
    left = float(_LEFT)
    for name, fill in entries:
        if fill:
            picture.swatch(left, top_at, fill)
        else:
            picture.line(left - 3, top_at + 5.5, left + 15, top_at + 5.5, "quota")
        picture.text(left + (17 if fill else 21), top_at + 9.5, name)
        left += 34 + 6.4 * len(name)


def _heights(values: Sequence[float], area: Area, most: float) -> list[float]:
    return [area.bottom - area.height * min(value, most) / most for value in values]


# --- use ------------------------------------------------------------------------------------------


class _Panel(NamedTuple):
    """What one panel shows: use, of it borrowed, and nominal quota, in the resource's unit."""

    name: str
    use: list[float]
    borrowed: list[float]
    quota: list[float]

    @property
    def most(self) -> float:
        return max((*self.use, *self.quota), default=0.0)


def use(simulation: Simulation, pair: FlavorResource) -> str:
    """Use of a resource of a flavor by each ClusterQueue, against its quota, with what is borrowed."""
    measures, unit = simulation.measures, _unit(pair.resource)
    queues = [
        meter for _, meter in sorted(measures.queues.items()) if pair in meter.uses or pair in meter.quotas
    ]
    many = len(queues) > _MOST_PANELS
    count = 1 if many else max(1, len(queues))
    height = _HEAD + count * (_PANEL + _GAP) + _FOOT - 8
    title = f"{simulation.plan.name}: use of {pair.resource}{unit}, flavor {pair.flavor}"
    picture = Picture(title, _use_description(measures, pair, many=many), _WIDTH, height)
    first = Area(_LEFT, _HEAD + 26, _WIDTH - _LEFT - _RIGHT, _PANEL)
    clock = _clock(simulation, first)
    if many:
        panels = [_together(measures, pair, clock, len(queues))]
    else:
        panels = [
            _Panel(
                meter.spec.name,
                _course(meter.uses.get(pair), clock, pair.resource),
                _course(meter.borrows.get(pair), clock, pair.resource),
                _course(meter.quotas.get(pair), clock, pair.resource),
            )
            for meter in queues
        ]
    picture.text(_LEFT, 26, title, style="title")
    _legend(picture, _use_entries(picture, panels), 42)
    ticks = amount_ticks(pair.resource, max(panel.most for panel in panels))
    area = first
    for index, panel in enumerate(panels):
        area = first._replace(top=first.top + index * (_PANEL + _GAP))
        picture.text(_LEFT, area.top - 9, panel.name, style="panel")
        _draw_frame(picture, area, ticks)
        _draw_use(picture, panel, clock, area, top(ticks))
    _draw_clock(picture, clock, area.bottom)
    return picture.to_text()


def _use_entries(picture: Picture, panels: Sequence[_Panel]) -> list[tuple[str, str]]:
    """The legend of what is there to be seen."""
    entries: list[tuple[str, str]] = []
    if any(
        use > borrowed for panel in panels for use, borrowed in zip(panel.use, panel.borrowed, strict=True)
    ):
        entries.append(("within quota", _OWN))
    if any(any(panel.borrowed) for panel in panels):
        entries.append(("borrowed", picture.hatched(_BORROWED)))
    if any(any(panel.quota) for panel in panels):
        entries.append(("nominal quota", ""))
    return entries


def _unit(resource: str) -> str:
    return " in cores" if resource == "cpu" else " in bytes" if is_bytes(resource) else ""


def _use_description(measures: Measures, pair: FlavorResource, *, many: bool) -> str:
    who = "all ClusterQueues together" if many else "each ClusterQueue"
    peak = natural(pair.resource, measures.uses[pair].peak if pair in measures.uses else 0)
    return (
        f"Area chart over time: how much {pair.resource} of flavor {pair.flavor} {who} used within nominal "
        f"quota, how much was borrowed, and the nominal quota. At most {peak:g} was in use."
    )


def _together(measures: Measures, pair: FlavorResource, clock: _Clock, count: int) -> _Panel:
    borrowed = [0.0] * len(clock.xs)
    for meter in measures.queues.values():
        if pair in meter.borrows:
            course = _course(meter.borrows[pair], clock, pair.resource)
            borrowed = [a + b for a, b in zip(borrowed, course, strict=True)]
    return _Panel(
        f"{count} ClusterQueues together",
        _course(measures.uses.get(pair), clock, pair.resource),
        borrowed,
        _course(measures.quotas.get(pair), clock, pair.resource),
    )


def _draw_use(picture: Picture, panel: _Panel, clock: _Clock, area: Area, most: float) -> None:
    floor = [area.bottom] * len(clock.xs)
    own = [value - over for value, over in zip(panel.use, panel.borrowed, strict=True)]
    upper, inner = _heights(panel.use, area, most), _heights(own, area, most)
    within = between(clock.xs, inner, floor, area.right)
    if within:
        picture.path(within, fill=_OWN, opacity=0.85)
    beyond = between(clock.xs, upper, inner, area.right)
    if beyond:
        picture.path(beyond, fill=picture.hatched(_BORROWED))
    if any(panel.quota):
        picture.path(steps(clock.xs, _heights(panel.quota, area, most), area.right), style="quota")


# --- queues ---------------------------------------------------------------------------------------


def queue_depth(simulation: Simulation) -> str:
    """How many workloads wait in each ClusterQueue."""
    measures = simulation.measures
    title = f"{simulation.plan.name}: workloads waiting"
    height = _HEAD + 26 + 2 * _PANEL + _FOOT - 8
    area = Area(_LEFT, _HEAD + 12, _WIDTH - _LEFT - _RIGHT, 2 * _PANEL)
    clock = _clock(simulation, area)
    lines = list(_depths(measures, clock))
    deepest = max((max(values, default=0.0) for _, values in lines), default=0.0)
    description = (
        "Line chart over time: how many workloads wait for admission, by ClusterQueue. "
        f"At most {deepest:.0f} wait at a time in {'one of them' if len(lines) > 1 else 'it'}."
    )
    picture = Picture(title, description, _WIDTH, height)
    picture.text(_LEFT, 26, title, style="title")
    _legend(picture, [(name, PALETTE[index % len(PALETTE)]) for index, (name, _) in enumerate(lines)], 42)
    ticks = count_ticks(deepest)
    _draw_frame(picture, area, ticks)
    for index, (_, values) in enumerate(lines):
        path = steps(clock.xs, _heights(values, area, top(ticks)), area.right)
        picture.path(path, stroke=PALETTE[index % len(PALETTE)])
    _draw_clock(picture, clock, area.bottom)
    return picture.to_text()


def _depths(measures: Measures, clock: _Clock) -> Iterator[tuple[str, list[float]]]:
    """A line for each ClusterQueue; the deepest few and all together where there are many."""
    queues = [meter for _, meter in sorted(measures.queues.items())]
    if len(queues) <= _MOST_LINES:
        for meter in queues:
            yield meter.spec.name, _course(meter.waiting, clock)
        return
    total = [0.0] * len(clock.xs)
    for meter in queues:
        if meter.waiting.peak:
            total = [a + b for a, b in zip(total, _course(meter.waiting, clock), strict=True)]
    yield f"{len(queues)} ClusterQueues together", total
    for meter in sorted(queues, key=lambda one: (-one.waiting.integral, one.spec.name))[:3]:
        yield meter.spec.name, _course(meter.waiting, clock)


# --- waits ----------------------------------------------------------------------------------------


def waits(simulation: Simulation) -> str:
    """How long workloads waited: for each duration, the share that waited no longer."""
    measures = simulation.measures
    groups = _groups(measures)
    title = f"{simulation.plan.name}: time from submission to admission"
    height = _HEAD + 26 + 2 * _PANEL + _FOOT - 8
    area = Area(_LEFT, _HEAD + 12, _WIDTH - _LEFT - _RIGHT, 2 * _PANEL)
    low, high = _range(groups)
    description = "Cumulative distribution of waits, on a logarithmic axis. " + " ".join(
        f"{name}: half waited at most {duration_text(values[len(values) // 2] / SECOND)}."
        for name, values in groups
        if values
    )
    picture = Picture(title, description, _WIDTH, height)
    picture.text(_LEFT, 26, title, style="title")
    _legend(picture, [(name, PALETTE[index % len(PALETTE)]) for index, (name, _) in enumerate(groups)], 42)
    _draw_frame(picture, area, [Tick(share, f"{share} %") for share in (0, 25, 50, 75, 100)])
    width = log(high / low)

    def at(seconds: float) -> float:
        return area.left + area.width * log(min(max(seconds, low), high) / low) / width

    for tick in log_time_ticks(low, high):
        label = f"≤ {tick.label}" if tick.at == low else tick.label
        picture.line(at(tick.at), area.top, at(tick.at), area.bottom, "grid")
        picture.text(at(tick.at), area.bottom + 18, label, style="tick", anchor="middle")
    picture.text(area.right, area.bottom + 35, "waited no longer than", style="tick", anchor="end")
    for index, (_, values) in enumerate(groups):
        if values:
            picture.path(_curve(values, area, at), stroke=PALETTE[index % len(PALETTE)])
    return picture.to_text()


def _groups(measures: Measures) -> list[tuple[str, list[int]]]:
    """Waits by class; by LocalQueue where there is one class only; sorted."""

    def of(passages: Mapping[str, Passage]) -> list[tuple[str, list[int]]]:
        return [(name, sorted(one.waits)) for name, one in passages.items()]

    by_queue = {str(key): one for key, one in sorted(measures.by_queue.items())}
    for passages in (measures.by_class, by_queue):
        if 1 < len(passages) <= _MOST_LINES:
            return of(passages)
    return of({"all workloads": measures.all})


def _range(groups: Sequence[tuple[str, list[int]]]) -> tuple[float, float]:
    """Ends of the axis, in seconds: round numbers around what there is, waits of next to nothing cut off."""
    longest = max((values[-1] for _, values in groups if values), default=0) / SECOND
    high = next((tick.at for tick in log_time_ticks(0.001, 1e9) if tick.at >= longest), max(longest, 1.0))
    low = max(0.001, min(1.0, high / 1000))
    below = [tick.at for tick in log_time_ticks(0.001, low)]
    return below[-1], max(high, below[-1] * 10)


def _curve(values: Sequence[int], area: Area, at: Callable[[float], float]) -> str:
    """The path of a cumulative distribution, in no more points than can be seen."""
    count = len(values)
    ranks = sorted({round(index * (count - 1) / _MOST_POINTS) for index in range(_MOST_POINTS + 1)})
    start = f"M{number(area.left)},{number(area.bottom)}"
    parts = [start]
    for rank in ranks:
        x, y = at(values[rank] / SECOND), area.bottom - area.height * (rank + 1) / count
        parts.append(f"H{number(x)}V{number(y)}")
    return "".join((*parts, f"H{number(area.right)}"))
