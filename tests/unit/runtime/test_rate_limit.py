"""The rate limit of calls: how many pass, in which order, and when."""

import asyncio

import pytest

from admitq.runtime.rate_limit import (
    MAX_OVERTAKES,
    CallPriority,
    TokenBucket,
    call_priority,
    current_priority,
)
from tests.unit.runtime.scripted_time import ScriptedTime, run_woken_tasks

AHEAD, WATCH, RESERVATION, EVICTION, LIFECYCLE, READ, STATUS, QUEUE_STATUS, EVENT = CallPriority


class Script(ScriptedTime):
    """A clock that the test sets, the timers of that clock, and calls that take tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.sent: list[str] = []

    def bucket(self, qps: float = 1.0, burst: int = 1) -> TokenBucket:
        return TokenBucket(qps, burst, clock=lambda: self.now)

    async def call(
        self, bucket: TokenBucket, name: str, priority: CallPriority = STATUS
    ) -> asyncio.Task[None]:
        """Start a call. It is recorded when it gets its token."""

        async def take() -> None:
            await bucket.take(priority)
            self.sent.append(name)

        task = asyncio.create_task(take())
        await run_woken_tasks()
        return task


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


# --- how many pass ----------------------------------------------------------------------------------


async def test_calls_up_to_the_burst_pass_at_once(script: Script) -> None:
    bucket = script.bucket(burst=5)
    for number in range(6):
        await script.call(bucket, str(number))
    assert script.sent == ["0", "1", "2", "3", "4"]


async def test_calls_beyond_the_burst_pass_at_the_rate(script: Script) -> None:
    bucket = script.bucket(qps=64, burst=5)
    for number in range(10):
        await script.call(bucket, str(number))
    passed: list[int] = []
    for _ in range(6):
        passed.append(len(script.sent))
        await script.pass_time(1 / 64)
    assert passed == [5, 6, 7, 8, 9, 10]


async def test_call_waits_only_for_missing_part_of_token(script: Script) -> None:
    bucket = script.bucket(qps=1, burst=2)
    await script.call(bucket, "a")
    await script.call(bucket, "b")
    await script.pass_time(0.75)
    await script.call(bucket, "c")
    await script.pass_time(0.2)
    assert script.sent == ["a", "b"]
    await script.pass_time(0.1)
    assert script.sent == ["a", "b", "c"]


async def test_idle_bucket_holds_no_more_tokens_than_the_burst(script: Script) -> None:
    bucket = script.bucket(burst=2)
    await script.call(bucket, "a")
    await script.pass_time(100)
    for name in ("b", "c", "d"):
        await script.call(bucket, name)
    assert script.sent == ["a", "b", "c"]


@pytest.mark.parametrize("qps", [-1, 0])
async def test_calls_without_rate_limit_do_not_wait(script: Script, qps: float) -> None:
    bucket = script.bucket(qps=qps)
    for number in range(1000):
        await bucket.take(CallPriority(number % len(CallPriority)))


async def test_calls_pass_at_the_rate_of_the_real_clock() -> None:
    bucket = TokenBucket(qps=50, burst=5)
    started = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        for _ in range(10):
            await bucket.take()
    assert asyncio.get_running_loop().time() - started >= 0.09


# --- in which order ---------------------------------------------------------------------------------


async def test_waiting_calls_pass_by_priority_and_then_in_order_of_arrival(script: Script) -> None:
    bucket = script.bucket()
    await script.call(bucket, "first")
    for priority in (EVENT, STATUS, READ, EVICTION, RESERVATION, WATCH):
        for number in (1, 2):
            await script.call(bucket, f"{priority.name} {number}", priority)
    await script.pass_time(9)
    by_priority = (WATCH, RESERVATION, EVICTION, READ, STATUS)
    names = [f"{priority.name} {number}" for priority in by_priority for number in (1, 2)]
    assert script.sent == ["first", *names[:9]]


async def test_calls_of_equal_priority_pass_in_order_of_arrival(script: Script) -> None:
    bucket = script.bucket()
    for number in range(30):
        await script.call(bucket, str(number), RESERVATION)
    await script.pass_time(30)
    assert script.sent == [str(number) for number in range(30)]


async def test_calls_pass_in_order_of_arrival_while_tokens_are_left(script: Script) -> None:
    bucket = script.bucket(burst=10)
    for priority in (EVENT, STATUS, RESERVATION, AHEAD, READ, WATCH, EVICTION):
        await script.call(bucket, priority.name, priority)
    assert script.sent == ["EVENT", "STATUS", "RESERVATION", "AHEAD", "READ", "WATCH", "EVICTION"]
    assert script.timers_set == 0


async def test_new_call_does_not_take_token_of_waiting_call(script: Script) -> None:
    """The timer of a busy event loop may be late."""
    bucket = script.bucket()
    await script.call(bucket, "first")
    await script.call(bucket, "waiting")
    script.now += 1
    await script.call(bucket, "new")
    assert script.sent == ["first", "waiting"]


async def test_longest_waiting_call_is_overtaken_limited_number_of_times(script: Script) -> None:
    bucket = script.bucket()
    await script.call(bucket, "first")
    for name, priority in (("event", EVENT), ("status", STATUS)):
        await script.call(bucket, name, priority)
    for number in range(40):
        await script.call(bucket, str(number), RESERVATION)
    await script.pass_time(25)
    places = [script.sent.index(name) for name in ("event", "status")]
    assert places == [MAX_OVERTAKES + 1, 2 * (MAX_OVERTAKES + 1)]


async def test_reservations_get_nine_of_ten_tokens_while_statuses_wait(script: Script) -> None:
    bucket = script.bucket(qps=8)
    for number in range(100):
        await script.call(bucket, f"status {number}", STATUS)
    for number in range(100):
        await script.call(bucket, f"reservation {number}", RESERVATION)
    before = len(script.sent)
    await script.pass_time(100 / 8)
    sent = script.sent[before:]
    assert len(sent) == 100
    assert sum(name.startswith("reservation") for name in sent) == 90


# --- calls that never wait --------------------------------------------------------------------------


async def test_call_ahead_of_rate_limit_passes_at_once_and_uses_tokens(script: Script) -> None:
    bucket = script.bucket()
    await script.call(bucket, "a")
    await script.call(bucket, "waiting", RESERVATION)
    await script.call(bucket, "ahead", AHEAD)
    await script.call(bucket, "ahead", AHEAD)
    assert script.sent == ["a", "ahead", "ahead"]
    await script.pass_time(2.9)
    assert script.sent == ["a", "ahead", "ahead"]
    await script.pass_time(0.2)
    assert script.sent == ["a", "ahead", "ahead", "waiting"]


# --- calls that are cancelled -----------------------------------------------------------------------


async def test_cancelled_calls_take_no_tokens(script: Script) -> None:
    bucket = script.bucket(qps=10)
    await script.call(bucket, "a")
    tasks = [await script.call(bucket, "cancelled") for _ in range(100)]
    await script.call(bucket, "b")
    for task in tasks:
        task.cancel()
    await run_woken_tasks()
    assert script.sent == ["a"]
    await script.pass_time(0.1)
    assert script.sent == ["a", "b"]


async def test_call_cancelled_after_its_grant_passes_token_to_next(script: Script) -> None:
    bucket = script.bucket()
    await script.call(bucket, "a")
    granted = await script.call(bucket, "granted")
    await script.call(bucket, "next")
    script.now += 1
    # The timer grants the token, and the deadline of the call passes before its task goes on.
    script.timers.pop()[3]()
    granted.cancel()
    await run_woken_tasks()
    assert script.sent == ["a", "next"]


async def test_cancelled_last_call_leaves_no_timer(script: Script) -> None:
    bucket = script.bucket()
    await script.call(bucket, "a")
    task = await script.call(bucket, "cancelled")
    task.cancel()
    await run_woken_tasks()
    assert all(handle.cancelled() for _, _, handle, _ in script.timers)


async def test_all_waiting_calls_share_one_timer(script: Script) -> None:
    bucket = script.bucket()
    for number in range(50):
        await script.call(bucket, str(number), CallPriority(1 + number % 6))
    assert script.timers_set == 1
    await script.pass_time(49)
    assert len(script.sent) == 50
    assert script.timers_set == 49


# --- the priority of a block ------------------------------------------------------------------------


def test_default_priority_applies_without_block() -> None:
    assert current_priority(READ) is READ


def test_priority_block_replaces_default_priority() -> None:
    with call_priority(EVENT):
        assert current_priority(STATUS) is EVENT
    assert current_priority(STATUS) is STATUS


@pytest.mark.parametrize(("outer", "inner"), [(AHEAD, STATUS), (STATUS, AHEAD)])
def test_highest_priority_of_nested_blocks_applies(outer: CallPriority, inner: CallPriority) -> None:
    with call_priority(outer):
        with call_priority(inner):
            assert current_priority(EVENT) is AHEAD
        assert current_priority(EVENT) is outer


async def test_priority_block_applies_to_tasks_created_in_it() -> None:
    async def priority_in_task() -> CallPriority:
        await asyncio.sleep(0)
        return current_priority(STATUS)

    with call_priority(EVICTION):
        task = asyncio.create_task(priority_in_task())
    assert await task is EVICTION
    assert await asyncio.create_task(priority_in_task()) is STATUS
