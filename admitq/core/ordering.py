"""Who goes first. Every order is by a frozen tuple that ends in the uid, so that it is total.

In a queue: higher priority, then earlier queued, then uid. (Usage of the LocalQueue and a preemptor that
waits for its victims will come before the priority.)
In a cycle: a lower borrow level first, so that those who stay within their own quota, or borrow nearby,
are not displaced by those who borrow from afar; then the order of queues.
"""

from typing import NamedTuple

from admitq.core.model import Instant, Workload


class QueueOrder(NamedTuple):
    """Place of a workload in its queue."""

    priority_descending: int
    queued_at: Instant
    uid: str


class CycleOrder(NamedTuple):
    """Place of a head among the heads of one cycle."""

    borrow_level: int
    priority_descending: int
    queued_at: Instant
    uid: str


def queue_order(workload: Workload) -> QueueOrder:
    """The key by which a workload is sorted in its ClusterQueue."""
    return QueueOrder(-workload.priority, workload.queued_at, workload.uid)


def cycle_order(workload: Workload, borrow_level: int) -> CycleOrder:
    """The key by which the heads of a cycle are processed."""
    return CycleOrder(borrow_level, -workload.priority, workload.queued_at, workload.uid)
