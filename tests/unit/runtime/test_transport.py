import asyncio
import time

import pytest

from admitq.runtime.client import user_agent
from admitq.runtime.errors import ApiError
from admitq.runtime.transport import TokenBucket, ahead_of_rate_limit, from_status


async def test_a_burst_passes_at_once():
    bucket = TokenBucket(qps=0.001, burst=5)
    async with asyncio.timeout(60):
        for _ in range(5):
            await bucket.take()


async def test_the_rest_passes_at_the_rate():
    bucket = TokenBucket(qps=50, burst=5)
    began = time.monotonic()
    for _ in range(10):
        await bucket.take()
    assert time.monotonic() - began >= 0.09


async def test_without_a_limit_nobody_waits():
    bucket = TokenBucket(qps=-1, burst=1)
    async with asyncio.timeout(60):
        for _ in range(10_000):
            await bucket.take()


async def test_those_who_wait_are_served_in_order():
    bucket = TokenBucket(qps=100, burst=1)
    served: list[int] = []

    async def wait(number: int) -> None:
        await bucket.take()
        served.append(number)

    await asyncio.gather(*(wait(number) for number in range(6)))
    assert served == [0, 1, 2, 3, 4, 5]


async def test_one_who_gives_up_waiting_gives_the_turn_back():
    bucket = TokenBucket(qps=10, burst=1)
    await bucket.take()
    quitters = [asyncio.create_task(bucket.take()) for _ in range(1000)]
    await asyncio.sleep(0)
    for quitter in quitters:
        quitter.cancel()
    await asyncio.gather(*quitters, return_exceptions=True)
    # With their turns it would be a hundred seconds.
    async with asyncio.timeout(60):
        await bucket.take()


@pytest.mark.parametrize(
    ("status", "reason", "holds"),
    [
        (404, "NotFound", {"is_not_found"}),
        (409, "Conflict", {"is_conflict"}),
        (409, "AlreadyExists", {"is_already_exists"}),
        (410, "Expired", {"is_gone"}),
        (422, "Invalid", {"is_invalid", "is_refused"}),
        (400, "BadRequest", {"is_invalid", "is_refused"}),
        (403, "Forbidden", {"is_forbidden", "is_refused"}),
        (429, "TooManyRequests", {"is_transient"}),
        (500, "InternalError", {"is_transient"}),
        (503, "ServiceUnavailable", {"is_transient"}),
        (0, "Timeout", {"is_transient"}),
        (401, "Unauthorized", {"is_transient"}),
    ],
)
def test_an_error_tells_what_may_be_done_about_it(status: int, reason: str, holds: set[str]):
    error = ApiError(status, reason, "text")
    asked = [name for name in dir(ApiError) if name.startswith("is_")]
    assert {name for name in asked if getattr(error, name)} == holds


def test_an_error_carries_the_servers_status_object():
    error = from_status({"kind": "Status", "reason": "Invalid", "message": "spec.x: no"}, 422)
    assert str(error) == "422 Invalid: spec.x: no"
    assert error.body["reason"] == "Invalid"


def test_we_have_a_name_of_our_own():
    product, system, component = user_agent("manager").split(" ")
    assert product.startswith("admitq/")
    assert system.startswith("(linux/")
    assert component == "manager"


async def test_call_ahead_of_the_rate_limit_does_not_wait_and_counts():
    now = 0.0
    bucket = TokenBucket(qps=0.001, burst=1, clock=lambda: now)
    await bucket.take()
    with ahead_of_rate_limit():
        await asyncio.wait_for(bucket.take(), 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bucket.take(), 0.05)
