"""Instructions: what the driver must do after decisions of the core. They are named by imperatives."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from admitq.core.amounts import Amounts
from admitq.core.model import Admission, ObjectKey
from admitq.core.refusals import FlavorRefusal, Refusal


class FitMode(IntEnum):
    """How a flavor can serve a request, from the worst mode to the best."""

    NO_FIT = 0
    NO_PREEMPTION_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


@dataclass(frozen=True, slots=True)
class ConsideredFlavor:
    """A flavor that the search considered for a podset. The event about the reservation lists it."""

    pod_set: str
    flavor: str
    mode: FitMode
    borrow_level: int
    reasons: tuple[FlavorRefusal, ...] = ()


class ReserveQuota(NamedTuple):
    """Write a reservation. The core counts it already. If it cannot be written, send ReservationFailed.

    ``admit``: all admission checks are ready, so the same write admits the workload. ``replaces`` is the
    original from which the workload takes quota over. Finish the original when this reservation is written.
    """

    key: ObjectKey
    uid: str
    admission: Admission
    admit: bool
    considered_flavors: tuple[ConsideredFlavor, ...] = ()
    replaces: ObjectKey | None = None


@dataclass(frozen=True, slots=True)
class AssignTopology:
    """Write the topology assignments of a workload that holds quota. The core counts them already.

    If they cannot be written, send TopologyAssignmentFailed.
    """

    key: ObjectKey
    uid: str
    admission: Admission


class PreemptionReason(StrEnum):
    """Why a workload may be preempted (reasons of condition Preempted)."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Preempt:
    """Evict a workload for a preemptor. Its quota stays in use until its job has stopped.

    The core expects to observe the eviction. If it cannot be written, send PreemptionFailed. The paths have
    the names from the root of the cohort tree to the ClusterQueue of the preemptor and of the victim.
    """

    key: ObjectKey
    uid: str
    reason: PreemptionReason
    preemptor: ObjectKey
    preemptor_uid: str
    preemptor_path: tuple[str, ...]
    victim_path: tuple[str, ...]


class Recomputation(StrEnum):
    """The result of a second search for targets, after another head preempted the first targets."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class TargetsRecomputed:
    """Count a second search for targets, for a head of a ClusterQueue."""

    cluster_queue: str
    result: Recomputation


@dataclass(frozen=True, slots=True)
class ReportPending:
    """Write why a workload is not admitted, and its requests by podset."""

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
class EvictForNodeFailures:
    """Evict a workload with pods on failed hosts for which there is no other place.

    Its quota stays in use until its job has stopped. The core expects to observe the eviction, and decides it
    again otherwise. ``nodes`` are the unhealthy nodes of the workload.
    """

    key: ObjectKey
    uid: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefreshClusterQueue:
    """Refresh the status of a ClusterQueue: its numbers or conditions may have changed."""

    name: str


@dataclass(frozen=True, slots=True)
class RefreshLocalQueue:
    """Refresh the status of a LocalQueue: its numbers or conditions may have changed."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class RefreshCohort:
    """Refresh the status of a Cohort: its numbers may have changed."""

    name: str


Instruction = (
    ReserveQuota
    | AssignTopology
    | Preempt
    | TargetsRecomputed
    | ReportPending
    | ReportSecondPass
    | EvictForNodeFailures
    | RefreshClusterQueue
    | RefreshLocalQueue
    | RefreshCohort
)
