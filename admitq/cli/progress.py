"""The progress bar of a simulation on a terminal."""

from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from admitq.simulator import Simulation, SimulationPlan
from admitq.simulator.run import Progress as OnProgress
from admitq.simulator.units import duration_text

_EVERY_S = 0.1


@contextmanager
def progress_bar(plan: SimulationPlan) -> Generator[OnProgress]:
    """Show a progress bar on standard error; yield the function that updates it."""
    expected = plan.expected
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=40),
        TextColumn(
            "{task.completed:,.0f} of {task.total:,.0f} ended" if expected else "{task.completed:,.0f} ended"
        ),
        TextColumn("[dim]{task.fields[clock]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(plan.name, total=expected, clock="")
        shown_at = 0.0

        def on_progress(of: Simulation) -> None:
            nonlocal shown_at
            if monotonic() - shown_at < _EVERY_S:
                return
            shown_at = monotonic()
            ended_count = of.measures.all.finished + of.measures.all.failed
            progress.update(task, completed=ended_count, clock=duration_text(of.now / 1e9))
            progress.refresh()

        yield on_progress
