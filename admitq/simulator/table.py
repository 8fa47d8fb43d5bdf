"""Print the report as tables for people."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from admitq.simulator.report import QueueUse, Report, WorkloadFigures
from admitq.simulator.run import Ending
from admitq.simulator.topology_figures import TopologyFigures
from admitq.simulator.units import amount_text, duration_text

MAX_ROWS: Final = 20
"""The maximum number of rows of a table; the JSON report has all."""

ENDINGS: Final[Mapping[Ending, tuple[str, str]]] = {
    Ending.FINISHED: ("all workloads have ended", "green"),
    Ending.STUCK: ("workloads are pending that nothing can admit any more", "red"),
    Ending.UNTIL: ("the end of the run was reached", "yellow"),
}

NOTHING: Final = "-"


def print_report_tables(report: Report, console: Console) -> None:
    """Print the report."""
    parts: list[RenderableType] = [_head(report), _summary(report)]
    parts.append(_fared("LocalQueue", report.queues))
    if len(report.classes) > 1:
        parts.append(_fared("Class", report.classes))
    parts.append(_use(report))
    parts.extend(_topology(figures) for figures in report.topologies)
    if any(queue.cohort for queue in report.cluster_queues):
        parts.append(_borrowing(report.cluster_queues))
    if report.preemptions.by_reason:
        parts.append(_preemptions(report))
    if report.left_waiting:
        parts.append(_left_waiting(report))
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _head(report: Report) -> Text:
    ending, style = ENDINGS[report.ending]
    text = Text()
    text.append(report.scenario, style="bold")
    text.append(f"  seed {report.seed}  ", style="dim")
    text.append(f"{duration_text(report.seconds)} simulated: ")
    text.append(ending, style=style)
    if report.description:
        text.append(f"\n{report.description}", style="dim")
    return text


def create_table(*columns: str, text_columns: int = 1) -> Table:
    """Return a table: the first columns are text, the others figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for index, column in enumerate(columns):
        if index < text_columns:
            # Long texts are wrapped, so that figures and headers are never cut.
            table.add_column(column, overflow="fold", min_width=len(column))
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def _summary(report: Report) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    of = report.all
    counts = [f"{of.submitted:,} submitted", f"{of.finished:,} finished"]
    for count, what in ((of.failed, "failed"), (report.running, "running"), (report.waiting, "waiting")):
        if count:
            counts.append(f"{count:,} {what}")
    table.add_row("workloads", ", ".join(counts))
    if report.makespan is not None:
        text = duration_text(report.makespan)
        if report.bound is not None and report.ratio is not None:
            text += f", bound {duration_text(report.bound)}, ratio {report.ratio:.3f}"
        table.add_row("makespan", text)
    if report.jain.use is not None or report.jain.waits is not None:
        table.add_row(
            "Jain's index", f"{index_text(report.jain.use)} of use, {index_text(report.jain.waits)} of waits"
        )
    if report.kills.total:
        table.add_row("kills", f"{report.kills.total:,}, {_work(report.kills.lost)} lost")
    failures = report.node_failures
    if failures.pods or failures.evicted:
        table.add_row(
            "failed nodes",
            f"{failures.pods:,} pods stopped, {failures.replaced:,} times on other nodes, "
            f"{failures.evicted:,} evictions, {_work(failures.lost)} lost",
        )
    if report.left_out:
        left_out = ", ".join(f"{count:,} of {what}" for what, count in report.left_out.items())
        table.add_row("left out", left_out)
    return table


def index_text(value: float | None) -> str:
    """Return Jain's index as text."""
    return NOTHING if value is None else f"{value:.3f}"


def wait_text(seconds: float | None) -> str:
    """Return a wait as text."""
    return NOTHING if seconds is None else duration_text(seconds)


def share_text(value: float | None) -> str:
    """Return a share in percent."""
    return NOTHING if value is None else f"{value:.1%}"


def _work(lost: Mapping[str, float]) -> str:
    """Return lost work: amount of each resource times hours."""
    texts = [
        f"{amount_text(resource, amount / 3600)} {resource}·h" for resource, amount in lost.items() if amount
    ]
    return ", ".join(texts) or "nothing"


def with_rest(table: Table, rows: int) -> RenderableType:
    """Return a table with the number of rows that it does not show."""
    if rows <= MAX_ROWS:
        return table
    return Group(table, Text(f"and {rows - MAX_ROWS:,} more: --output json has all of them", style="dim"))


def _fared(what: str, those: Sequence[WorkloadFigures]) -> RenderableType:
    table = create_table(what, "submitted", "finished", "wait p50", "p90", "p99", "max")
    worst = sorted(those, key=lambda figures: -(figures.waits.p90 or 0.0)) if len(those) > MAX_ROWS else those
    for figures in worst[:MAX_ROWS]:
        waits = figures.waits
        table.add_row(
            figures.name,
            f"{figures.submitted:,}",
            f"{figures.finished:,}",
            *(wait_text(value) for value in (waits.p50, waits.p90, waits.p99, waits.most)),
        )
    return with_rest(table, len(those))


def _use(report: Report) -> RenderableType:
    table = create_table("Flavor", "resource", "quota", "mean use", "peak", "utilisation", text_columns=2)
    for use in report.flavors[:MAX_ROWS]:
        table.add_row(
            use.flavor,
            use.resource,
            *(amount_text(use.resource, value) for value in (use.quota, use.mean, use.peak)),
            share_text(use.utilisation),
        )
    return with_rest(table, len(report.flavors))


def _borrowing(uses: Sequence[QueueUse]) -> RenderableType:
    in_cohorts = [use for use in uses if use.cohort]
    shown = (
        sorted(in_cohorts, key=lambda use: -use.borrowed_share) if len(in_cohorts) > MAX_ROWS else in_cohorts
    )
    table = create_table(
        "ClusterQueue", "flavor", "resource", "quota", "use", "borrowed", "at most", "share", text_columns=3
    )
    for use in shown[:MAX_ROWS]:
        resource = use.use.resource
        table.add_row(
            use.cluster_queue,
            use.use.flavor,
            resource,
            *(
                amount_text(resource, value)
                for value in (use.use.quota, use.use.mean, use.borrowed_mean, use.borrowed_peak)
            ),
            share_text(use.borrowed_share),
        )
    legend = "use, borrowed: means over the run; share: how much of the use was borrowed"
    return Group(with_rest(table, len(in_cohorts)), Text(legend, style="dim"))


def _topology(figures: TopologyFigures) -> RenderableType:
    table = create_table(
        f"Level of {figures.topology}", "domains", "largest job", "at the end", "of all free", text_columns=1
    )
    for level in figures.levels:
        table.add_row(
            level.label,
            f"{level.domains:,}",
            f"{level.largest_mean:,.0f}",
            f"{level.largest_at_end:,}",
            share_text(level.share),
        )
    pod = ", ".join(
        f"{amount_text(resource, amount)} {resource}" for resource, amount in figures.pod_requests.items()
    )
    legend = (
        f"largest job: pods of {pod} that fit into one domain, mean over the run; flavor {figures.flavor}"
    )
    if figures.rack_label is not None:
        across, pods = share_text(figures.workloads_across), share_text(figures.pods_across)
        legend += (
            f"\n{figures.placed_workloads:,} placements of several pods, {across} in more than one domain of "
            f"{figures.rack_label}, with {pods} of the pods"
            f"\n{len(figures.racks):,} of these domains, {share_text(figures.occupancy)} of their "
            f"{figures.resource} used"
        )
    return Group(table, Text(legend, style="dim"))


def _preemptions(report: Report) -> RenderableType:
    table = create_table("ClusterQueue", "preempted", "preempting", "work lost")
    # The lost work of each resource is on its own line.
    table.columns[-1].no_wrap = False
    for queue in report.preemptions.cluster_queues[:MAX_ROWS]:
        table.add_row(queue.cluster_queue, f"{queue.preempted:,}", f"{queue.preempting:,}", _work(queue.lost))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.preemptions.by_reason.items())
    total = f"{sum(report.preemptions.by_reason.values()):,} preemptions ({reasons})"
    lost = f"{share_text(report.preemptions.lost_share)} of all work is lost"
    return Group(
        with_rest(table, len(report.preemptions.cluster_queues)), Text(f"{total}, {lost}", style="dim")
    )


def _left_waiting(report: Report) -> RenderableType:
    """Return the workloads that are pending at the end: the reason of each, and below it the message."""
    lines: list[RenderableType] = [Text("Pending at the end", style="bold cyan")]
    for workload in report.left_waiting[:MAX_ROWS]:
        head = Text(workload.workload)
        head.append(
            f"  in LocalQueue {workload.local_queue} since {duration_text(workload.since)}: {workload.reason}"
        )
        lines += [head, Padding(Text(workload.message, style="dim"), (0, 0, 0, 2))]
    if report.waiting > MAX_ROWS:
        lines.append(Text(f"and {report.waiting - MAX_ROWS:,} more", style="dim"))
    return Group(*lines)
