"""The parser of command lines, built from commands.

It is that of the standard library. typer, with which the command ``admitq`` is built, imports pydantic for
each command line, which takes longer than the whole plugin may take to start.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from admitq.plugin.command import Arguments, Command, Parameter, find_command

PROGRAM: Final = "kubectl admitq"

NAME: Final = "NAME"
"""The metavar of parameters that are names of objects."""

HELP: Final = frozenset({"-h", "--help"})

WRONG_LINE: Final = 2
"""The exit status after a command line that is not valid."""


class _Parser(argparse.ArgumentParser):
    """A parser that adds the remedy to its errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_LINE, f"error: {message}\n{self.prog} --help shows what is possible.\n")


def parse(
    arguments: Sequence[str],
    commands: Sequence[Command],
    summaries: Mapping[str, str],
    description: str,
) -> tuple[Command, Arguments]:
    """Return the command of a command line, and the values of its parameters.

    Args:
        arguments: the command line, without the name of the program.
        commands: all commands.
        summaries: what the commands with the same first word have in common.
        description: what the program does.

    Raises:
        SystemExit: the line is not valid, or asks for help, which is then printed.
    """
    values = Arguments()
    named, depth = find_command(arguments, commands)
    if named is not None and named.passes_words and HELP.isdisjoint(arguments[depth:]):
        vars(values)["words"] = list(arguments[depth:])
        return named, values
    parser = _create_parser(arguments[0] if arguments else "", commands, summaries, description)
    parser.parse_args(arguments, values)
    unfinished: argparse.ArgumentParser | None = getattr(values, "unfinished", None)
    if unfinished is not None:
        unfinished.print_help()
        unfinished.exit()
    return values.command, values


def _create_parser(
    first_word: str, commands: Sequence[Command], summaries: Mapping[str, str], description: str
) -> argparse.ArgumentParser:
    """Return a parser of lines that begin with this word.

    For other words, it only knows what the help of the program lists. A parser of argparse takes half a
    millisecond, so those of all commands would take a tenth of the time in which the plugin must start.
    """
    root = _Parser(prog=PROGRAM, description=description)
    root.set_defaults(unfinished=root)
    first_words = _subparsers(root)
    groups: dict[str, Any] = {}
    for command in commands:
        siblings = first_words
        *group_words, last = command.words
        for word in group_words:
            if word not in groups:
                group = _add(first_words, word, summaries[word])
                group.set_defaults(unfinished=group)
                groups[word] = _subparsers(group)
            siblings = groups[word]
        if group_words and group_words[0] != first_word:
            continue
        leaf = _add(siblings, last, command.help, command.aliases)
        leaf.set_defaults(command=command, unfinished=None)
        for parameter in command.parameters:
            _add_parameter(leaf, parameter)
    return root


def _subparsers(parser: argparse.ArgumentParser) -> Any:
    return parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)


def _add(siblings: Any, word: str, text: str, aliases: Sequence[str] = ()) -> argparse.ArgumentParser:
    return siblings.add_parser(word, aliases=aliases, help=text.partition("\n")[0], description=text)


def _name(text: str) -> str:
    """Return a text that can be the name of an object: a path with another one leads to other objects."""
    if text in {"", ".", ".."}:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name")
    return text


def _add_parameter(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    options: dict[str, Any] = {"help": parameter.help.replace("%", "%%")}
    if parameter.choices:
        options["choices"] = parameter.choices
    elif not parameter.is_switch:
        options["metavar"] = parameter.metavar
        if parameter.metavar == NAME:
            options["type"] = _name
    if not parameter.is_option:
        if parameter.is_repeated:
            options["nargs"] = "+" if parameter.is_required else "*"
        parser.add_argument(parameter.attribute, **options)
        return
    options["dest"] = parameter.attribute
    if parameter.is_switch:
        parser.add_argument(*parameter.names, action="store_true", **options)
        return
    default: Any = os.environ.get(parameter.variable) or parameter.default
    if parameter.is_repeated:
        options["action"] = "append"
        default = []
    parser.add_argument(*parameter.names, default=default, required=parameter.is_required, **options)
