"""The phases of a workload and the changes between them, as tables.

The first row of ``_TABLE`` that holds has the phase of a workload. If no row holds, the phase is Pending.
``EDGES`` has every change from one phase to another, with its causes. One observation may show several
changes at once.
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
    Phase.HELD: "It is not queued yet: it is gated, on hold, waits for pods, or is being deleted.",
    Phase.INACTIVE: "A user or a limit deactivated it.",
    Phase.RESERVED: "It holds quota; admission checks are outstanding.",
    Phase.ADMITTED: "It holds quota and may run.",
    Phase.EVICTING: "It is evicted; its quota stays in use until its job has stopped.",
    Phase.FINISHED: "It holds no quota, and never will again.",
}
"""The meaning of each phase, for the documentation."""


_TABLE: Final[tuple[tuple[Phase, Callable[[Workload, bool, bool], bool]], ...]] = (
    (Phase.FINISHED, lambda workload, _reserved, _admitted: workload.finished),
    (
        Phase.EVICTING,
        # A reservation that is being written ends the eviction before it.
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
        workload: the workload as last observed.
        reserved: whether it holds quota. A reservation that is being written counts.
        admitted: whether it is admitted. An admission that is being written counts.
    """
    for phase, holds in _TABLE:
        if holds(workload, reserved, admitted):
            return phase
    return Phase.PENDING


# --- edges ----------------------------------------------------------------------------------------------


class PhaseChangeCause(StrEnum):
    """The causes of changes of a phase. Many of them are also reasons of conditions."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    """The reservation was not written, or was removed before the admission."""
    CHECK_NOT_READY = "CheckNotReady"
    """An applicable check was added, or is no longer ready."""
    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    DEACTIVATED = "Deactivated"
    REACTIVATED = "Reactivated"
    STOPPED = "Stopped"
    """The job of an evicted workload has stopped, and its quota was returned."""
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
    DELETING = "Deleting"
    HOLD_ENDED = "HoldEnded"
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
_HELD: Final = (
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
    (Phase.PENDING, Phase.HELD): _HELD,
    (Phase.PENDING, Phase.INACTIVE): (PhaseChangeCause.DEACTIVATED,),
    (Phase.HELD, Phase.PENDING): (PhaseChangeCause.HOLD_ENDED,),
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

A workload with a reservation that is not written returns from Reserved or Admitted to Pending. If something
excludes it from the queue by then, it goes to Held. A workload returns from Evicting only if it was
deactivated, and activated again before its eviction was written.
"""
