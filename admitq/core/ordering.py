"""Who goes first. Every order is by a frozen tuple that ends in the uid, so that it is total.

In a queue: a preemptor that keeps its place, then who used less through its LocalQueue (where that counts),
then higher priority, then earlier queued, then uid.
In a cycle without fair sharing: a preemptor (behind a gate), then a lower borrow level, so that those who
stay within their own quota, or borrow nearby, are not displaced by those who borrow from afar; then higher
priority (unless a gate says no), then earlier queued, then uid. With fair sharing, shares decide.
In every cycle, whoever was to leave for one that still waits comes behind it (``cycle.turns``), or it might
take back for ever what it gave.
"""

from typing import NamedTuple

from admitq.core.model import Instant, Workload
from admitq.core.settings import Gates


class QueueOrder(NamedTuple):
    """Place of a workload in its queue, among those whose LocalQueues used as much."""

    not_sticky: bool
    priority_descending: int
    queued_at: Instant
    uid: str


CycleOrder = tuple[bool, int, int, Instant, str]
"""Place of a head among the heads of one cycle: whether it is no preemptor, its borrow level, its priority
descending, since when it is queued, its uid."""


def queue_order(workload: Workload, *, sticky: bool = False) -> QueueOrder:
    """The key by which a workload is sorted in its ClusterQueue.

    Args:
        workload: the workload.
        sticky: whether it keeps the head of the queue until it is admitted.
    """
    return QueueOrder(not sticky, -workload.priority, workload.queued_at, workload.uid)


def cycle_order(workload: Workload, borrow_level: int, gates: Gates, *, preemptor: bool) -> CycleOrder:
    """The key by which the heads of a cycle are processed.

    Args:
        workload: the head.
        borrow_level: how far up the tree the quota comes from that it is assigned.
        gates: which of the criteria count.
        preemptor: whether workloads were preempted for it.
    """
    return (
        not (preemptor and gates.prioritize_preemptor_workloads),
        borrow_level,
        -workload.priority if gates.priority_sorting_within_cohort else 0,
        workload.queued_at,
        workload.uid,
    )
