"""Command lines of processes. Plain ones are parsed without typer, with the same result."""

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from admitq import cli
from admitq.cli import commands, processes
from admitq.cli.commands import application
from admitq.cli.processes import (
    CONFIGURATION_ERROR,
    FLAGS,
    PROCESSES,
    SWITCHES,
    LogFormat,
    Options,
    parse_plain,
)
from admitq.cli.zap_flags import translate_flags

Started = list[tuple[str, Options]]

LINES = [
    (["all-in-one"], "all-in-one", Options()),
    (["webhook", "--config", "a.yaml"], "webhook", Options(config=Path("a.yaml"))),
    (["webhook", "--config=a=b.yaml"], "webhook", Options(config=Path("a=b.yaml"))),
    (["webhook", "--config=a", "--config=b"], "webhook", Options(config=Path("b"))),
    (
        [
            "manager",
            "--kubeconfig=k",
            "--components",
            "core,cycle",
            "--feature-gates=A=true,B=false",
            "--log-level=debug",
            "--log-format",
            "console",
        ],
        "manager",
        Options(
            kubeconfig=Path("k"),
            components="core,cycle",
            feature_gates="A=true,B=false",
            log_level="debug",
            log_format=LogFormat.CONSOLE,
        ),
    ),
    (
        ["manager", "--shadow", "--shadow-patience", "2.5"],
        "manager",
        Options(shadow=True, shadow_patience=2.5),
    ),
    (["manager", "--config=a", "--shadow"], "manager", Options(config=Path("a"), shadow=True)),
    (["all-in-one", "--components="], "all-in-one", Options(components="")),
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    calls: Started = []

    def start(component: str, options: Options) -> int:
        calls.append((component, options))
        return 0

    monkeypatch.setattr(processes, "start_process", start)
    monkeypatch.setattr(commands, "start_process", start)
    return calls


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["admitq", *arguments])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    return exited.value.code


@pytest.mark.parametrize(("line", "component", "options"), LINES)
def test_plain_command_line_is_parsed_as_typer_parses_it(
    line: list[str], component: str, options: Options, started: Started
) -> None:
    assert parse_plain(line) == (component, options)
    assert CliRunner().invoke(application, line).exit_code == 0
    assert started == [(component, options)]


@pytest.mark.parametrize("component", PROCESSES)
def test_plain_parser_and_typer_accept_the_same_flags(component: str) -> None:
    root: Any = get_command(application)
    known = {flag for option in root.commands[component].params for flag in option.opts}
    assert known - {"-h", "--help"} == {*FLAGS, *SWITCHES}


@pytest.mark.parametrize(
    ("line", "output", "code"),
    [
        (["all-in-one", "--help"], "Run manager and webhooks in one process", 0),
        (["all-in-one", "--config"], "requires an argument", 2),
        (["all-in-one", "--confg=a.yaml"], "No such option", 2),
        (["all-in-one", "--log-format=xml"], "xml", 2),
        (["all-in-one", "file"], "unexpected extra argument", 2),
        (["all-in-two"], "all-in-two", 2),
        (["version"], "admitq ", 0),
        (["manager", "--shadow=yes"], "does not take a value", 2),
        (["manager", "--shadow-patience=soon"], "--shadow-patience", 2),
        (["manager", "--shadow-patience=-1"], "--shadow-patience", 2),
        (["manager", "--zap-log-level=loud"], "--zap-log-level: 'loud' is not a log level: use debug,", 2),
        (["manager", "--zap-log-level"], "--zap-log-level: '' is not a log level", 2),
        (["manager", "--zap-encoder=xml"], "xml", 2),
        (["kinds", "--zap-devel"], "No such option", 2),
    ],
)
def test_other_command_lines_print_help_or_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: Started,
    line: list[str],
    output: str,
    code: int,
) -> None:
    assert run_main(monkeypatch, *line) == code
    assert output in "".join(capsys.readouterr())
    assert not started


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--zap-log-level=2"], ["--log-level=info"]),
        (["--zap-log-level", "3"], ["--log-level=debug"]),
        (["--zap-log-level=debug"], ["--log-level=debug"]),
        (["--zap-log-level=Error"], ["--log-level=error"]),
        (["--zap-log-level=panic"], ["--log-level=error"]),
        (["--zap-encoder=console"], ["--log-format=console"]),
        (["--zap-devel", "--zap-devel=true", "--config=c"], ["--config=c"]),
        (
            ["--zap-stacktrace-level", "error", "--zap-time-encoding=rfc3339", "--config", "c"],
            ["--config", "c"],
        ),
    ],
)
def test_logging_flags_of_kueue_are_translated(given: list[str], expected: list[str]) -> None:
    assert translate_flags(given) == expected


def test_arguments_of_kueue_deployment_start_process(
    monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    file = "/controller_manager_config.yaml"
    gates = "PartialAdmission=false"
    line = ["all-in-one", f"--config={file}", "--zap-log-level=2", f"--feature-gates={gates}"]
    assert run_main(monkeypatch, *line) == 0
    assert started == [("all-in-one", Options(config=Path(file), feature_gates=gates))]


def test_process_with_invalid_configuration_ends_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhok: {}\n")
    assert run_main(monkeypatch, "all-in-one", f"--config={file}") == CONFIGURATION_ERROR
    assert capsys.readouterr().err == "admitq all-in-one: webhok: unknown field: did you mean webhook?\n"
