"""The command line: one command for each process, and those that only print."""

from admitq.cli.commands import main

__all__ = ["main"]
