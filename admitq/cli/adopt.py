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
"""The maximum number of places that the text lists for a finding. JSON and YAML list all."""


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
        plan = make_plan(asyncio.run(_read(names, kubeconfig)))
    except (CredentialsError, ApiError) as error:
        typer.echo(f"admitq adopt: {error}", err=True)
        return AdoptExitCode.UNREACHABLE
    if output is not OutputFormat.TABLE:
        print_document(plan.to_dict(), output)
    elif only_values:
        typer.echo(_yaml(plan), nl=False)
    else:
        typer.echo("\n".join(_text(plan)))
    return AdoptExitCode.CLEAR if plan.is_clear else AdoptExitCode.BLOCKED


async def _read(names: Names, kubeconfig: Path | None) -> Cluster:
    credentials = load_credentials(kubeconfig)
    async with Client(credentials, user_agent=user_agent("adopt"), timeout=30.0, fence=_refuse) as client:
        return await read_cluster(client, names)


def _refuse() -> None:
    """Refuse all writes of the client."""
    raise NotLeadingError("admitq adopt never writes")


def _yaml(plan: AdoptionPlan) -> str:
    return yaml.safe_dump(dict(plan.values), sort_keys=False)


def _text(plan: AdoptionPlan) -> list[str]:
    """Return the lines of the plan as text."""
    counts = ", ".join(f"{number} {plural}" for plural, number in plan.counts.items() if number)
    states = ", ".join(f"{number} {state}" for state, number in plan.workloads.items() if number)
    served, stored = ", ".join(plan.served) or "no version", ", ".join(plan.stored) or "none"
    lines = [
        f"Group     {plan.group}, served in {served}, stored in {stored}",
        f"In charge {'; '.join(plan.in_charge) or 'no manager that the API server calls'}",
        f"Objects   {counts or 'none'}",
        f"Workloads {states or 'none'}",
    ]
    for severity in Severity:
        of_it = [finding for finding in plan.findings if finding.check.severity is severity]
        if of_it:
            lines += ["", severity.value.capitalize()]
        for finding in of_it:
            lines += [f"  {finding.check.name}: {finding.check.what}", f"    {finding.check.remedy}"]
            lines += [f"    - {place}" for place in finding.places[:SHOWN]]
            if len(finding.places) > SHOWN:
                lines.append(f"    - and {len(finding.places) - SHOWN} more")
    lines += ["", "Values for the chart", *(f"  {line}" for line in _yaml(plan).splitlines())]
    for heading, steps in (("To switch", plan.steps), ("To go back", plan.way_back)):
        lines += ["", heading]
        for number, step in enumerate(steps, 1):
            lines += [f"  {number}. {step.what}", *(f"     {command}" for command in step.commands)]
    end = (
        "Nothing blocks the take-over."
        if plan.is_clear
        else "Do not switch yet: resolve the blocking findings first."
    )
    return [*lines, "", end]
