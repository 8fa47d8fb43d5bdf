"""Repeated questions: when they end, and what is shown meanwhile."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from admitq.plugin.answer_waits import ask_until_median, parse_wait
from admitq.plugin.remedies import CommandError
from admitq.runtime.errors import ApiError


def unknown(simulations: int, seconds: int | None = 1) -> dict[str, Any]:
    tree = {"phase": "Running", "simulations": simulations, "askAgainSeconds": seconds}
    return {"p50": None, "treeForecast": tree}


KNOWN = {"p50": "2030-01-01T00:00:00Z", "treeForecast": {"askAgainSeconds": 1}}
BUSY = ApiError(429, "TooManyRequests", "busy")


class Questions:
    """Answers questions in turn. Pauses take no time, and count."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self.seconds = 0.0

    async def ask(self) -> Any:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def pause(self, seconds: float) -> None:
        self.seconds += seconds

    async def until_median(self, wait_s: float) -> Any:
        return await ask_until_median(self.ask, wait_s, clock=lambda: self.seconds, pause=self.pause)


@pytest.mark.parametrize(
    ("answers", "wait_s", "expected", "seconds"),
    [
        ([KNOWN], 10, KNOWN, 0),
        ([unknown(0), unknown(1), KNOWN], 10, KNOWN, 2),
        ([unknown(0)], 0, unknown(0), 0),
        ([unknown(0), unknown(1), unknown(2)], 2.5, unknown(2), 2),
        ([unknown(0), unknown(3, None)], 10, unknown(3, None), 1),
        ([{"p50": None, "treeForecast": None}], 10, {"p50": None, "treeForecast": None}, 0),
        ([{"p50": None}], 10, {"p50": None}, 0),
        ([unknown(0, 0), KNOWN], 10, KNOWN, 1),
        ([unknown(0, 3), KNOWN], 10, KNOWN, 3),
        ([unknown(0), BUSY, KNOWN], 10, KNOWN, 2),
        ([unknown(0), BUSY], 1, unknown(0), 1),
        ([unknown(0), None], 1, unknown(0), 1),
        ([None], 10, None, 0),
    ],
)
async def test_question_is_repeated_until_the_median_is_known_or_the_time_is_over(
    answers: list[Any], wait_s: float, expected: Any, seconds: float
) -> None:
    questions = Questions(*answers)
    assert (await questions.until_median(wait_s), questions.seconds) == (expected, seconds)


async def test_failure_of_a_repeated_question_is_an_error() -> None:
    with pytest.raises(ApiError, match="gone"):
        await Questions(unknown(0), ApiError(404, "NotFound", "gone")).until_median(10)


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_progress_is_shown_on_a_terminal_and_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    await Questions(unknown(0), unknown(4), KNOWN).until_median(10)
    shown = "".join(f"\r\033[KSimulations of the cohort tree that have ended: {count}" for count in (0, 4))
    assert capsys.readouterr().err == (shown + "\r\033[K" if is_terminal else "")


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("10s", 10), ("1m30s", 90)])
def test_wait_is_a_duration(text: str, seconds: float) -> None:
    assert parse_wait(text) == seconds


@pytest.mark.parametrize(
    ("text", "error"), [("10", "'10' is not a duration"), ("-1s", "must not be negative")]
)
def test_wait_that_is_no_duration_is_an_error(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"--wait: {error}"):
        parse_wait(text)
