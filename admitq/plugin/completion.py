"""What may come next on a command line. Pure, except for the function that looks names up."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from admitq.plugin.command import Command, Parameter, find_command

FILES: Final = "files"
"""The value of `Parameter.completes` for names of files, which the shell itself knows."""


class Candidate(NamedTuple):
    """A word that may come next, and what it means; empty if nothing is to be said."""

    value: str
    meaning: str = ""


class Answer(NamedTuple):
    """The words that may come next. ``files``: whether names of files may, too."""

    candidates: tuple[Candidate, ...]
    files: bool = False


NOTHING: Final = Answer(())

LookUp = Callable[[str, Mapping[str, str]], Iterable[str]]
"""Returns the names of objects, given `Parameter.completes` and the values of options on the command line."""


def complete(
    line: Sequence[str], commands: Sequence[Command], summaries: Mapping[str, str], look_up: LookUp
) -> Answer:
    """Return the words with which the last word of a command line can continue.

    For ``--option=VALUE``, only values are returned, as shells expect it.

    Args:
        line: the words after the name of the program. The last is incomplete, or empty.
        commands: all commands.
        summaries: what the commands with the same first word have in common.
        look_up: finds names of objects.
    """
    words = join_assignments(line)
    current, before = words[-1] if words else "", words[:-1]
    command, depth = find_command(before, commands)
    if command is None:
        return _words(before, current, commands, summaries)
    values, given, position, open_option = _read(before[depth:], command)
    option, equals, start = current.partition("=")
    if equals and current.startswith("-"):
        parameter = _option(command, option)
        return NOTHING if parameter is None else _values(parameter, start, values, look_up)
    if open_option is not None:
        return _values(open_option, current, values, look_up)
    if current.startswith("-"):
        return _options(command, current, given)
    arguments = [parameter for parameter in command.parameters if not parameter.is_option]
    if arguments and arguments[-1].is_repeated:
        position = min(position, len(arguments) - 1)
    return _values(arguments[position], current, values, look_up) if position < len(arguments) else NOTHING


def join_assignments(line: Sequence[str]) -> list[str]:
    """Return the words with ``--option``, ``=`` and ``VALUE`` joined: bash passes them as three words."""
    words: list[str] = []
    for word in line:
        follows = bool(words) and words[-1].startswith("-")
        if follows and (word == "=" or words[-1].endswith("=")):
            words[-1] += word
        else:
            words.append(word)
    return words


def _words(
    before: Sequence[str], current: str, commands: Sequence[Command], summaries: Mapping[str, str]
) -> Answer:
    found: dict[str, str] = {}
    for command in commands:
        if not before:
            word = command.words[0]
            found[word] = command.help if len(command.words) == 1 else summaries[word]
        elif [*before] == [*command.words[:-1]]:
            found[command.words[-1]] = command.help
    return Answer(
        tuple(
            Candidate(word, text.partition("\n")[0])
            for word, text in found.items()
            if word.startswith(current)
        )
    )


def _option(command: Command, name: str) -> Parameter | None:
    return next((one for one in command.parameters if one.is_option and name in one.names), None)


def _read(
    words: Sequence[str], command: Command
) -> tuple[dict[str, str], set[Parameter], int, Parameter | None]:
    """Return values of options, given options, the number of arguments, and an option without its value."""
    values: dict[str, str] = {}
    given: set[Parameter] = set()
    position = 0
    waiting: Parameter | None = None
    for word in words:
        if waiting is not None:
            values[waiting.attribute] = word
            waiting = None
            continue
        name, equals, value = word.partition("=")
        option = _option(command, name) if word.startswith("-") else None
        if option is None:
            position += not word.startswith("-")
            continue
        given.add(option)
        if equals:
            values[option.attribute] = value
        elif not option.is_switch:
            waiting = option
    return values, given, position, waiting


def _options(command: Command, current: str, given: set[Parameter]) -> Answer:
    options = [
        Candidate(parameter.names[0], parameter.help)
        for parameter in command.parameters
        if parameter.is_option and (parameter.is_repeated or parameter not in given)
    ]
    options.append(Candidate("--help", "Show the help."))
    return Answer(tuple(one for one in options if one.value.startswith(current)))


def _values(parameter: Parameter, start: str, values: Mapping[str, str], look_up: LookUp) -> Answer:
    if parameter.completes == FILES:
        return Answer((), files=True)
    names = parameter.choices or (look_up(parameter.completes, values) if parameter.completes else ())
    return Answer(tuple(Candidate(name) for name in names if name.startswith(start)))
