"""All commands of the plugin, and how a command line runs one of them."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from admitq.plugin.check import CHECK
from admitq.plugin.command import Command
from admitq.plugin.command_line import parse
from admitq.plugin.create import CREATIONS
from admitq.plugin.delete_workloads import DELETE_WORKLOAD
from admitq.plugin.doctor import DOCTOR
from admitq.plugin.history import HISTORY
from admitq.plugin.lists import LISTS
from admitq.plugin.pass_through import PASSED_COMMANDS, PASSED_SUMMARIES
from admitq.plugin.questions import QUESTIONS
from admitq.plugin.remedies import CommandError
from admitq.plugin.shells import COMPLETION
from admitq.plugin.stop_resume import STOP_AND_RESUME
from admitq.plugin.top import TOP
from admitq.plugin.version import VERSIONS
from admitq.plugin.whatif import WHAT_IF
from admitq.plugin.workload_commands import WORKLOAD_COMMANDS

DESCRIPTION: Final = "Queues and workloads of admitq."

SUMMARIES: Final[Mapping[str, str]] = {
    "list": "List workloads, queues, flavors or pods.",
    "create": "Create a queue or a flavor.",
    "stop": "Stop a queue or a workload.",
    "resume": "Resume a queue or a workload.",
    "hold": "Hold a workload that waits.",
    "release": "Release a held workload.",
    "move": "Move a workload to another queue.",
    **PASSED_SUMMARIES,
}
"""What the commands that begin with the same word have in common."""

COMMANDS: Final[tuple[Command, ...]] = (
    *LISTS,
    TOP,
    HISTORY,
    *QUESTIONS,
    CHECK,
    WHAT_IF,
    *CREATIONS,
    *STOP_AND_RESUME,
    *WORKLOAD_COMMANDS,
    DELETE_WORKLOAD,
    *PASSED_COMMANDS,
    DOCTOR,
    COMPLETION,
    VERSIONS,
)
"""All commands, in the order of the help."""

FAILED: Final = 1
"""The exit status of a command that failed."""
INTERRUPTED: Final = 130
"""The exit status of a command that the user interrupted, as of any program that SIGINT ends."""


def run(arguments: Sequence[str]) -> int:
    """Run the command of a command line, and return its exit status."""
    command, values = parse(arguments, COMMANDS, SUMMARIES, DESCRIPTION)
    try:
        status = command.run(values)
        sys.stdout.flush()
    except CommandError as error:
        print(f"{_error_prefix()} {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as head, needs no more. Python must not flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return status or 0


def _error_prefix() -> str:
    """Return the begin of an error; it is red on a terminal, unless NO_COLOR is set."""
    has_colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return "\033[1;31merror:\033[0m" if has_colors else "error:"
