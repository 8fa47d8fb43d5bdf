"""``admitq simulate racks``: how many racks of what size a scenario needs."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import typer

from admitq.cli.output import OutputFormat, print_document
from admitq.cli.simulate import (
    ExitCode,
    find_file,
    option_error,
    parse_duration,
    read_source,
    refuse,
    run_simulation,
)
from admitq.manifests.documents import InputError
from admitq.process.garbage_collection import reduce_collections
from admitq.simulator.rack_sizes import RackSizing, SizeSearch, SizeTarget
from admitq.simulator.units import duration_text

if TYPE_CHECKING:
    from admitq.cli.present_cluster import ClusterSource

_RANGE: Final = re.compile(r"([1-9][0-9]{0,5})(?:\.\.([1-9][0-9]{0,5}))?")
_MOST_NUMBERS: Final = 1_000


def compare_rack_sizes(
    files: list[str],
    *,
    racks: str,
    hosts: str,
    max_wait: str | None = None,
    min_in_one_rack: float | None = None,
    nodes: str | None = None,
    keep_quota: bool = False,
    output: OutputFormat = OutputFormat.TABLE,
    until: str | None = None,
    seed: int | None = None,
    source: "ClusterSource | None" = None,
    run_time: str = "1h",
) -> ExitCode:
    """Run the command.

    Args:
        files: paths, or names of shipped scenarios.
        racks: the numbers of racks, as ``4..20`` or ``4,8,16``.
        hosts: the numbers of hosts in each rack.
        max_wait: the target of the wait, as a duration.
        min_in_one_rack: the target of the share of workloads in one rack, from 0 to 1.
        nodes: the name of the group of nodes; None for the only one.
        keep_quota: whether quotas stay as they are.
        output: how the result is printed.
        until: when to stop, as a duration.
        seed: the random seed, instead of the scenario's.
        source: the cluster with which the simulations begin; None begins without workloads.
        run_time: the remaining run time of its workloads about which nothing is known, as a duration.
    """
    reduce_collections()
    try:
        search = SizeSearch(
            [find_file(name) for name in files],
            nodes,
            SizeTarget(None if max_wait is None else parse_duration("--max-wait", max_wait), min_in_one_rack),
            not keep_quota,
            seed,
            None if until is None else parse_duration("--until", until),
            run_simulation,
            read_source(source, parse_duration("--run-time", run_time)),
        )
        result = search.find(_parse_numbers("--racks", racks), _parse_numbers("--hosts", hosts))
    except InputError as error:
        return refuse("simulate racks", error)
    if output is OutputFormat.TABLE:
        _print_table(result)
    else:
        print_document(result.to_dict(), output)
    return ExitCode.STUCK if result.target.is_set and result.smallest is None else ExitCode.DONE


def _parse_numbers(option: str, text: str) -> list[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise option_error(option, f"{part!r}: write numbers and ranges, such as 4,8 or 4..20")
        if last - first >= _MOST_NUMBERS:
            raise option_error(option, f"{part!r}: give at most {_MOST_NUMBERS} numbers")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def _print_table(result: RackSizing) -> None:
    from rich.console import Console

    from admitq.simulator.table import create_table, share_text, wait_text

    console = Console()
    console.print(f"[bold]{result.scenario}[/bold]  [dim]seed {result.seed}[/dim]")
    headers = ["Racks", "hosts", "nodes", "wait p95", "utilisation", "in one rack", "waiting"]
    table = create_table(*headers, *(["target"] if result.target.is_set else []), text_columns=0)
    for each in result.sizes:
        table.add_row(
            f"{each.size.racks:,}",
            f"{each.size.hosts:,}",
            f"{each.nodes:,}",
            wait_text(each.wait),
            share_text(each.utilisation),
            share_text(each.in_one_rack),
            f"{each.waiting:,}",
            *(["met" if each.meets_target else "missed"] if result.target.is_set else []),
        )
    console.print(table)
    for line in _conclusions(result):
        typer.echo(line)


def _conclusions(result: RackSizing) -> Iterable[str]:
    target = result.target
    if target.is_set:
        wanted = [
            *([] if target.wait is None else [f"wait p95 at most {duration_text(target.wait / 1e9)}"]),
            *([] if target.in_one_rack is None else [f"at least {target.in_one_rack:.1%} in one rack"]),
        ]
        smallest = result.smallest
        found = (
            "no size meets the target"
            if smallest is None
            else f"the smallest size is {smallest.size.racks:,} racks of {smallest.size.hosts:,} hosts, "
            f"{smallest.nodes:,} nodes"
        )
        yield f"{', '.join(wanted)}: {found}"
    if result.is_bisected:
        yield "Other sizes were not simulated. More racks are assumed to meet each target that fewer meet."
    if result.scales_quota:
        yield "Quotas of flavors with a topology are scaled with their nodes."
