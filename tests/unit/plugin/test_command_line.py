"""The parser of the plugin: what a command line selects, and what a user reads after a mistake."""

import pytest

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.command_line import parse


def ignore(_arguments: Arguments) -> None:
    """Do nothing: these tests only parse."""


PARAMETERS = (
    Parameter(("name",), "The name.", "NAME"),
    Parameter(("--keep-it", "-k"), "A switch.", is_switch=True),
    Parameter(("--size",), "100% of it.", "AMOUNT", default="1", variable="ADMITQ_TEST_SIZE"),
    Parameter(("--label", "-l"), "Labels.", "LABEL", is_repeated=True),
    Parameter(("--output", "-o"), "Format.", choices=("json", "yaml"), default="json"),
)
FOLD = Command(("fold", "paper"), "Fold it.\n\nTwice.", PARAMETERS, ignore, ("sheet",))
TEAR = Command(("tear",), "Tear it.", (Parameter(("--where",), "Where.", "PLACE", is_required=True),), ignore)


def parsed(*line: str) -> tuple[Command, Arguments]:
    return parse(line, (FOLD, TEAR), {"fold": "Fold things."}, "A program.")


@pytest.mark.parametrize("word", ["paper", "sheet"])
def test_values_are_attributes_and_have_defaults(word: str) -> None:
    command, values = parsed("fold", word, "a")
    assert command is FOLD
    assert (values.name, values.keep_it, values.size, values.label, values.output) == (
        "a", False, "1", [], "json",
    )  # fmt: skip


def test_options_are_read_in_their_short_and_long_forms() -> None:
    _, values = parsed("fold", "paper", "-k", "--size=2", "a", "-l", "x", "--label", "y", "-oyaml")
    assert (values.keep_it, values.size, values.label, values.output) == (True, "2", ["x", "y"], "yaml")


def test_repeated_option_of_one_line_is_not_in_the_next() -> None:
    parsed("fold", "paper", "a", "-l", "x")
    assert parsed("fold", "paper", "a")[1].label == []


def test_variable_is_the_default_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMITQ_TEST_SIZE", "3")
    assert parsed("fold", "paper", "a")[1].size == "3"
    assert parsed("fold", "paper", "a", "--size", "4")[1].size == "4"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ("fold", "paper"),
            "error: the following arguments are required: NAME\nkubectl admitq fold paper --help",
        ),
        (
            ("fold", "paper", "a", "--siz", "2"),
            "error: unrecognized arguments: --siz 2\nkubectl admitq --help",
        ),
        (("fold", "paper", "a", "-o", "xml"), "error: argument --output/-o: invalid choice: 'xml'"),
        (("fold", "paper", ""), "error: argument NAME: '' is not a name"),
        (("fold", "paper", ".."), "error: argument NAME: '..' is not a name"),
        (("fold", "stone"), "error: argument COMMAND: invalid choice: 'stone'"),
        (("tear",), "error: the following arguments are required: --where\nkubectl admitq tear --help"),
    ],
)
def test_line_that_is_not_valid_is_answered_with_the_command_that_helps(
    line: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(*line)
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ((), ["A program.", "Fold things.", "Tear it."]),
        (("fold",), ["Fold things.", "paper (sheet)", "Fold it."]),
        (("fold", "paper", "-h"), ["Fold it.", "Twice.", "100% of it."]),
    ],
)
def test_line_without_a_command_shows_the_help(
    line: tuple[str, ...], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        parsed(*line)
    help_text = capsys.readouterr().out
    assert [text for text in shown if text not in help_text] == []


def test_value_of_an_unknown_parameter_is_a_defect() -> None:
    with pytest.raises(AttributeError, match="no parameter 'nothing'"):
        _ = parsed("fold", "paper", "a")[1].nothing
