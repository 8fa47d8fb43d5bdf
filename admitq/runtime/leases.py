"""Leader election by a Lease, in a thread with a connection of its own.

Why a thread: a busy event loop must not cost the lease, and a stuck one must not keep it for ever.

Why it is safe:

- A leader counts its time from the moment it *sent* its last successful renewal, by a clock that neither
  wall-clock changes nor a suspended machine disturb. It stops being one ``renew_deadline`` later, without
  any answer, message or thread being needed for that: :meth:`Elector.is_leader` only looks at the clock.
- A candidate counts from the moment it *saw* the Lease change last, and waits ``duration`` from there.
  It saw the change after it was sent, and ``duration`` is longer than ``renew_deadline``, so the old leader
  has stopped before the new one begins, whatever either of them believes the time of day to be.
- The times written into the Lease are for people; nothing is decided by them.
"""

import asyncio
import logging
import math
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn

from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.resources import LEASES, Object
from admitq.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """All in seconds. ``stall`` is how long the main event loop may be stuck before leadership is given up.

    Raises:
        ValueError: Times that would let two lead at once, or none for long.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    call: float = 5.0
    stall: float = 10.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * JITTER > 0:
            raise ValueError(
                f"leaseDuration ({self.duration:g} s) must be longer than"
                f" renewDeadline ({self.renew_deadline:g} s),"
                f" and that longer than {JITTER} times retryPeriod ({self.retry:g} s)"
            )


JITTER = 1.2
"""Candidates wait up to this many times the retry period, so that they do not come all at once."""


class Milestone(StrEnum):
    """What an elector tells its observer, in its own thread."""

    ACQUIRED = "acquired"
    RENEWED = "renewed"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"


def exit_process(reason: str) -> NoReturn:
    """End the process at once: whatever it still meant to do is now another one's to do."""
    log.critical("leadership lost: %s", reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def unique_identity() -> str:
    """Name this process as no other one, also not its own predecessor."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def steady_seconds() -> float:
    """Seconds that neither jump nor stop, not even while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. Whatever is missing or of a wrong type counts as nobody's lease."""

    holder: str = ""
    duration: float = 0.0
    acquired: str | None = None
    renewed: str | None = None
    transitions: int = 0
    metadata: Object = field(default_factory=dict[str, Any])
    """The object's metadata as it was read: whatever others wrote there is written back."""

    @property
    def resource_version(self) -> str:
        """The version that was read; empty where there is no Lease."""
        return str(self.metadata.get("resourceVersion") or "")


def read_record(lease: Object) -> Record:
    """Read a Lease object, however odd."""
    spec: Any = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    metadata: Any = lease.get("metadata")

    def of(kind: type[Any], key: str) -> Any:
        value = spec.get(key)
        return value if isinstance(value, kind) else None

    return Record(
        holder=of(str, "holderIdentity") or "",
        duration=float(of(int, "leaseDurationSeconds") or 0),
        acquired=of(str, "acquireTime"),
        renewed=of(str, "renewTime"),
        transitions=of(int, "leaseTransitions") or 0,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def next_record(record: Record, identity: str, duration: float, now: datetime) -> Record:
    """Say what the Lease is to say when ``identity`` takes it, or goes on holding it."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    kept = record.holder == identity
    # A Lease that nobody ever held, such as the one that comes with the chart, passes from nobody.
    passes = not kept and record.acquired is not None
    return replace(
        record,
        holder=identity,
        duration=float(max(1, math.ceil(duration))),
        acquired=record.acquired if kept and record.acquired else stamp,
        renewed=stamp,
        transitions=record.transitions + passes,
    )


class Elector:
    """Stands for leader, and tells at any instant whether this process may act as one.

    ``on_lost`` is called in the elector's thread when leadership ends against our will, by default it ends
    the process; if it returns, the elector is at its end. ``stop`` gives leadership up in good order.
    ``errors`` takes unexpected exceptions of attempts and of ``observe``, in the elector's thread. Any other
    exception ends leadership.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        namespace: str,
        name: str,
        identity: str,
        user_agent: str,
        timing: LeaseTiming | None = None,
        on_lost: Callable[[str], object] = exit_process,
        observe: Callable[[Milestone], None] | None = None,
        clock: Callable[[], float] = steady_seconds,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.identity = identity
        self._credentials = credentials
        self._namespace = namespace
        self._name = name
        self._user_agent = user_agent
        self._timing = timing or LeaseTiming()
        self._on_lost = on_lost
        self._observe = observe
        self._clock = clock
        self._wall = wall
        self._errors = errors
        # Written by the elector's thread, read by any; each is one reference, so no lock is needed.
        self._leads_until = float("-inf")
        self._resigned = False
        self._seen: Record | None = None
        self._seen_at = 0.0
        self._beat_at = 0.0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()  # of the elector's loop
        self._leading = asyncio.Event()  # of the main loop

    # For everybody

    def is_leader(self) -> bool:
        """Tell whether this process may act, now."""
        return not self._resigned and self._clock() < self._leads_until

    def assert_leading(self) -> None:
        """Be the fence of a client's writes.

        Raises:
            NotLeadingError: The lease may no longer be ours.
        """
        if not self.is_leader():
            raise NotLeadingError(f"{self.identity} does not hold lease {self._namespace}/{self._name}")

    @property
    def leader(self) -> str:
        """Who was seen holding the lease last, empty for nobody."""
        return self._seen.holder if self._seen is not None else ""

    def start(self) -> None:
        """Begin to stand for leader; call it in the main event loop."""
        self._main = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="elector", daemon=True)
        self._thread.start()

    async def leading(self) -> None:
        """Wait until this process leads."""
        await self._leading.wait()

    async def stop(self) -> None:
        """Stop acting as leader at once, then let go of the lease. End all work that writes before this."""
        if self._thread is None or self._loop is None:
            return
        self._resigned = True
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                log.debug("the elector had ended by itself")
        await asyncio.to_thread(self._thread.join, 2 * self._timing.call)

    # The elector's thread

    def _run(self) -> None:
        if self._loop is None:
            raise RuntimeError("not started")
        try:
            self._loop.run_until_complete(self._campaign())
        except Exception as error:
            log.exception("the elector failed")
            self._lose(f"the elector failed: {error}")
        finally:
            self._loop.close()

    async def _campaign(self) -> None:
        async with Client(
            self._credentials,
            user_agent=self._user_agent,
            qps=-1,
            timeout=self._timing.call,
            connections=2,
        ) as client:
            while not self._stopping.is_set():
                if await self._attempt(client):
                    reason = None if self._stopping.is_set() else await self._hold(client)
                    if reason is not None:
                        self._lose(reason)
                    else:
                        await self._release(client)
                    return
                await self._pause(self._timing.retry * random.uniform(1.0, JITTER))  # noqa: S311 - spreads

    async def _hold(self, client: Client) -> str | None:
        """Lead until asked to stop; tells why, if it ends for another reason."""
        deadline = self._leads_until
        # The main event loop is asked for signs of life from now on; how long we stood by does not count.
        self._beat()
        self._note(Milestone.ACQUIRED)
        log.info("%s leads", self.identity)
        if not self._to_main(self._leading.set):
            return "the main event loop has ended"
        while True:
            await self._pause(min(self._timing.retry, max(0.0, deadline - self._clock())))
            if self._stopping.is_set():
                return None
            if self._clock() >= deadline:
                return f"not renewed for {self._timing.renew_deadline:g} s"
            stuck_for = self._clock() - self._beat_at
            if stuck_for > self._timing.stall:
                return f"the main event loop has been stuck for {stuck_for:.1f} s"
            if not self._to_main(self._beat):
                return "the main event loop has ended"
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    renewed = await self._attempt(client)
            except TimeoutError:
                continue  # and out, at the deadline
            if renewed:
                deadline = self._leads_until
            elif self._seen is not None and self._seen.holder != self.identity:
                return f"{self._seen.holder or 'nobody'} holds the lease"

    async def _attempt(self, client: Client) -> bool:
        """Take the lease, or renew it; tells whether it is ours for another while."""
        try:
            return await self._take(client)
        except ApiError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
        except Exception as error:  # noqa: BLE001 - the next attempt may be well, and the lease tells how long
            self._errors.report(ErrorPart.LEASE, error, f"{self._namespace}/{self._name}")
        self._note(Milestone.FAILED)
        return False

    async def _take(self, client: Client) -> bool:
        known = self._seen
        if known is not None and known.holder == self.identity and self._leads_until > self._clock():
            try:
                return await self._write(client, known)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    raise
                # Somebody edited the Lease, or our last write came through without our hearing of it.
        try:
            record = read_record(await client.get(LEASES, self._name, self._namespace))
        except ApiError as error:
            if not error.is_not_found:
                raise
            record = Record()
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        if record.holder not in {"", self.identity}:
            valid_until = self._seen_at + max(self._timing.duration, record.duration)
            if self._clock() < valid_until:
                return False
        try:
            return await self._write(client, record)
        except ApiError as error:
            if error.is_conflict or error.is_already_exists:
                return False  # another one was faster
            raise

    async def _write(self, client: Client, record: Record) -> bool:
        wanted = next_record(record, self.identity, self._timing.duration, self._wall())
        sent_at = self._clock()
        written = read_record(await self._put(client, wanted))
        self._seen, self._seen_at = written, self._clock()
        self._leads_until = sent_at + self._timing.renew_deadline
        self._note(Milestone.RENEWED)
        return True

    async def _put(self, client: Client, record: Record) -> Object:
        lease: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {**record.metadata, "name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": int(record.duration),
                "acquireTime": record.acquired,
                "renewTime": record.renewed,
                "leaseTransitions": record.transitions,
            },
        }
        if not record.resource_version:
            return await client.create(LEASES, lease)
        return await client.replace(LEASES, lease)

    async def _release(self, client: Client) -> None:
        if self._seen is None or self._seen.holder != self.identity:
            return
        free = next_record(self._seen, self.identity, 1, self._wall())
        try:
            await self._put(client, replace(free, holder="", duration=1))
        except ApiError as error:
            log.warning("the lease is not released and will run out: %s", error)
            return
        log.info("%s has released the lease", self.identity)
        self._note(Milestone.RELEASED)

    def _lose(self, reason: str) -> None:
        self._resigned = True
        self._note(Milestone.LOST)
        self._on_lost(reason)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _beat(self) -> None:
        self._beat_at = self._clock()

    def _to_main(self, callback: Callable[[], object]) -> bool:
        if self._main is None or self._main.is_closed():
            return False
        try:
            self._main.call_soon_threadsafe(callback)
        except RuntimeError:  # closed in between
            return False
        return True

    def _note(self, milestone: Milestone) -> None:
        if self._observe is None:
            return
        with self._errors.contain(ErrorPart.LEASE, milestone):
            self._observe(milestone)
