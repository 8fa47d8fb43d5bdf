"""The commands. Heavy imports happen inside a command, so that completion and help stay quick."""

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from admitq.cli.output import JsonOption, OutputFormat, OutputOption, chosen_format, print_document
from admitq.cli.processes import (
    CONFIGURATION_ERROR,
    PATIENCE_SECONDS,
    PROCESSES,
    LogFormat,
    Options,
    start_process,
)
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS, names_for
from admitq_api.version import VERSION

if TYPE_CHECKING:
    from admitq.cli.present_cluster import ClusterSource


class CommandGroup(TyperGroup):
    """A group with commands of two words: ``simulate compare`` is a command besides ``simulate``.

    So ``simulate`` keeps its arguments, which a group of commands could not have.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of the first two words if there is one, else that of the first word."""
        name = " ".join(args[:2])
        if len(args) > 1 and name in self.commands:
            return name, self.commands[name], args[2:]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions of one word: the second word is completed after the first."""
        return [item for item in super().shell_complete(ctx, incomplete) if " " not in item.value]


application = typer.Typer(
    name="admitq",
    cls=CommandGroup,
    help="A job queue manager for Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; without one the defaults apply.", metavar="FILE"),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Kubeconfig file; without one the service account of the pod, then KUBECONFIG.",
        metavar="FILE",
    ),
]
GatesOption = Annotated[
    str, typer.Option("--feature-gates", help="Feature gates to set: Name=true,Other=false.", metavar="LIST")
]
ComponentsOption = Annotated[
    str | None,
    typer.Option(
        "--components",
        help="Run only these components of the command: webhook, core, jobs, cycle, topology, visibility.",
        metavar="LIST",
    ),
]
ShadowOption = Annotated[
    bool,
    typer.Option(
        "--shadow",
        help="Write nothing, and log where admitq would decide differently than the manager in charge.",
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--shadow-patience",
        help="Seconds that the manager in charge has to do what admitq would do.",
        min=0.0,
        metavar="SECONDS",
    ),
]
LevelOption = Annotated[
    str, typer.Option("--log-level", help="The least severe level: debug, info, warning or error.")
]
FormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        help="JSON lines, or readable text (console); auto is console on a terminal, and json elsewhere.",
    ),
]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"admitq {VERSION}")
        raise typer.Exit


@application.callback()
def _configure(  # pyright: ignore[reportUnusedFunction] the command line calls it
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - the callback of the option prints the version
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Write the logs of commands that print a result for people. Processes configure their own logs."""
    command = context.invoked_subcommand
    if command is not None and command not in PROCESSES:
        from admitq.process import logs

        logs.configure(level="warning", output="console", component=command)


def _add_process(component: str, summary: str) -> None:
    @application.command(name=component, help=summary)
    def start(  # pyright: ignore[reportUnusedFunction] the command line calls it
        config: ConfigOption = None,
        kubeconfig: KubeconfigOption = None,
        components: ComponentsOption = None,
        feature_gates: GatesOption = "",
        shadow: ShadowOption = False,
        shadow_patience: PatienceOption = PATIENCE_SECONDS,
        log_level: LevelOption = "info",
        log_format: FormatOption = LogFormat.AUTO,
    ) -> None:
        options = Options(
            config=config,
            kubeconfig=kubeconfig,
            components=components,
            feature_gates=feature_gates,
            shadow=shadow,
            shadow_patience=shadow_patience,
            log_level=log_level,
            log_format=log_format,
        )
        raise typer.Exit(start_process(component, options))


for _component, _summary in PROCESSES.items():
    _add_process(_component, _summary)


WIDE: Final = 1000
"""A terminal width that no table exceeds, in characters."""


@application.command()
def crds(
    api_group: Annotated[
        str, typer.Option("--api-group", help=f"One of {', '.join(GROUPS)}.", metavar="GROUP")
    ] = DEFAULT_GROUP,
) -> None:
    """Print the CustomResourceDefinitions as YAML. Install them by server-side apply or create."""
    import yaml

    from admitq_api.crds import create_crds as definitions

    if api_group not in GROUPS:
        typer.echo(f"--api-group: {api_group!r} is not one of {', '.join(GROUPS)}", err=True)
        raise typer.Exit(CONFIGURATION_ERROR)
    yaml.dump_all(definitions(api_group), sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False)


@application.command()
def kinds(
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration file: its custom kinds are listed too.", metavar="FILE"),
    ] = None,
) -> None:
    """Print the job kinds that admitq supports, and the capabilities of each."""
    from admitq.app.settings import load_settings
    from admitq.integrations.capabilities import CAPABILITIES, describe_kind
    from admitq_api.configuration import ConfigurationError

    try:
        known = load_settings(config).known
    except (ConfigurationError, OSError, ValueError) as error:
        typer.echo(f"admitq kinds: {error}", err=True)
        raise typer.Exit(CONFIGURATION_ERROR) from error
    if (chosen := chosen_format(output, as_json=as_json)) is not OutputFormat.TABLE:
        print_document([describe_kind(kind) for kind in known], chosen)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for column in ("Framework", "API version", "Kind", "Can do"):
        table.add_column(column, overflow="fold")
    for kind in known:
        can = ", ".join(
            capability.title if capability.is_implemented else f"{capability.title} (not yet)"
            for capability in CAPABILITIES
            if capability.is_supported_by(kind)
        )
        table.add_row(kind.framework, kind.api_version, kind.kind, can)
    console = Console()
    # Programs that read from a pipe need one line for each kind.
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)


def _complete_file(incomplete: str) -> Iterator[str]:
    from admitq.cli.simulate import complete_file

    return complete_file(incomplete)


def _complete_file_or_command(incomplete: str) -> Iterator[str]:
    yield from (word for word in ("compare", "racks") if word.startswith(incomplete))
    yield from _complete_file(incomplete)


def _scenario_files(autocompletion: Callable[[str], Iterator[str]]) -> Any:
    """Return the argument with the files of a simulation. It may be left out for a cluster."""
    return typer.Argument(
        help="YAML files with a Scenario and manifests, or the name of a shipped scenario.",
        metavar="FILE…",
        autocompletion=autocompletion,
        show_default=False,
    )


UntilOption = Annotated[
    str | None,
    typer.Option("--until", help="When to stop, on the simulated clock: 90m.", metavar="DURATION"),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help="Random seed; overrides the scenario's.", metavar="NUMBER"),
]
PlotsOption = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        help="Write plots as SVG files into this folder; needs the extra admitq[plots].",
        metavar="FOLDER",
    ),
]
FromClusterOption = Annotated[
    bool,
    typer.Option(
        "--from-cluster",
        help="Begin with the queues and workloads of the running cluster, which is only read. "
        "The first FILE is then optional: a Scenario, or manifests that replace those of the cluster.",
    ),
]
StoredOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        help="Begin with stored objects in a file or folder, as kubectl get -o yaml prints them. "
        "It can be repeated.",
        metavar="PATH",
    ),
]
SimulatedKubeconfigOption = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Kubeconfig file for --from-cluster.", metavar="FILE")
]
SimulatedContextOption = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig.", metavar="NAME")
]
RunTimeOption = Annotated[
    str,
    typer.Option(
        "--run-time",
        help="Remaining run time of workloads of the cluster without an estimate.",
        metavar="DURATION",
    ),
]


def _find_source(
    *, from_cluster: bool, stored: list[Path] | None, kubeconfig: Path | None, context: str | None
) -> "ClusterSource | None":
    """Return the cluster with which a simulation begins; None if it begins without one.

    Raises:
        BadParameter: both a running cluster and stored objects are given.
    """
    if not (from_cluster or stored):
        return None
    from admitq.cli.present_cluster import ClusterSource

    if from_cluster and stored:
        raise typer.BadParameter("give --from-cluster or --from, not both", param_hint="--from")
    return ClusterSource(tuple(stored or ()), kubeconfig, context)


@application.command()
def simulate(
    files: Annotated[list[str] | None, _scenario_files(_complete_file_or_command)] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="List the shipped scenarios and run none.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    until: UntilOption = None,
    seed: SeedOption = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            help="Write every event of a workload into this file; its suffix is .csv or .json.",
            metavar="FILE",
        ),
    ] = None,
    plots: PlotsOption = None,
    from_cluster: FromClusterOption = False,
    stored: StoredOption = None,
    kubeconfig: SimulatedKubeconfigOption = None,
    context: SimulatedContextOption = None,
    run_time: RunTimeOption = "1h",
) -> None:
    """Simulate queues on a virtual clock and report waits, use, borrowing and preemptions.

    The exit status is 0 when all workloads have ended or --until was reached. It is 1 when workloads are
    pending that nothing can admit any more, and 2 when the arguments or files cannot be used.
    """
    from admitq.cli.simulate import list_scenarios as print_scenarios
    from admitq.cli.simulate import simulate as run

    chosen = chosen_format(output, as_json=as_json)
    if list_scenarios:
        print_scenarios(chosen)
        return
    source = _find_source(from_cluster=from_cluster, stored=stored, kubeconfig=kubeconfig, context=context)
    if source is None and not files:
        raise typer.BadParameter("give a file or a shipped scenario, or --list", param_hint="FILE…")
    raise typer.Exit(
        run(
            files or [],
            output=chosen,
            until=until,
            seed=seed,
            timeline=timeline,
            plots=plots,
            source=source,
            run_time=run_time,
        )
    )


@application.command("simulate compare")
def compare(
    first: Annotated[
        str,
        typer.Argument(
            help="YAML file with a Scenario and manifests, or the name of a shipped scenario.",
            metavar="A",
            autocompletion=_complete_file,
        ),
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            help="The same, or a file without a Scenario: its objects replace those of the same name in A.",
            metavar="B",
            autocompletion=_complete_file,
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    until: UntilOption = None,
    seed: SeedOption = None,
    plots: PlotsOption = None,
    from_cluster: FromClusterOption = False,
    stored: StoredOption = None,
    kubeconfig: SimulatedKubeconfigOption = None,
    context: SimulatedContextOption = None,
    run_time: RunTimeOption = "1h",
) -> None:
    """Simulate two settings with the same jobs, and compare waits, use, preemptions and fairness.

    With --from-cluster or --from, both runs begin with the workloads of a cluster. A single file is then B,
    and run A has the cluster as it is.

    Both runs have the random seed of A. The report says how many jobs differ. The exit status is 0 when both
    runs have ended, 1 when workloads are pending in one that nothing can admit any more, and 2 when the
    arguments or files cannot be used.
    """
    from admitq.cli.simulate import compare as run

    chosen = chosen_format(output, as_json=as_json)
    source = _find_source(from_cluster=from_cluster, stored=stored, kubeconfig=kubeconfig, context=context)
    if second is None and source is None:
        raise typer.BadParameter("give two files or shipped scenarios", param_hint="B")
    raise typer.Exit(
        run(
            None if second is None else first,
            second or first,
            output=chosen,
            until=until,
            seed=seed,
            plots=plots,
            source=source,
            run_time=run_time,
        )
    )


@application.command("simulate racks")
def racks(
    racks: Annotated[
        str,
        typer.Option(
            "--racks", help="Numbers of racks in each domain of the level above: 4..20.", metavar="NUMBERS"
        ),
    ],
    hosts: Annotated[
        str, typer.Option("--hosts", help="Numbers of hosts in each rack: 16,32,64.", metavar="NUMBERS")
    ],
    files: Annotated[list[str] | None, _scenario_files(_complete_file)] = None,
    max_wait: Annotated[
        str | None,
        typer.Option("--max-wait", help="Target: 95 % of the workloads wait no longer.", metavar="DURATION"),
    ] = None,
    min_in_one_rack: Annotated[
        float | None,
        typer.Option(
            "--min-in-one-rack",
            help="Target: at least this share of the workloads with several pods is in one rack.",
            min=0.0,
            max=1.0,
            metavar="SHARE",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            help="The group of nodes to resize, or the flavor of a cluster, if there are several.",
            metavar="NAME",
        ),
    ] = None,
    keep_quota: Annotated[
        bool,
        typer.Option("--keep-quota", help="Keep quotas as they are; else they are scaled with the nodes."),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    until: UntilOption = None,
    seed: SeedOption = None,
    from_cluster: FromClusterOption = False,
    stored: StoredOption = None,
    kubeconfig: SimulatedKubeconfigOption = None,
    context: SimulatedContextOption = None,
    run_time: RunTimeOption = "1h",
) -> None:
    """Simulate other numbers of racks and hosts, and find the smallest that meets a target.

    With --from-cluster or --from, the racks of a cluster and its workloads are simulated.

    Without a target, all sizes are simulated. With one, the numbers of racks are bisected for each number of
    hosts: more racks are assumed to meet each target that fewer racks meet. The exit status is 1 when no size
    meets the target, and 2 when the arguments or files cannot be used.
    """
    from admitq.cli.rack_sizes import compare_rack_sizes

    source = _find_source(from_cluster=from_cluster, stored=stored, kubeconfig=kubeconfig, context=context)
    if source is None and not files:
        raise typer.BadParameter("give a file or a shipped scenario", param_hint="FILE…")
    raise typer.Exit(
        compare_rack_sizes(
            files or [],
            racks=racks,
            hosts=hosts,
            max_wait=max_wait,
            min_in_one_rack=min_in_one_rack,
            nodes=nodes,
            keep_quota=keep_quota,
            output=chosen_format(output, as_json=as_json),
            until=until,
            seed=seed,
            source=source,
            run_time=run_time,
        )
    )


class Origin(StrEnum):
    """The managers with a cluster that can be taken over."""

    KUEUE = names_for(COMPAT_GROUP).metric_prefix


@application.command()
def adopt(
    origin: Annotated[Origin, typer.Option("--from", help="The manager that is in charge of the cluster.")],
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    only_values: Annotated[
        bool, typer.Option("--values", help="Print only the values for the chart, as YAML.")
    ] = False,
) -> None:
    """Check a cluster that another manager is in charge of, and print a plan for taking it over.

    The command writes nothing. The exit status is 0 when nothing blocks the take-over, 1 when something does,
    and 2 when the cluster cannot be read.
    """
    from admitq.cli.adopt import adopt as run

    chosen = chosen_format(output, as_json=as_json)
    groups = {names_for(group).metric_prefix: group for group in GROUPS}
    raise typer.Exit(run(names_for(groups[origin]), kubeconfig, output=chosen, only_values=only_values))


@application.command()
def version() -> None:
    """Print the version, and the API version that it serves."""
    typer.echo(f"admitq {VERSION} ({names_for(DEFAULT_GROUP).api_version})")
