"""The positions of pending workloads in their ClusterQueue."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from admitq.core.admission_fair_sharing import PastUsage
from admitq.core.model import ObjectKey, QueueingStrategy, Workload
from admitq.core.ordering import QueueOrder, queue_order


class Position(NamedTuple):
    """The position of a workload in its lane. ``order`` ends in the uid and is unique."""

    order: QueueOrder
    key: ObjectKey


LanePosition: TypeAlias = tuple[bool, PastUsage, Position]
"""The position of a workload in its ClusterQueue: whether it is not the latest preemptor, the past usage of
its LocalQueue, and its position in its lane. A lane has the position of its first workload.

The latest preemptor comes first: else other workloads could take the capacity that is freed for it, again and
again. Then come workloads of LocalQueues with less past usage.
"""


def lane_position(past_usage: PastUsage, position: Position) -> LanePosition:
    """Return the position in the ClusterQueue of a workload, or of the lane in which it is the first."""
    return (position.order.not_latest_preemptor, past_usage, position)


class LatestPreemptor(NamedTuple):
    """The workload of a ClusterQueue that last preempted targets, with the generation of its spec."""

    key: ObjectKey
    generation: int


@dataclass(slots=True, eq=False)
class QueuePositions:
    """The inputs of positions in a ClusterQueue: its strategy, and its latest preemptor while it waits."""

    strategy: QueueingStrategy
    preemptor: LatestPreemptor | None = None

    def is_preemptor(self, workload: Workload) -> bool:
        """Whether the workload is the latest preemptor, with an unchanged spec."""
        return self.preemptor is not None and self.preemptor == (workload.key, workload.generation)

    def position_of(self, workload: Workload) -> Position:
        """Return the position of a workload. The latest preemptor of a BestEffortFIFO queue is first."""
        is_latest_preemptor = self.strategy is QueueingStrategy.BEST_EFFORT_FIFO and self.is_preemptor(
            workload
        )
        return Position(queue_order(workload, is_latest_preemptor=is_latest_preemptor), workload.key)
