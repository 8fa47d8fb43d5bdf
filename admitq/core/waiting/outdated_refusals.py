"""The lanes that may show an outdated refusal: quota returned to their tree, and did not end their waiting.

Callers take lanes in portions, so that decisions never wait for refreshes. The refusals of a ClusterQueue may
become outdated again while its lanes are taken. All of its lanes are then taken once more.
"""

from collections import OrderedDict
from collections.abc import Iterable

from admitq.core.waiting.lane import Lane
from admitq.core.waiting.pending_queue import PendingQueue


class OutdatedRefusals:
    """Lanes with refusals to refresh, by ClusterQueue. The ClusterQueue that was added first comes first."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[PendingQueue, list[Lane]] = OrderedDict()
        self._outdated_again: dict[PendingQueue, None] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, queues: Iterable[PendingQueue]) -> None:
        """Record that refusals of these ClusterQueues may be outdated."""
        for queue in queues:
            if queue in self._lanes:
                self._outdated_again[queue] = None
            else:
                self._lanes[queue] = list(queue.lanes.waiting.indexed)

    def concerns(self, queue: PendingQueue) -> bool:
        """Whether refusals of a ClusterQueue may be outdated."""
        return queue in self._lanes

    def take(self, limit: int | None) -> list[tuple[str, Lane]]:
        """Remove and return the next lanes, with the names of their ClusterQueues.

        Args:
            limit: the greatest number of lanes; None: all lanes.
        """
        portion: list[tuple[str, Lane]] = []
        while self._lanes and (limit is None or len(portion) < limit):
            queue, lanes = next(iter(self._lanes.items()))
            if lanes:
                portion.append((queue.registration.name, lanes.pop()))
                continue
            del self._lanes[queue]
            if queue in self._outdated_again:
                del self._outdated_again[queue]
                self.add([queue])
        return portion
