"""``admitq adopt``: reads a cluster and prints the plan of taking it over. Imported only when asked for."""

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
"""How many places of a finding are printed; JSON has all."""


class AdoptExitCode(IntEnum):
    """How the command ends."""

    CLEAR = 0
    BLOCKED = 1
    """Something stands in the way."""
    UNREACHABLE = 2
    """Nothing could be read."""


def adopt(names: Names, kubeconfig: Path | None, *, output: OutputFormat, only_values: bool) -> AdoptExitCode:
    """Run the command.

    Args:
        names: of the group to take over.
        kubeconfig: how to reach the cluster; None for where the other commands look.
        output: how the plan is printed.
        only_values: print the values for the chart and nothing else.
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
    """Lets no write out, whatever is called by mistake."""
    raise NotLeadingError("nothing is written before a take-over")


def _yaml(made: AdoptionPlan) -> str:
    return yaml.safe_dump(dict(made.values), sort_keys=False)


def _text(made: AdoptionPlan) -> list[str]:
    """The plan for people."""
    counts = ", ".join(f"{number} {plural}" for plural, number in made.counts.items() if number)
    states = ", ".join(f"{number} {state}" for state, number in made.workloads.items() if number)
    served, stored = ", ".join(made.served) or "no version", ", ".join(made.stored) or "none"
    lines = [
        f"Group     {made.group}, served in {served}, stored in {stored}",
        f"In charge {'; '.join(made.in_charge) or 'nobody that the API server calls'}",
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
    end = "Nothing stands in the way." if made.is_clear else "Do not switch yet: see what stands in the way."
    return [*lines, "", end]
