"""The ClusterQueues that a change of a cause may concern, such as the labels of a namespace."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from admitq.core.entries import ClusterQueueEntry
from admitq.core.waiting.transitions import Cause


def namespace_cause(namespace: str) -> Cause:
    """Return the cause that stands for the labels of a namespace."""
    return Cause("namespace", (namespace,))


class ConcernedQueues:
    """By cause, the ClusterQueues with workloads that it concerns, and possibly others.

    Args:
        cluster_queues: all ClusterQueues by name.
    """

    def __init__(self, cluster_queues: Mapping[str, ClusterQueueEntry]) -> None:
        self._cluster_queues = cluster_queues
        self._names: defaultdict[Cause, dict[Cause, set[str]]] = defaultdict(dict)
        """The names of ClusterQueues by cause. Causes that begin with the same subject are together."""

    def add(self, entry: ClusterQueueEntry, causes: Iterable[Cause]) -> None:
        """Record that these causes concern a workload of a ClusterQueue."""
        for cause in causes:
            self._names[_general(cause)].setdefault(cause, set()).add(entry.spec.name)

    def list_causes(self, general: Cause) -> list[Cause]:
        """Return the causes with a subject that begins with the only subject of this one, sorted."""
        return sorted(self._names.get(general, ()))

    def take(self, cause: Cause) -> list[ClusterQueueEntry]:
        """Remove and return the ClusterQueues that a change of a cause may concern, sorted by name."""
        together = self._names.get(_general(cause), {})
        names = sorted(together.pop(cause, ()))
        if not together:
            self._names.pop(_general(cause), None)
        return [self._cluster_queues[name] for name in names if name in self._cluster_queues]


def _general(cause: Cause) -> Cause:
    return cause._replace(subject=cause.subject[:1])
