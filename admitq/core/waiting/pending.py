"""A pending workload, and the results of its attempts."""

from dataclasses import dataclass
from typing import NamedTuple

from admitq.core.assignments import ScanStop
from admitq.core.model import Workload
from admitq.core.ordering import queue_order
from admitq.core.refusals import Refusal
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.order import Position
from admitq.core.waiting.transitions import Causes, HeldBack, WaitEvent, check_transition
from admitq.core.waiting.wait_states import ARRIVING, InCycle, WorkloadState


class PreemptionCounts(NamedTuple):
    """The preemptions of one attempt: the numbers of victims found, of requests, and of failures."""

    victims: int
    requested: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where the scan of flavors continues at the next attempt.

    Attributes:
        scan_stops: the flavor at which the last attempt stopped, for each resource group with flavors left.
        cycle: the number of the cycle of the last attempt.
        generation: the generation of the cohort tree at the last attempt.
        generation_at_start: the generation of the cohort tree at the first attempt of the scan.
        progress_at_start: the progress count of the tree at the first attempt of the scan.
        attempts: the number of attempts of the scan.
        has_lost: whether one of these attempts lost to another head.
        causes: the causes of the refusals of these attempts.
        gains_at_start: how often topologies had got more free capacity at the first attempt of the scan.
    """

    scan_stops: tuple[ScanStop, ...]
    cycle: int
    generation: int
    generation_at_start: int
    progress_at_start: int
    attempts: int
    has_lost: bool = False
    causes: Causes = ()
    gains_at_start: int = 0


@dataclass(slots=True, eq=False)
class PendingEntry:
    """A workload that waits for quota.

    ``lane`` is set while the workload is queued or in a cycle. ``scan`` says where its scan of flavors
    continues. ``refusal`` is the last refusal that was reported. ``preemptions`` counts the preemptions of
    its last attempt. ``preempted_uids`` has the uids of all workloads that were preempted for it since it
    became pending.
    """

    workload: Workload
    position: Position
    state: WorkloadState = ARRIVING
    lane: Lane | None = None
    scan: ScanProgress | None = None
    refusal: Refusal | None = None
    preemptions: PreemptionCounts | None = None
    preempted_uids: frozenset[str] = frozenset()

    @property
    def is_in_cycle(self) -> bool:
        """Whether the workload is a head of the running cycle."""
        return isinstance(self.state, InCycle)

    @property
    def is_held_back(self) -> bool:
        """Whether the workload is held back out of the lanes."""
        return isinstance(self.state, HeldBack)

    def change_state(self, event: WaitEvent, state: WorkloadState) -> None:
        """Change the wait state.

        Raises:
            ImpossibleTransition: the table of wait states has no such transition.
        """
        self.state = check_transition(event, self.state, state)


def new_pending(workload: Workload) -> PendingEntry:
    """Return the entry of a workload that becomes pending."""
    return PendingEntry(workload, Position(queue_order(workload), workload.key))
