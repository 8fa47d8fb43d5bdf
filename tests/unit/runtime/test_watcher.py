"""A watcher of an optional resource ends when it is not served. Other watchers retry."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from admitq.runtime.client import INITIAL_EVENTS_END, Client, Page, WatchEvent
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher, WatchTiming

NOT_SUPPORTED = ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")
NOT_SERVED = ApiError(404, "NotFound", "the server could not find the requested resource")
OBJECT = {"metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1"}}
QUICK = WatchTiming(first_backoff=0.001, longest_backoff=0.002)


class FakeClient:
    """Lists a resource a limited number of times, then answers that it is not served, as each watch does."""

    def __init__(self, listings: int) -> None:
        self.listings = listings
        self.list_requests = 0

    async def pages(self, *_: Any) -> AsyncGenerator[Page]:
        self.list_requests += 1
        if self.list_requests > self.listings:
            raise NOT_SERVED
        yield Page([OBJECT], "5", True)

    async def watch(self, *_: Any, **options: Any) -> AsyncGenerator[Any]:
        raise NOT_SUPPORTED if options["initial_events"] else NOT_SERVED
        yield


@pytest.mark.parametrize("listings", [0, 1])
async def test_watcher_of_optional_resource_ends_if_not_served_and_deletes_no_object(listings: int) -> None:
    store, outcomes, changes = Store(CONFIG_MAPS), list[Outcome](), list[ObjectChange]()
    watcher = Watcher(
        cast("Client", FakeClient(listings)),
        CONFIG_MAPS,
        store,
        handlers=[changes.append],
        timing=QUICK,
        observe=lambda _, outcome: outcomes.append(outcome),
        ends_when_missing=True,
    )
    await asyncio.wait_for(watcher.run(), 60)
    assert outcomes == [Outcome.LISTED] * listings + [Outcome.MISSING]
    assert watcher.synced.is_set() == bool(listings)
    assert [change.kind for change in changes] == ["added"] * listings


async def test_watcher_of_required_resource_retries_until_it_is_served() -> None:
    client = FakeClient(0)
    watcher = Watcher(cast("Client", client), CONFIG_MAPS, Store(CONFIG_MAPS), timing=QUICK)
    running = asyncio.create_task(watcher.run())
    while client.list_requests < 3:
        await asyncio.sleep(0.001)
    client.listings = 1000
    await asyncio.wait_for(watcher.synced.wait(), 60)
    running.cancel()


def test_unsubscribed_handler_gets_no_more_changes() -> None:
    store, changes = Store(CONFIG_MAPS), list[ObjectChange]()
    store.subscribe(changes.append)
    store.upsert(OBJECT)
    store.unsubscribe(changes.append)
    store.remove({"metadata": {**OBJECT["metadata"], "resourceVersion": "2"}})
    assert [change.kind for change in changes] == ["added"]


async def test_list_has_priority_of_watches_and_handlers_have_default_priority() -> None:
    listed, handled = list[CallPriority](), list[CallPriority]()

    class Paged(FakeClient):
        async def pages(self, *_: Any) -> AsyncGenerator[Page]:
            for first in (True, False):
                listed.append(current_priority(CallPriority.READ))
                yield Page([OBJECT], "5", first)

    watcher = Watcher(
        cast("Client", Paged(1)),
        CONFIG_MAPS,
        Store(CONFIG_MAPS),
        handlers=[lambda _: handled.append(current_priority(CallPriority.STATUS))],
        timing=QUICK,
    )
    running = asyncio.create_task(watcher.run())
    await asyncio.wait_for(watcher.synced.wait(), 60)
    running.cancel()
    assert listed == [CallPriority.WATCH] * 2
    assert set(handled) == {CallPriority.STATUS}


def _object(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version}}


def _bookmark(version: str, annotations: dict[str, str] | None = None) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}})


END = _bookmark("9", {INITIAL_EVENTS_END: "true"})


class StreamingClient(FakeClient):
    """Sends events on the first watch, which then ends as ``end`` says, and waits on each other watch."""

    def __init__(self, *events: WatchEvent, end: ApiError | None = None) -> None:
        super().__init__(listings=1)
        self.versions: list[str] = []
        self._events = events
        self._end = end

    async def watch(self, _: Any, version: str, **options: Any) -> AsyncGenerator[Any]:
        self.versions.append(version)
        if not options["initial_events"]:
            await asyncio.Event().wait()
        for event in self._events:
            yield event
        if self._end is not None:
            raise self._end


async def _watch_until(client: StreamingClient, store: Store, *, watches: int) -> list[Outcome]:
    outcomes = list[Outcome]()
    watcher = Watcher(
        cast("Client", client),
        CONFIG_MAPS,
        store,
        timing=QUICK,
        observe=lambda _, outcome: outcomes.append(outcome),
    )
    running = asyncio.create_task(watcher.run())
    async with asyncio.timeout(60):
        while len(client.versions) < watches:
            await asyncio.sleep(0.001)
    running.cancel()
    assert watcher.synced.is_set()
    return outcomes


async def test_first_list_is_the_beginning_of_a_watch_with_changes_among_the_objects() -> None:
    client, store = (
        StreamingClient(
            WatchEvent("ADDED", _object("a", "1")),
            WatchEvent("ADDED", _object("b", "2")),
            WatchEvent("DELETED", _object("a", "7")),
            WatchEvent("MODIFIED", _object("b", "8")),
            END,
            WatchEvent("ADDED", _object("c", "10")),
        ),
        Store(CONFIG_MAPS),
    )
    assert await _watch_until(client, store, watches=2) == [Outcome.LISTED, Outcome.ENDED]
    found = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in store.list()}
    assert found == {"b": "8", "c": "10"}
    assert client.versions == ["", "10"]
    assert client.list_requests == 0


@pytest.mark.parametrize(
    ("events", "end", "outcome"),
    [
        pytest.param([], None, Outcome.FAILED, id="regular end"),
        pytest.param([], ApiError(0, "Truncated", "cut"), Outcome.FAILED, id="cut"),
        pytest.param([], ApiError(0, "Timeout", "silent"), Outcome.SILENT, id="silence"),
        pytest.param([], ApiError(410, "Expired", "too old"), Outcome.EXPIRED, id="410"),
        pytest.param([_bookmark("7")], None, Outcome.MALFORMED, id="server without streamed lists"),
    ],
)
async def test_objects_are_listed_in_pages_after_a_streamed_list_failed(
    events: list[WatchEvent], end: ApiError | None, outcome: Outcome
) -> None:
    """An object that came before the failure and is not in the pages was deleted in between."""
    gone = WatchEvent("ADDED", _object("gone", "1"))
    client, store = StreamingClient(gone, *events, end=end), Store(CONFIG_MAPS)
    assert await _watch_until(client, store, watches=2) == [outcome, Outcome.LISTED]
    assert [obj["metadata"]["name"] for obj in store.list()] == ["a"]
    assert client.versions == ["", "5"]


async def test_objects_are_listed_in_pages_if_streamed_lists_are_not_supported() -> None:
    client = StreamingClient(end=NOT_SUPPORTED)
    assert await _watch_until(client, Store(CONFIG_MAPS), watches=2) == [Outcome.LISTED]
    assert client.versions == ["", "5"]
