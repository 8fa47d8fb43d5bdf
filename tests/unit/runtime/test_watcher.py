"""A watcher of an optional resource ends when it is not served. Other watchers retry."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from admitq.runtime.client import Client, Page
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher, WatchTiming

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

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[Any]:
        raise NOT_SERVED
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
