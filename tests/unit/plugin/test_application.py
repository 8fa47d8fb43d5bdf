"""How commands of the plugin end."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from admitq.plugin import application
from admitq.plugin.application import COMMANDS, SUMMARIES, run
from admitq.plugin.command import Arguments, Command
from admitq.plugin.remedies import CommandError


def fail(_arguments: Arguments) -> None:
    raise CommandError("no\nDo yes.", status=3)


def interrupt(_arguments: Arguments) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("action", "status", "error"),
    [
        (lambda _arguments: None, 0, ""),
        (lambda _arguments: 7, 7, ""),
        (fail, 3, "error: no\nDo yes.\n"),
        (interrupt, 130, ""),
    ],
)
def test_status_says_how_a_command_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: Callable[[Arguments], int | None],
    status: int,
    error: str,
) -> None:
    monkeypatch.setattr(application, "COMMANDS", (Command(("do",), "Do it.", (), action),))
    assert run(["do"]) == status
    assert capsys.readouterr().err == error


def test_command_whose_reader_ends_prints_no_traceback() -> None:
    program = "import sys; from admitq.plugin import main; sys.argv = ['x', 'completion', 'bash']; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_words_and_names_of_commands_are_unique() -> None:
    names = [
        (*command.words[:-1], name) for command in COMMANDS for name in (command.words[-1], *command.aliases)
    ]
    assert len(names) == len(set(names))
    assert {command.words[0] for command in COMMANDS if len(command.words) > 1} == SUMMARIES.keys()


def test_names_of_parameters_are_unique_in_each_command() -> None:
    for command in COMMANDS:
        names = [name for parameter in command.parameters for name in parameter.names]
        assert len(names) == len(set(names)), command.words
