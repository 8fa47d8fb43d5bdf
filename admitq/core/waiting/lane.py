"""A lane: the pending workloads of one ClusterQueue that have the same scheduling key, with a wait state."""

from dataclasses import dataclass, field

from admitq.core.admission_fair_sharing import NEVER_USED, PastUsage
from admitq.core.model import ObjectKey
from admitq.core.refusals import Refusal
from admitq.core.waiting.order import LanePosition, Position
from admitq.core.waiting.scheduling_key import SchedulingKey
from admitq.core.waiting.wait_states import PARKED, READY, LaneState


@dataclass(slots=True, eq=False)
class Lane:
    """Pending workloads with one scheduling key.

    ``size`` counts the workloads that are queued in the lane, and ``size_by_local_queue`` those of each
    LocalQueue. ``positions`` is a heap of their positions; it may also have positions that are out of date.
    ``indexed_at`` is the position under which ``WaitingLanes`` has indexed the needs of the lane.
    """

    key: SchedulingKey
    past_usage: PastUsage = NEVER_USED
    state: LaneState = READY
    positions: list[Position] = field(default_factory=list[Position])
    size: int = 0
    size_by_local_queue: dict[ObjectKey, int] = field(default_factory=dict[ObjectKey, int])
    indexed_at: LanePosition | None = None

    @property
    def refusal(self) -> Refusal | None:
        """Why the lane is parked; None if it is not."""
        return self.state.refusal if isinstance(self.state, PARKED) else None

    def count_queued(self, local_queue: ObjectKey, change: int) -> None:
        """Count a workload of a LocalQueue as queued in the lane (1), or no longer (-1)."""
        self.size += change
        of_queue = self.size_by_local_queue.get(local_queue, 0) + change
        if of_queue:
            self.size_by_local_queue[local_queue] = of_queue
        else:
            del self.size_by_local_queue[local_queue]

    @property
    def is_parked(self) -> bool:
        """Whether no cycle takes its workloads until the waiting ends or a need is met."""
        return isinstance(self.state, PARKED)
