"""What the core asks its driver to do. Instructions are imperatives and already decided."""

from dataclasses import dataclass

from admitq.core.amounts import Amounts
from admitq.core.model import Admission, ObjectKey
from admitq.core.refusals import FlavorRefusal, Refusal


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """One flavor that was looked at while assigning, for the event that tells how it went."""

    pod_set: str
    flavor: str
    mode: str
    borrow_level: int
    reasons: tuple[FlavorRefusal, ...] = ()


@dataclass(frozen=True, slots=True)
class ReserveQuota:
    """Write the reservation. The core already counts it; answer ReservationFailed if it cannot be written.

    ``admit`` tells that no admission check is outstanding, so that the same write admits.
    """

    key: ObjectKey
    uid: str
    admission: Admission
    admit: bool
    attempts: tuple[FlavorAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportPending:
    """Write why the workload is not admitted, and what it asks for by podset."""

    key: ObjectKey
    uid: str
    refusal: Refusal
    resource_requests: tuple[tuple[str, Amounts], ...]


@dataclass(frozen=True, slots=True)
class RefreshClusterQueue:
    """Numbers or conditions of a ClusterQueue's status may have changed."""

    name: str


@dataclass(frozen=True, slots=True)
class RefreshLocalQueue:
    """Numbers or conditions of a LocalQueue's status may have changed."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class RefreshCohort:
    """Numbers of a cohort may have changed."""

    name: str


Instruction = ReserveQuota | ReportPending | RefreshClusterQueue | RefreshLocalQueue | RefreshCohort
