"""The phases of a workload and the changes between them, as tables.

The phase is that of the first row of ``_TABLE`` that holds, and Pending if none does. ``EDGES`` has every
change from one phase to another, with its causes. An observation may show several changes at once.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from admitq.core.model import Workload


class Phase(StrEnum):
    """The phase of a workload between its creation and its end."""

    PENDING = "Pending"
    HELD = "Held"
    INACTIVE = "Inactive"
    RESERVED = "Reserved"
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    FINISHED = "Finished"


MEANINGS: Final[Mapping[Phase, str]] = {
    Phase.PENDING: "It waits for quota.",
    Phase.HELD: "It is not to be queued yet: gated, on hold, waiting for pods, or being deleted.",
    Phase.INACTIVE: "Its user or a limit took it out of the queue.",
    Phase.RESERVED: "It holds quota; admission checks are outstanding.",
    Phase.ADMITTED: "It holds quota and may run.",
    Phase.EVICTING: "It is evicted; its quota stays in use until its job has stopped.",
    Phase.FINISHED: "It holds nothing and never will again.",
}
"""What each phase means, for people."""


_TABLE: Final[tuple[tuple[Phase, Callable[[Workload, bool, bool], bool]], ...]] = (
    (Phase.FINISHED, lambda workload, _reserved, _admitted: workload.finished),
    (
        Phase.EVICTING,
        # An eviction that a reservation being written will answer is over.
        lambda workload, reserved, _admitted: (
            reserved and ((workload.evicted and workload.admission is not None) or not workload.active)
        ),
    ),
    (Phase.ADMITTED, lambda _workload, reserved, admitted: reserved and admitted),
    (Phase.RESERVED, lambda _workload, reserved, _admitted: reserved),
    (Phase.INACTIVE, lambda workload, _reserved, _admitted: not workload.active),
    (
        Phase.HELD,
        lambda workload, _reserved, _admitted: bool(
            workload.admission_gates
            or workload.on_hold
            or workload.waiting_for_replacement_pods
            or workload.deleting
        ),
    ),
)


def phase_of(workload: Workload, *, reserved: bool, admitted: bool) -> Phase:
    """Return the phase of a workload.

    Args:
        workload: as last observed.
        reserved: whether it holds quota, by observation or because a decision is being written.
        admitted: whether it is admitted, likewise.
    """
    for phase, holds in _TABLE:
        if holds(workload, reserved, admitted):
            return phase
    return Phase.PENDING


# --- edges ----------------------------------------------------------------------------------------------


class PhaseChangeCause(StrEnum):
    """Why the phase of a workload changes; reasons of its conditions where there are some."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    """The reservation was not written, or was removed before the admission."""
    CHECK_NOT_READY = "CheckNotReady"
    """A check that applies was added to the list, or is no longer ready."""
    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    DEACTIVATED = "Deactivated"
    REACTIVATED = "Reactivated"
    STOPPED = "Stopped"
    """The job of an evicted workload has stopped, and its quota is given back."""
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
    DELETING = "Deleting"
    LET_GO = "LetGo"
    """Nothing excludes it from the queue any more."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    FAILED_TO_START = "FailedToStart"
    OWNER_NOT_FOUND = "OwnerNotFound"
    WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced"


_ENDS: Final = (
    PhaseChangeCause.SUCCEEDED,
    PhaseChangeCause.FAILED,
    PhaseChangeCause.OUT_OF_SYNC,
    PhaseChangeCause.FAILED_TO_START,
    PhaseChangeCause.OWNER_NOT_FOUND,
    PhaseChangeCause.WORKLOAD_SLICE_REPLACED,
)
_KEPT_BACK: Final = (
    PhaseChangeCause.ADMISSION_GATED,
    PhaseChangeCause.ON_HOLD,
    PhaseChangeCause.WAITING_FOR_REPLACEMENT_PODS,
    PhaseChangeCause.DELETING,
)
_EVICTIONS: Final = (
    PhaseChangeCause.PREEMPTED,
    PhaseChangeCause.PODS_READY_TIMEOUT,
    PhaseChangeCause.ADMISSION_CHECK,
    PhaseChangeCause.CLUSTER_QUEUE_STOPPED,
    PhaseChangeCause.LOCAL_QUEUE_STOPPED,
    PhaseChangeCause.NODE_FAILURES,
    PhaseChangeCause.DEACTIVATED,
)

EDGES: Final[Mapping[tuple[Phase, Phase], tuple[PhaseChangeCause, ...]]] = {
    (Phase.PENDING, Phase.RESERVED): (PhaseChangeCause.QUOTA_RESERVED,),
    (Phase.PENDING, Phase.ADMITTED): (PhaseChangeCause.ADMITTED,),
    (Phase.PENDING, Phase.HELD): _KEPT_BACK,
    (Phase.PENDING, Phase.INACTIVE): (PhaseChangeCause.DEACTIVATED,),
    (Phase.HELD, Phase.PENDING): (PhaseChangeCause.LET_GO,),
    (Phase.HELD, Phase.INACTIVE): (PhaseChangeCause.DEACTIVATED,),
    (Phase.INACTIVE, Phase.PENDING): (PhaseChangeCause.REACTIVATED,),
    (Phase.INACTIVE, Phase.HELD): (PhaseChangeCause.REACTIVATED,),
    (Phase.RESERVED, Phase.ADMITTED): (PhaseChangeCause.ADMITTED,),
    (Phase.RESERVED, Phase.PENDING): (PhaseChangeCause.NO_RESERVATION,),
    (Phase.RESERVED, Phase.HELD): (PhaseChangeCause.NO_RESERVATION,),
    (Phase.RESERVED, Phase.EVICTING): (
        PhaseChangeCause.PREEMPTED,
        PhaseChangeCause.ADMISSION_CHECK,
        PhaseChangeCause.DEACTIVATED,
    ),
    (Phase.ADMITTED, Phase.RESERVED): (PhaseChangeCause.CHECK_NOT_READY,),
    (Phase.ADMITTED, Phase.PENDING): (PhaseChangeCause.NO_RESERVATION,),
    (Phase.ADMITTED, Phase.HELD): (PhaseChangeCause.NO_RESERVATION,),
    (Phase.ADMITTED, Phase.EVICTING): _EVICTIONS,
    (Phase.EVICTING, Phase.PENDING): (PhaseChangeCause.STOPPED,),
    (Phase.EVICTING, Phase.HELD): (PhaseChangeCause.STOPPED,),
    (Phase.EVICTING, Phase.INACTIVE): (PhaseChangeCause.STOPPED,),
    (Phase.EVICTING, Phase.RESERVED): (PhaseChangeCause.REACTIVATED,),
    (Phase.EVICTING, Phase.ADMITTED): (PhaseChangeCause.REACTIVATED,),
    **{(phase, Phase.FINISHED): _ENDS for phase in Phase if phase is not Phase.FINISHED},
}
"""Every change between two phases, with all its causes. Finished is final.

From Reserved or Admitted, a workload with an unwritten reservation returns to Pending, or to Held if it
was taken out of the queue meanwhile. A workload returns from Evicting only if it was deactivated and
reactivated before its eviction was written.
"""
