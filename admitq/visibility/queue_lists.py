"""The lists of pending workloads, sorted once for many callers.

The core sorts a whole ClusterQueue for each call, which takes about 10 µs for each workload. A list is
therefore used again while nothing has changed. In a large queue that changes all the time, a list may be as
old as four times the time that its sorting took: so sorting takes at most a fifth of a core.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from admitq.core.model import ObjectKey
from admitq.core.queries import StateQueries
from admitq.core.waiting.queue_positions import QueuedWorkload, Window
from admitq.visibility.pending_workloads import MAX_LIMIT
from admitq_api.json_objects import JsonObject

KEPT_LISTS: Final = 16
"""The number of lists that are kept. Each may have a hundred thousand workloads."""

_REST: Final = 4.0
"""The longest age of a list, as a multiple of the time that its sorting took."""

_ALL: Final = Window(10 * MAX_LIMIT)


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    usable_until: float
    workloads: Sequence[QueuedWorkload]


class QueueLists:
    """The pending workloads of queues, from a state that observes the cluster.

    Args:
        queries: the queries of the state.
        version: returns a number that changes with each change of the state.
        workload: returns a stored Workload by its key; None if it does not exist.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        queries: StateQueries,
        version: Callable[[], int],
        workload: Callable[[ObjectKey], JsonObject | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries = queries
        self._version = version
        self._workload = workload
        self._clock = clock
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def list_cluster_queue(self, name: str) -> Sequence[QueuedWorkload] | None:
        """Return all pending workloads of a ClusterQueue in queue order; None if it does not exist."""
        return self._list(name, lambda: self._queries.list_cluster_queue(name, _ALL))

    def list_local_queue(self, key: ObjectKey) -> Sequence[QueuedWorkload] | None:
        """Return all pending workloads of a LocalQueue in queue order; None if it does not exist."""
        return self._list(key, lambda: self._queries.list_local_queue(key, _ALL))

    def get_workload(self, key: ObjectKey) -> JsonObject | None:
        """Return a stored Workload; None if it does not exist."""
        return self._workload(key)

    def _list(
        self, which: Hashable, read: Callable[[], Sequence[QueuedWorkload] | None]
    ) -> Sequence[QueuedWorkload] | None:
        kept, version, began = self._kept.get(which), self._version(), self._clock()
        if kept is not None and (kept.version == version or began < kept.usable_until):
            self._kept.move_to_end(which)
            return kept.workloads
        workloads = read()
        if workloads is None:
            self._kept.pop(which, None)
            return None
        ended = self._clock()
        self._kept[which] = _Kept(version, ended + _REST * (ended - began), workloads)
        self._kept.move_to_end(which)
        if len(self._kept) > KEPT_LISTS:
            self._kept.popitem(last=False)
        return workloads
