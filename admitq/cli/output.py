"""The option ``--output``, which all commands that print a result have."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer


class OutputFormat(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="Text and tables for people, or one JSON or YAML document."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --output json.", hidden=True)]


def chosen_format(output: OutputFormat, *, as_json: bool) -> OutputFormat:
    """Return the format that ``--output`` or its older form ``--json`` requests.

    Raises:
        typer.BadParameter: they contradict each other.
    """
    if as_json and output is OutputFormat.YAML:
        raise typer.BadParameter("--json contradicts --output yaml: use only one of them")
    return OutputFormat.JSON if as_json else output


def print_document(value: Any, output: OutputFormat) -> None:
    """Print a value as one document in JSON or YAML."""
    if output is OutputFormat.YAML:
        import yaml

        typer.echo(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(json.dumps(value, indent=2))
