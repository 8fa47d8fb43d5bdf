"""A list in two parts: the store is usable after the first, and complete after the second."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from admitq.runtime.client import INITIAL_EVENTS_END, Client, Page, WatchEvent
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.second_part import ListParts
from admitq.runtime.store import Store
from admitq.runtime.watcher import Outcome, Watcher, WatchTiming

QUICK = WatchTiming(first_backoff=0.001, longest_backoff=0.002)
PARTS = ListParts(first="!done", second="done")
NOT_SUPPORTED = ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")
EXPIRED = ApiError(410, "Expired", "too old")


def obj(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}}


def end_of_objects(version: int) -> WatchEvent:
    metadata = {"resourceVersion": str(version), "annotations": {INITIAL_EVENTS_END: "true"}}
    return WatchEvent("BOOKMARK", {"metadata": metadata})


Listed = list[dict[str, Any]]


@dataclass
class PartedClient:
    """Answers lists and watches by their label selector; an error is raised once.

    The second part waits for ``allows_second_part``. Watches without selector send ``events``.
    """

    lists: dict[str | None, list[Listed | ApiError]]
    streamed: list[WatchEvent | ApiError] = field(default_factory=list[WatchEvent | ApiError])
    """The events of the watch that begins with the first part."""
    version: int = 50
    requests: list[str] = field(default_factory=list[str])
    events: "asyncio.Queue[WatchEvent | ApiError]" = field(
        default_factory=asyncio.Queue["WatchEvent | ApiError"]
    )
    allows_second_part: asyncio.Event = field(default_factory=asyncio.Event)

    async def pages(self, _: Any, __: Any, label_selector: str | None, ___: Any) -> AsyncGenerator[Page]:
        self.requests.append(f"list {label_selector}")
        if label_selector == PARTS.second:
            await self.allows_second_part.wait()
        answers = self.lists[label_selector]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, ApiError):
            raise answer
        yield Page(answer, str(self.version), first=True)

    async def watch(
        self, _: Any, version: str, *, label_selector: str | None, initial_events: bool, **__: Any
    ) -> AsyncGenerator[WatchEvent]:
        self.requests.append(f"{'stream' if initial_events else 'watch'} {label_selector} {version}".rstrip())
        events = iter(self.streamed)
        while True:
            event = next(events, EXPIRED) if initial_events else await self.events.get()
            if isinstance(event, ApiError):
                raise event
            yield event


@dataclass
class Running:
    """A running watcher with its store and outcomes."""

    client: PartedClient
    store: Store = field(default_factory=lambda: Store(CONFIG_MAPS))
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def __post_init__(self) -> None:
        self.watcher = Watcher(
            cast("Client", self.client),
            CONFIG_MAPS,
            self.store,
            timing=QUICK,
            observe=lambda _, outcome: self.outcomes.append(outcome),
            parts=PARTS,
        )

    def versions(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in self.store.list()}

    async def until(self, **expected: str) -> None:
        while self.versions() != expected:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def run(client: PartedClient) -> AsyncGenerator[Running]:
    running = Running(client)
    task = asyncio.create_task(running.watcher.run())
    try:
        async with asyncio.timeout(60):
            await running.watcher.first_part_synced.wait()
            yield running
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


STREAMED: list[WatchEvent | ApiError] = [WatchEvent("ADDED", obj("open", 10)), end_of_objects(50)]


@pytest.mark.parametrize(
    ("streamed", "requests"),
    [
        pytest.param(STREAMED, ["stream !done"], id="streamed"),
        pytest.param([NOT_SUPPORTED], ["stream !done", "list !done"], id="streams not supported"),
        pytest.param([EXPIRED], ["stream !done", "list !done"], id="stream failed"),
        pytest.param(STREAMED[:1], ["stream !done", "list !done"], id="stream ended early"),
    ],
)
async def test_watch_of_all_objects_begins_at_version_of_first_part(
    streamed: list[WatchEvent | ApiError], requests: list[str]
) -> None:
    client = PartedClient({"!done": [[obj("open", 10)]], "done": [[obj("done", 5)]]}, streamed)
    async with run(client) as running:
        assert running.versions() == {"open": "10"}
        assert not running.watcher.synced.is_set()
        assert not running.store.is_complete
        # Changes are observed before the second part is listed.
        client.events.put_nowait(WatchEvent("MODIFIED", obj("open", 51)))
        client.events.put_nowait(WatchEvent("ADDED", obj("new", 52)))
        await running.until(open="51", new="52")
        client.allows_second_part.set()
        await running.watcher.synced.wait()
        assert running.store.is_complete
        assert running.versions() == {"open": "51", "new": "52", "done": "5"}
        rest = client.requests[len(requests) :]
        assert (client.requests[: len(requests)], sorted(rest)) == (requests, ["list done", "watch None 50"])


async def test_objects_that_pass_between_parts_or_are_deleted_are_stored_as_the_watch_shows_them() -> None:
    """``ended`` passes to the second part while the first is sent, ``reopened`` to the first afterwards."""
    streamed: list[WatchEvent | ApiError] = [
        WatchEvent("ADDED", obj("ended", 10)),
        WatchEvent("ADDED", obj("deleted", 11)),
        WatchEvent("DELETED", obj("ended", 40)),
        WatchEvent("DELETED", obj("deleted", 41)),
        end_of_objects(50),
    ]
    second = [obj("ended", 40), obj("reopened", 12), obj("ended-later", 13), obj("deleted-later", 14)]
    client = PartedClient({"done": [second]}, streamed)
    async with run(client) as running:
        assert running.versions() == {}
        for event in (
            WatchEvent("MODIFIED", obj("reopened", 51)),
            WatchEvent("MODIFIED", obj("ended-later", 52)),
            WatchEvent("DELETED", obj("deleted-later", 53)),
        ):
            client.events.put_nowait(event)
        await running.until(reopened="51", **{"ended-later": "52"})
        while not client.events.empty():
            await asyncio.sleep(0.001)
        client.allows_second_part.set()
        await running.watcher.synced.wait()
        assert running.versions() == {"ended": "40", "reopened": "51", "ended-later": "52"}


async def test_failed_second_part_is_listed_again() -> None:
    unavailable = ApiError(503, "ServiceUnavailable", "no")
    client = PartedClient({"done": [unavailable, EXPIRED, [obj("done", 5)]]}, STREAMED)
    client.allows_second_part.set()
    async with run(client) as running:
        await running.watcher.synced.wait()
        assert running.versions() == {"open": "10", "done": "5"}
        assert client.requests.count("list done") == 3


async def test_all_objects_are_listed_if_the_watch_expires_before_the_second_part_is_complete() -> None:
    all_objects: Listed = [obj("open", 60), obj("done", 6)]
    client = PartedClient({"done": [[obj("deleted", 5)]], None: [all_objects]}, STREAMED)
    async with run(client) as running:
        client.version = 70
        client.events.put_nowait(EXPIRED)
        await running.watcher.synced.wait()
        # The second part is not listed any more: it could contain objects that were deleted since.
        client.allows_second_part.set()
        client.events.put_nowait(WatchEvent("ADDED", obj("new", 71)))
        await running.until(open="60", done="6", new="71")
        assert running.store.is_complete
        assert client.requests[-2:] == ["list None", "watch None 70"]
        assert running.outcomes == [Outcome.LISTED, Outcome.EXPIRED, Outcome.LISTED]


async def test_second_part_is_not_listed_after_the_watcher_was_cancelled() -> None:
    client = PartedClient({"done": [[obj("done", 5)]]}, STREAMED)
    async with run(client) as running:
        while "list done" not in client.requests:
            await asyncio.sleep(0.001)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not running.watcher.synced.is_set()
