"""``admitq simulate``: reads the files, plays them, shows how it went. Imported only when it is asked for.

What shows tables, pictures and a progress bar is imported only where they are shown.
"""

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from importlib import import_module
from pathlib import Path

import typer

from admitq.process.garbage import collect_rarely
from admitq.simulator import InputError, Plan, Report, Simulation, read, report, shipped_scenarios
from admitq.simulator.documents import Place, Problem
from admitq.simulator.run import Ending
from admitq.simulator.schema import nanoseconds
from admitq.simulator.timeline import Timeline, timeline_for


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
    collect_rarely()
    try:
        if plots is not None:
            _prepare_plots(plots)
        plan = read(
            [_file(name) for name in files], seed=seed, until=None if until is None else _until(until)
        )
        with ExitStack() as stack:
            told = None if timeline is None else stack.enter_context(_open_timeline(timeline))
            simulation = Simulation(plan, told)
            _play(simulation, plan)
            result = report(simulation)
        if plots is not None:
            _write_plots(simulation, plots)
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
    with _reporting_files("--timeline", path):
        file = path.open("w", encoding="utf-8", newline="")
    with file:
        told = timeline_for(path.name, file)
        yield told
        told.close()


def _prepare_plots(folder: Path) -> None:
    """Report what keeps plots from being written, before the run takes its time."""
    try:
        import_module("admitq.simulator.plots")
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        raise _option_error("--plots", "needs an optional package: run pip install 'admitq[plots]'") from None
    with _reporting_files("--plots", folder):
        folder.mkdir(parents=True, exist_ok=True)


def _write_plots(simulation: Simulation, folder: Path) -> None:
    from admitq.simulator.plots import write_plots

    with _reporting_files("--plots", folder):
        write_plots(simulation, folder)


@contextmanager
def _reporting_files(option: str, path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _option_error(option, f"{path}: {error.strerror}") from None


def _option_error(option: str, remedy: str) -> InputError:
    return InputError([Problem(Place(option), "", remedy)])


def _play(simulation: Simulation, plan: Plan) -> None:
    """Run it; on a terminal with a bar that shows how far it is."""
    if not sys.stderr.isatty():
        simulation.run()
        return
    from admitq.cli.progress import progress_bar

    with progress_bar(plan) as on_progress:
        simulation.run(on_progress)


def _tell(result: Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(result.to_json(), nl=False)
        return
    from rich.console import Console

    from admitq.simulator.table import show

    show(result, Console())
