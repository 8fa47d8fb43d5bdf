import json
from typing import Any

import pytest

from benchmarks import ask, calibration, cli
from benchmarks.ask import AskLoad
from benchmarks.calibration import TRACES, CalibrationLoad
from benchmarks.cli import main


@pytest.fixture(autouse=True)
def core_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "reference_cpu_s", lambda: 0.1)


def test_all_questions_are_answered_and_measured() -> None:
    figures, _ = ask.run(AskLoad(pending=150, questions=4))
    assert figures["pending"] >= 150
    assert 0 <= figures["eta_with_median"] <= 4
    assert figures["eta_again_with_median"] == 4
    assert 2 <= figures["eta_tree_simulations"] <= 22
    for name in (
        "eta_p50_ms",
        "eta_p99_ms",
        "eta_again_p99_ms",
        "whatif_p50_ms",
        "whatif_p99_ms",
        "explain_p99_ms",
        "changes_p99_ms",
    ):
        assert figures[name] > 0


def test_missed_target_is_the_status_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ask, "TARGETS_MS", {"eta": 0.0})
    assert main(["ask", "--pending", "150", "--questions", "1"]) == 1
    assert json.loads(capsys.readouterr().out)["benchmark"] == "ask"


def test_forecasts_of_a_trace_are_compared_with_its_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "TRACES", {"borrowing": TRACES["borrowing"]})
    assert main(["calibration", "--questions", "3", "--answer-seconds", "0.2"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    figures = result["borrowing"]
    assert 0 <= figures["with_interval"] <= figures["asked"] <= 3
    assert 0 <= figures["too_early"] <= 1


def test_traces_are_three() -> None:
    assert list(TRACES) == ["month", "borrowing", "fair-sharing"]
    assert CalibrationLoad().questions == 200
