"""Records Kubernetes events (``events.k8s.io/v1``).

Events inform users about an object. The manager never waits for an event, and never fails because of one. The
recorder puts events into a bounded queue and writes one after another. It counts the events that it drops.

Equal events become one series. Two events are equal if they have the same type, action, reason and related
object, and regard the same object in the same ``resourceVersion``. The series keeps the note of the first
one.
"""

import asyncio
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import EVENTS

log = logger(__name__)

MAX_NOTE_BYTES: Final = 1024
MAX_WORD: Final = 128
"""The API's limit for ``reason``, ``action`` and ``reportingInstance``."""
MAX_NAME: Final = 253

EventType = Literal["Normal", "Warning"]
Drop = Literal[
    "queue full", "too many for the object", "rejected", "malformed", "not leading", "process ended"
]
"""Why an event was dropped."""

_REFERENCE_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")
_ObjectKey = tuple[str, ...]
"""The fields of a reference to an object, in the order of ``_REFERENCE_FIELDS``."""
_SeriesKey = tuple[_ObjectKey, _ObjectKey, str, str, str]
"""The fields that are equal in all events of a series: regarding, related, type, reason and action."""


@dataclass(frozen=True, slots=True)
class EventLimits:
    """The limits of an event recorder; times are in seconds."""

    queue: int = 2000
    """How many events may wait to be written."""
    series: int = 4096
    """How many series, and how many objects with an allowance, are kept in memory."""
    series_life: float = 360.0
    """A series ends this long after its last event. A later equal event begins another series."""
    series_interval: float = 30.0
    """The shortest time between two writes of one series."""
    burst: int = 25
    """How many events one object may have at once."""
    refill: float = 30.0
    """The time after which an object may have one more event."""
    attempts: int = 3
    """How often a failed write is tried."""
    flush: float = 3.0
    """How long the end of the process waits for events. Another process leads only afterwards."""


@dataclass(slots=True)
class _Series:
    """An event that may repeat. ``written_count`` is the number of repetitions that was last written."""

    event: dict[str, Any]
    count: int
    last_at: float
    last_seen: datetime
    written_count: int = 0
    due: float = 0.0
    queued: bool = True


@dataclass(slots=True)
class _Allowance:
    """How many events an object may still have, at the time of its last event."""

    tokens: float
    updated_at: float


class EventRecorder:
    """Records events about objects. :meth:`run` writes them until it is cancelled.

    ``reporting_controller`` is a qualified name (``<group>/manager``). ``instance`` names the process.
    ``dropped`` counts events that were not written, by cause. ``errors`` handles unexpected exceptions.
    """

    def __init__(
        self,
        client: Client,
        reporting_controller: str,
        instance: str,
        *,
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_drop: Callable[[Drop], None] | None = None,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.dropped: Counter[Drop] = Counter()
        self._client = client
        self._controller = reporting_controller
        self._instance = instance[:MAX_WORD]
        self._limits = limits or EventLimits()
        self._clock = clock
        self._wall = wall
        self._on_drop = on_drop
        self._errors = errors
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._repeated: dict[_SeriesKey, _Series] = {}
        """Series with repetitions that were not written yet."""
        self._check_repeated_at = float("-inf")
        self._allowances: OrderedDict[_ObjectKey, _Allowance] = OrderedDict()
        self._repeatable_at: OrderedDict[_SeriesKey, float] = OrderedDict()
        """When an event with ``at_most_every`` may be recorded again, the soonest first. The
        keys have no version of the object."""
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(self._limits.queue)

    def event(
        self,
        regarding: dict[str, Any],
        kind: EventType,
        reason: str,
        note: str,
        action: str | None = None,
        related: dict[str, Any] | None = None,
        *,
        at_most_every: float | None = None,
    ) -> None:
        """Record an event about an object, without waiting and without raising exceptions.

        Args:
            regarding: the object, or a reference to it. The event refers to the object in the version that is
                given. Events about different versions belong to different series.
            kind: Normal or Warning.
            reason: the CamelCase word by which users filter.
            note: the sentence that users read, cut to 1024 bytes.
            action: what was done; by default the reason.
            related: another object that took part.
            at_most_every: seconds after which the same event about the object may be recorded again. Until
                then, a repetition is dropped. Such an event uses nothing of the object's allowance.
        """
        try:
            self._record(regarding, kind, reason, note, action or reason, related, at_most_every)
        except Exception as error:  # noqa: BLE001 - an event must not fail the operation that it reports
            self._errors.report(ErrorPart.EVENT, error, reason)
            self._drop("malformed")

    async def run(self) -> None:
        """Write new events, and series with new repetitions, until cancelled."""
        while True:
            series = None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.series_interval):
                    series = await self._queue.get()
            with self._errors.contain(ErrorPart.EVENT):
                if series is not None:
                    await self._write(series)
                if series is None or self._clock() >= self._check_repeated_at:
                    self._enqueue_repeated()

    async def flush(self) -> None:
        """Write the events and series that wait before the process ends. Drop those that take too long."""
        self._enqueue_repeated(ignore_interval=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.flush):
                while not self._queue.empty():
                    await self._write(self._queue.get_nowait())
        while not self._queue.empty():
            self._queue.get_nowait()
            self._drop("process ended")

    # Recording

    def _record(
        self,
        regarding: dict[str, Any],
        kind: EventType,
        reason: str,
        note: str,
        action: str,
        related: dict[str, Any] | None,
        at_most_every: float | None,
    ) -> None:
        regarding_reference = _reference(regarding)
        related_reference = None if related is None else _reference(related)
        text = cut(note, MAX_NOTE_BYTES)
        regarding_key = _key(regarding_reference)
        related_key = () if related_reference is None else _key(related_reference)
        series_key = (regarding_key, related_key, kind, reason, action)
        unversioned = regarding_key[:-1]
        """The object in any version."""
        now, wall_time = self._clock(), self._wall()
        if at_most_every is not None and self._is_repetition(
            (unversioned, *series_key[1:]), now, at_most_every
        ):
            return
        earlier = self._series.get(series_key)
        if earlier is not None and now - earlier.last_at <= self._limits.series_life:
            earlier.count += 1
            earlier.last_at, earlier.last_seen = now, wall_time
            self._series.move_to_end(series_key)
            self._repeated[series_key] = earlier
            return
        if at_most_every is None and not self._allow(unversioned, now):
            self._drop("too many for the object")
            return
        if self._queue.full():
            self._drop("queue full")
            return
        event: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": _event_name(regarding_reference["name"]),
                "namespace": regarding_reference.get("namespace") or "default",
            },
            "eventTime": _micro_time(wall_time),
            "type": kind,
            "reason": reason[:MAX_WORD],
            "action": action[:MAX_WORD],
            "note": text,
            "regarding": regarding_reference,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        if related_reference is not None:
            event["related"] = related_reference
        series = _Series(event, 1, now, wall_time, queued=False)
        if not self._enqueue(series):
            return
        self._series[series_key] = series
        self._series.move_to_end(series_key)
        while len(self._series) > self._limits.series:
            self._series.popitem(last=False)

    def _is_repetition(self, event: _SeriesKey, now: float, seconds: float) -> bool:
        """Whether the event was recorded within the last seconds. If not, store that it is recorded now."""
        while self._repeatable_at and next(iter(self._repeatable_at.values())) <= now:
            self._repeatable_at.popitem(last=False)
        if self._repeatable_at.get(event, now) > now:
            return True
        self._repeatable_at[event] = now + seconds
        self._repeatable_at.move_to_end(event)
        return False

    def _allow(self, regarding: _ObjectKey, now: float) -> bool:
        """Use one event of the allowance of an object. Return False if none is left."""
        limits = self._limits
        allowance = self._allowances.setdefault(regarding, _Allowance(float(limits.burst), now))
        self._allowances.move_to_end(regarding)
        while len(self._allowances) > limits.series:
            self._allowances.popitem(last=False)
        refilled = allowance.tokens + (now - allowance.updated_at) / limits.refill
        allowance.tokens, allowance.updated_at = min(float(limits.burst), refilled), now
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    def _enqueue(self, series: _Series) -> bool:
        if series.queued:
            return True
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self._drop("queue full")
            return False
        series.queued = True
        return True

    def _drop(self, cause: Drop) -> None:
        self.dropped[cause] += 1
        if self._on_drop is not None:
            with self._errors.contain(ErrorPart.EVENT, cause):
                self._on_drop(cause)

    # Writing

    def _enqueue_repeated(self, *, ignore_interval: bool = False) -> None:
        now = self._clock()
        self._check_repeated_at = now + self._limits.series_interval
        for key, series in list(self._repeated.items()):
            if ignore_interval or series.due <= now:
                del self._repeated[key]
                if series.count > series.written_count:
                    self._enqueue(series)

    async def _write(self, series: _Series) -> None:
        series.queued = False
        for attempt in range(self._limits.attempts):
            count = series.count
            try:
                with call_priority(CallPriority.EVENT):
                    await self._send(series)
            except ApiError as error:
                if error.is_transient and attempt + 1 < self._limits.attempts:
                    await asyncio.sleep(max(error.retry_after or 0.0, 0.2 * 2**attempt))
                    continue
                log.info(
                    "kubernetes event not written", event_reason=series.event["reason"], error=str(error)
                )
                self._drop("rejected")
            except NotLeadingError:
                self._drop("not leading")
            except Exception as error:  # noqa: BLE001 - the recorder must go on with the next event
                self._errors.report(ErrorPart.EVENT, error, series.event["reason"])
                self._drop("malformed")
            series.written_count = count  # Also after a failure, so that the same count is not written again.
            series.due = self._clock() + self._limits.series_interval
            return

    async def _send(self, series: _Series) -> None:
        if series.written_count == 0:
            await self._create(series)
            return
        metadata = series.event["metadata"]
        try:
            await self._client.merge_patch(
                EVENTS, metadata["name"], {"series": _series_body(series)}, metadata["namespace"]
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            # The API server deletes events after an hour.
            metadata["name"] = _event_name(series.event["regarding"]["name"])
            await self._create(series)

    async def _create(self, series: _Series) -> None:
        body = series.event if series.count == 1 else {**series.event, "series": _series_body(series)}
        try:
            await self._client.create(EVENTS, body)
        except ApiError as error:
            if not error.is_already_exists:  # An earlier attempt created the event, but its answer was lost.
                raise


def cut(text: str, size: int) -> str:
    """Return the text in at most ``size`` bytes of UTF-8. An ellipsis replaces what was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return raw.decode("utf-8")
    return raw[: size - 3].decode("utf-8", "ignore") + "…"


def _series_body(series: _Series) -> dict[str, Any]:
    return {"count": max(2, series.count), "lastObservedTime": _micro_time(series.last_seen)}


def _reference(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an ObjectReference to an object. ``obj`` may also be such a reference."""
    metadata: Any = obj.get("metadata", obj)
    fields = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {key: value for key, value in fields.items() if value}


def _key(reference: dict[str, Any]) -> _ObjectKey:
    return tuple([str(reference.get(field, "")) for field in _REFERENCE_FIELDS])


def _event_name(regarding: str) -> str:
    """Return a unique name that begins with the object's name, with the characters of a DNS subdomain."""
    suffix = f".{secrets.token_hex(8)}"
    prefix = re.sub(r"[^a-z0-9.-]+", "-", regarding.lower())[: MAX_NAME - len(suffix)]
    return (prefix.strip(".-") or "event") + suffix


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
