"""API errors, the user agent, and the priorities of calls."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from admitq.runtime import client as clients
from admitq.runtime.client import Client, user_agent
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.transport import ApiRequest, from_status
from localcluster.waiting import eventually


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (404, "NotFound", {"is_not_found"}),
        (409, "Conflict", {"is_conflict"}),
        (409, "AlreadyExists", {"is_already_exists"}),
        (410, "Expired", {"is_gone"}),
        (422, "Invalid", {"is_invalid", "is_rejected"}),
        (400, "BadRequest", {"is_invalid", "is_rejected"}),
        (403, "Forbidden", {"is_forbidden", "is_rejected"}),
        (429, "TooManyRequests", {"is_transient"}),
        (500, "InternalError", {"is_transient"}),
        (503, "ServiceUnavailable", {"is_transient"}),
        (0, "Timeout", {"is_transient"}),
        (401, "Unauthorized", {"is_transient"}),
    ],
)
def test_error_properties_match_status_and_reason(status: int, reason: str, expected: set[str]):
    error = ApiError(status, reason, "text")
    properties = [name for name in dir(ApiError) if name.startswith("is_")]
    assert {name for name in properties if getattr(error, name)} == expected


def test_error_contains_status_object_of_server():
    error = from_status({"kind": "Status", "reason": "Invalid", "message": "spec.x: no"}, 422)
    assert str(error) == "422 Invalid: spec.x: no"
    assert error.body["reason"] == "Invalid"


def test_user_agent_names_product_system_and_component():
    product, system, component = user_agent("manager").split(" ")
    assert product.startswith("admitq/")
    assert system.startswith("(linux/")
    assert component == "manager"


class FakeBucket:
    """Keeps the priorities of calls, and rejects every call."""

    def __init__(self, *_: Any) -> None:
        self.priorities: list[CallPriority] = []

    async def take(self, priority: CallPriority) -> None:
        self.priorities.append(priority)
        raise ApiError(0, "Rejected", "not sent")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> FakeBucket:
    bucket = FakeBucket()
    monkeypatch.setattr(clients, "TokenBucket", lambda *_: bucket)
    return bucket


@pytest.fixture
async def client(bucket: FakeBucket) -> AsyncGenerator[Client]:
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


async def test_calls_without_set_priority_have_default_of_their_verb(
    client: Client, bucket: FakeBucket
) -> None:
    await make_each_call(client)
    read, write = CallPriority.READ, CallPriority.STATUS
    assert bucket.priorities == [read, read, CallPriority.WATCH, write, write]


async def test_calls_in_block_have_its_priority(client: Client, bucket: FakeBucket) -> None:
    with call_priority(CallPriority.EVENT):
        await make_each_call(client)
    assert bucket.priorities == [CallPriority.EVENT] * 5


async def test_time_in_which_a_write_waits_for_a_slot_does_not_count_for_its_deadline(
    bucket: FakeBucket,
) -> None:
    seconds = 0.05
    async with Client(cast("Credentials", None), user_agent="tests", timeout=seconds) as client:
        slots = [await client.scheduler.take(CallPriority.STATUS) for _ in range(8)]
        write = asyncio.create_task(client.delete(CONFIG_MAPS, "a", "ns"))
        now = asyncio.get_running_loop().time
        began = now()
        await eventually(lambda: now() > began + 2 * seconds, interval=0.01)
        assert not write.done()
        client.scheduler.release(slots[0])
        with pytest.raises(ApiError, match="not sent"):
            await write
    assert bucket.priorities == [CallPriority.STATUS]


async def test_write_of_a_higher_class_does_not_wait_for_reports(bucket: FakeBucket) -> None:
    async with Client(cast("Credentials", None), user_agent="tests") as client:
        for _ in range(8):
            await client.scheduler.take(CallPriority.STATUS)
        with call_priority(CallPriority.RESERVATION), pytest.raises(ApiError, match="not sent"):
            await client.delete(CONFIG_MAPS, "a", "ns")
    assert bucket.priorities == [CallPriority.RESERVATION]


class RecordingTransport:
    """Keeps the requests, and answers each with an empty object."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.requests: list[ApiRequest] = []

    def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def read(self, request: ApiRequest, _: float | None) -> bytes:
        self.requests.append(request)
        return b"{}"


async def test_writes_of_objects_are_not_parsed_again_for_warnings(monkeypatch: pytest.MonkeyPatch):
    transport = RecordingTransport()
    monkeypatch.setattr(clients, "Transport", lambda *_, **__: transport)
    obj = {"metadata": {"name": "a", "namespace": "n"}}
    async with Client(cast("Credentials", None), user_agent="tests") as client:
        await client.create(CONFIG_MAPS, obj)
        await client.replace(CONFIG_MAPS, obj)
        await client.merge_patch(CONFIG_MAPS, "a", {}, "n")
        await client.json_patch(CONFIG_MAPS, "a", [], "n")
        await client.apply(CONFIG_MAPS, obj, field_manager="m")
    assert [request.query["fieldValidation"] for request in transport.requests] == ["Ignore"] * 5
