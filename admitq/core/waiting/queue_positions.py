"""The pending workloads of a ClusterQueue in queue order, with their positions.

All pending workloads have a position: those that cycles may take, those that are inadmissible, and the heads
of the running cycle. Positions begin with 0. Their order is the order in which the queue would give its heads
if no workload waited for anything but its turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from admitq.core.model import ObjectKey
from admitq.core.waiting.order import LanePosition, lane_position
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.scheduling_key import local_queue_of


class QueuedWorkload(NamedTuple):
    """A pending workload, with its positions in its ClusterQueue and its LocalQueue."""

    workload: ObjectKey
    local_queue: ObjectKey
    in_cluster_queue: int
    in_local_queue: int


class Window(NamedTuple):
    """A part of a list: at most ``limit`` entries after the first ``offset``. Neither is negative."""

    limit: int
    offset: int = 0


def list_queue(queue: PendingQueue, window: Window) -> list[QueuedWorkload]:
    """Return pending workloads of a ClusterQueue in queue order."""
    return _part(_positions(queue), len(queue.members), window)


def list_local_queue(queue: PendingQueue, key: ObjectKey, window: Window) -> list[QueuedWorkload]:
    """Return pending workloads of a LocalQueue in queue order.

    Args:
        queue: the pending workloads of its ClusterQueue.
        key: the LocalQueue.
        window: the part of the list to return.
    """
    listed = (each for each in _positions(queue) if each.local_queue == key)
    return _part(listed, len(queue.members), window)


def find_position(queue: PendingQueue, key: ObjectKey) -> QueuedWorkload | None:
    """Return a pending workload with its positions; None if it is not in this ClusterQueue.

    This counts the workloads before it, and costs less than a sorted list.
    """
    pending = queue.members.get(key)
    if pending is None:
        return None
    position_of = _position_key(queue)
    position, local_queue = position_of(pending), local_queue_of(pending.workload)
    before = [other for other in queue.members.values() if position_of(other) < position]
    in_local_queue = sum(local_queue_of(other.workload) == local_queue for other in before)
    return QueuedWorkload(key, local_queue, len(before), in_local_queue)


def comes_before(queue: PendingQueue, first: PendingEntry, second: PendingEntry) -> bool:
    """Whether one pending workload of a ClusterQueue comes before another one in queue order."""
    position_of = _position_key(queue)
    return position_of(first) < position_of(second)


def _part(listed: Iterator[QueuedWorkload], most: int, window: Window) -> list[QueuedWorkload]:
    """Return a part of at most ``most`` workloads. ``islice`` itself rejects huge numbers."""
    start, stop, _ = slice(window.offset, window.offset + window.limit).indices(most)
    return list(islice(listed, start, stop))


def _positions(queue: PendingQueue) -> Iterator[QueuedWorkload]:
    """Yield all pending workloads in queue order. The queue must not change during the iteration."""
    in_local_queue = Counter[ObjectKey]()
    for index, pending in enumerate(sorted(queue.members.values(), key=_position_key(queue))):
        local_queue = local_queue_of(pending.workload)
        yield QueuedWorkload(pending.workload.key, local_queue, index, in_local_queue[local_queue])
        in_local_queue[local_queue] += 1


def _position_key(queue: PendingQueue) -> Callable[[PendingEntry], LanePosition]:
    past_usage_of = queue.lanes.past_usage_of_local_queue

    def position_of(pending: PendingEntry) -> LanePosition:
        return lane_position(past_usage_of(local_queue_of(pending.workload)), pending.position)

    return position_of
