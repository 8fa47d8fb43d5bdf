"""Compare forecasts of starts with the starts of three simulated traces.

While a trace runs in the simulator, forecasts are made for pending workloads, with the history of run times
that is known by then. Workloads that are submitted later take part in the trace, and not in the forecast. The
figures of a trace are:

- ``asked``: the number of forecasts, and ``with_interval``: those with a p90;
- ``inside``: the share of starts inside the interval from "not before" to p90, of those with an interval;
- ``below_p50``: the share of starts up to p50, of those with a p50; one half is best;
- ``too_early``: the share of starts before "not before", of all;
- ``median_error``: the median of the distance of start and p50, divided by the time from question to start.
"""

import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from admitq.asking.branches import branch_of
from admitq.asking.patience import percent_used
from admitq.core.asking.course import ForecastBounds
from admitq.core.asking.forecast import Forecast, forecast
from admitq.core.asking.run_times import Run, RunTimeHistory
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq.simulator.clock import START
from admitq.simulator.plan import SimulationPlan, read
from admitq.simulator.run import Simulation
from admitq.simulator.shipped import shipped_scenarios
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.timeline import TimelineEvent
from benchmarks.core_simulations import write_trace
from localcluster.cluster import to_stderr

_HORIZON: Final = 60 * 86_400 * SECOND
_DEADLINE_S: Final = 60.0
_SHORTEST_HISTORY: Final = 20
"""The number of finished workloads before the first question."""


@dataclass(frozen=True, slots=True)
class CalibrationLoad:
    """The number of jobs of the generated trace, questions for each trace, and seconds for each answer."""

    jobs: int = 3000
    questions: int = 200
    answer_s: float = 2.0


@dataclass(slots=True, eq=False)
class _Recorder:
    """A timeline that records runs and starts of workloads."""

    runs: list[Run] = field(default_factory=list[Run])
    starts: dict[ObjectKey, list[Instant]] = field(
        default_factory=lambda: defaultdict[ObjectKey, list[Instant]](list)
    )
    groups: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])

    def write(self, now: int, event: TimelineEvent, simulated: SimulatedWorkload, detail: str) -> None:  # noqa: ARG002 of the protocol
        """Record an event of the run."""
        key = simulated.workload.key
        self.groups[key] = _group_of(simulated)
        if event is TimelineEvent.ADMITTED:
            self.starts[key].append(START + now)
        elif event is TimelineEvent.FINISHED and simulated.workload.admission is not None:
            duration = START + now - self.starts[key][-1]
            self.runs.append(Run(self.groups[key], simulated.workload.admission.cluster_queue, duration))

    def close(self) -> None:
        """Do nothing."""

    def history(self, simulation: Simulation) -> RunTimeHistory:
        """Return the runs so far. Those that have not ended are censored: else short runs would prevail."""
        now = simulation.clock.instant
        running = (
            Run(
                self.groups[key], simulated.workload.admission.cluster_queue, now - self.starts[key][-1], True
            )
            for key, simulated in simulation.workloads.unfinished.items()
            if simulated.workload.admission is not None and simulated.runs
        )
        return RunTimeHistory([*self.runs, *running])


def _group_of(simulated: SimulatedWorkload) -> str:
    """Return the class of a workload and its namespace: users name jobs of one class alike."""
    return f"{simulated.workload.key.namespace}/{simulated.source.name}/{simulated.workload.queue_name}"


@dataclass(slots=True, eq=False)
class _Calibration:
    """Asks for starts while a simulation runs."""

    load: CalibrationLoad
    every: int
    recorder: _Recorder = field(default_factory=_Recorder)
    answers: list[tuple[ObjectKey, Instant, Forecast]] = field(
        default_factory=list[tuple[ObjectKey, Instant, Forecast]]
    )
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 the same questions

    def ask(self, simulation: Simulation) -> None:
        """Ask when a pending workload starts, if enough workloads have finished."""
        if len(self.recorder.runs) < _SHORTEST_HISTORY or len(self.answers) >= self.load.questions:
            return
        pending = [
            key
            for key, simulated in simulation.workloads.unfinished.items()
            if simulated.workload.admission is None
        ]
        if not pending:
            return
        key, now = self.chance.choice(pending), simulation.clock.instant
        history, groups = self.recorder.history(simulation), self.recorder.groups
        answer = forecast(
            [key],
            now=now,
            branch=branch_of(simulation.state, deadline_s=_DEADLINE_S),
            estimate_of=lambda each: history.estimate(groups.get(each.key, ""), each.queue_name),
            bounds=ForecastBounds(percent_used(self.load.answer_s), _HORIZON),
        )[key]
        self.answers.append((key, now, answer))

    def figures(self) -> dict[str, Any]:
        """Return how the forecasts compare with the starts."""
        outcomes: list[tuple[Instant, Instant, Forecast]] = []
        for key, now, answer in self.answers:
            start = next((at for at in self.recorder.starts[key] if at >= now), None)
            if start is not None:
                outcomes.append((now, start, answer))
        timed = [(start, answer) for _, start, answer in outcomes if answer.p90 is not None]
        medians = [(now, start, answer.p50) for now, start, answer in outcomes if answer.p50 is not None]
        return {
            "asked": len(outcomes),
            "with_interval": len(timed),
            "inside": _share(answer.not_before <= start <= (answer.p90 or 0) for start, answer in timed),
            "below_p50": _share(start <= p50 for _, start, p50 in medians),
            "too_early": _share(start < answer.not_before for _, start, answer in outcomes),
            "median_error": round(
                median(abs(start - p50) / max(SECOND, start - now) for now, start, p50 in medians), 3
            )
            if medians
            else None,
        }


def _share(values: Iterator[bool]) -> float | None:
    counted = list(values)
    return round(sum(counted) / len(counted), 3) if counted else None


def _shipped(name: str) -> Callable[[CalibrationLoad, Path], SimulationPlan]:
    return lambda _load, _folder: read([shipped_scenarios()[name]])


TRACES: Final[Mapping[str, Callable[[CalibrationLoad, Path], SimulationPlan]]] = {
    "month": lambda load, folder: read([write_trace(folder, load.jobs)]),
    "borrowing": _shipped("borrowing"),
    "fair-sharing": _shipped("fair-sharing"),
}
"""The traces: one of a month that ``core_simulations`` generates, and two that are shipped."""


def run(load: CalibrationLoad) -> tuple[dict[str, Any], bool]:
    """Run all traces, and return their figures."""
    result: dict[str, Any] = {"benchmark": "calibration"}
    for name, plan_of in TRACES.items():
        with tempfile.TemporaryDirectory() as folder:
            plan = plan_of(load, Path(folder))
            expected = plan.expected or load.jobs
            calibration = _Calibration(load, max(1, expected // load.questions))
            Simulation(plan, calibration.recorder).run(calibration.ask, every=calibration.every)
        result[name] = calibration.figures()
        to_stderr(f"{name}: {result[name]}")
    return result, True
