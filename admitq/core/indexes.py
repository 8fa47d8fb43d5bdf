"""Indexes of workloads and LocalQueues by the objects that they refer to."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from admitq.core.entries import WorkloadEntry
from admitq.core.model import LocalQueue, ObjectKey, PodSet

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")


def discard(index: dict[_Key, dict[_Member, Any]], key: _Key, member: _Member) -> bool:
    """Remove a member from an index.

    Returns:
        Whether the key had no other member, so that the key was removed, too.
    """
    members = index[key]
    del members[member]
    if members:
        return False
    del index[key]
    return True


@lru_cache(maxsize=4096)
def _runtime_classes(pod_sets: tuple[PodSet, ...]) -> frozenset[str]:
    """Return the RuntimeClasses that podsets name. Each new and each finished workload needs this."""
    names = [pod_set.template.runtime_class for pod_set in pod_sets]
    return frozenset(name for name in names if name is not None)


@dataclass(slots=True, eq=False)
class Indexes:
    """Indexes of LocalQueues and of workloads that have not finished. Objects they refer to may not exist."""

    local_queues_by_cluster_queue: dict[str, dict[ObjectKey, None]] = field(
        default_factory=dict[str, dict[ObjectKey, None]]
    )
    """LocalQueues by ClusterQueue."""
    workloads_by_local_queue: dict[ObjectKey, dict[ObjectKey, WorkloadEntry]] = field(
        default_factory=dict[ObjectKey, dict[ObjectKey, WorkloadEntry]]
    )
    """Workloads by LocalQueue."""
    local_queues_by_namespace: dict[str, dict[ObjectKey, None]] = field(
        default_factory=dict[str, dict[ObjectKey, None]]
    )
    """LocalQueues that workloads name, by namespace."""
    workloads_by_runtime_class: dict[str, dict[ObjectKey, WorkloadEntry]] = field(
        default_factory=dict[str, dict[ObjectKey, WorkloadEntry]]
    )
    """Workloads by RuntimeClass."""

    def add_local_queue(self, spec: LocalQueue) -> None:
        """Index a LocalQueue."""
        self.local_queues_by_cluster_queue.setdefault(spec.cluster_queue, {})[spec.key] = None

    def remove_local_queue(self, spec: LocalQueue) -> None:
        """Undo ``add_local_queue``."""
        discard(self.local_queues_by_cluster_queue, spec.cluster_queue, spec.key)

    def add_workload(self, entry: WorkloadEntry) -> None:
        """Index a workload that has not finished."""
        workload, queue = entry.workload, entry.local_queue
        workloads = self.workloads_by_local_queue.get(queue)
        if workloads is None:
            workloads = self.workloads_by_local_queue[queue] = {}
            self.local_queues_by_namespace.setdefault(queue.namespace, {})[queue] = None
        workloads[workload.key] = entry
        for name in _runtime_classes(workload.pod_sets):
            self.workloads_by_runtime_class.setdefault(name, {})[workload.key] = entry

    def remove_workload(self, entry: WorkloadEntry) -> None:
        """Undo ``add_workload``."""
        key, queue = entry.workload.key, entry.local_queue
        if discard(self.workloads_by_local_queue, queue, key):
            discard(self.local_queues_by_namespace, queue.namespace, queue)
        for name in _runtime_classes(entry.workload.pod_sets):
            discard(self.workloads_by_runtime_class, name, key)
