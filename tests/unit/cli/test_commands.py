"""Options and logs that all commands share."""

import pytest
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.process.logs import logger
from admitq_api.version import VERSION


def test_version_option_prints_name_and_version() -> None:
    result = CliRunner().invoke(application, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"admitq {VERSION}\n")


def test_help_names_product_and_version_option() -> None:
    result = CliRunner().invoke(application, ["--help"])
    assert "A job queue manager for Kubernetes." in result.stdout
    assert "--version" in result.stdout


def test_command_logs_readable_warnings_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(application, ["version"]).exit_code == 0
    log = logger("admitq.adoption")
    log.info("discovery finished")
    log.warning("discovery failed", group="batch")
    out, err = capsys.readouterr()
    assert out == ""
    assert "discovery finished" not in err
    assert "[warning  ] discovery failed" in err
    assert "group=batch" in err
    assert "admitq.adoption" not in err
