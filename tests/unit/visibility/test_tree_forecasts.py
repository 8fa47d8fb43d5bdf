"""Forecasts of whole cohort trees: which questions they answer, how long, and what ends them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from admitq.asking.branches import branch_of
from admitq.core.asking.course import Bound, EstimateOf, ForecastBounds
from admitq.core.asking.forecast import Basis, Forecast, forecast
from admitq.core.events import ClusterQueueChanged, Event, WorkloadDeleted
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.state import AdmissionState
from admitq.translate.forecasts import TreePhase, TreeProgress
from admitq.visibility.kept_forecasts import KeptStart
from admitq.visibility.tree_forecasts import TreeForecastLimits, TreeForecasts
from tests.unit.asking.test_answers import FULL, HOUR, NOW, job, observing_state, running
from tests.unit.core.small_cluster import queue

ENOUGH_S = 60.0
"""A time that only a defect exceeds."""

FIRST, SECOND_ONE, ELSEWHERE = (ObjectKey("ours", name) for name in ("first", "second-one", "elsewhere"))
START = NOW + 3000 * SECOND
"""When the workloads of FULL end: they run for an hour, and began 600 seconds ago."""

CUT = Forecast(NOW + SECOND, None, None, Basis(0, 5, {}, frozenset({Bound.REAL_TIME})))
"""The answer to a question that its time ended before it had a median."""


def estimates(_state: AdmissionState, _now: Instant) -> EstimateOf:
    return lambda _: HOUR


@dataclass
class Clock:
    """A monotonic clock, and a clock of the day, that tests set."""

    seconds: float = 0.0
    now: Instant = NOW


@dataclass
class Scene:
    """Forecasts of a cluster in which workloads wait in two cohort trees."""

    state: AdmissionState = field(
        default_factory=lambda: observing_state(
            *FULL,
            running("ours/runs", "other", cpu=2),
            job("ours/first"),
            job("ours/second-one"),
            job("ours/elsewhere", "other"),
        )
    )
    limits: TreeForecastLimits = field(
        default_factory=lambda: TreeForecastLimits(seconds=ENOUGH_S, grace_seconds=ENOUGH_S)
    )
    clock: Clock = field(default_factory=Clock)
    estimates: Callable[[AdmissionState, Instant], EstimateOf] = estimates

    def __post_init__(self) -> None:
        self.trees = TreeForecasts(
            self.state,
            self._estimates,
            limits=self.limits,
            clock=lambda: self.clock.now,
            monotonic=lambda: self.clock.seconds,
        )

    def _estimates(self, state: AdmissionState, now: Instant) -> EstimateOf:
        return self.estimates(state, now)  # Tests may change it later.

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self.trees.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def begin(self, key: ObjectKey = FIRST, answer: Forecast = CUT) -> TreePhase | None:
        progress = self.trees.begin(key, answer, self.clock.now)
        return None if progress is None else progress.phase

    async def until(self, key: ObjectKey, phase: TreePhase) -> KeptStart:
        """Return what is known of a start when its tree has reached a phase."""
        async with asyncio.timeout(ENOUGH_S):
            while (found := self.trees.find(key)) is None or found.tree.phase is not phase:
                await asyncio.sleep(0.001)
        return found

    def observe(self, *events: Event) -> None:
        for event in events:
            self.state.observe(event, now=self.clock.now)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_forecast_of_the_tree_answers_questions_about_all_its_workloads(scene: Scene) -> None:
    async with scene.running():
        assert scene.begin(FIRST) is TreePhase.WAITING
        found = await scene.until(SECOND_ONE, TreePhase.COMPLETE)
        assert scene.trees.find(ELSEWHERE) is None
    assert (found.as_of, found.tree.simulations) == (NOW, 22)
    alone = forecast(
        [SECOND_ONE],
        now=NOW,
        branch=branch_of(scene.state, deadline_s=ENOUGH_S),
        estimate_of=lambda _: HOUR,
        bounds=ForecastBounds(lambda: 0, 30 * 86_400 * SECOND),
    )[SECOND_ONE]
    assert (found.forecast.p50, found.forecast.p90) == (alone.p50, alone.p90) == (START, START)


async def test_first_answer_is_kept_until_there_are_results(scene: Scene) -> None:
    scene.begin(FIRST)
    found = scene.trees.find(FIRST)
    assert found == KeptStart(CUT, NOW, TreeProgress(TreePhase.WAITING, 0))
    assert scene.trees.find(SECOND_ONE) is None
    assert scene.begin(SECOND_ONE) is TreePhase.WAITING
    assert scene.trees.find(SECOND_ONE) is not None


@pytest.mark.parametrize(
    "answer",
    [
        replace(CUT, basis=CUT.basis._replace(bounds=frozenset({Bound.HORIZON}))),
        replace(CUT, p50=START, p90=START),
    ],
)
def test_answer_that_time_did_not_cut_short_begins_no_forecast(scene: Scene, answer: Forecast) -> None:
    assert scene.begin(FIRST, answer) is None
    assert scene.trees.find(FIRST) is None


def test_workload_without_a_tree_begins_no_forecast(scene: Scene) -> None:
    scene.observe(job("ours/lost", "no such queue"))
    assert scene.begin(ObjectKey("ours", "lost")) is None
    assert scene.begin(ObjectKey("ours", "none")) is None


def test_no_forecast_begins_while_many_trees_wait() -> None:
    scene = Scene(limits=TreeForecastLimits(waiting=1))
    assert scene.begin(FIRST) is TreePhase.WAITING
    assert scene.begin(ELSEWHERE) is None


async def test_trees_are_forecasted_one_after_the_other(scene: Scene) -> None:
    scene.begin(FIRST)
    scene.begin(ELSEWHERE)
    async with scene.running():
        await scene.until(ELSEWHERE, TreePhase.RUNNING)
        found = scene.trees.find(FIRST)
        assert found is not None
        assert found.tree.phase is TreePhase.COMPLETE


def _started(scene: Scene) -> None:
    scene.observe(running("ours/first"))


def _deleted(scene: Scene) -> None:
    scene.observe(WorkloadDeleted(FIRST, "uid-ours/first"))


def _changed(scene: Scene) -> None:
    scene.observe(job("ours/first", priority=5))


def _moved(scene: Scene) -> None:
    scene.observe(job("ours/first", "other"))


def _more_quota(scene: Scene) -> None:
    scene.observe(ClusterQueueChanged(queue("b", 3, "all")))


def _due(scene: Scene) -> None:
    scene.clock.now = START


def _old(scene: Scene) -> None:
    scene.clock.seconds = 60.0


def _forgotten(scene: Scene) -> None:
    scene.trees.forget()


@pytest.mark.parametrize(
    "change", [_started, _deleted, _changed, _moved, _more_quota, _due, _old, _forgotten]
)
async def test_kept_forecast_does_not_answer_after_a_change(
    scene: Scene, change: Callable[[Scene], None]
) -> None:
    async with scene.running():
        scene.begin(SECOND_ONE)
        await scene.until(FIRST, TreePhase.COMPLETE)
        change(scene)
        assert scene.trees.find(FIRST) is None


async def test_kept_forecast_is_not_before_now(scene: Scene) -> None:
    """The early course expects no earlier start than at the instant of the forecast, which has passed."""
    async with scene.running():
        scene.begin(FIRST, replace(CUT, not_before=NOW))
        scene.clock.now = NOW + 7 * SECOND
        found = scene.trees.find(FIRST)
    assert found is not None
    assert (found.as_of, found.forecast.not_before) == (NOW, scene.clock.now)


async def test_new_workload_begins_another_forecast_and_the_results_stay(scene: Scene) -> None:
    async with scene.running():
        scene.begin(FIRST)
        await scene.until(FIRST, TreePhase.COMPLETE)
        scene.clock.now += SECOND
        scene.observe(job("ours/new", queued_at=NOW))
        new = ObjectKey("ours", "new")
        assert scene.trees.find(new) is None
        assert scene.begin(new) is TreePhase.WAITING
        found = scene.trees.find(FIRST)
        assert found is not None
        assert (found.as_of, found.forecast.p50) == (NOW, START)
        assert (await scene.until(new, TreePhase.COMPLETE)).as_of == scene.clock.now


async def test_workload_that_a_running_forecast_misses_gets_the_next_one(scene: Scene) -> None:
    async with scene.running():
        scene.begin(FIRST)
        await scene.until(FIRST, TreePhase.RUNNING)
        scene.clock.now += SECOND
        scene.observe(job("ours/new", queued_at=NOW))
        new = ObjectKey("ours", "new")
        assert scene.begin(new) is TreePhase.WAITING
        found = await scene.until(new, TreePhase.COMPLETE)
        assert found.as_of == scene.clock.now
        assert found.forecast.p50 is not None


def fail(_state: AdmissionState, _now: Instant) -> EstimateOf:
    raise ValueError("no estimates")


async def test_failed_forecast_is_not_repeated_at_once_and_others_follow(scene: Scene) -> None:
    scene.estimates = fail
    async with scene.running():
        scene.begin(FIRST)
        assert (await scene.until(FIRST, TreePhase.FAILED)).forecast == CUT
        assert scene.begin(SECOND_ONE) is TreePhase.FAILED
        scene.estimates = estimates
        scene.begin(ELSEWHERE)
        await scene.until(ELSEWHERE, TreePhase.COMPLETE)
        scene.clock.seconds = 60.0
        assert scene.begin(FIRST) is TreePhase.WAITING
        await scene.until(FIRST, TreePhase.COMPLETE)


def never_end(_state: AdmissionState, _now: Instant) -> EstimateOf:
    def estimate_of(_workload: Workload) -> object:
        while True:
            pass

    return estimate_of  # pyright: ignore[reportReturnType]


async def test_forecast_that_does_not_end_is_stopped() -> None:
    scene = Scene(limits=TreeForecastLimits(seconds=0.1, grace_seconds=0.1), estimates=never_end)
    async with scene.running():
        scene.begin(FIRST)
        found = await scene.until(FIRST, TreePhase.COMPLETE)
    assert (found.forecast, found.tree.simulations) == (CUT, 0)


async def test_forgotten_forecast_that_runs_is_stopped(scene: Scene) -> None:
    scene.estimates = never_end
    async with scene.running():
        scene.begin(FIRST)
        await scene.until(FIRST, TreePhase.RUNNING)
        scene.trees.forget()
        scene.estimates = estimates
        scene.begin(FIRST)
        await scene.until(FIRST, TreePhase.COMPLETE)
