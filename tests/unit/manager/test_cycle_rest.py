"""The manager rests after a cycle. The core observes changes meanwhile, and one cycle decides on all."""

import asyncio
from collections.abc import Iterator

import pytest

from admitq.core.lifecycle import Phase
from admitq.core.model import ObjectKey
from admitq.manager import cycle_rest, event_loop_blocking
from admitq.manager.cycle_rest import LONGEST_REST_SECONDS, rest_after_cycle, rest_after_refresh
from localcluster.waiting import eventually
from tests.unit.manager.failing_core import RunningManager, running_manager, wait_until
from tests.unit.manager.failing_work import Core, create_manager, running

FOREVER = 3600.0
QUEUES = ("-1", "-2", "-3")


def test_rest_is_proportional_to_cpu_time_of_cycle_and_bounded() -> None:
    assert rest_after_cycle(0.0) == 0.0
    assert rest_after_cycle(0.002) == pytest.approx(2 * rest_after_cycle(0.001))
    assert rest_after_cycle(10.0) == LONGEST_REST_SECONDS


def test_rest_after_refresh_is_longer_than_after_cycle_and_has_the_same_bound() -> None:
    assert rest_after_refresh(0.001) > rest_after_cycle(0.001)
    assert rest_after_refresh(10.0) == LONGEST_REST_SECONDS


def put_queues(cluster: RunningManager) -> None:
    for name in QUEUES:
        cluster.put_queues(name=name, cohort="team")


async def test_one_cycle_decides_on_all_workloads_that_come_during_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: list[asyncio.Event] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        if seconds != FOREVER:
            await sleep(seconds)
            return
        rests.append(asyncio.Event())
        await rests[-1].wait()

    monkeypatch.setattr(cycle_rest, "rest_after_cycle", lambda _: FOREVER)
    async with running_manager(rests=True) as cluster:
        put_queues(cluster)
        monkeypatch.setattr(asyncio, "sleep", rest)
        cluster.submit("first", queue="-1")
        await wait_until(lambda: len(rests) == 1)
        cycles = cluster.state.queries.cycles_run
        for name in QUEUES:
            cluster.submit(f"late{name}", queue=name)
            for _ in range(50):
                await sleep(0)
        assert cluster.state.queries.cycles_run == cycles
        rests[0].set()
        await wait_until(lambda: all(cluster.is_reserved(f"late{name}") for name in QUEUES))
        assert cluster.state.queries.cycles_run == cycles + 1


async def test_changes_that_came_during_a_cycle_are_observed_before_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop_blocking, "MAX_BLOCKING_SECONDS", 0.0)
    monkeypatch.setattr(cycle_rest, "rest_after_cycle", lambda _: FOREVER)
    async with running_manager(rests=True) as cluster:
        put_queues(cluster)
        for name in QUEUES:
            cluster.submit(f"first{name}", queue=name)
        while not cluster.state.is_in_cycle:
            await asyncio.sleep(0)
        cluster.submit("late", queue="-1")
        await asyncio.wait_for(cluster.manager.wait_for_cycle_end(), 20)
        assert cluster.state.queries.workload_phase(ObjectKey("ns", "late")) is Phase.PENDING


class RefreshingCore(Core):
    """Has no head, and always refusals to refresh."""

    def __init__(self) -> None:
        super().__init__()
        self.refreshes = 0

    def next_wakeup(self, now: int) -> int | None:
        return now

    def cycle_steps(self, _: object, *, now: int) -> Iterator[None]:
        assert now
        self.refreshes += 1
        yield


async def test_change_ends_rest_after_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_rest, "rest_after_refresh", lambda _: FOREVER)
    core = RefreshingCore()
    manager = create_manager(core)
    async with running(manager.run()):
        await eventually(lambda: core.refreshes == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert core.refreshes == 1
        manager.lead()
        await eventually(lambda: core.refreshes == 2)
