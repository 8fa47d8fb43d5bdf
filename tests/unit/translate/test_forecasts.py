"""Forecasts as text and as JSON values."""

from typing import Any

import pytest

from admitq.core.asking.course import Bound
from admitq.core.asking.forecast import Basis, Delay, Forecast
from admitq.core.asking.run_times import RunTimeSource
from admitq.core.model import SECOND, ObjectKey
from admitq.translate.forecasts import (
    TreePhase,
    TreeProgress,
    delay_json,
    delay_text,
    forecast_json,
    forecast_lines,
    progress_json,
    start_text,
)

W = ObjectKey("ours", "w")
NOW = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND


def forecast(
    not_before: int, p50: int | None = None, p90: int | None = None, *bounds: Bound, **basis: Any
) -> Forecast:
    """Return a forecast; all instants are minutes from now."""

    def instant(minutes: int | None) -> int | None:
        return None if minutes is None else NOW + minutes * MINUTE

    stated: dict[str, Any] = {"courses": 20, "samples": 5, "sources": {RunTimeSource.GROUP: 2}, **basis}
    return Forecast(
        NOW + not_before * MINUTE, instant(p50), instant(p90), Basis(**stated, bounds=frozenset(bounds))
    )


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (
            forecast(1, 5, 20),
            (
                "about 2023-11-14T22:18:20Z (p50, in 5m), by 2023-11-14T22:33:20Z (p90, in 20m), "
                "not before 2023-11-14T22:14:20Z"
            ),
        ),
        (
            forecast(0, 5),
            "about 2023-11-14T22:18:20Z (p50, in 5m), not before 2023-11-14T22:13:20Z",
        ),
        (forecast(3), "not before 2023-11-14T22:16:20Z"),
        (forecast(0, 0, 0), "now"),
        (forecast(-10, -10, -10), "it holds quota since 2023-11-14T22:03:20Z"),
    ],
)
def test_start_is_as_exact_as_it_is_known(known: Forecast, text: str) -> None:
    assert start_text(known, NOW) == text


@pytest.mark.parametrize(
    ("known", "lines"),
    [
        (
            forecast(
                1,
                5,
                20,
                Bound.HORIZON,
                sources={RunTimeSource.UNKNOWN: 1, RunTimeSource.OWN_ESTIMATE: 2, RunTimeSource.LIMIT: 3},
            ),
            [
                "Run times: 2 reported by the job itself, 3 from a limit on the run time, 1 unknown",
                "Based on 20 simulations and 5 known run times",
                "Some simulations end after 30d, before the workload starts.",
            ],
        ),
        (
            forecast(1, None, None, Bound.REAL_TIME, courses=1, samples=1),
            [
                "Run times: 2 from finished workloads of the same group",
                "Based on 1 simulation and 1 known run time",
                "The time for the answer was over before all simulations reached the start.",
            ],
        ),
        (
            forecast(1, None, None, Bound.DECISIONS, Bound.NOTHING_ENDS, sources={}),
            [
                "Based on 20 simulations and 5 known run times",
                "Most simulations end after very many decisions, before the workload starts.",
                "In most simulations, the workload never starts, as no other workload is expected to end.",
            ],
        ),
    ],
)
def test_lines_state_what_a_forecast_rests_on(known: Forecast, lines: list[str]) -> None:
    assert forecast_lines(W, known, now=NOW, horizon=30 * 24 * 60 * MINUTE) == [
        "Workload ours/w",
        f"Starts: {start_text(known, NOW)}",
        *lines,
        "Workloads that are submitted later may delay the start.",
    ]


@pytest.mark.parametrize(
    ("tree", "line", "json"),
    [
        (None, None, None),
        (
            TreeProgress(TreePhase.WAITING, 0),
            "A forecast of the whole cohort tree begins soon: ask again in 1s",
            {"phase": "Waiting", "simulations": 0, "askAgainSeconds": 1},
        ),
        (
            TreeProgress(TreePhase.RUNNING, 3),
            "A forecast of the whole cohort tree runs: ask again in 1s",
            {"phase": "Running", "simulations": 3, "askAgainSeconds": 1},
        ),
        (
            TreeProgress(TreePhase.FAILED, 1),
            "The forecast of the whole cohort tree failed",
            {"phase": "Failed", "simulations": 1, "askAgainSeconds": None},
        ),
        (
            TreeProgress(TreePhase.COMPLETE, 22),
            None,
            {"phase": "Complete", "simulations": 22, "askAgainSeconds": None},
        ),
    ],
)
def test_progress_of_the_tree_is_stated(
    tree: TreeProgress | None, line: str | None, json: dict[str, Any] | None
) -> None:
    lines = forecast_lines(W, forecast(1, 5, 9), now=NOW, horizon=MINUTE, as_of=NOW - MINUTE, tree=tree)
    assert lines[-2 if line is None else -3 :] == [
        "Simulated from 2023-11-14T22:12:20Z, 60s ago",
        *([] if line is None else [line]),
        "Workloads that are submitted later may delay the start.",
    ]
    assert progress_json(tree) == json


def test_json_has_times_basis_and_bounds() -> None:
    known = forecast(1, 5, None, Bound.REAL_TIME, Bound.HORIZON)
    assert forecast_json(known) == {
        "notBefore": "2023-11-14T22:14:20Z",
        "p50": "2023-11-14T22:18:20Z",
        "p90": None,
        "basis": {"simulations": 20, "knownRunTimes": 5, "runTimes": {"Group": 2}},
        "bounds": ["Horizon", "RealTime"],
    }


@pytest.mark.parametrize(
    ("before", "after", "text", "seconds"),
    [
        (forecast(5, 5, 5), None, "does not exist any more", None),
        (None, forecast(0, 0, 0), "now", None),
        (forecast(0, 0, 0), forecast(0, 0, 0), "now", 0),
        (
            forecast(5),
            forecast(0, 0, 0),
            "now; without the change not before 2023-11-14T22:18:20Z",
            None,
        ),
        (
            forecast(5, 5),
            forecast(6, 6),
            "1m later, about 2023-11-14T22:19:20Z (p50, in 6m), not before 2023-11-14T22:19:20Z",
            60,
        ),
        (forecast(5, 5, 5), forecast(0, 0, 0), "5m earlier, now", -300),
    ],
)
def test_delay_compares_starts(
    before: Forecast | None, after: Forecast | None, text: str, seconds: int | None
) -> None:
    delay = Delay(before, after)
    # The test states durations in minutes; texts show less than two minutes in seconds.
    assert delay_text(delay, NOW).replace("60s", "1m").replace("300s", "5m") == text
    assert delay_json(delay) == {
        "before": None if before is None else forecast_json(before),
        "after": None if after is None else forecast_json(after),
        "seconds": seconds,
    }
