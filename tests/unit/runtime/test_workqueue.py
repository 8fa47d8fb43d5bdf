"""The work queue hands each key to one worker at a time: urgent keys first, delayed keys on time."""

import asyncio

import pytest

from admitq.runtime.workqueue import FIRST_RETRY_S, LONGEST_RETRY_S, WorkQueue


async def get_key(queue: WorkQueue[str]) -> str:
    return await asyncio.wait_for(queue.get(), 60)


async def test_key_that_is_added_twice_is_queued_once():
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await get_key(queue), await get_key(queue), len(queue)] == ["a", "b", 0]


async def test_key_added_during_work_is_queued_again_when_work_is_done():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await get_key(queue)
    queue.add("a")
    assert (len(queue), queue.working) == (0, 1)
    queue.done(key)
    assert await get_key(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_earliest_of_several_delays_counts():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    assert queue.delayed == 1
    assert await get_key(queue) == "a"
    assert queue.delayed == 0
    queue.close()


async def test_added_key_is_not_queued_again_after_its_delay():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0.01)
    queue.add("a")
    queue.done(await get_key(queue))
    queue.add_after("b", 0.02)
    assert await get_key(queue) == "b"
    queue.close()


async def test_delayed_keys_are_queued_in_order_of_their_times():
    queue: WorkQueue[str] = WorkQueue()
    for key, seconds in (("c", 0.03), ("a", 0.01), ("b", 0.02), ("now", 0)):
        queue.add_after(key, seconds)
    assert [await get_key(queue) for _ in range(4)] == ["now", "a", "b", "c"]


async def test_retry_delay_doubles_up_to_limit_and_restarts_after_forget():
    queue: WorkQueue[str] = WorkQueue()
    delays = [queue.retry("a") for _ in range(25)]
    for number, seconds in enumerate(delays):
        ceiling = min(FIRST_RETRY_S * 2**number, LONGEST_RETRY_S)
        assert 0.8 * ceiling <= seconds <= ceiling
    assert queue.failures("a") == 25
    assert queue.retry("other") <= FIRST_RETRY_S
    queue.forget("a")
    assert queue.retry("a") <= FIRST_RETRY_S
    queue.close()


async def test_retry_delay_is_no_shorter_than_given_minimum():
    queue: WorkQueue[str] = WorkQueue()
    assert queue.retry("a", at_least=7) == 7
    queue.close()


async def test_retry_delay_is_no_longer_than_given_maximum():
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(20):
        queue.retry("a", at_most=3)
    assert queue.retry("a", at_most=3) <= 3
    queue.close()


async def test_key_of_cancelled_worker_goes_to_another_worker():
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_each_key_is_handed_to_one_waiting_worker():
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


async def test_get_timed_returns_how_long_key_was_queued():
    now = 100.0
    queue: WorkQueue[str] = WorkQueue(clock=lambda: now)
    queue.add("a")
    now = 103.0
    assert await queue.get_timed() == ("a", 3.0)


async def test_urgent_keys_are_handed_out_before_others():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    queue.add("c", urgent=True)
    queue.add("b", urgent=True)
    queue.add("b")
    assert len(queue) == 3
    assert [await get_key(queue) for _ in range(3)] == ["c", "b", "a"]
    assert len(queue) == 0


async def test_key_that_becomes_urgent_during_work_is_handed_out_first_afterwards():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await get_key(queue)
    queue.add("a", urgent=True)
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert queue.is_waiting("a")
    assert [await get_key(queue), await get_key(queue)] == ["a", "b"]


async def test_worker_for_urgent_keys_gets_only_urgent_keys():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    urgent = asyncio.create_task(queue.get_timed(urgent_only=True))
    await asyncio.sleep(0)
    assert not urgent.done()
    queue.add("b", urgent=True)
    assert (await asyncio.wait_for(urgent, 60))[0] == "b"
    assert await get_key(queue) == "a"


async def test_urgent_key_wakes_other_worker_if_workers_for_urgent_keys_are_busy():
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a", urgent=True)
    assert await asyncio.wait_for(worker, 60) == "a"


async def test_urgent_key_of_cancelled_worker_goes_to_another_worker():
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get_timed(urgent_only=True))
    await asyncio.sleep(0)
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a", urgent=True)
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"
