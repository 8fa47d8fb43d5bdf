"""The phases of a workload, as a table: the first row that holds is the phase."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from admitq.core.model import Workload


class Phase(StrEnum):
    """Where a workload stands between its creation and its end."""

    FINISHED = "Finished"
    """It holds nothing and never will again."""
    EVICTING = "Evicting"
    """It is told to stop; its quota stays in use until it has."""
    ADMITTED = "Admitted"
    """It holds quota and may run."""
    RESERVED = "Reserved"
    """It holds quota; admission checks are outstanding."""
    INACTIVE = "Inactive"
    """Its user or a limit took it out of the queue."""
    HELD = "Held"
    """It is not to be queued yet: gated, on hold, waiting for pods, or being deleted."""
    PENDING = "Pending"
    """It waits for quota."""


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
    (Phase.PENDING, lambda _workload, _reserved, _admitted: True),
)


def phase_of(workload: Workload, *, reserved: bool, admitted: bool) -> Phase:
    """The phase of a workload.

    Args:
        workload: as last observed.
        reserved: whether it holds quota, by observation or because a decision is being written.
        admitted: whether it is admitted, likewise.
    """
    phase = Phase.PENDING
    for phase, holds in _TABLE:  # noqa: B007 the last row always holds
        if holds(workload, reserved, admitted):
            break
    return phase
