"""A head in a cycle, with its assignment or refusal and the state of its scan."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.ledger import Usage
from admitq.core.model import Instant, Workload
from admitq.core.preemption import Victim
from admitq.core.refusals import Refusal
from admitq.core.replacing import usage_beyond
from admitq.core.topology.topologies import Place
from admitq.core.waiting.pending import PendingEntry, ScanProgress
from admitq.core.waiting.transitions import Cause
from admitq.core.waiting.wait_states import Blocking


class NominatedPlaces(NamedTuple):
    """The places that the pods of a head get in topologies, now or once its victims have left.

    Attributes:
        places: the places.
        generation: the generation of the topologies at the nomination.
        moves: how often workloads had taken or left places at the nomination.
        are_taken: whether there still is enough quota, but another head took or holds the places.
    """

    places: tuple[Place, ...]
    generation: int
    moves: int
    are_taken: bool = False


NO_PLACES: Final = NominatedPlaces((), 0, 0)


@dataclass(slots=True, eq=False)
class CycleEntry:
    """A head in the running cycle."""

    queue: ClusterQueueEntry
    pending: PendingEntry
    root: Node
    generation: int
    """The generation of the cohort tree at the nomination."""
    is_preemptor: bool
    """Whether the head waits for workloads that were preempted for it."""
    blocking_state_before_cycle: Blocking | None
    """The wait state before the cycle, if the head was a blocking head."""
    scan: ScanProgress | None = None
    """The progress of the scan of flavors after this attempt."""
    progress_at_start: int = 0
    """The progress count of the tree at the first attempt of the scan."""
    changed_during_scan: bool = False
    """Whether, since the first attempt of the scan, the tree changed or a topology got the lacking room."""
    scan_continued: bool = False
    """Whether this attempt continued the scan. Earlier attempts may have reserved capacity."""
    lost_before: bool = False
    """Whether an earlier attempt of the scan lost to another head."""
    assignment: Assignment | None = None
    victims: tuple[Victim, ...] = ()
    nominated_places: NominatedPlaces = NO_PLACES
    """The places that its pods get in topologies."""
    refusal: Refusal | None = None
    fits_after_others: bool = False
    """Whether the head fits once the targets of other heads have left."""
    has_reserved_capacity: bool = False
    """Whether capacity is reserved for the head in this cycle."""
    causes: set[Cause] = field(default_factory=set[Cause])
    """Causes of the constraints other than quota that refuse the head. A change of one ends its waiting."""
    original: WorkloadEntry | None = None
    """The workload from which the head takes quota over."""
    taken_over: Usage = ()
    """The usage that the original was assigned."""

    @property
    def workload(self) -> Workload:
        """The workload of the head."""
        return self.pending.workload

    @property
    def node(self) -> Node:
        """The node of its ClusterQueue."""
        return self.queue.node

    @property
    def places(self) -> tuple[Place, ...]:
        """The places that its pods get in topologies."""
        return self.nominated_places.places

    @property
    def usage(self) -> tuple[tuple[FlavorResource, int], ...]:
        """The usage that the head would add to that of its original; empty if the head was refused."""
        usage = () if self.assignment is None else self.assignment.usage
        return usage_beyond(usage, self.taken_over) if self.taken_over else usage

    @property
    def priority(self) -> int:
        """Its effective priority."""
        return self.workload.priority

    @property
    def queued_at(self) -> Instant:
        """Its queue-order timestamp."""
        return self.workload.queued_at

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.workload.uid
