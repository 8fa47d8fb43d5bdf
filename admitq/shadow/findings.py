"""What comes of comparing: the values that a shadow tells."""

from dataclasses import dataclass
from enum import StrEnum

from admitq.core.lifecycle import Phase
from admitq.core.model import Admission, ObjectKey
from admitq.core.refusals import Refusal


class DisagreementKind(StrEnum):
    """What the manager in charge did that the core would not have done."""

    RESERVED = "reserved"
    """It reserved quota for a workload that was to wait."""
    ASSIGNED = "assigned"
    """It reserved quota for it, of other flavors or for other numbers of pods."""
    WAITING = "waiting"
    """It left a workload waiting that was to have quota."""
    PREEMPTED = "preempted"
    """It preempted a workload that was to go on."""
    SPARED = "spared"
    """It left workloads running that were to be preempted for another, which waits."""


MEANINGS = {
    DisagreementKind.RESERVED: "it reserved quota for a workload that admitq would have wait",
    DisagreementKind.ASSIGNED: "it reserved quota of other flavors, or for other numbers of pods",
    DisagreementKind.WAITING: "it left a workload waiting for which admitq would reserve quota",
    DisagreementKind.PREEMPTED: "it preempted a workload that admitq would not have preempted",
    DisagreementKind.SPARED: "it did not preempt those whom admitq would preempt for a workload that waits",
}
"""Each kind of disagreement, for people."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The manager in charge reserved quota for a workload."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class Preempted:
    """It preempted one: for whom, where that is known, and what it said of it."""

    preemptor_uid: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """It did nothing about one that waits, for so many nanoseconds."""

    nanoseconds: int


ManagerAction = Reserved | Preempted
"""What the manager in charge does, as it is seen of the workload."""


class Obstacle(StrEnum):
    """What keeps a workload back for which there is no refusal."""

    NO_LOCAL_QUEUE = "NoLocalQueue"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NO_CLUSTER_QUEUE = "NoClusterQueue"
    BACKOFF = "Backoff"
    TURN = "Turn"


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the core would do with a workload as things stood.

    ``admission`` is set if it would have quota, and ``victims`` if others were to be preempted for it. Else
    it goes on waiting, or running, in its ``phase``: for a ``refusal`` or, if there is none, an ``obstacle``.
    ``instead`` are those of its ClusterQueue who would get quota in the same breath, and ``behind`` is the
    one who holds up its queue.
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
    """A decision in which they differ. ``cluster_queue`` is empty where none is known."""

    kind: DisagreementKind
    workload: ObjectKey
    cluster_queue: str
    in_charge: Reserved | Preempted | StillWaiting
    opinion: Opinion


Finding = Agreement | Disagreement
