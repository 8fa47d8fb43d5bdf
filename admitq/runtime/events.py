"""Records Kubernetes events (``events.k8s.io/v1``).

Events are for readers of an object. Nothing may ever wait for an event or fail without one. So the
recorder takes them into a bounded queue and writes them one after another. An event that repeats becomes a
series of one event. The recorder drops the events of an object that has too many, and counts them.

An event repeats another one if both have the same type, action, reason and related object, and regard the
same object in the same ``resourceVersion``. The series keeps the note of its first event.
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
Drop = Literal["queue full", "too many for the object", "refused", "malformed", "not leading"]

_REFERENCE_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")
_ObjectKey = tuple[str, ...]
"""The fields of a reference to an object, in the order of ``_REFERENCE_FIELDS``."""
_SeriesKey = tuple[_ObjectKey, _ObjectKey, str, str, str]
"""What the events of one series have in common: regarding, related, type, reason and action.

Controller and instance are those of the recorder. The note may differ: the series keeps the first one.
"""


@dataclass(frozen=True, slots=True)
class EventLimits:
    """How much is recorded.

    A repetition joins its series for ``series_life`` seconds after the last one, and the series is written
    at most every ``series_interval`` seconds. Of one object ``burst`` events are taken at once, and one
    more each ``refill`` seconds.
    """

    queue: int = 2000
    series: int = 4096
    series_life: float = 360.0
    series_interval: float = 30.0
    burst: int = 25
    refill: float = 30.0
    attempts: int = 3


@dataclass(slots=True)
class _Series:
    """An event that may repeat; ``written_count`` is how often the API knows it to have happened."""

    event: dict[str, Any]
    count: int
    last_at: float
    last_seen: datetime
    written_count: int = 0
    due: float = 0.0
    queued: bool = True


@dataclass(slots=True)
class _Allowance:
    tokens: float
    at: float


class EventRecorder:
    """Records events about objects; :meth:`run` writes them until it is cancelled.

    ``reporting_controller`` is a qualified name (``<group>/manager``), ``instance`` names the process.
    ``dropped`` counts what was not recorded, by cause. ``errors`` takes exceptions that nothing here expects.
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
        self._grown: dict[_SeriesKey, _Series] = {}
        self._look_at = float("-inf")
        self._allowances: OrderedDict[_ObjectKey, _Allowance] = OrderedDict()
        self._repeatable_at: OrderedDict[tuple[Any, ...], float] = OrderedDict()
        """When events with a least interval may be recorded again, soonest first; objects without version."""
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
        """Take an event about an object. Never raises, never waits.

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
            self._take(regarding, kind, reason, note, action or reason, related, at_most_every)
        except Exception as error:  # noqa: BLE001 - nothing may fail for want of an event
            self._errors.report(ErrorPart.EVENT, error, reason)
            self._drop("malformed")

    async def run(self) -> None:
        """Write what is taken, and series that have grown, until cancelled."""
        while True:
            series = None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.series_interval):
                    series = await self._queue.get()
            with self._errors.contain(ErrorPart.EVENT):
                if series is not None:
                    await self._write(series)
                if series is None or self._clock() >= self._look_at:
                    self._enqueue_grown()

    async def flush(self) -> None:
        """Write all that is waiting, also series before their time. For the end of a process."""
        self._enqueue_grown(before_their_time=True)
        while not self._queue.empty():
            await self._write(self._queue.get_nowait())

    # Taking

    def _take(
        self,
        regarding: dict[str, Any],
        kind: EventType,
        reason: str,
        note: str,
        action: str,
        related: dict[str, Any] | None,
        at_most_every: float | None,
    ) -> None:
        about = _reference(regarding)
        other = None if related is None else _reference(related)
        text = cut(note, MAX_NOTE_BYTES)
        series_key = (_key(about), _key(other or {}), kind, reason, action)
        now, seen = self._clock(), self._wall()
        if at_most_every is not None and self._is_repetition(series_key, now, at_most_every):
            return
        known = self._series.get(series_key)
        if known is not None and now - known.last_at <= self._limits.series_life:
            known.count += 1
            known.last_at, known.last_seen = now, seen
            self._series.move_to_end(series_key)
            self._grown[series_key] = known
            return
        if at_most_every is None and not self._allow(_key({**about, "resourceVersion": ""}), now):
            self._drop("too many for the object")
            return
        event: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": _event_name(about["name"]),
                "namespace": about.get("namespace") or "default",
            },
            "eventTime": _micro_time(seen),
            "type": kind,
            "reason": reason[:MAX_WORD],
            "action": action[:MAX_WORD],
            "note": text,
            "regarding": about,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        if other is not None:
            event["related"] = other
        series = _Series(event, 1, now, seen, queued=False)
        if not self._enqueue(series):
            return
        self._series[series_key] = series
        self._series.move_to_end(series_key)
        while len(self._series) > self._limits.series:
            self._series.popitem(last=False)

    def _is_repetition(self, event: _SeriesKey, now: float, seconds: float) -> bool:
        """Whether the event was recorded in the last seconds; if not, note that it is recorded now."""
        about, *others = event
        key = (about[:-1], *others)
        while self._repeatable_at and next(iter(self._repeatable_at.values())) <= now:
            self._repeatable_at.popitem(last=False)
        if self._repeatable_at.get(key, now) > now:
            return True
        self._repeatable_at[key] = now + seconds
        self._repeatable_at.move_to_end(key)
        return False

    def _allow(self, about: _ObjectKey, now: float) -> bool:
        limits = self._limits
        allowance = self._allowances.setdefault(about, _Allowance(float(limits.burst), now))
        self._allowances.move_to_end(about)
        while len(self._allowances) > limits.series:
            self._allowances.popitem(last=False)
        grown = allowance.tokens + (now - allowance.at) / limits.refill
        allowance.tokens, allowance.at = min(float(limits.burst), grown), now
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

    def _enqueue_grown(self, *, before_their_time: bool = False) -> None:
        now = self._clock()
        self._look_at = now + self._limits.series_interval
        for key, series in list(self._grown.items()):
            if before_their_time or series.due <= now:
                del self._grown[key]
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
                log.info("event was not written", reason=series.event["reason"], error=str(error))
                self._drop("refused")
            except NotLeadingError:
                self._drop("not leading")
            except Exception as error:  # noqa: BLE001 - one event must not end the others
                self._errors.report(ErrorPart.EVENT, error, series.event["reason"])
                self._drop("malformed")
            series.written_count = count  # also when it failed: it is not tried for ever
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
            # The API forgets events after an hour.
            metadata["name"] = _event_name(series.event["regarding"]["name"])
            await self._create(series)

    async def _create(self, series: _Series) -> None:
        body = series.event if series.count == 1 else {**series.event, "series": _series_body(series)}
        try:
            await self._client.create(EVENTS, body)
        except ApiError as error:
            if not error.is_already_exists:  # it is ours: an earlier attempt came through unheard
                raise


def cut(text: str, size: int) -> str:
    """Cut a text to so many bytes of UTF-8, at the end of a character; what was cut shows as an ellipsis."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return raw.decode("utf-8")
    return raw[: size - 3].decode("utf-8", "ignore") + "…"


def _series_body(series: _Series) -> dict[str, Any]:
    return {"count": max(2, series.count), "lastObservedTime": _micro_time(series.last_seen)}


def _reference(obj: dict[str, Any]) -> dict[str, Any]:
    """Make an ObjectReference out of an object, or take one that is."""
    metadata: Any = obj.get("metadata", obj)
    found = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {key: value for key, value in found.items() if value}


def _key(reference: dict[str, Any]) -> _ObjectKey:
    return tuple(str(reference.get(field, "")) for field in _REFERENCE_FIELDS)


def _event_name(regarding: str) -> str:
    """Give a name of its own that begins like the object's and is a DNS subdomain as that may not be."""
    suffix = f".{secrets.token_hex(8)}"
    plain = re.sub(r"[^a-z0-9.-]+", "-", regarding.lower())[: MAX_NAME - len(suffix)]
    return (plain.strip(".-") or "event") + suffix


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
