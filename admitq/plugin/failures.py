"""How a command ends when it fails: a text on standard error, and exit status 1."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from admitq.plugin.remedies import CommandError

Arguments = ParamSpec("Arguments")


def exit_on_failure(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Let a command print its `CommandError` and exit with status 1."""

    @wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CommandError as error:
            typer.echo(f"{_prefix()} {error}", err=True)
            raise typer.Exit(1) from error

    return run


def _prefix() -> str:
    """Return the begin of an error; it is red on a terminal, unless NO_COLOR is set."""
    has_colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return typer.style("error:", fg=typer.colors.RED, bold=True) if has_colors else "error:"
