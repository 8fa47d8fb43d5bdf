"""The findings of a shadow, as values."""

from dataclasses import dataclass
from enum import StrEnum

from admitq.core.lifecycle import Phase
from admitq.core.model import Admission, ObjectKey
from admitq.core.refusals import Refusal


class DisagreementKind(StrEnum):
    """What the manager in charge did that the core would not have done."""

    RESERVED = "reserved"
    """It reserved quota for a workload that would have waited."""
    ASSIGNED = "assigned"
    """It reserved quota of other flavors, or for other numbers of pods."""
    WAITING = "waiting"
    """It left a workload waiting that would have got quota."""
    PREEMPTED = "preempted"
    """It preempted a workload that would have continued to run."""
    SPARED = "spared"
    """It did not preempt workloads that would have been preempted for a waiting workload."""


MEANINGS = {
    DisagreementKind.RESERVED: "it reserved quota for a workload that admitq would leave waiting",
    DisagreementKind.ASSIGNED: "it reserved quota of other flavors, or for other numbers of pods",
    DisagreementKind.WAITING: "it left a workload waiting for which admitq would reserve quota",
    DisagreementKind.PREEMPTED: "it preempted a workload that admitq would not have preempted",
    DisagreementKind.SPARED: "it did not preempt workloads that admitq would preempt for a waiting workload",
}
"""The kinds of disagreement, as texts for users."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The manager in charge reserved quota for a workload."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class Preempted:
    """The manager in charge preempted a workload: the preemptor, if known, and the eviction's message."""

    preemptor_uid: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The manager in charge left a workload waiting for this many nanoseconds."""

    nanoseconds: int


ManagerAction = Reserved | Preempted
"""What the manager in charge did to a workload."""


class Obstacle(StrEnum):
    """Why a workload without a refusal waits."""

    NO_LOCAL_QUEUE = "NoLocalQueue"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NO_CLUSTER_QUEUE = "NoClusterQueue"
    BACKOFF = "Backoff"
    TURN = "Turn"


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the core would do with a workload in the observed state.

    ``admission`` is set if the workload would get quota, and ``victims`` if others would be preempted for
    it. Otherwise it stays in its ``phase``, because of a ``refusal`` or, without one, an ``obstacle``.
    ``instead`` are the workloads of its ClusterQueue that would get quota in the same cycles. ``behind`` is
    the workload that blocks its queue.
    """

    workload: ObjectKey
    admission: Admission | None = None
    victims: tuple[ObjectKey, ...] = ()
    refusal: Refusal | None = None
    obstacle: Obstacle | None = None
    phase: Phase | None = None
    instead: tuple[ObjectKey, ...] = ()
    behind: ObjectKey | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """A decision of the manager in charge that the core would have made too."""

    cluster_queue: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A decision that differs. ``cluster_queue`` is empty if it is unknown."""

    kind: DisagreementKind
    workload: ObjectKey
    cluster_queue: str
    in_charge: Reserved | Preempted | StillWaiting
    opinion: Opinion


Finding = Agreement | Disagreement
