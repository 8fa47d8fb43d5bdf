"""What controllers are given: where to read, where to write, whom to tell.

Protocols stand for what other parts implement, so that a controller can be tried on plain stand-ins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from admitq.controllers.settings import Settings
from admitq.core.model import Instant, ObjectKey
from admitq.core.refusals import Refusal
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, LocalQueueStatus
from admitq.runtime.client import Client
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import Resource
from admitq.runtime.store import Store
from admitq_api.labels import Names

Clock = Callable[[], Instant]
"""Wall time in nanoseconds since the Unix epoch."""


class WatchedStores(Protocol):
    """Where objects are read: the stores that watches fill, one a resource."""

    def of(self, resource: Resource) -> Store:
        """The store of a resource that is watched."""
        ...

    def find(self, resource: Resource) -> Store | None:
        """The store of a resource that may not be watched; None if it is not."""
        ...


class EventRecorder(Protocol):
    """Where Kubernetes events go. Never raises, never waits."""

    def event(
        self,
        regarding: dict[str, Any],
        kind: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        action: str | None = None,
        related: dict[str, Any] | None = None,
    ) -> None:
        """Record that something happened to an object."""
        ...


class JobMetrics(Protocol):
    """Where it is counted what happened. Durations are seconds; Workloads are given as they were written."""

    def workload_created(self, job_kind: str, seconds: float, queue: ObjectKey) -> None:
        """A Workload was created so long after its job (of generation 1), for a LocalQueue."""
        ...

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        """A scheduling gate was taken off a pod that it held for so long after it might have gone."""
        ...

    def excess_pods(self, workload: Mapping[str, Any], job_kind: str, number: int) -> None:
        """So many pods of a job ran, or might have run, beyond what is reserved for its Workload."""
        ...

    def pod_forcefully_deleted(self) -> None:
        """A pod on a node that cannot be reached was deleted by force."""
        ...


class QueueMetrics(Protocol):
    """The gauges of queues and cohorts."""

    def cluster_queue_reported(self, name: str, status: ClusterQueueStatus) -> None:
        """Set the gauges of a ClusterQueue to the core's numbers."""
        ...

    def local_queue_reported(self, key: ObjectKey, status: LocalQueueStatus) -> None:
        """Set the gauges of a LocalQueue to the core's numbers."""
        ...

    def cohort_reported(self, name: str, parent: str, root: str, status: CohortStatus) -> None:
        """Set the gauges of a cohort to the core's numbers."""
        ...

    def forget_cohort(self, name: str) -> None:
        """Drop the series of a cohort that has no object and is not named any more."""
        ...


class CoreView(Protocol):
    """What controllers may ask of the admission core."""

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        """The numbers of a ClusterQueue; None if the core does not know it."""
        ...

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        """The numbers of a LocalQueue; None if the core does not know it."""
        ...

    def cluster_queue_has_reservations(self, name: str) -> bool:
        """Whether any workload holds quota of the ClusterQueue."""
        ...

    def cohort_status(self, name: str) -> CohortStatus | None:
        """The numbers of a cohort, with or without an object; None if nothing speaks of it."""
        ...

    def parked_refusal(self, key: ObjectKey) -> Refusal | None:
        """Why a waiting workload was last refused, itself or in the person of an equal one."""
        ...

    def is_bypassed(self, key: ObjectKey) -> bool:
        """Whether a waiting workload is parked because an equal one was refused, untried itself."""
        ...

    def admissibility(self, key: ObjectKey) -> Refusal | None:
        """Why a workload would be refused whatever quota there is; None if nothing is known."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """All that controllers share.

    ``observed`` takes the answer to a write of ours into the store, and so to everybody who watches it,
    without waiting for the watch.
    """

    client: Client
    names: Names
    settings: Settings
    recorder: EventRecorder
    clock: Clock
    stores: WatchedStores
    metrics: JobMetrics
    queue_metrics: QueueMetrics
    observe_write: Callable[[Resource, dict[str, Any]], None]

    @property
    def kinds(self) -> Kinds:
        """The resources of our own kinds."""
        return kinds_of(self.names)
