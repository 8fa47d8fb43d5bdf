"""The claim of one process to a Lease: reading it, taking it, renewing it, releasing it.

A claim is safe for these reasons:

- The holder counts its time from the moment when it *sent* its last successful renewal, by a clock that
ignores changes of the wall clock and runs on while the machine is suspended. The claim ends
``renew_deadline`` later without any answer, message or thread. - A candidate counts from the moment when it
last *saw* the Lease change, and waits ``duration`` from then. It saw the change after the change was sent,
and ``duration`` is longer than ``renew_deadline``. So the claim of the old holder has ended before the new
one begins, whatever the wall clocks of the two show. - The times in the Lease are for people; no decision
depends on them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import LEASES


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Periods of leader election, in seconds.

    ``stall`` is how long the main event loop may be stuck before leadership is given up.

    Raises:
        ValueError: Times with which two processes could lead at once, or none for long.
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
"""Candidates wait up to this many times the retry period, so that they do not retry all at once."""


def steady_seconds() -> float:
    """Seconds that neither jump nor stop, not even while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease states. A field that is missing or of a wrong type counts as empty."""

    holder: str = ""
    duration: float = 0.0
    acquired: str | None = None
    renewed: str | None = None
    transitions: int = 0
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """The metadata that was read. It is written back as it is."""

    @property
    def resource_version(self) -> str:
        """The version that was read; empty where there is no Lease."""
        return str(self.metadata.get("resourceVersion") or "")


def read_record(lease: dict[str, Any]) -> LeaseRecord:
    """Read a Lease object of any shape."""
    spec: Any = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    metadata: Any = lease.get("metadata")

    def of(kind: type[Any], key: str) -> Any:
        value = spec.get(key)
        return value if isinstance(value, kind) else None

    return LeaseRecord(
        holder=of(str, "holderIdentity") or "",
        duration=float(of(int, "leaseDurationSeconds") or 0),
        acquired=of(str, "acquireTime"),
        renewed=of(str, "renewTime"),
        transitions=of(int, "leaseTransitions") or 0,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def next_record(record: LeaseRecord, identity: str, duration: float, now: datetime) -> LeaseRecord:
    """The record of a Lease that ``identity`` takes or renews."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    kept = record.holder == identity
    # The first holder of a Lease, such as the one of the chart, is not a transition.
    is_transition = not kept and record.acquired is not None
    return replace(
        record,
        holder=identity,
        duration=float(max(1, math.ceil(duration))),
        acquired=record.acquired if kept and record.acquired else stamp,
        renewed=stamp,
        transitions=record.transitions + is_transition,
    )


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a claim.

    ``steady`` gives seconds, and ignores changes of the wall clock. ``wall`` gives the times that are written
    into the Lease.
    """

    steady: Callable[[], float] = steady_seconds
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)


class LeaseClaim:
    """The claim of one process to a Lease.

    Args:
        namespace: the Lease's namespace.
        name: the Lease's name.
        identity: the holder that the process writes.
        timing: how long a claim is valid.
        clocks: the clocks.

    Attributes:
        valid_until: when the claim ends, by the steady clock. Any thread may read it.
    """

    def __init__(self, namespace: str, name: str, identity: str, timing: LeaseTiming, clocks: Clocks) -> None:
        self.identity = identity
        self.valid_until = float("-inf")
        self._namespace = namespace
        self._name = name
        self._timing = timing
        self._clocks = clocks
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    @property
    def is_valid(self) -> bool:
        """Whether the process holds the Lease now."""
        return self._clocks.steady() < self.valid_until

    @property
    def holder(self) -> str | None:
        """The holder that was last seen; empty if the Lease has none, None if no Lease was seen."""
        return None if self._seen is None else self._seen.holder

    async def take(self, client: Client) -> bool:
        """Take the Lease, or renew it; returns whether the process holds it for another period.

        Raises:
            ApiError: the Lease cannot be read or written.
        """
        known = self._seen
        if known is not None and known.holder == self.identity and self.is_valid:
            try:
                await self._write(client, known)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    raise
                # Another program edited the Lease, or our last write took effect without an answer.
            else:
                return True
        try:
            record = read_record(await client.get(LEASES, self._name, self._namespace))
        except ApiError as error:
            if not error.is_not_found:
                raise
            record = LeaseRecord()
        now = self._clocks.steady
        if record != self._seen:
            self._seen, self._seen_at = record, now()
        if record.holder not in {"", self.identity}:
            expires_at = self._seen_at + max(self._timing.duration, record.duration)
            if now() < expires_at:
                return False
        try:
            await self._write(client, record)
        except ApiError as error:
            if error.is_conflict or error.is_already_exists:
                return False  # another process was faster
            raise
        return True

    async def release(self, client: Client) -> bool:
        """Write a Lease without a holder; returns whether the process held the Lease.

        Raises:
            ApiError: the Lease cannot be written.
        """
        if self._seen is None or self._seen.holder != self.identity:
            return False
        free = next_record(self._seen, self.identity, 1, self._clocks.wall())
        await self._put(client, replace(free, holder="", duration=1))
        return True

    async def _write(self, client: Client, record: LeaseRecord) -> None:
        wanted = next_record(record, self.identity, self._timing.duration, self._clocks.wall())
        sent_at = self._clocks.steady()
        written = read_record(await self._put(client, wanted))
        self._seen, self._seen_at = written, self._clocks.steady()
        self.valid_until = sent_at + self._timing.renew_deadline

    async def _put(self, client: Client, record: LeaseRecord) -> dict[str, Any]:
        lease: dict[str, Any] = {
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
