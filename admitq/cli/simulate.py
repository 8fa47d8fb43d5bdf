"""``admitq simulate``: reads the files, plays them, shows how it went. Imported only when it is asked for."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from pathlib import Path
from time import monotonic

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from admitq.simulator import InputError, Plan, Report, Simulation, read, report, shipped_scenarios
from admitq.simulator.documents import Place, Problem
from admitq.simulator.plots import write_plots
from admitq.simulator.run import Ending
from admitq.simulator.schema import nanoseconds
from admitq.simulator.table import show
from admitq.simulator.timeline import Timeline, timeline_for
from admitq.simulator.units import duration_text


class ExitCode(IntEnum):
    """How the command ends."""

    DONE = 0
    STUCK = 1
    """Workloads wait, and nothing is left to happen that could admit them."""
    UNUSABLE = 2
    """What was given cannot be used."""


def simulate(
    files: list[str],
    *,
    as_json: bool,
    until: str | None,
    seed: int | None,
    timeline: Path | None,
    plots: Path | None,
) -> ExitCode:
    """Run the command.

    Args:
        files: paths, or names of shipped scenarios.
        as_json: print one JSON document and nothing else.
        until: when to stop, as a duration.
        seed: from which chance is drawn.
        timeline: where to write what happens, as JSON or CSV.
        plots: the folder for pictures.
    """
    try:
        plan = read(
            [_file(name) for name in files], seed=seed, until=None if until is None else _until(until)
        )
        with ExitStack() as stack:
            told = None if timeline is None else stack.enter_context(_open_timeline(timeline))
            simulation = Simulation(plan, told)
            _play(simulation, plan)
            result = report(simulation)
        if plots is not None:
            _draw(simulation, plots)
    except InputError as error:
        for problem in error.problems:
            typer.echo(f"admitq simulate: {problem}", err=True)
        return ExitCode.UNUSABLE
    _tell(result, as_json=as_json)
    return ExitCode.STUCK if result.ending is Ending.STUCK else ExitCode.DONE


def _file(name: str) -> Path:
    path = Path(name)
    if path.exists():
        return path
    shipped = shipped_scenarios()
    if name in shipped:
        return shipped[name]
    remedy = f"no such file, and no scenario of that name comes with admitq: {', '.join(shipped)}"
    raise InputError([Problem(Place(name), "", remedy)])


def _until(text: str) -> int:
    try:
        return nanoseconds(text)
    except ValueError as error:
        raise InputError([Problem(Place("--until"), "", str(error))]) from None


@contextmanager
def _open_timeline(path: Path) -> Generator[Timeline]:
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InputError([Problem(Place("--timeline"), "", f"{path}: {error.strerror}")]) from None
    with file:
        told = timeline_for(path.name, file)
        yield told
        told.close()


def _draw(simulation: Simulation, folder: Path) -> None:
    try:
        write_plots(simulation, folder)
    except OSError as error:
        raise InputError([Problem(Place("--plots"), "", f"{folder}: {error.strerror}")]) from None


def _play(simulation: Simulation, plan: Plan) -> None:
    """Run it; on a terminal with a bar that shows how far it is."""
    console = Console(stderr=True)
    if not console.is_terminal:
        simulation.run()
        return
    expected = plan.expected
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=40),
        TextColumn(
            "{task.completed:,.0f} of {task.total:,.0f} ended" if expected else "{task.completed:,.0f} ended"
        ),
        TextColumn("[dim]{task.fields[clock]}"),
    )
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task(plan.name, total=expected, clock="")
        shown_at = 0.0

        def on_progress(of: Simulation) -> None:
            nonlocal shown_at
            if monotonic() - shown_at < 0.1:
                return
            shown_at = monotonic()
            done = of.measures.all.finished + of.measures.all.failed
            progress.update(task, completed=done, clock=duration_text(of.now / 1e9))
            progress.refresh()

        simulation.run(on_progress)


def _tell(result: Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(result.to_json(), nl=False)
    else:
        show(result, Console())
