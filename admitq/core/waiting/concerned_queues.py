"""Which ClusterQueues a change of a namespace, or of what a constraint looks at, may concern."""

from collections.abc import Iterable, Mapping

from admitq.core.entries import ClusterQueueEntry
from admitq.core.waiting.transitions import Cause


def namespace_cause(namespace: str) -> Cause:
    """Return the labels of a namespace, which a ClusterQueue selects or not."""
    return Cause("namespace", (namespace,))


class ConcernedQueues:
    """ClusterQueues by the causes that concern a workload of theirs; a superset.

    Args:
        cluster_queues: all ClusterQueues by name.
    """

    def __init__(self, cluster_queues: Mapping[str, ClusterQueueEntry]) -> None:
        self._cluster_queues = cluster_queues
        self._names: dict[Cause, set[str]] = {}

    def add(self, entry: ClusterQueueEntry, causes: Iterable[Cause]) -> None:
        """Note that these causes concern a workload of a ClusterQueue."""
        for cause in causes:
            self._names.setdefault(cause, set()).add(entry.spec.name)

    def take(self, cause: Cause) -> list[ClusterQueueEntry]:
        """Take the ClusterQueues that a change of a cause may concern, by name."""
        names = sorted(self._names.pop(cause, ()))
        return [self._cluster_queues[name] for name in names if name in self._cluster_queues]
