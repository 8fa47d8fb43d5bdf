"""Whether admission waits until the pods of admitted workloads are ready (setting ``blockAdmission``)."""

from collections.abc import Container

from admitq.core.entries import WorkloadEntry
from admitq.core.model import ObjectKey


class PodReadiness:
    """The admitted workloads with pods that are not ready. Empty without the setting ``blockAdmission``.

    Args:
        cluster_queues: the names of all ClusterQueues.
    """

    def __init__(self, cluster_queues: Container[str]) -> None:
        self._cluster_queues = cluster_queues
        self.unready: set[ObjectKey] = set()
        self.is_halted = False
        """Whether a workload was refused because of unready pods. No cycle runs until all pods are ready."""

    def is_unready(self, entry: WorkloadEntry) -> bool:
        """Whether a workload is admitted in an existing ClusterQueue, and its pods are not ready."""
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
        """Halt admission if pods are not ready. Return whether admission is halted."""
        self.is_halted = bool(self.unready)
        return self.is_halted
