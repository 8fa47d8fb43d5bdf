"""``admitq adopt``: reads a cluster and prints a plan for taking it over. Imported only by that command."""

import asyncio
from enum import IntEnum
from pathlib import Path

import typer
import yaml

from admitq.adoption.checks import Severity
from admitq.adoption.cluster import Cluster
from admitq.adoption.cluster_reader import read_cluster
from admitq.adoption.plan import AdoptionPlan, make_plan
from admitq.cli.output import OutputFormat, print_document
from admitq.runtime.client import Client, user_agent
from admitq.runtime.credentials import CredentialsError, load_credentials
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq_api.labels import Names

SHOWN = 5
"""How many places of a finding the text lists. JSON and YAML list all."""


class AdoptExitCode(IntEnum):
    """The exit status of the command."""

    CLEAR = 0
    BLOCKED = 1
    """A finding blocks the take-over."""
    UNREACHABLE = 2
    """The cluster could not be read."""


def adopt(names: Names, kubeconfig: Path | None, *, output: OutputFormat, only_values: bool) -> AdoptExitCode:
    """Run the command.

    Args:
        names: the names of the API group to take over.
        kubeconfig: the kubeconfig file; None for the defaults of all commands.
        output: the format of the plan.
        only_values: print only the values for the chart.
    """
    try:
        made = make_plan(asyncio.run(_read(names, kubeconfig)))
    except (CredentialsError, ApiError) as error:
        typer.echo(f"admitq adopt: {error}", err=True)
        return AdoptExitCode.UNREACHABLE
    if output is not OutputFormat.TABLE:
        print_document(made.to_dict(), output)
    elif only_values:
        typer.echo(_yaml(made), nl=False)
    else:
        typer.echo("\n".join(_text(made)))
    return AdoptExitCode.CLEAR if made.is_clear else AdoptExitCode.BLOCKED


async def _read(names: Names, kubeconfig: Path | None) -> Cluster:
    credentials = load_credentials(kubeconfig)
    async with Client(credentials, user_agent=user_agent("adopt"), timeout=30.0, fence=_refuse) as client:
        return await read_cluster(client, names)


def _refuse() -> None:
    """Refuse all writes of the client."""
    raise NotLeadingError("admitq adopt never writes")


def _yaml(made: AdoptionPlan) -> str:
    return yaml.safe_dump(dict(made.values), sort_keys=False)


def _text(made: AdoptionPlan) -> list[str]:
    """Return the lines of the plan as text."""
    counts = ", ".join(f"{number} {plural}" for plural, number in made.counts.items() if number)
    states = ", ".join(f"{number} {state}" for state, number in made.workloads.items() if number)
    served, stored = ", ".join(made.served) or "no version", ", ".join(made.stored) or "none"
    lines = [
        f"Group     {made.group}, served in {served}, stored in {stored}",
        f"In charge {'; '.join(made.in_charge) or 'no manager that the API server calls'}",
        f"Objects   {counts or 'none'}",
        f"Workloads {states or 'none'}",
    ]
    for severity in Severity:
        of_it = [one for one in made.findings if one.check.severity is severity]
        if of_it:
            lines += ["", severity.value.capitalize()]
        for one in of_it:
            lines += [f"  {one.check.name}: {one.check.what}", f"    {one.check.remedy}"]
            lines += [f"    - {place}" for place in one.places[:SHOWN]]
            if len(one.places) > SHOWN:
                lines.append(f"    - and {len(one.places) - SHOWN} more")
    lines += ["", "Values for the chart", *(f"  {line}" for line in _yaml(made).splitlines())]
    for heading, steps in (("To switch", made.steps), ("To go back", made.way_back)):
        lines += ["", heading]
        for number, step in enumerate(steps, 1):
            lines += [f"  {number}. {step.what}", *(f"     {command}" for command in step.commands)]
    end = (
        "Nothing blocks the take-over."
        if made.is_clear
        else "Do not switch yet: resolve the blocking findings first."
    )
    return [*lines, "", end]
