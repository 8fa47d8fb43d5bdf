"""The orders of workloads in queues and in cycles. Each sort key ends in the uid, and so is unique.

In a ClusterQueue: the latest preemptor, then less past usage of the LocalQueue (with usage-based admission),
then higher priority, then earlier queue-order timestamp, then uid.

In a cycle without fair sharing: lower borrow level, then higher priority (unless a gate disables it), then
earlier queue-order timestamp, then uid. With a gate, preemptors come before all others. By the borrow level,
workloads that do not borrow, or borrow from a near cohort, come before workloads that borrow from a higher
cohort. With fair sharing, shares decide.

In every cycle, a preempted workload comes after its preemptor while the preemptor waits
(``cycle.running_cycle``). Otherwise the two could preempt each other forever.
"""

from typing import NamedTuple

from admitq.core.model import Instant, Workload
from admitq.core.settings import Gates


class QueueOrder(NamedTuple):
    """The sort key of a workload in its ClusterQueue, among workloads with equal past usage."""

    not_latest_preemptor: bool
    priority_descending: int
    queued_at: Instant
    uid: str


CycleOrder = tuple[bool, int, int, Instant, str]
"""The sort key of a head in a cycle: whether it is not a preemptor, its borrow level, its priority
(descending), its queue-order timestamp, its uid."""


def queue_order(workload: Workload, *, is_latest_preemptor: bool = False) -> QueueOrder:
    """Return the key by which a workload is sorted in its ClusterQueue.

    Args:
        workload: the workload.
        is_latest_preemptor: whether it is the latest preemptor, which stays first until it is admitted.
    """
    return QueueOrder(not is_latest_preemptor, -workload.priority, workload.queued_at, workload.uid)


def cycle_order(workload: Workload, borrow_level: int, gates: Gates, *, preemptor: bool) -> CycleOrder:
    """Return the key by which the heads of a cycle are sorted.

    Args:
        workload: the head.
        borrow_level: the borrow level of its assignment.
        gates: the feature gates that turn criteria on or off.
        preemptor: whether workloads were preempted for it.
    """
    return (
        not (preemptor and gates.prioritize_preemptor_workloads),
        borrow_level,
        -workload.priority if gates.priority_sorting_within_cohort else 0,
        workload.queued_at,
        workload.uid,
    )
