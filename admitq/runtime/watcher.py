"""Keeps a store equal to the API: list, then watch, then watch again.

The first list is the beginning of a watch, in which the API server sends all objects. So the process stores
objects while the API server still encodes others. The API server sends them from its cache. It may read the
pages of a list from etcd instead, which takes several times as long. If a watch with all objects fails or is
not supported, the objects are listed page by page, as in all later lists.

The first list may have two parts (``second_part``). Users of the store that need only the first part then
begin while the second part is listed.

The watcher resumes a watch that ended at the last resource version. It lists everything again only if that
version has expired (410), or if an answer was malformed. After silence, a lost connection or an error it
retries with a backoff. It ends when it is cancelled and, if so configured, when the API server does not serve
the resource.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client, Page, WatchEvent
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.runtime.second_part import OBJECTS_PER_TURN, ListParts, list_second_part, next_page
from admitq.runtime.store import Handler, Listing, ListPart, Store

log = logger(__name__)


class Outcome(StrEnum):
    """The outcome of a list or watch, for metrics."""

    LISTED = "listed"
    ENDED = "ended"
    EXPIRED = "expired"
    SILENT = "silent"
    MALFORMED = "malformed"
    FAILED = "failed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The delays of a watcher, in seconds.

    ``inactivity`` must be longer than the minute between two bookmarks. After a watch that lasted ``healthy``
    seconds the next one starts at once, and the backoff is reset.
    """

    first_backoff: float = 0.8
    longest_backoff: float = 30.0
    inactivity: float = 75.0
    server_timeout: tuple[int, int] = (300, 600)
    healthy: float = 1.0


class WatchBackoff:
    """Delays that double from ``first`` to ``most`` seconds, with random jitter."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        """Reset to the shortest delay."""
        self._next = self._first

    def seconds(self) -> float:
        """Return the next delay. It is never zero, so that failures cannot cause a busy loop."""
        ceiling, self._next = self._next, min(self._most, self._next * 2)
        return random.uniform(self._first / 2, ceiling)  # noqa: S311 - spreads clients, guards nothing


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which objects of a resource are listed and watched; None is no restriction."""

    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None

    def restrict(self, label_selector: str) -> "_Selection":
        """Return the selection of those objects that another label selector also selects."""
        selectors = (selector for selector in (self.label_selector, label_selector) if selector)
        return replace(self, label_selector=",".join(selectors))


_NOT_SUPPORTED = frozenset({400, 422})
"""The statuses with which an API server rejects a watch that begins with all objects."""

RELIST_AFTER = 5
"""The number of consecutive watches without an event after which everything is listed again."""

RELIST_AFTER_SILENCES = 2
"""The number of consecutive silent watches after which everything is listed again.

After a restore from a backup, the server sends nothing on a watch from a version that it has not reached.
"""


class Watcher:
    """Fills one store from one resource until it is cancelled.

    With ``ends_when_missing`` it also ends when the API server does not serve the resource: the CRD was
    deleted, or serves another version. The objects in the store then stay as they are.

    With ``streams_list`` the first list is the beginning of a watch if the API server supports that.

    ``synced`` is set once the first complete list is in the store. With ``parts``, the first list has two
    parts, and ``first_part_synced`` is set earlier: once the first part is in the store. ``handlers`` are
    subscribed to the store. ``errors`` handles unexpected exceptions; after one, everything is listed again.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        store: Store,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        handlers: Sequence[Handler] = (),
        timing: WatchTiming | None = None,
        observe: Callable[[Resource, Outcome], None] | None = None,
        ends_when_missing: bool = False,
        streams_list: bool = True,
        parts: ListParts | None = None,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.resource = resource
        self.store = store
        self.synced = asyncio.Event()
        self.first_part_synced = asyncio.Event()
        self._client = client
        self._selection = _Selection(namespace, label_selector, field_selector)
        self._timing = timing or WatchTiming()
        self._observe = observe
        self._ends_when_missing = ends_when_missing
        self._errors = errors
        self._backoff = WatchBackoff(self._timing.first_backoff, self._timing.longest_backoff)
        self._version = ""
        self._streams_list = streams_list
        """Whether the next list is the beginning of a watch."""
        self._parts = parts
        """The parts of the next list; None if it has no parts."""
        self._second_part: asyncio.Task[None] | None = None
        self._listing: Listing | None = None
        """The list at the beginning of the running watch, until it is complete."""
        self._failures = 0
        self._silences = 0
        self._progress_at = time.monotonic()
        for handler in handlers:
            store.subscribe(handler)

    def stalled_for(self) -> float:
        """Return the seconds since a part of the first list came; 0 once it is complete."""
        return 0.0 if self.synced.is_set() else time.monotonic() - self._progress_at

    async def run(self) -> None:
        """List and watch until cancelled, or until the resource is not served."""
        try:
            await self._list_and_watch_repeatedly()
        finally:
            await self._stop_second_part()

    async def _list_and_watch_repeatedly(self) -> None:
        while True:
            began = time.monotonic()
            outcome = await self._list_or_watch()
            self._report(outcome)
            lasted = time.monotonic() - began
            if outcome is Outcome.LISTED:
                continue
            if outcome is Outcome.MISSING and self._ends_when_missing:
                return
            if lasted >= self._timing.healthy:
                self._backoff.reset()
                if outcome is Outcome.ENDED:
                    continue
            await asyncio.sleep(self._backoff.seconds())

    async def _list_or_watch(self) -> Outcome:
        """Run one list, or one watch from the last resource version. Return its outcome."""
        try:
            if self._version:
                await self._watch()
            elif not await self._list_and_watch():
                await self._list()
                return Outcome.LISTED
            elif self._second_part is not None:
                # The watch that began with the first part has ended, since it does not select all objects.
                return Outcome.LISTED
        except ApiError as error:
            return self._process_error(error)
        except Exception as error:  # noqa: BLE001 - a new list may succeed
            self._errors.report(ErrorPart.WATCH, error, self.resource)
            self._version = ""
            return Outcome.FAILED
        self._failures = self._silences = 0
        return Outcome.ENDED

    async def _list_and_watch(self) -> bool:
        """Run a watch that begins with all objects. Return whether the API server supports that.

        Only the first list is like this. It needs no resource version to find out what is new.
        """
        if not self._streams_list:
            return False
        self._streams_list = False
        self._listing = self.store.begin_listing("", self._next_part())
        try:
            await self._watch()
        except ApiError as error:
            if self.first_part_synced.is_set() or error.status not in _NOT_SUPPORTED:
                raise
            log.debug("streamed list not supported", resource=str(self.resource), error=str(error))
            return False
        finally:
            self._listing = None
        if not self.first_part_synced.is_set():
            raise ApiError(0, "Truncated", f"the watch of {self.resource} ended before all objects came")
        return True

    async def _list(self) -> None:
        await self._stop_second_part()  # This list has all objects, unless no first part was listed yet.
        listing = None
        version = ""
        async with contextlib.aclosing(self._pages(self._next_selection())) as pages:
            while (page := await next_page(pages)) is not None:
                if listing is None or page.first:
                    version = page.resource_version
                    listing = self.store.begin_listing(version, self._next_part())
                self._note_progress()
                for number, item in enumerate(page.items, start=1):
                    self.store.add_listed(listing, item)
                    if number % OBJECTS_PER_TURN == 0:
                        # Receive the next page, and do not block other tasks.
                        await asyncio.sleep(0)
        if listing is None or not version:
            raise ApiError(0, "MalformedResponse", f"the list of {self.resource} has no resource version")
        self._finish_listing(listing, version)

    def _next_part(self) -> ListPart:
        """Return which objects the next list contains."""
        return ListPart.ALL if self._parts is None else ListPart.FIRST

    def _next_selection(self) -> "_Selection":
        """Return what the next list or watch selects."""
        return self._selection if self._parts is None else self._selection.restrict(self._parts.first)

    def _pages(self, of: "_Selection") -> AsyncGenerator[Page]:
        return self._client.pages(self.resource, of.namespace, of.label_selector, of.field_selector)

    def _finish_listing(self, listing: Listing, version: str) -> None:
        self.store.finish_listing(listing)
        self._version = version
        self._note_progress()
        self.first_part_synced.set()
        parts, self._parts = self._parts, None
        if parts is None:
            self.synced.set()
        else:
            self._second_part = asyncio.create_task(
                self._list_second_part(parts.second), name=f"list second part of {self.resource}"
            )

    async def _list_second_part(self, label_selector: str) -> None:
        selection = self._selection.restrict(label_selector)
        pause = WatchBackoff(self._timing.first_backoff, self._timing.longest_backoff)
        await list_second_part(
            lambda: self._pages(selection),
            self.store,
            pause_seconds=pause.seconds,
            note_progress=self._note_progress,
            errors=self._errors,
        )
        self.synced.set()

    async def _stop_second_part(self) -> None:
        task, self._second_part = self._second_part, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        is_of_first_part = self._listing is not None and self._listing.part is ListPart.FIRST
        selection = self._next_selection()
        events = self._client.watch(
            self.resource,
            self._version,
            namespace=selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            timeout_seconds=random.randint(*self._timing.server_timeout),  # noqa: S311 - spreads the load
            inactivity=self._timing.inactivity,
            initial_events=self._listing is not None,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                if self._listing is None:
                    self._process_event(event)
                else:
                    self._process_initial_event(event, self._listing)
                if is_of_first_part and self._listing is None:
                    return

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()

    def _process_initial_event(self, event: WatchEvent, listing: Listing) -> None:
        """Store an object of the list; changes of objects may come among them."""
        self._note_progress()
        if event.type == "DELETED":
            # An object that now belongs to the second part comes as deleted.
            self.store.remove(event.object, is_deleted=listing.part is ListPart.ALL)
        elif event.type != "BOOKMARK":
            self.store.add_listed(listing, event.object)
        elif event.ends_initial_events and (version := _version_of(event)):
            listing.resource_version = version
            self._listing = None
            self._finish_listing(listing, version)
            if listing.part is ListPart.ALL:
                self._report(Outcome.LISTED)
        else:
            raise ApiError(0, "MalformedResponse", f"the watch of {self.resource} did not send all objects")

    def _process_event(self, event: WatchEvent) -> None:
        self._failures = self._silences = 0
        if event.type == "DELETED":
            self.store.remove(event.object)
        elif event.type != "BOOKMARK":
            self.store.upsert(event.object)
        if version := _version_of(event):
            self._version = self.store.record_progress(version)

    def _process_error(self, error: ApiError) -> Outcome:
        if error.is_gone or _is_version_too_large(error):
            log.info("watch expired, listing again", resource=str(self.resource), error=str(error))
            self._version = ""
            return Outcome.EXPIRED
        if error.reason in {"MalformedResponse", "LineTooLong"}:
            log.warning("malformed answer, listing again", resource=str(self.resource), error=str(error))
            self._version = ""
            return Outcome.MALFORMED
        if error.is_not_found:
            log.info("resource is not served", resource=str(self.resource), error=str(error))
            self._version = ""
            return Outcome.MISSING
        silent = error.reason == "Timeout"
        self._failures += 1
        self._silences = self._silences + 1 if silent else 0
        if self._failures >= RELIST_AFTER or self._silences >= RELIST_AFTER_SILENCES:
            self._version = ""
        log.info("watch failed, retrying", resource=str(self.resource), error=str(error))
        return Outcome.SILENT if silent else Outcome.FAILED

    def _report(self, outcome: Outcome) -> None:
        if self._observe is None:
            return
        with self._errors.contain(ErrorPart.METRICS, self.resource):
            self._observe(self.resource, outcome)


def _version_of(event: WatchEvent) -> str:
    """Return the resource version of an event; empty without one."""
    metadata = event.object.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def _is_version_too_large(error: ApiError) -> bool:
    """Whether the server has not reached our version: it was restored from a backup, or is behind."""
    details = error.body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes or ()
    )
