"""``admitq simulate``: read the files, run the simulation, print the report.

The commands import this module only when it runs. What prints tables, plots and the progress bar is imported
only where it is used.
"""

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from admitq.cli.output import OutputFormat, print_document
from admitq.manifests.documents import Place, Problem
from admitq.process.garbage_collection import reduce_collections
from admitq.simulator import (
    InputError,
    Report,
    Simulation,
    read,
    report,
    shipped_descriptions,
    shipped_scenarios,
    similar_scenario,
)
from admitq.simulator.run import Ending
from admitq.simulator.schema import nanoseconds
from admitq.simulator.timeline import Timeline, TimelineType, timeline_type

if TYPE_CHECKING:
    from admitq.cli.present_cluster import ClusterSource
    from admitq.simulator.comparison import Comparison
    from admitq.simulator.present import PresentCluster


class ExitCode(IntEnum):
    """Exit statuses of the command."""

    DONE = 0
    STUCK = 1
    """Workloads are pending that nothing can admit any more, or no size meets the target."""
    UNUSABLE = 2
    """The arguments or files cannot be used."""


def simulate(
    files: list[str],
    *,
    output: OutputFormat = OutputFormat.TABLE,
    until: str | None = None,
    seed: int | None = None,
    timeline: Path | None = None,
    plots: Path | None = None,
    source: "ClusterSource | None" = None,
    run_time: str = "1h",
) -> ExitCode:
    """Run the command.

    Args:
        files: paths, or names of shipped scenarios.
        output: how the report is printed.
        until: when to stop, as a duration.
        seed: the random seed, instead of the scenario's.
        timeline: the file for the timeline, in the format that its suffix names.
        plots: the folder for plots.
        source: the cluster with which the simulation begins; None begins without workloads.
        run_time: the remaining run time of its workloads about which nothing is known, as a duration.
    """
    reduce_collections()
    try:
        # Report invalid options before files are read, and invalid files before the run.
        end = None if until is None else _parse_until(until)
        recorder_type = None if timeline is None else _timeline_type(timeline)
        if plots is not None:
            _require_plots()
        unknown = parse_duration("--run-time", run_time)
        paths = [find_file(name) for name in files]
        plan = read(paths, seed=seed, until=end, present=read_source(source, unknown))
        with ExitStack() as stack:
            if plots is not None:
                _create_folder(plots)
            recorder = (
                None
                if timeline is None or recorder_type is None
                else stack.enter_context(_open_timeline(timeline, recorder_type))
            )
            simulation = Simulation(plan, recorder)
            run_simulation(simulation)
            result = report(simulation)
        if plots is not None:
            from admitq.simulator.run_charts import charts

            _write_plots(charts(simulation), plots)
    except InputError as error:
        return refuse("simulate", error)
    _print_report(result, output)
    return ExitCode.STUCK if result.ending is Ending.STUCK else ExitCode.DONE


def compare(
    first: str | None,
    second: str,
    *,
    output: OutputFormat = OutputFormat.TABLE,
    until: str | None = None,
    seed: int | None = None,
    plots: Path | None = None,
    source: "ClusterSource | None" = None,
    run_time: str = "1h",
) -> ExitCode:
    """Run two simulations and print the differences.

    Args:
        first: a path, or the name of a shipped scenario; None for the cluster as it is.
        second: the same, or a file with only the objects that change.
        output: how the comparison is printed.
        until: when to stop both runs, as a duration.
        seed: the random seed of both runs, instead of the first scenario's.
        plots: the folder for plots.
        source: the cluster with which both simulations begin; None begins without workloads.
        run_time: the remaining run time of its workloads about which nothing is known, as a duration.
    """
    from admitq.simulator.comparison import JobRecord, compare_jobs, read_both
    from admitq.simulator.comparison import compare as compare_runs

    reduce_collections()
    try:
        end = None if until is None else _parse_until(until)
        if plots is not None:
            _require_plots()
        unknown = parse_duration("--run-time", run_time)
        files = [] if first is None else [find_file(first)]
        changed = [find_file(second)]
        present = read_source(source, unknown)
        plans = read_both(files, changed, seed=seed, until=end, present=present)
        if plots is not None:
            _create_folder(plots)
        records = (JobRecord(), JobRecord())
        a, b = (Simulation(plan, record) for plan, record in zip(plans, records, strict=True))
        for simulation in (a, b):
            run_simulation(simulation)
        result = compare_runs(a, b, compare_jobs(*records))
        if plots is not None:
            from admitq.simulator.comparison_charts import comparison_charts

            _write_plots(comparison_charts(a, b), plots)
    except InputError as error:
        return refuse("simulate compare", error)
    _print_comparison(result, output)
    stuck = Ending.STUCK in {result.a.ending, result.b.ending}
    return ExitCode.STUCK if stuck else ExitCode.DONE


def refuse(command: str, error: InputError) -> ExitCode:
    """Print the problems of the input."""
    for problem in error.problems:
        typer.echo(f"admitq {command}: {problem}", err=True)
    return ExitCode.UNUSABLE


def list_scenarios(output: OutputFormat) -> None:
    """Print the names of the shipped scenarios and what each of them shows."""
    described = shipped_descriptions()
    if output is not OutputFormat.TABLE:
        print_document([{"name": name, "description": text} for name, text in described.items()], output)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    table.add_column("Scenario", no_wrap=True)
    table.add_column("Description")
    for name, text in described.items():
        table.add_row(name, text)
    Console().print(table)


def complete_file(incomplete: str) -> Iterator[str]:
    """Return the shipped scenarios, YAML files and folders whose names begin with ``incomplete``."""
    yield from (name for name in shipped_scenarios() if name.startswith(incomplete))
    typed = Path(incomplete)
    folder, start = (typed, "") if incomplete.endswith("/") else (typed.parent, typed.name)
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{path}/"
            elif path.suffix in {".yaml", ".yml"}:
                yield str(path)


def find_file(name: str) -> Path:
    """Return the file of a path, or of a shipped scenario.

    Raises:
        InputError: there is none.
    """
    path = Path(name)
    if path.exists():
        return path
    shipped = shipped_scenarios()
    if name in shipped:
        return shipped[name]
    similar = similar_scenario(name)
    remedy = f"did you mean {similar}?" if similar else f"the shipped ones are {', '.join(shipped)}"
    raise InputError([Problem(Place(name), "", f"no such file and no such shipped scenario: {remedy}")])


def read_source(source: "ClusterSource | None", unknown: int) -> "PresentCluster | None":
    """Return the cluster with which the simulation begins, and print what is assumed about it."""
    if source is None:
        return None
    from admitq.cli.present_cluster import read_cluster

    present = read_cluster(source, unknown)
    for note in present.notes:
        typer.echo(f"warning: {note}", err=True)
    return present


def _parse_until(text: str) -> int:
    return parse_duration("--until", text)


def parse_duration(option: str, text: str) -> int:
    """Return the nanoseconds of an option.

    Raises:
        InputError: the text is not a duration.
    """
    try:
        return nanoseconds(text)
    except ValueError as error:
        raise option_error(option, str(error)) from None


def _timeline_type(path: Path) -> TimelineType:
    try:
        return timeline_type(path)
    except ValueError as error:
        raise option_error("--timeline", f"{path}: {error}") from None


@contextmanager
def _open_timeline(path: Path, recorder_type: TimelineType) -> Generator[Timeline]:
    with _reporting_files("--timeline", path):
        file = path.open("w", encoding="utf-8", newline="")
    with file:
        recorder = recorder_type(file)
        yield recorder
        recorder.close()


def _require_plots() -> None:
    try:
        import_module("admitq.simulator.plots")
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        raise option_error("--plots", "needs an optional package: run pip install 'admitq[plots]'") from None


def _create_folder(folder: Path) -> None:
    with _reporting_files("--plots", folder):
        folder.mkdir(parents=True, exist_ok=True)


def _write_plots(charts_by_name: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    from admitq.simulator.plots import write_plots

    with _reporting_files("--plots", folder):
        write_plots(charts_by_name, folder)


@contextmanager
def _reporting_files(option: str, path: Path) -> Generator[None]:
    """Report errors of the file system as problems of an option."""
    try:
        yield
    except OSError as error:
        raise option_error(option, f"{path}: {error.strerror}") from None


def option_error(option: str, remedy: str) -> InputError:
    """Return the error of an option."""
    return InputError([Problem(Place(option), "", remedy)])


def run_simulation(simulation: Simulation) -> None:
    """Run the simulation; on a terminal with a progress bar."""
    if not sys.stderr.isatty():
        simulation.run()
        return
    from admitq.cli.progress import progress_bar

    with progress_bar(simulation.plan) as on_progress:
        simulation.run(on_progress)


def _print_report(result: Report, output: OutputFormat) -> None:
    match output:
        case OutputFormat.JSON:
            typer.echo(result.to_json(), nl=False)
        case OutputFormat.YAML:
            print_document(result.to_dict(), output)
        case OutputFormat.TABLE:
            from rich.console import Console

            from admitq.simulator.table import print_report_tables

            print_report_tables(result, Console())


def _print_comparison(result: "Comparison", output: OutputFormat) -> None:
    match output:
        case OutputFormat.JSON:
            typer.echo(result.to_json(), nl=False)
        case OutputFormat.YAML:
            print_document(result.to_dict(), output)
        case OutputFormat.TABLE:
            from rich.console import Console

            from admitq.simulator.comparison_table import print_comparison_tables

            print_comparison_tables(result, Console())
