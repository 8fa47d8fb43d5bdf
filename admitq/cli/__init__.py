"""The command line: a command for each process, and commands that print a result."""

import sys

from admitq.cli import processes, zap_flags


def main() -> None:
    """Entry point of the ``admitq`` command."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in processes.PROCESSES:
        try:
            arguments = zap_flags.translate_flags(arguments)
        except ValueError as error:
            print(f"admitq {arguments[0]}: {error}", file=sys.stderr)
            sys.exit(processes.CONFIGURATION_ERROR)
    if (line := processes.parse_plain(arguments)) is not None:
        sys.exit(processes.start_process(*line))
    from admitq.cli.commands import application

    application(arguments)


__all__ = ["main"]
