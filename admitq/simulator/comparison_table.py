"""Print a comparison as tables for people: both runs, the difference, and the difference in percent."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from admitq.simulator.comparison import Comparison, Figure, JobDifferences
from admitq.simulator.report import QueueUse, Report, WorkloadFigures
from admitq.simulator.table import (
    ENDINGS,
    MAX_ROWS,
    NOTHING,
    create_table,
    index_text,
    share_text,
    with_rest,
)
from admitq.simulator.topology_figures import TopologyFigures
from admitq.simulator.units import amount_text, duration_text

_COLUMNS: Final = ("A", "B", "difference", "relative")

Format = Callable[[float], str]


class _Row(NamedTuple):
    """A row of a table: a figure of both runs, and the function that formats it."""

    name: str
    figure: Figure
    text: Format

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the row."""
        a, b, difference, relative = *self.figure, self.figure.difference, self.figure.relative
        return (
            self.name,
            *(NOTHING if value is None else self.text(value) for value in (a, b)),
            NOTHING if difference is None else _signed(difference, self.text),
            NOTHING if relative is None else f"{relative:+.1%}" if relative else "0%",
        )


def print_comparison_tables(comparison: Comparison, console: Console) -> None:
    """Print the comparison."""
    parts: list[RenderableType] = [
        _head(comparison),
        _overall(comparison),
        _queue_waits(comparison),
        _use(comparison),
    ]
    if comparison.a.preemptions.by_reason or comparison.b.preemptions.by_reason:
        parts.append(_preemptions(comparison))
    if comparison.a.topologies or comparison.b.topologies:
        parts.append(_topologies(comparison))
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _signed(value: float, text: Format) -> str:
    return text(0) if not value else f"{'-' if value < 0 else '+'}{text(abs(value))}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


# --- the head -------------------------------------------------------------------------------------


def _head(comparison: Comparison) -> Text:
    text = Text()
    for name, report in (("A", comparison.a), ("B", comparison.b)):
        ending, style = ENDINGS[report.ending]
        text.append(f"{name}  {report.scenario}", style="bold")
        text.append(f"  seed {report.seed}  ", style="dim")
        text.append(f"{duration_text(report.seconds)} simulated: ")
        text.append(f"{ending}\n", style=style)
    jobs = comparison.jobs
    text.append(f"{jobs.same:,} equal jobs: {jobs.earlier:,} start earlier in B, {jobs.later:,} later")
    if jobs.different:
        text.append(f"\n{_warning(jobs)}", style="red")
    return text


def _warning(jobs: JobDifferences) -> str:
    found = (
        (jobs.differ, "have other requests, times or run times"),
        (jobs.only_a, "are only in A"),
        (jobs.only_b, "are only in B"),
    )
    listed = ", ".join(f"{count:,} {what}" for count, what in found if count)
    return f"{jobs.different:,} jobs differ: {listed}. The figures compare different work."


# --- tables ---------------------------------------------------------------------------------------


def _overall(comparison: Comparison) -> Table:
    def row(name: str, text: Format, of: Callable[[Report], float | None]) -> _Row:
        return _Row(name, Figure(of(comparison.a), of(comparison.b)), text)

    table = create_table("All workloads", *_COLUMNS)
    for each in (
        row("wait p50", duration_text, lambda report: report.all.waits.p50),
        row("wait p90", duration_text, lambda report: report.all.waits.p90),
        row("wait max", duration_text, lambda report: report.all.waits.most),
        row("makespan", duration_text, lambda report: report.makespan),
        row("finished", _count, lambda report: report.all.finished),
        row("failed", _count, lambda report: report.all.failed),
        row("running at the end", _count, lambda report: report.running),
        row("pending at the end", _count, lambda report: report.waiting),
        row("preemptions", _count, lambda report: sum(report.preemptions.by_reason.values())),
        row("work lost", share_text, lambda report: report.preemptions.lost_share),
        *(
            (
                row("pods stopped with nodes", _count, lambda report: report.node_failures.pods),
                row("evictions from nodes", _count, lambda report: report.node_failures.evicted),
            )
            if any(each.node_failures.pods for each in (comparison.a, comparison.b))
            else ()
        ),
        row("Jain's index of use", index_text, lambda report: report.jain.use),
        row("Jain's index of waits", index_text, lambda report: report.jain.waits),
    ):
        table.add_row(*each.cells)
    return table


def _queue_waits(comparison: Comparison) -> RenderableType:
    a, b = ({figures.name: figures for figures in report.queues} for report in (comparison.a, comparison.b))
    names = sorted({**a, **b})

    def change(name: str) -> float:
        return -abs(_wait(a, b, name, lambda figures: figures.waits.p90).difference or 0.0)

    shown = sorted(names, key=change) if len(names) > MAX_ROWS else names
    table = create_table("LocalQueue", "wait", *_COLUMNS, text_columns=2)
    for name in shown[:MAX_ROWS]:
        rows = (
            _Row("p50", _wait(a, b, name, lambda figures: figures.waits.p50), duration_text),
            _Row("p90", _wait(a, b, name, lambda figures: figures.waits.p90), duration_text),
            _Row("max", _wait(a, b, name, lambda figures: figures.waits.most), duration_text),
        )
        _add_rows(table, (name,), rows)
    return with_rest(table, len(names))


def _wait(
    a: dict[str, WorkloadFigures],
    b: dict[str, WorkloadFigures],
    name: str,
    of: Callable[[WorkloadFigures], float | None],
) -> Figure:
    return Figure(*(of(queues[name]) if name in queues else None for queues in (a, b)))


def _add_rows(table: Table, names: Sequence[str], rows: Iterable[_Row]) -> None:
    """Add rows about one object, which only the first of them names."""
    for index, row in enumerate(rows):
        table.add_row(*(names if not index else ("",) * len(names)), *row.cells)


def _use(comparison: Comparison) -> RenderableType:
    a, b = (
        {(use.cluster_queue, use.use.flavor, use.use.resource): use for use in report.cluster_queues}
        for report in (comparison.a, comparison.b)
    )
    identities = sorted({**a, **b})

    def figure(identity: tuple[str, str, str], of: Callable[[QueueUse], float | None]) -> Figure:
        return Figure(*(of(uses[identity]) if identity in uses else None for uses in (a, b)))

    def change(identity: tuple[str, str, str]) -> float:
        return -abs(figure(identity, lambda use: use.use.utilisation).difference or 0.0)

    shown = sorted(identities, key=change) if len(identities) > MAX_ROWS else identities
    table = create_table("ClusterQueue", "flavor", "resource", "mean", *_COLUMNS, text_columns=4)
    for identity in shown[:MAX_ROWS]:
        amount = partial(amount_text, identity[2])
        rows = [
            _Row("quota", figure(identity, lambda use: use.use.quota), amount),
            _Row("use", figure(identity, lambda use: use.use.mean), amount),
            _Row("of quota", figure(identity, lambda use: use.use.utilisation), share_text),
        ]
        borrowed = figure(identity, lambda use: use.borrowed_mean)
        if borrowed.a or borrowed.b:
            rows.append(_Row("borrowed", borrowed, amount))
        _add_rows(table, identity, rows)
    return with_rest(table, len(identities))


def _topologies(comparison: Comparison) -> RenderableType:
    """Return the figures of each flavor with a topology: its nodes, racks, and the largest jobs."""
    a, b = ({each.flavor: each for each in report.topologies} for report in (comparison.a, comparison.b))
    flavors = sorted({**a, **b})
    table = create_table("Flavor with topology", "figure", *_COLUMNS, text_columns=2)
    for flavor in flavors[:MAX_ROWS]:
        _add_rows(table, (flavor,), _rows_of_topology(a.get(flavor), b.get(flavor)))
    requests = next((each.pod_requests for each in (*a.values(), *b.values())), {})
    pod = ", ".join(f"{amount_text(resource, amount)} {resource}" for resource, amount in requests.items())
    legend = f"largest job: pods of {pod} that fit into one domain; fit in all: into all; means over each run"
    return Group(with_rest(table, len(flavors)), Text(legend, style="dim"))


def _rows_of_topology(a: TopologyFigures | None, b: TopologyFigures | None) -> Iterator[_Row]:
    runs = [each for each in (a, b) if each is not None]

    def row(name: str, text: Format, of: Callable[[TopologyFigures], float | None]) -> _Row:
        return _Row(name, Figure(*(None if each is None else of(each) for each in (a, b))), text)

    yield row("nodes", _count, lambda each: each.nodes)
    if any(each.rack_label is not None for each in runs):
        yield row("racks", _count, lambda each: len(each.racks))
        yield row("racks used", share_text, lambda each: each.occupancy)
    yield row("placements", _count, lambda each: each.placed_workloads)
    if any(each.rack_label is not None for each in runs):
        yield row("in several racks", share_text, lambda each: each.workloads_across)
    yield row("fit in all", _count, lambda each: each.free)
    for label in dict.fromkeys(level.label for each in runs for level in each.levels):
        yield row(
            f"largest job in one {label}",
            _count,
            lambda each, label=label: next(
                (level.largest_mean for level in each.levels if level.label == label), None
            ),
        )


def _preemptions(comparison: Comparison) -> RenderableType:
    a, b = (
        {counts.cluster_queue: counts for counts in report.preemptions.cluster_queues}
        for report in (comparison.a, comparison.b)
    )
    names = sorted({**a, **b})
    table = create_table("ClusterQueue", "preemptions", *_COLUMNS, text_columns=2)
    for name in names[:MAX_ROWS]:
        preempted = Figure(*(queues[name].preempted if name in queues else 0 for queues in (a, b)))
        preempting = Figure(*(queues[name].preempting if name in queues else 0 for queues in (a, b)))
        _add_rows(table, (name,), (_Row("of", preempted, _count), _Row("for", preempting, _count)))
    legend = "of: of its workloads; for: for its workloads"
    return Group(with_rest(table, len(names)), Text(legend, style="dim"))
