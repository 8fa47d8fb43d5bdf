"""Positions of pending workloads in their ClusterQueue."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from admitq.core.admission_fair_sharing import PastUse
from admitq.core.model import ObjectKey, QueueingStrategy, Workload
from admitq.core.ordering import QueueOrder, queue_order


class Position(NamedTuple):
    """The position of a workload among those of its lane; ``order`` ends in the uid and is unique."""

    order: QueueOrder
    key: ObjectKey


LanePosition: TypeAlias = tuple[bool, PastUse, Position]
"""The position of a lane's head among the heads of other lanes: (whether it is not the latest preemptor,
past use, position).

The latest preemptor comes before all others, so that capacity which is freed for it is not taken again and
again. Then come workloads of the LocalQueue that used less.
"""


class LatestPreemptor(NamedTuple):
    """The workload of a ClusterQueue for which targets were last preempted, at a generation of its spec."""

    key: ObjectKey
    generation: int


@dataclass(slots=True, eq=False)
class QueuePositions:
    """What decides over positions in a ClusterQueue: its strategy and its latest preemptor, if that waits."""

    strategy: QueueingStrategy
    preemptor: LatestPreemptor | None = None

    def is_preemptor(self, workload: Workload) -> bool:
        """Whether the workload is the latest preemptor, unchanged."""
        return self.preemptor is not None and self.preemptor == (workload.key, workload.generation)

    def position_of(self, workload: Workload) -> Position:
        """Return the position of a workload. The latest preemptor of a BestEffortFIFO queue is first."""
        is_latest_preemptor = self.strategy is QueueingStrategy.BEST_EFFORT_FIFO and self.is_preemptor(
            workload
        )
        return Position(queue_order(workload, is_latest_preemptor=is_latest_preemptor), workload.key)
