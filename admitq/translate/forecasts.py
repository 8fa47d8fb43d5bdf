"""Forecasts of starts as text and as JSON values. They name no workloads but the asked one."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from admitq.core.asking.course import Bound
from admitq.core.asking.forecast import Delay, Forecast
from admitq.core.asking.run_times import RunTimeSource
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq_api.conditions import format_time
from admitq_api.durations import format_rounded_duration

_SOURCES: Final[Mapping[RunTimeSource, str]] = {
    RunTimeSource.OWN_ESTIMATE: "reported by the job itself",
    RunTimeSource.GROUP: "from finished workloads of the same group",
    RunTimeSource.QUEUE: "from finished workloads of the same ClusterQueue",
    RunTimeSource.ALL: "from finished workloads of all ClusterQueues",
    RunTimeSource.LIMIT: "from a limit on the run time",
    RunTimeSource.UNKNOWN: "unknown",
}

_BOUNDS: Final[Mapping[Bound, str]] = {
    Bound.REAL_TIME: "The time for the answer was over before all simulations reached the start.",
    Bound.HORIZON: "{some} simulations end after {horizon}, before the workload starts.",
    Bound.DECISIONS: "{some} simulations end after very many decisions, before the workload starts.",
    Bound.NOTHING_ENDS: (
        "In {some} simulations, the workload never starts, as no other workload is expected to end."
    ),
}


class TreePhase(StrEnum):
    """What becomes of a forecast of all pending workloads of a cohort tree."""

    WAITING = "Waiting"
    """It waits for forecasts of other trees."""
    RUNNING = "Running"
    """Its simulations run."""
    COMPLETE = "Complete"
    """All its simulations have ended, or its time is over."""
    FAILED = "Failed"
    """It ended with an error. Simulations that had ended before count."""


class TreeProgress(NamedTuple):
    """The phase of a forecast of a cohort tree, and how many of its simulations have ended."""

    phase: TreePhase
    simulations: int


ASK_AGAIN_SECONDS: Final = 1
"""After how many seconds to repeat a question while a forecast of the cohort tree waits or runs."""

_ASK_AGAIN: Final = f"ask again in {ASK_AGAIN_SECONDS}s"
_PHASES: Final[Mapping[TreePhase, str]] = {
    TreePhase.WAITING: f"A forecast of the whole cohort tree begins soon: {_ASK_AGAIN}",
    TreePhase.RUNNING: f"A forecast of the whole cohort tree runs: {_ASK_AGAIN}",
    TreePhase.FAILED: "The forecast of the whole cohort tree failed",
}

LATER_SUBMISSIONS: Final = "Workloads that are submitted later may delay the start."


def duration_text(duration: Instant) -> str:
    """Return a duration in nanoseconds as text: ``15s``, ``2m5s``, ``3h``."""
    return format_rounded_duration(duration // SECOND)


def start_text(forecast: Forecast, now: Instant) -> str:
    """Return when a workload starts, to be read after "Starts:".

    Args:
        forecast: the forecast.
        now: the instant of the forecast.
    """
    if _has_started(forecast, now):
        # Reservations have whole seconds.
        since = forecast.not_before
        return "now" if since // SECOND == now // SECOND else f"it holds quota since {format_time(since)}"
    known = (("about", "p50", forecast.p50), ("by", "p90", forecast.p90))
    parts = [
        f"{word} {format_time(instant)} ({name}, in {duration_text(instant - now)})"
        for word, name, instant in known
        if instant is not None
    ]
    return ", ".join([*parts, f"not before {format_time(forecast.not_before)}"])


def forecast_lines(
    workload: ObjectKey,
    forecast: Forecast,
    *,
    now: Instant,
    horizon: Instant,
    as_of: Instant | None = None,
    tree: TreeProgress | None = None,
) -> list[str]:
    """Return a forecast as lines of text.

    Args:
        workload: the workload.
        forecast: the forecast of its start.
        now: the instant of the answer.
        horizon: how far the forecast looks ahead; nanoseconds.
        as_of: the instant of the forecast; None: now.
        tree: the progress of a forecast of the cohort tree, if there is one.
    """
    lines = [f"Workload {workload}", f"Starts: {start_text(forecast, now)}"]
    if _has_started(forecast, now):
        return lines
    lines += _basis_lines(forecast, horizon)
    if as_of is not None:
        lines.append(f"Simulated from {format_time(as_of)}, {duration_text(now - as_of)} ago")
    if tree is not None and tree.phase in _PHASES:
        lines.append(_PHASES[tree.phase])
    return [*lines, LATER_SUBMISSIONS]


def _has_started(forecast: Forecast, now: Instant) -> bool:
    return forecast.p90 is not None and forecast.p90 <= now


def _basis_lines(forecast: Forecast, horizon: Instant) -> Iterator[str]:
    basis = forecast.basis
    if basis.sources:
        parts = (
            f"{basis.sources[source]} {words}"
            for source, words in _SOURCES.items()
            if source in basis.sources
        )
        yield f"Run times: {', '.join(parts)}"
    known = "1 known run time" if basis.samples == 1 else f"{basis.samples} known run times"
    simulations = "1 simulation" if basis.courses == 1 else f"{basis.courses} simulations"
    yield f"Based on {simulations} and {known}"
    some = "some" if forecast.p50 is not None else "most"
    for bound, words in _BOUNDS.items():
        if bound in basis.bounds:
            text = words.format(some=some, horizon=duration_text(horizon))
            yield text[0].upper() + text[1:]


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Return a forecast as JSON values. Times that are not known are null."""
    basis = forecast.basis
    return {
        "notBefore": format_time(forecast.not_before),
        "p50": _time_json(forecast.p50),
        "p90": _time_json(forecast.p90),
        "basis": {
            "simulations": basis.courses,
            "knownRunTimes": basis.samples,
            "runTimes": {
                str(source): basis.sources[source] for source in _SOURCES if source in basis.sources
            },
        },
        "bounds": sorted(str(bound) for bound in basis.bounds),
    }


def progress_json(tree: TreeProgress | None) -> dict[str, Any] | None:
    """Return the progress of a forecast of a cohort tree as JSON values; null without one."""
    if tree is None:
        return None
    is_coming = tree.phase in {TreePhase.WAITING, TreePhase.RUNNING}
    return {
        "phase": str(tree.phase),
        "simulations": tree.simulations,
        "askAgainSeconds": ASK_AGAIN_SECONDS if is_coming else None,
    }


def _time_json(instant: Instant | None) -> str | None:
    return None if instant is None else format_time(instant)


def delay_text(delay: Delay, now: Instant) -> str:
    """Return how hypothetical events change the start of a workload, to be read after its name."""
    before, after = delay
    if after is None:
        return "does not exist any more"
    start = start_text(after, now)
    if before is None or delay.by == 0:
        return start
    if delay.by is None:
        return f"{start}; without the change {start_text(before, now)}"
    return f"{duration_text(abs(delay.by))} {'later' if delay.by > 0 else 'earlier'}, {start}"


def delay_json(delay: Delay) -> dict[str, Any]:
    """Return the starts of a workload without and with hypothetical events, and the difference in seconds."""
    before, after = delay
    return {
        "before": None if before is None else forecast_json(before),
        "after": None if after is None else forecast_json(after),
        "seconds": None if delay.by is None else delay.by // SECOND,
    }
