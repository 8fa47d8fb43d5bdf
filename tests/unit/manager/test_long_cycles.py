"""A long cycle yields to the event loop. Events that arrive during the cycle are observed after it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import cycle
from admitq.core.events import Event
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager import event_loop_blocking
from admitq.manager.deferred_work import DeferredWork
from admitq.manager.event_loop_blocking import LONGEST_BLOCKING_METRIC, WINDOW_SECONDS, BlockingTimer
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import LOG_ONLY
from tests.unit.controllers.builders import KINDS
from tests.unit.manager.failing_core import BAD, Defect, RunningManager, fail, running_manager, wait_until

QUEUES = ("-1", "-2", "-3")


@pytest.fixture(autouse=True)
def yield_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each step of a cycle exceed the limit of blocking."""
    monkeypatch.setattr(event_loop_blocking, "MAX_BLOCKING_SECONDS", 0.0)


def submit_contending_heads(cluster: RunningManager) -> None:
    """Submit a head for each of three ClusterQueues of one cohort. The last head cannot be admitted."""
    for name in QUEUES:
        cluster.put_queues(name=name, cohort="team")
    for name in QUEUES[:2]:
        cluster.submit(f"good{name}", pods=1, queue=name)
    cluster.submit("large", pods=50, queue="-3")


async def wait_until_in_cycle(cluster: RunningManager) -> None:
    """Wait until a cycle is between two steps."""
    while not cluster.state.is_in_cycle:
        await asyncio.sleep(0)


async def wait_until_idle(cluster: RunningManager) -> None:
    """Wait until no further cycle runs."""
    unchanged, cycles = 0, -1
    while unchanged < 100:
        await asyncio.sleep(0)
        unchanged = unchanged + 1 if cluster.state.queries.cycles_run == cycles else 0
        cycles = cluster.state.queries.cycles_run


def record_observed_events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Event, bool]]:
    """Return a list of all events that a core observes from now on, and whether a cycle was running."""
    events: list[tuple[Event, bool]] = []
    observe = AdmissionState.observe

    def record_and_observe(self: AdmissionState, event: Event, *, now: int) -> None:
        events.append((event, self.is_in_cycle))
        observe(self, event, now=now)

    monkeypatch.setattr(AdmissionState, "observe", record_and_observe)
    return events


async def test_changes_during_cycle_are_observed_after_it_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_manager() as cluster:
        submit_contending_heads(cluster)
        await wait_until_in_cycle(cluster)
        events = record_observed_events(monkeypatch)
        for number in range(3):
            cluster.submit(f"late-{number}", pods=1, queue="-1")
        cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, "late-1"))
        assert events == []
        await cluster.manager.wait_for_cycle_end()
        assert [(type(event).__name__, ("late-1" in repr(event))) for event, _ in events[:4]] == [
            ("WorkloadChanged", False),
            ("WorkloadChanged", True),
            ("WorkloadChanged", False),
            ("WorkloadDeleted", True),
        ]
        assert not any(was_in_cycle for _, was_in_cycle in events)
        await wait_until(lambda: cluster.is_reserved("late-0") and cluster.is_reserved("late-2"))
        assert cluster.count("admitq_core_failures_total") == 0
        await wait_until_idle(cluster)


async def test_wait_for_cycle_end_returns_only_between_cycles() -> None:
    async with running_manager() as cluster:
        submit_contending_heads(cluster)
        cycles_seen = 0
        for number in range(40):
            cluster.submit(f"more-{number}", pods=1 + number, queue=QUEUES[number % 3])
            await asyncio.sleep(0)
            cycles_seen += cluster.state.is_in_cycle
            await cluster.manager.wait_for_cycle_end()
            assert not cluster.state.is_in_cycle
            cluster.state.to_dict()
        assert cycles_seen
        await wait_until_idle(cluster)


async def test_work_between_cycles_runs_at_once_and_during_cycle_is_deferred() -> None:
    async with running_manager() as cluster:
        calls: list[str] = []
        cluster.manager.run_between_cycles(lambda: calls.append("between cycles"))
        assert calls == ["between cycles"]
        submit_contending_heads(cluster)
        await wait_until_in_cycle(cluster)
        cluster.manager.run_between_cycles(lambda: calls.append("after the cycle"))
        assert calls == ["between cycles"]
        await cluster.manager.wait_for_cycle_end()
        assert calls == ["between cycles", "after the cycle"]
        await wait_until_idle(cluster)


async def test_manager_cancelled_during_cycle_writes_no_reservation() -> None:
    cluster = RunningManager()
    task = asyncio.create_task(cluster.manager.run())
    submit_contending_heads(cluster)
    await wait_until_in_cycle(cluster)
    while not cluster.state.queries.usage_of_workload(ObjectKey("ns", "good-1")):
        await asyncio.sleep(0)
    assert cluster.state.is_in_cycle
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for name in QUEUES[:2]:
        assert not cluster.is_reserved(f"good{name}")


def _is_bad(*arguments: Any) -> bool:
    workloads = (getattr(argument, "workload", None) for argument in arguments)
    return any(workload is not None and workload.key.name == BAD for workload in workloads)


@pytest.mark.parametrize("phase", ["nominate", "refusal_of", "requeue", "note_needs"])
async def test_workload_that_long_cycle_fails_on_is_quarantined(
    monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    fail(monkeypatch, cycle, phase, _is_bad, after=True)
    async with running_manager() as cluster:
        submit_contending_heads(cluster)
        cluster.submit(BAD, pods=50, queue="-2")
        await wait_until_in_cycle(cluster)
        cluster.submit("late", pods=1, queue="-1")
        await wait_until(lambda: cluster.is_reserved("late"))
        await wait_until(lambda: all(cluster.is_reserved(f"good{name}") for name in QUEUES[:2]))
        assert cluster.count("admitq_core_failures_total") == 1
        assert cluster.count("admitq_malformed_objects") == 1
        await wait_until_idle(cluster)


# --- blocking of the event loop -----------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_longest_blocking_metric_keeps_value_for_one_to_two_windows() -> None:
    clock, metrics = Clock(), Metrics()
    timer = BlockingTimer(metrics, clock)

    def exposed_value() -> float:
        lines = metrics.exposition().decode().splitlines()
        return next(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(f"admitq_{LONGEST_BLOCKING_METRIC}{{")
        )

    timer.start()
    clock.now += 0.5
    timer.stop()
    with timer.measure():
        clock.now += 0.2
    assert exposed_value() == pytest.approx(0.5)
    clock.now += WINDOW_SECONDS
    with timer.measure():
        clock.now += 0.3
    assert exposed_value() == pytest.approx(0.5)
    clock.now += WINDOW_SECONDS
    assert exposed_value() == pytest.approx(0.3)
    clock.now += 2 * WINDOW_SECONDS
    assert exposed_value() == 0.0


def test_blocking_timer_should_yield_after_max_blocking_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_blocking, "MAX_BLOCKING_SECONDS", 0.02)
    clock = Clock()
    timer = BlockingTimer(Metrics(), clock)
    clock.now += 0.01
    assert not timer.should_yield
    clock.now += 0.015
    assert timer.should_yield


async def test_deferred_calls_yield_to_event_loop_and_survive_failing_call() -> None:
    clock = Clock()
    deferred = DeferredWork(BlockingTimer(Metrics(), clock), LOG_ONLY)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    calls: list[int] = []

    def work(number: int) -> Callable[[], None]:
        def call() -> None:
            if number == 3:
                raise Defect("three")
            calls.append(number)

        return call

    task = asyncio.create_task(count_turns())
    with deferred.defer_all():
        for number in range(10):
            deferred.run_between_cycles(work(number))
    await deferred.run_deferred()
    task.cancel()
    assert calls == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert turns >= 10
