"""The claim of one process to a Lease: reading it, taking it, renewing it, releasing it.

A claim is safe for these reasons:

- The claim of the holder ends ``renew_deadline`` after it *sent* its last successful renewal. This needs no
  answer, message or thread.
- A candidate takes the Lease ``duration`` after it last *saw* the Lease change. It sees a change only after
  the change was sent, and ``duration`` is longer than ``renew_deadline``. So the old claim has ended before
  the new claim begins.
- Both use a clock that ignores changes of the wall clock and does not stop while the machine is suspended.
- The times in the Lease are information for people. No decision depends on them.
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

    Raises:
        ValueError: With these periods two processes could lead at once, or the leader could not renew.
    """

    duration: float = 15.0
    """How long candidates wait after a change of the Lease."""
    renew_deadline: float = 10.0
    """How long the leader may lead after its last successful renewal."""
    retry: float = 2.0
    """The period between two attempts to take or renew the Lease."""
    call: float = 5.0
    """The deadline of one request."""
    stall_timeout: float = 10.0
    """How long the main event loop may be blocked before the process gives leadership up."""

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * JITTER > 0:
            raise ValueError(
                f"leaseDuration ({self.duration:g} s) must be longer than"
                f" renewDeadline ({self.renew_deadline:g} s),"
                f" and that longer than {JITTER} times retryPeriod ({self.retry:g} s)"
            )


JITTER = 1.2
"""Candidates wait up to this multiple of the retry period, so that they do not all retry at once."""


def steady_seconds() -> float:
    """Return seconds of a clock that never jumps, and does not stop while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The fields of a Lease. A field that is missing or has a wrong type counts as empty."""

    holder: str = ""
    duration: float = 0.0
    acquired: str | None = None
    renewed: str | None = None
    transitions: int = 0
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """The metadata that was read. It is written back without changes."""

    @property
    def resource_version(self) -> str:
        """The version that was read; empty if the Lease does not exist."""
        return str(self.metadata.get("resourceVersion") or "")


def read_record(lease: dict[str, Any]) -> LeaseRecord:
    """Return the record of a Lease object, which may be malformed."""
    spec: Any = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    metadata: Any = lease.get("metadata")

    def read_field(field_type: type[Any], key: str) -> Any:
        value = spec.get(key)
        return value if isinstance(value, field_type) else None

    return LeaseRecord(
        holder=read_field(str, "holderIdentity") or "",
        duration=float(read_field(int, "leaseDurationSeconds") or 0),
        acquired=read_field(str, "acquireTime"),
        renewed=read_field(str, "renewTime"),
        transitions=read_field(int, "leaseTransitions") or 0,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def next_record(record: LeaseRecord, identity: str, duration: float, now: datetime) -> LeaseRecord:
    """Return the record to write when ``identity`` takes or renews the Lease."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_renewal = record.holder == identity
    # Taking a Lease that had no holder yet, such as the one that the chart creates, is not a transition.
    is_transition = not is_renewal and record.acquired is not None
    return replace(
        record,
        holder=identity,
        duration=float(max(1, math.ceil(duration))),
        acquired=record.acquired if is_renewal and record.acquired else stamp,
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
        identity: the holder identity of the process.
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
        """The holder that was last read; empty if the Lease has none, None if no Lease was read."""
        return None if self._seen is None else self._seen.holder

    async def take(self, client: Client) -> bool:
        """Take the Lease, or renew it. Return whether the process holds it for another period.

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
                # Another program edited the Lease, or the answer to our last write was lost: read the Lease.
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
                return False  # Another process took the Lease first.
            raise
        return True

    async def release(self, client: Client) -> bool:
        """Write a Lease without a holder. Return whether the process held the Lease.

        Raises:
            ApiError: the Lease cannot be written.
        """
        if self._seen is None or self._seen.holder != self.identity:
            return False
        last = next_record(self._seen, self.identity, 1, self._clocks.wall())
        await self._put(client, replace(last, holder="", duration=1))
        return True

    async def _write(self, client: Client, record: LeaseRecord) -> None:
        new_record = next_record(record, self.identity, self._timing.duration, self._clocks.wall())
        sent_at = self._clocks.steady()
        written = read_record(await self._put(client, new_record))
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
