from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from admitq.runtime import client as clients
from admitq.runtime.client import Client, user_agent
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.transport import from_status


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
def test_error_states_whether_a_retry_helps(status: int, reason: str, holds: set[str]):
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


class Bucket:
    """Keeps the priorities of calls, and lets none through."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[CallPriority] = []

    async def take(self, priority: CallPriority) -> None:
        self.asked.append(priority)
        raise ApiError(0, "Kept", "not sent")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    monkeypatch.setattr(clients, "TokenBucket", lambda *_: made)
    return made


@pytest.fixture
async def client(bucket: Bucket) -> AsyncGenerator[Client]:
    async with Client(cast("Credentials", None), user_agent="tests") as opened:
        yield opened


async def make_each_call(client: Client) -> None:
    """Make a get, a list, a watch and two writes."""
    config_map = {"metadata": {"name": "a", "namespace": "ns"}}
    calls = (
        client.get(CONFIG_MAPS, "a", "ns"),
        client.list(CONFIG_MAPS),
        anext(client.watch(CONFIG_MAPS, "1")),
        client.create(CONFIG_MAPS, config_map),
        client.delete(CONFIG_MAPS, "a", "ns"),
    )
    for call in calls:
        with pytest.raises(ApiError, match="not sent"):
            await call


async def test_calls_without_a_set_priority_have_that_of_their_kind(client: Client, bucket: Bucket) -> None:
    await make_each_call(client)
    read, write = CallPriority.READ, CallPriority.STATUS
    assert bucket.asked == [read, read, CallPriority.WATCH, write, write]


async def test_calls_have_the_priority_that_is_set(client: Client, bucket: Bucket) -> None:
    with call_priority(CallPriority.EVENT):
        await make_each_call(client)
    assert bucket.asked == [CallPriority.EVENT] * 5
