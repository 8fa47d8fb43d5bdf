import asyncio

import pytest

from admitq.runtime.workqueue import FIRST_RETRY_S, LONGEST_RETRY_S, WorkQueue


async def taken(queue: WorkQueue[str]) -> str:
    return await asyncio.wait_for(queue.get(), 60)


async def test_a_key_waits_once_however_often_it_is_added():
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await taken(queue), await taken(queue), len(queue)] == ["a", "b", 0]


async def test_a_key_added_while_it_is_worked_on_is_worked_on_again_and_not_at_the_same_time():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await taken(queue)
    queue.add("a")
    assert (len(queue), queue.working) == (0, 1)
    queue.done(key)
    assert await taken(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_of_several_delays_the_earliest_counts():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    assert queue.delayed == 1
    assert await taken(queue) == "a"
    assert queue.delayed == 0
    queue.close()


async def test_an_added_key_does_not_come_again_for_its_delay():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0.01)
    queue.add("a")
    queue.done(await taken(queue))
    queue.add_after("b", 0.02)
    assert await taken(queue) == "b"
    queue.close()


async def test_delays_end_in_their_order():
    queue: WorkQueue[str] = WorkQueue()
    for key, seconds in (("c", 0.03), ("a", 0.01), ("b", 0.02), ("now", 0)):
        queue.add_after(key, seconds)
    assert [await taken(queue) for _ in range(4)] == ["now", "a", "b", "c"]


async def test_the_wait_before_a_retry_doubles_up_to_a_limit_and_begins_anew_when_forgotten():
    queue: WorkQueue[str] = WorkQueue()
    waits = [queue.retry("a") for _ in range(25)]
    for number, seconds in enumerate(waits):
        ceiling = min(FIRST_RETRY_S * 2**number, LONGEST_RETRY_S)
        assert 0.8 * ceiling <= seconds <= ceiling
    assert queue.failures("a") == 25
    assert queue.retry("other") <= FIRST_RETRY_S
    queue.forget("a")
    assert queue.retry("a") <= FIRST_RETRY_S
    queue.close()


async def test_a_retry_waits_as_long_as_the_server_asks_and_no_longer_than_the_caller_allows():
    queue: WorkQueue[str] = WorkQueue()
    assert queue.retry("a", at_least=7) == 7
    for _ in range(20):
        queue.retry("b", at_most=3)
    assert queue.retry("b", at_most=3) <= 3
    queue.close()


async def test_a_worker_that_is_cancelled_leaves_its_key_to_another():
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_keys_are_handed_to_waiting_workers_each_once():
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


async def test_queue_reports_how_long_a_key_waited():
    now = 100.0
    queue: WorkQueue[str] = WorkQueue(clock=lambda: now)
    queue.add("a")
    now = 103.0
    assert await queue.get_timed() == ("a", 3.0)


async def test_urgent_keys_come_before_all_others():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    queue.add("c", urgent=True)
    queue.add("b", urgent=True)
    queue.add("b")
    assert len(queue) == 3
    assert [await taken(queue) for _ in range(3)] == ["c", "b", "a"]
    assert len(queue) == 0


async def test_key_that_becomes_urgent_while_it_is_worked_on_is_urgent_afterwards():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await taken(queue)
    queue.add("a", urgent=True)
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert queue.is_waiting("a")
    assert [await taken(queue), await taken(queue)] == ["a", "b"]


async def test_worker_for_urgent_keys_alone_takes_no_others():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    urgent = asyncio.create_task(queue.get_timed(urgent_only=True))
    await asyncio.sleep(0)
    assert not urgent.done()
    queue.add("b", urgent=True)
    assert (await asyncio.wait_for(urgent, 60))[0] == "b"
    assert await taken(queue) == "a"


async def test_urgent_key_wakes_any_worker_when_those_for_urgent_keys_are_busy():
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a", urgent=True)
    assert await asyncio.wait_for(worker, 60) == "a"


async def test_urgent_key_is_not_lost_when_the_worker_that_it_woke_is_cancelled():
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get_timed(urgent_only=True))
    await asyncio.sleep(0)
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a", urgent=True)
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"
