"""A long cycle gives the event loop its turns, and what arrives meanwhile is observed after it."""

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
from tests.unit.manager.test_recovery import BAD, Defect, Running, fail, running, soon

QUEUES = ("-1", "-2", "-3")


@pytest.fixture(autouse=True)
def turn_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a cycle counts as long."""
    monkeypatch.setattr(event_loop_blocking, "MAX_BLOCKING_SECONDS", 0.0)


def contend(here: Running) -> None:
    """Have three heads in one cohort, of which one cannot be admitted."""
    for name in QUEUES:
        here.queues(name=name, cohort="team")
    for name in QUEUES[:2]:
        here.submit(f"good{name}", pods=1, queue=name)
    here.submit("large", pods=50, queue="-3")


async def in_cycle(here: Running) -> None:
    """Wait until a cycle is between two steps."""
    while not here.state.is_in_cycle:
        await asyncio.sleep(0)


async def quiet(here: Running) -> None:
    """Wait until nothing is decided any more."""
    unchanged, cycles = 0, -1
    while unchanged < 100:
        await asyncio.sleep(0)
        unchanged = unchanged + 1 if here.state.queries.cycles_run == cycles else 0
        cycles = here.state.queries.cycles_run


def observed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Event, bool]]:
    """All events that a core observes from now on, and whether its cycle had not ended."""
    seen: list[tuple[Event, bool]] = []
    observe = AdmissionState.observe

    def recording(self: AdmissionState, event: Event, *, now: int) -> None:
        seen.append((event, self.is_in_cycle))
        observe(self, event, now=now)

    monkeypatch.setattr(AdmissionState, "observe", recording)
    return seen


async def test_changes_during_a_cycle_are_observed_after_it_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as here:
        contend(here)
        await in_cycle(here)
        seen = observed(monkeypatch)
        for number in range(3):
            here.submit(f"late-{number}", pods=1, queue="-1")
        here.delete(KINDS.workloads, here.world.get(KINDS.workloads, "late-1"))
        assert seen == []
        await here.manager.wait_for_cycle_end()
        assert [(type(event).__name__, ("late-1" in repr(event))) for event, _ in seen[:4]] == [
            ("WorkloadChanged", False),
            ("WorkloadChanged", True),
            ("WorkloadChanged", False),
            ("WorkloadDeleted", True),
        ]
        assert not any(during for _, during in seen)
        await soon(lambda: here.is_reserved("late-0") and here.is_reserved("late-2"))
        assert here.count("admitq_core_failures_total") == 0
        await quiet(here)


async def test_reader_that_waits_never_sees_a_cycle_in_progress() -> None:
    async with running() as here:
        contend(here)
        waited = 0
        for number in range(40):
            here.submit(f"more-{number}", pods=1 + number, queue=QUEUES[number % 3])
            await asyncio.sleep(0)
            waited += here.state.is_in_cycle
            await here.manager.wait_for_cycle_end()
            assert not here.state.is_in_cycle
            here.state.to_dict()
        assert waited
        await quiet(here)


async def test_work_for_the_state_is_done_at_once_between_cycles_and_deferred_in_one() -> None:
    async with running() as here:
        done: list[str] = []
        here.manager.run_between_cycles(lambda: done.append("at once"))
        assert done == ["at once"]
        contend(here)
        await in_cycle(here)
        here.manager.run_between_cycles(lambda: done.append("after the cycle"))
        assert done == ["at once"]
        await here.manager.wait_for_cycle_end()
        assert done == ["at once", "after the cycle"]
        await quiet(here)


async def test_manager_that_is_cancelled_in_a_cycle_has_written_nothing() -> None:
    here = Running()
    task = asyncio.create_task(here.manager.run())
    contend(here)
    await in_cycle(here)
    while not here.state.queries.usage_of_workload(ObjectKey("ns", "good-1")):
        await asyncio.sleep(0)
    assert here.state.is_in_cycle
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for name in QUEUES[:2]:
        assert not here.is_reserved(f"good{name}")


def _is_bad(*arguments: Any) -> bool:
    workloads = (getattr(one, "workload", None) for one in arguments)
    return any(one is not None and one.key.name == BAD for one in workloads)


@pytest.mark.parametrize("phase", ["nominate", "refusal_of", "requeue", "note_needs"])
async def test_workload_that_a_step_fails_on_is_left_out_and_deferred_changes_are_observed(
    monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    fail(monkeypatch, cycle, phase, _is_bad, after=True)
    async with running() as here:
        contend(here)
        here.submit(BAD, pods=50, queue="-2")
        await in_cycle(here)
        here.submit("late", pods=1, queue="-1")
        await soon(lambda: here.is_reserved("late"))
        await soon(lambda: all(here.is_reserved(f"good{name}") for name in QUEUES[:2]))
        assert here.count("admitq_core_failures_total") == 1
        assert here.count("admitq_malformed_objects") == 1
        await quiet(here)


# --- stretches ----------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_longest_stretch_is_shown_for_one_to_two_minutes() -> None:
    clock, metrics = Clock(), Metrics()
    counted = BlockingTimer(metrics, clock)

    def shown() -> float:
        lines = metrics.exposition().decode().splitlines()
        return next(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(f"admitq_{LONGEST_BLOCKING_METRIC}{{")
        )

    counted.start()
    clock.now += 0.5
    counted.stop()
    with counted.measure():
        clock.now += 0.2
    assert shown() == pytest.approx(0.5)
    clock.now += WINDOW_SECONDS
    with counted.measure():
        clock.now += 0.3
    assert shown() == pytest.approx(0.5)
    clock.now += WINDOW_SECONDS
    assert shown() == pytest.approx(0.3)
    clock.now += 2 * WINDOW_SECONDS
    assert shown() == 0.0


def test_turn_is_due_after_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_blocking, "MAX_BLOCKING_SECONDS", 0.02)
    clock = Clock()
    counted = BlockingTimer(Metrics(), clock)
    clock.now += 0.01
    assert not counted.should_yield
    clock.now += 0.015
    assert counted.should_yield


async def test_deferred_burst_gives_the_event_loop_turns() -> None:
    clock = Clock()
    deferred = DeferredWork(BlockingTimer(Metrics(), clock), LOG_ONLY)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    done: list[int] = []

    def work(number: int) -> Callable[[], None]:
        def take() -> None:
            if number == 3:
                raise Defect("three")
            done.append(number)

        return take

    task = asyncio.create_task(other())
    with deferred.defer_all():
        for number in range(10):
            deferred.run_between_cycles(work(number))
    await deferred.run_deferred()
    task.cancel()
    assert done == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert turns >= 10
