"""What the core asks its driver to do. Instructions are imperatives and already decided."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from admitq.core.amounts import Amounts
from admitq.core.model import Admission, ObjectKey
from admitq.core.refusals import FlavorRefusal, Refusal


class FitMode(IntEnum):
    """How a flavor can serve a request, worst first."""

    NO_FIT = 0
    NO_PREEMPTION_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """A flavor that was tried for a podset, for the event about the assignment."""

    pod_set: str
    flavor: str
    mode: FitMode
    borrow_level: int
    reasons: tuple[FlavorRefusal, ...] = ()


class ReserveQuota(NamedTuple):
    """Write the reservation. The core already counts it; answer ReservationFailed if it cannot be written.

    ``admit``: no admission check is outstanding, so that the same write admits. ``replaces`` is the workload
    with the quota that this one takes over: finish it when this reservation is written.
    """

    key: ObjectKey
    uid: str
    admission: Admission
    admit: bool
    attempts: tuple[FlavorAttempt, ...] = ()
    replaces: ObjectKey | None = None


class PreemptionReason(StrEnum):
    """Why a workload may be preempted (reasons of condition Preempted)."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Preempt:
    """Write that the workload is evicted for another. Its quota stays in use until its job has stopped.

    The core expects to observe the eviction; answer PreemptionFailed if it cannot be written. The paths
    lead from the root of the cohort tree to the ClusterQueue of each.
    """

    key: ObjectKey
    uid: str
    reason: PreemptionReason
    preemptor: ObjectKey
    preemptor_uid: str
    preemptor_path: tuple[str, ...]
    victim_path: tuple[str, ...]


class Recomputation(StrEnum):
    """The result of a second search for targets, after other heads of the cycle took the first ones."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class TargetsRecomputed:
    """Count a second search for targets for a head of the ClusterQueue."""

    cluster_queue: str
    result: Recomputation


@dataclass(frozen=True, slots=True)
class ReportPending:
    """Write why the workload is not admitted, and what it asks for by podset."""

    key: ObjectKey
    uid: str
    refusal: Refusal
    resource_requests: tuple[tuple[str, Amounts], ...]


@dataclass(frozen=True, slots=True)
class ReportSecondPass:
    """Report why the second pass of a workload failed. The workload keeps its reservation."""

    key: ObjectKey
    uid: str
    refusal: Refusal


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


Instruction = (
    ReserveQuota
    | Preempt
    | TargetsRecomputed
    | ReportPending
    | ReportSecondPass
    | RefreshClusterQueue
    | RefreshLocalQueue
    | RefreshCohort
)
