"""Entries: ClusterQueues, LocalQueues and workloads as observed, each with its derived state."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, NamedTuple

from admitq.core.activity import InactiveCause
from admitq.core.cohorts import Node
from admitq.core.flavor_options import FlavorOptions
from admitq.core.instructions import Preempt, RefreshClusterQueue, RefreshLocalQueue
from admitq.core.ledger import Reservation
from admitq.core.lifecycle import Phase, phase_of
from admitq.core.model import (
    SECOND,
    Admission,
    ClusterQueue,
    Instant,
    LocalQueue,
    ObjectKey,
    StopPolicy,
    Workload,
)
from admitq.core.statuses import ClusterQueueFingerprint, LocalQueueFingerprint
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.scheduling_key import local_queue_of
from admitq.core.waiting.wait_states import Blocking
from admitq.core.write_retries import retry_delay


@dataclass(slots=True, eq=False)
class ClusterQueueEntry:
    """A ClusterQueue as observed, with its node, its pending workloads and its flavor options."""

    spec: ClusterQueue
    node: Node
    queue: PendingQueue
    flavor_options: FlavorOptions
    inactive_causes: tuple[InactiveCause, ...] = ()
    blocking_state_before_cycle: Blocking | None = None
    """The wait state of its blocking head before the running cycle; None without one."""
    last_fingerprint: ClusterQueueFingerprint | None = None
    """The fingerprint of the status for which a refresh was last requested."""
    refresh: RefreshClusterQueue = field(init=False)
    """The instruction that requests a refresh of its status."""

    def __post_init__(self) -> None:
        """Create the instruction."""
        self.refresh = RefreshClusterQueue(self.spec.name)

    @property
    def is_active(self) -> bool:
        """Whether it admits workloads."""
        return not self.inactive_causes


@dataclass(slots=True, eq=False)
class LocalQueueEntry:
    """A LocalQueue as observed, and the number of its pending workloads."""

    spec: LocalQueue
    pending: int = 0
    last_fingerprint: LocalQueueFingerprint | None = None
    """The fingerprint of the status for which a refresh was last requested."""
    refresh: RefreshLocalQueue = field(init=False)
    """The instruction that requests a refresh of its status."""

    def __post_init__(self) -> None:
        """Create the instruction."""
        self.refresh = RefreshLocalQueue(self.spec.key)

    @property
    def is_open(self) -> bool:
        """Whether its pending workloads are queued in its ClusterQueue."""
        return self.spec.stop_policy is StopPolicy.NONE and not self.spec.terminating


class Assumption(NamedTuple):
    """A reservation that was decided and is not observed yet."""

    admission: Admission
    admit: bool
    reserved_at: Instant = 0

    @classmethod
    def decided(cls, admission: Admission, now: Instant, *, admit: bool) -> "Assumption":
        """Return a reservation that was decided now, at an instant in whole seconds as in the API."""
        return cls(admission, admit, now // SECOND * SECOND)


class AssumedPlaces(NamedTuple):
    """Topology assignments that were decided for a workload with quota, and that are not observed yet.

    ``admission`` is the reservation with them, and ``former`` the observed reservation to which they belong.
    """

    admission: Admission
    former: Admission


class FailedReservations(NamedTuple):
    """Reservations of a workload that could not be written, since the workload last changed.

    ``failures`` is their number. The workload is not evaluated again before ``retry_at``.
    """

    failures: int
    retry_at: Instant


_DECIDED: Final = frozenset({"admission", "admitted", "reserved_at"})

_not_decided: Final[Callable[[Workload], object]] = attrgetter(
    *(field_.name for field_ in fields(Workload) if field_.name not in _DECIDED)
)
"""Returns all values of a workload that a reservation does not change."""


@dataclass(slots=True, eq=False)
class WorkloadEntry:
    """A workload as observed, with its derived state."""

    workload: Workload
    assumed: Assumption | None = None
    assumed_places: AssumedPlaces | None = None
    held: Reservation | None = None
    """The reservation that is counted for it."""
    counted_in: ObjectKey | None = None
    """The LocalQueue that counts it as pending."""
    queued_in: str | None = None
    """The ClusterQueue in which it is queued."""
    pending: PendingEntry | None = None
    inactive_in: str | None = None
    """The ClusterQueue under which the workload is indexed as inactive with a reservation."""
    preempting: Preempt | None = None
    """The instruction to preempt it, until it is observed as evicted, or the preemption failed."""
    failed: FailedReservations | None = None
    """Its reservations that could not be written, until one is written or the workload changes."""
    local_queue: ObjectKey = field(init=False)
    """The LocalQueue that it names."""

    def __post_init__(self) -> None:
        """Derive the key of its LocalQueue."""
        self.local_queue = local_queue_of(self.workload)

    def observe(self, workload: Workload) -> None:
        """Record the workload as it is now."""
        if workload.queue_name != self.workload.queue_name:
            self.local_queue = local_queue_of(workload)
        self.workload, self.failed = workload, None

    def confirm(self, workload: Workload) -> bool:
        """Record the workload as it is now, if the assumed reservation is its only change.

        Most reservations are observed in this way. All their consequences are counted already.

        Returns:
            Whether the assumed reservation is the only change. If not, this method does nothing.
        """
        assumed = self.assumed
        confirmed = (
            assumed is not None
            and workload.admitted == assumed.admit
            and workload.reserved_at == assumed.reserved_at
            and workload.admission == assumed.admission
            and not (workload.finished or workload.evicted or workload.admission_checks)
            and _not_decided(workload) == _not_decided(self.workload)
        )
        if confirmed:
            self.assumed, self.workload, self.failed = None, workload, None
        return confirmed

    def count_failed_reservation(self, now: Instant) -> None:
        """Count a reservation that could not be written. The next attempt comes after ``retry_delay``."""
        self.failed = FailedReservations(self._failures + 1, now + self.retry_delay)

    @property
    def retry_delay(self) -> Instant:
        """The nanoseconds for which it is held back if its next reservation cannot be written."""
        return retry_delay(self._failures + 1)

    @property
    def _failures(self) -> int:
        return 0 if self.failed is None else self.failed.failures

    @property
    def not_before(self) -> Instant:
        """The instant before which it must not be evaluated; 0 if there is none."""
        retry_at = 0 if self.failed is None else self.failed.retry_at
        return max(self.workload.requeue_at or 0, retry_at)

    @property
    def admission(self) -> Admission | None:
        """The reservation that it has, or that is being written."""
        if self.workload.admission is not None:
            return self.workload.admission if self.assumed_places is None else self.assumed_places.admission
        return None if self.assumed is None else self.assumed.admission

    @property
    def is_admitted(self) -> bool:
        """Whether it is admitted, or its admission is being written."""
        if self.workload.admission is not None:
            return self.workload.admitted
        return self.assumed is not None and self.assumed.admit

    @property
    def reserved_at(self) -> Instant:
        """The instant of its reservation; 0 without one."""
        if self.workload.admission is not None:
            return self.workload.reserved_at
        return 0 if self.assumed is None else self.assumed.reserved_at

    @property
    def is_leaving(self) -> bool:
        """Whether it holds quota only until its job has stopped: it is evicted, or its preemption is decided.

        An eviction that was observed before its present reservation does not count.
        """
        workload = self.workload
        return self.preempting is not None or (workload.evicted and workload.admission is not None)

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return phase_of(self.workload, reserved=self.admission is not None, admitted=self.is_admitted)
