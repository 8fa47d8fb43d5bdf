"""Log lines are JSON, or readable text on a terminal, and contain no secrets."""

import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import structlog

from admitq.process import logs


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] a fixture for all
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configuration = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configuration)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal. Tests call it, because pytest replaces the stream after fixtures."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    return terminal


def logged_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_lines_of_structlog_and_standard_library_are_json_with_component(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(level="info", component="manager")
    logs.logger("one").info("started", port=8080)
    logging.getLogger("two").warning("careful %s", "now")
    first, second = logged_lines(capsys)
    assert (first["event"], first["port"], first["component"], first["level"]) == (
        "started",
        8080,
        "manager",
        "info",
    )
    assert (second["event"], second["logger"], second["component"]) == ("careful now", "two", "manager")


def test_lines_of_other_threads_have_the_component(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    thread = threading.Thread(target=lambda: logs.logger("one").info("lease acquired"))
    thread.start()
    thread.join()
    assert logged_lines(capsys)[0]["component"] == "manager"


def test_terminal_gets_readable_lines_without_logger_names(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    logs.configure(component="manager")
    logs.logger("admitq.runtime.watcher").info("watch failed, retrying", resource="jobs.batch")
    line = terminal.getvalue()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.match(time + r" \[info +\] watch failed, retrying +resource=jobs\.batch", line)
    assert "admitq.runtime.watcher" not in line
    assert "manager" not in line


def test_terminal_gets_json_if_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    logs.configure(component="manager", output="json")
    logs.logger("one").info("started")
    assert json.loads(terminal.getvalue())["event"] == "started"


def test_file_gets_console_lines_without_colors_if_configured(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager", output="console")
    logs.logger("one").info("started", port=8080)
    line = capsys.readouterr().err
    assert "port=8080" in line
    assert "\x1b" not in line


def test_console_traceback_shows_no_local_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    logs.configure(component="manager")
    bearer = "s3cr3t"
    try:
        raise ValueError(f"broken by {len(bearer)} characters")
    except ValueError:
        logs.logger("one").exception("failed")
    assert "ValueError: broken by 6 characters" in terminal.getvalue()
    assert "s3cr3t" not in terminal.getvalue()


def test_only_warnings_are_printed_before_configuration() -> None:
    program = (
        "from admitq.process.logs import logger; log = logger('one'); "
        "log.info('quiet'); log.warning('careful', name='a', token='s3cr3t')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "careful name='a' token='[hidden]'\n")


def test_exception_is_logged_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    try:
        raise ValueError("broken\nbadly")
    except ValueError:
        logs.logger("one").exception("failed")
    (line,) = logged_lines(capsys)
    assert "ValueError" in str(line["exception"])


@pytest.mark.parametrize("output", ["json", "console"])
@pytest.mark.parametrize("key", ["token", "bearer_token", "Authorization", "client_secret", "kubeconfig"])
def test_values_of_secret_keys_are_hidden(
    key: str, output: logs.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(component="manager", output=output)
    logs.logger("one").info("loaded", **{key: "s3cr3t"})
    assert "s3cr3t" not in capsys.readouterr().err


def test_value_that_json_cannot_represent_does_not_break_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    logs.logger("one").info("odd", value=object())
    assert logged_lines(capsys)[0]["event"] == "odd"


def test_unknown_log_level_raises_error() -> None:
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        logs.configure(level="loud", component="manager")
