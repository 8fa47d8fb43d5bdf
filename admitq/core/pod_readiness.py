"""Whether admission waits until pods of admitted workloads are ready (setting ``blockAdmission``)."""

from collections.abc import Container

from admitq.core.entries import WorkloadEntry
from admitq.core.model import ObjectKey


class PodReadiness:
    """Admitted workloads without ready pods. Empty unless the settings block admission for them.

    Args:
        cluster_queues: the names of ClusterQueues that exist.
    """

    def __init__(self, cluster_queues: Container[str]) -> None:
        self._cluster_queues = cluster_queues
        self.unready: set[ObjectKey] = set()
        self.is_halted = False
        """Whether a workload was refused because of them: no cycle runs until all pods are ready."""

    def is_unready(self, entry: WorkloadEntry) -> bool:
        """Whether a workload is admitted in a ClusterQueue that exists, and its pods are not ready."""
        held = entry.held
        is_charged = held is not None and held.admitted and held.cluster_queue in self._cluster_queues
        return is_charged and not entry.workload.pods_ready

    def update(self, entry: WorkloadEntry) -> None:
        """Update the set after a change of a workload."""
        if self.is_unready(entry):
            self.unready.add(entry.workload.key)
            return
        self.unready.discard(entry.workload.key)
        if not self.unready:
            self.is_halted = False

    def halt_if_unready(self) -> bool:
        """Halt admission if it has to wait for pods; return whether it has to."""
        self.is_halted = bool(self.unready)
        return self.is_halted
