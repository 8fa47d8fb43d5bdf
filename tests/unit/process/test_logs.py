"""Log lines are JSON, whoever writes them, and hold no secret."""

import json
import logging
from collections.abc import Iterator

import pytest

from admitq.process import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] a fixture for all
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_our_lines_and_the_standard_librarys_are_json_with_the_component(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(level="info", component="manager")
    logs.logger("one").info("started", port=8080)
    logging.getLogger("two").warning("careful %s", "now")
    first, second = written(capsys)
    assert (first["event"], first["port"], first["component"], first["level"]) == (
        "started",
        8080,
        "manager",
        "info",
    )
    assert (second["event"], second["logger"]) == ("careful now", "two")


def test_exceptions_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    try:
        raise ValueError("broken\nbadly")
    except ValueError:
        logs.logger("one").exception("failed")
    (line,) = written(capsys)
    assert "ValueError" in str(line["exception"])


@pytest.mark.parametrize("key", ["token", "bearer_token", "Authorization", "client_secret", "kubeconfig"])
def test_values_of_secret_keys_are_hidden(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    logs.logger("one").info("loaded", **{key: "s3cr3t"})
    assert "s3cr3t" not in capsys.readouterr().err


def test_objects_that_json_cannot_hold_do_not_break_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(component="manager")
    logs.logger("one").info("odd", value=object())
    assert written(capsys)[0]["event"] == "odd"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        logs.configure(level="loud", component="manager")
