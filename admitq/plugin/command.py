"""Commands are data: words, parameters, and the function that runs. Parser, reference and completion read it.

The plugin must start quickly, so this module and those of the commands import only small modules. The
function of a command imports what it needs.
"""

from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple


class Arguments:
    """The values of the parameters of one command line, as attributes with the names of the parameters.

    For a command that parses nothing, ``words`` has what follows the words of the command.
    """

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the command has no parameter {name!r}")


class Parameter(NamedTuple):
    """An argument or an option of a command.

    Args:
        names: the names of an option, the longest first, or the one name of an argument.
        help: what the value means.
        metavar: how help names the value.
        is_switch: whether the option has no value, and is true if it is given.
        is_repeated: whether it may be given any number of times; the value is then a list. Only the last
            argument may be repeated.
        is_required: whether an option must be given. Arguments that are not repeated are always required.
        choices: all values, if only some are possible.
        default: the value without the option; None if there is none.
        variable: the environment variable that has the value without the option; empty if there is none.
        completes: the objects that are possible values, by a name of `admitq.plugin.completion`; or empty.
    """

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    is_switch: bool = False
    is_repeated: bool = False
    is_required: bool = False
    choices: tuple[str, ...] = ()
    default: str | None = None
    variable: str = ""
    completes: str = ""

    @property
    def is_option(self) -> bool:
        """Whether this is an option, and not an argument."""
        return self.names[0].startswith("-")

    @property
    def attribute(self) -> str:
        """The attribute of `Arguments` that has the value: ``for_`` for ``--for``, a word of Python."""
        name = self.names[0].lstrip("-").replace("-", "_")
        return f"{name}_" if iskeyword(name) else name


class Command(NamedTuple):
    """A command.

    Args:
        words: what the user writes after ``kubectl admitq``, without parameters.
        help: what the command does. Its first paragraph is one line.
        parameters: arguments first, in their order on the command line.
        run: runs the command, and returns its exit status; None means 0.
        aliases: other names of the last word.
        passes_words: whether another program parses what follows the words of the command. The parameters
            are then for help and completion.
    """

    words: tuple[str, ...]
    help: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Arguments], int | None]
    aliases: tuple[str, ...] = ()
    passes_words: bool = False


def find_command(words: Sequence[str], commands: Sequence[Command]) -> tuple[Command | None, int]:
    """Return the command with which a command line begins, and the number of its words."""
    for command in commands:
        depth = len(command.words)
        *group, last = command.words
        is_in_group = [*words[: depth - 1]] == group and len(words) >= depth
        if is_in_group and words[depth - 1] in {last, *command.aliases}:
            return command, depth
    return None, 0
