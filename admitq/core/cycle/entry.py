"""A head in a cycle: its assignment or refusal, and the state of its scan."""

from dataclasses import dataclass, field

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.ledger import Usage
from admitq.core.model import Instant, Workload
from admitq.core.preemption import Victim
from admitq.core.refusals import Refusal
from admitq.core.replacing import usage_beyond
from admitq.core.waiting.pending import PendingEntry, ScanProgress
from admitq.core.waiting.transitions import Cause
from admitq.core.waiting.wait_states import Blocking


@dataclass(slots=True, eq=False)
class CycleEntry:
    """A head in its cycle."""

    queue: ClusterQueueEntry
    pending: PendingEntry
    root: Node
    generation: int
    """The generation of the cohort tree at the time of the assignment."""
    is_preemptor: bool
    """Whether it waits for workloads that were preempted for it."""
    blocking_state_before_cycle: Blocking | None
    """The wait state of a standing head, which takes part in a cycle of other heads."""
    scan: ScanProgress | None = None
    """The progress of the scan of flavors after this attempt."""
    progress_at_start: int = 0
    """The progress count of the tree when the scan started from the first flavor."""
    tree_changed: bool = False
    """Whether the tree changed since the scan started."""
    scan_continued: bool = False
    """Whether the scan continued after earlier flavors, for which capacity may have been reserved."""
    lost_before: bool = False
    """Whether an earlier attempt of the scan was lost to another head."""
    assignment: Assignment | None = None
    victims: tuple[Victim, ...] = ()
    refusal: Refusal | None = None
    fits_after_others: bool = False
    """Whether it will fit once the targets of other heads have left."""
    has_reserved_capacity: bool = False
    """Whether capacity is reserved for it in this cycle."""
    causes: set[Cause] = field(default_factory=set[Cause])
    """The causes for which constraints other than quota refuse it: a change of any ends its waiting."""
    original: WorkloadEntry | None = None
    """The workload from which it takes quota over."""
    taken_over: Usage = ()
    """The usage that workload was assigned."""

    @property
    def workload(self) -> Workload:
        """The head."""
        return self.pending.workload

    @property
    def node(self) -> Node:
        """Its ClusterQueue's node."""
        return self.queue.node

    @property
    def usage(self) -> tuple[tuple[FlavorResource, int], ...]:
        """What it would take beyond what it takes over; nothing if it was refused."""
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
