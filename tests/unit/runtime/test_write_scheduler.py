"""Slots for writes: how many at a time, in which order, and when."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.runtime.adaptive_limit import NO_GROWTH_AFTER_REJECTION_S, LimitBounds
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.write_scheduler import BOUNDS, NoFreeSlotError, WriteScheduler, WriteSlot
from tests.unit.runtime.scripted_time import ScriptedTime, run_woken_tasks

RESERVATION, EVICTION, STATUS, EVENT = (
    CallPriority.RESERVATION,
    CallPriority.EVICTION,
    CallPriority.STATUS,
    CallPriority.EVENT,
)
TEST_BOUNDS = {
    RESERVATION: LimitBounds(least=1, most=2, tolerance=10),
    STATUS: LimitBounds(least=0.1, most=2, tolerance=2),
    EVENT: LimitBounds(least=0.1, most=1, tolerance=2),
}


class Script(ScriptedTime):
    """A scheduler with a clock that the test sets, and calls that take slots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.granted: list[str] = []
        self.slots: dict[str, WriteSlot] = {}
        self.scheduler = WriteScheduler(TEST_BOUNDS, clock=lambda: self.now)

    async def take(self, name: str, priority: CallPriority) -> asyncio.Task[None]:
        """Take a slot; it is recorded when it is granted."""

        async def take() -> None:
            self.slots[name] = await self.scheduler.take(priority)
            self.granted.append(name)

        task = asyncio.create_task(take())
        await run_woken_tasks()
        return task

    async def release(self, name: str, *, seconds: float = 0.0, status: int = 200) -> None:
        """End the write of a slot, which took some seconds, and release the slot."""
        slot = self.slots.pop(name)
        if seconds:
            self.scheduler.record(slot, "patch workloads", seconds, status)
        self.scheduler.release(slot)
        await run_woken_tasks()


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


@asynccontextmanager
async def slow_api_server(script: Script) -> AsyncGenerator[None]:
    """Make the API server slow before the block, so that classes of reports have their smallest limits."""
    for seconds in (0.01, *[1.0] * 40):
        await script.take("write", STATUS)
        await script.release("write", seconds=seconds)
        await script.pass_time(10)
    script.granted.clear()
    yield


async def test_class_has_as_many_slots_as_its_limit(script: Script) -> None:
    for name in "abc":
        await script.take(name, RESERVATION)
    assert script.granted == ["a", "b"]
    await script.release("b")
    assert script.granted == ["a", "b", "c"]


async def test_slots_of_one_class_do_not_limit_another(script: Script) -> None:
    for name in "abc":
        await script.take(name, STATUS)
    await script.take("reservation", RESERVATION)
    assert script.granted == ["a", "b", "reservation"]


async def test_priority_without_class_needs_no_slot(script: Script) -> None:
    for name in map(str, range(100)):
        await script.take(name, CallPriority.AHEAD)
        await script.take(name, CallPriority.READ)
    assert len(script.granted) == 200


async def test_lower_class_has_its_smallest_limit_while_a_higher_class_waits(script: Script) -> None:
    for name in "abc":
        await script.take(name, RESERVATION)
    await script.take("status-1", STATUS)
    await script.take("status-2", STATUS)
    assert script.granted == ["a", "b", "status-1"]
    await script.release("status-1", seconds=1.0)
    assert script.granted == ["a", "b", "status-1"]
    await script.pass_time(9.1)  # The smallest limit is a tenth of the time.
    assert script.granted == ["a", "b", "status-1", "status-2"]


async def test_class_with_a_limit_below_one_pauses_after_each_write(script: Script) -> None:
    async with slow_api_server(script):
        assert script.scheduler.limit(STATUS) == 0.1
        await script.take("a", STATUS)
        await script.take("b", STATUS)
        assert script.granted == ["a"]
        await script.release("a", seconds=1.0)
        await script.pass_time(8.9)
        assert script.granted == ["a"]
        await script.pass_time(0.2)
        assert script.granted == ["a", "b"]


async def test_slot_without_a_write_causes_no_pause(script: Script) -> None:
    async with slow_api_server(script):
        await script.take("a", STATUS)
        await script.take("b", STATUS)
        await script.release("a")
        assert script.granted == ["a", "b"]


async def test_cancelled_caller_gets_no_slot(script: Script) -> None:
    await script.take("a", EVENT)
    waiting = await script.take("b", EVENT)
    await script.take("c", EVENT)
    waiting.cancel()
    await run_woken_tasks()
    await script.release("a")
    assert script.granted == ["a", "c"]


async def test_slot_that_is_granted_to_a_cancelled_caller_goes_to_the_next(script: Script) -> None:
    await script.take("a", EVENT)
    waiting = await script.take("b", EVENT)
    await script.take("c", EVENT)
    script.scheduler.release(script.slots.pop("a"))
    waiting.cancel()
    await run_woken_tasks()
    assert script.granted == ["a", "c"]


async def test_writes_in_a_block_use_its_slot(script: Script) -> None:
    async with script.scheduler.slot(EVENT) as outer:
        with script.scheduler.free_slot(EVENT):
            pass  # It would raise if no slot was free.
        async with script.scheduler.slot(RESERVATION) as inner:
            assert inner is outer
    await script.take("a", EVENT)
    assert script.granted == ["a"]


async def test_task_of_a_finished_block_takes_a_slot_of_its_own(script: Script) -> None:
    begins = asyncio.Event()

    async def write_later() -> bool:
        await begins.wait()
        async with script.scheduler.slot(EVENT) as slot:
            return slot is not outer

    async with script.scheduler.slot(EVENT) as outer:
        task = asyncio.create_task(write_later())
    begins.set()
    assert await task


async def test_report_without_a_free_slot_is_refused(script: Script) -> None:
    await script.take("a", EVENT)
    with (
        pytest.raises(NoFreeSlotError, match="no slot of class EVENT is free"),
        script.scheduler.free_slot(EVENT),
    ):
        pass
    await script.release("a")
    with script.scheduler.free_slot(EVENT):
        await script.take("b", EVENT)
        assert script.granted == ["a"]
    await run_woken_tasks()
    assert script.granted == ["a", "b"]


@pytest.mark.parametrize("status", [0, 429, 503, 504])
async def test_rejected_write_halves_the_limit(script: Script, status: int) -> None:
    await script.take("a", RESERVATION)
    await script.release("a", seconds=0.01, status=status)
    assert script.scheduler.limit(RESERVATION) == 1


async def test_rejected_write_shrinks_the_limits_of_lower_classes(script: Script) -> None:
    await script.take("a", STATUS)
    await script.release("a", seconds=0.01, status=429)
    assert [script.scheduler.limit(each) for each in (RESERVATION, STATUS, EVENT)] == [2, 1, 0.5]


async def test_limit_of_reports_does_not_grow_soon_after_a_rejected_reservation(script: Script) -> None:
    await script.take("reservation", RESERVATION)
    await script.release("reservation", seconds=0.01, status=429)
    for _ in range(10):
        await script.take("report", STATUS)
        await script.release("report", seconds=0.01)
    assert script.scheduler.limit(STATUS) == 1
    await script.pass_time(NO_GROWTH_AFTER_REJECTION_S)
    await script.take("report", STATUS)
    await script.release("report", seconds=0.01)
    assert script.scheduler.limit(STATUS) == 2


@pytest.mark.parametrize("priority", [CallPriority.WATCH, RESERVATION, CallPriority.READ])
async def test_lower_class_has_its_smallest_limit_while_a_rejected_call_waits_for_its_retry(
    script: Script, priority: CallPriority
) -> None:
    with script.scheduler.retry_of(priority):
        await script.take("status-1", STATUS)
        await script.take("status-2", STATUS)
        assert script.granted == ["status-1"]
        await script.release("status-1", seconds=1.0)
        await script.pass_time(8.9)  # The smallest limit is a tenth of the time.
        assert script.granted == ["status-1"]
        await script.pass_time(0.2)
        assert script.granted == ["status-1", "status-2"]
        await script.take("status-3", STATUS)
        assert "status-3" not in script.granted
    await run_woken_tasks()
    assert script.granted == ["status-1", "status-2", "status-3"]


async def test_retry_of_a_report_does_not_limit_higher_classes(script: Script) -> None:
    with script.scheduler.retry_of(STATUS):
        for name in "abc":
            await script.take(name, RESERVATION)
        assert script.granted == ["a", "b"]


async def test_error_of_a_write_says_nothing_about_load(script: Script) -> None:
    await script.take("a", RESERVATION)
    await script.release("a", seconds=0.001, status=409)
    await script.take("a", RESERVATION)
    await script.release("a", seconds=0.1)
    assert script.scheduler.slowness == pytest.approx(1.0)


@given(
    st.lists(st.sampled_from(list(TEST_BOUNDS)), min_size=1, max_size=40),
    st.floats(0.001, 5),
    st.sampled_from([200, 429]),
)
async def test_every_caller_gets_a_slot(priorities: list[CallPriority], seconds: float, status: int) -> None:
    """No class waits forever, however slow the API server is, and if it rejects every write."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        script = Script(monkeypatch)
        for number, priority in enumerate(priorities):
            await script.take(str(number), priority)
        for _ in range(len(priorities) + 1):
            for name in list(script.slots):
                await script.release(name, seconds=seconds, status=status)
            await script.pass_time(10 * seconds)
        assert sorted(script.granted, key=int) == [str(number) for number in range(len(priorities))]


def test_no_class_of_writes_can_starve() -> None:
    assert all(0 < bounds.least <= bounds.most for bounds in BOUNDS.values())
    assert all(bounds.least >= 1 for priority, bounds in BOUNDS.items() if priority < STATUS)
