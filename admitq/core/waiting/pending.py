"""A pending workload, and what is remembered of its attempts."""

from dataclasses import dataclass
from typing import NamedTuple

from admitq.core.assignments import TriedFlavor
from admitq.core.model import Workload
from admitq.core.ordering import queue_order
from admitq.core.refusals import Refusal
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.order import Position
from admitq.core.waiting.transitions import Causes, HeldBack, WaitEvent, check_transition
from admitq.core.waiting.wait_states import ARRIVING, InCycle, WorkloadState


class PreemptionCounts(NamedTuple):
    """The preemptions of one attempt: how many targets there are, were requested, and failed."""

    victims: int
    requested: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where the scan of flavors continues at the next attempt.

    Attributes:
        tried: the flavors that were tried.
        cycle: of the attempt.
        generation: of the cohort tree at the attempt.
        begun: the generation of the cohort tree when the scan last started from the first flavor.
        progress_at_start: the progress count of the tree then.
        attempts: their number from there on.
        lost: whether one of these was lost to another head.
        causes: of the refusals in these.
    """

    tried: tuple[TriedFlavor, ...]
    cycle: int
    generation: int
    generation_at_start: int
    progress_at_start: int
    attempts: int
    has_lost: bool = False
    causes: Causes = ()


@dataclass(slots=True, eq=False)
class PendingEntry:
    """A workload that waits for quota.

    ``lane`` is set while the workload is queued or in a cycle. ``refusal`` is the last refusal that its
    status shows; ``scan`` where its scan of flavors continues; ``preemptions`` what it waits for;
    ``preempted_uids`` the uids of all workloads that were preempted for it since it became pending.
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
        """Whether the workload is a head of the cycle that runs."""
        return isinstance(self.state, InCycle)

    @property
    def is_held_back(self) -> bool:
        """Whether the workload is kept out of the lanes for itself."""
        return isinstance(self.state, HeldBack)

    def change_state(self, event: WaitEvent, state: WorkloadState) -> None:
        """Take the next state.

        Raises:
            ImpossibleTransition: the table of wait states has no such transition.
        """
        self.state = check_transition(event, self.state, state)


def new_pending(workload: Workload) -> PendingEntry:
    """Return a workload that begins to wait."""
    return PendingEntry(workload, Position(queue_order(workload), workload.key))
