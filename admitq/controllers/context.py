"""What all controllers share: stores to read, a client to write, events and metrics to record.

Protocols describe what other packages implement, so that tests can use simple fakes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from admitq.controllers.settings import ControllerSettings
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
    """The stores that watches fill, one for each resource."""

    def of(self, resource: Resource) -> Store:
        """Return the store of a resource that is always watched."""
        ...

    def find(self, resource: Resource) -> Store | None:
        """Return the store of a resource; None while it is not watched."""
        ...


class EventRecorder(Protocol):
    """Records Kubernetes events. Never raises and never blocks."""

    def event(
        self,
        regarding: dict[str, Any],
        kind: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        action: str | None = None,
        related: dict[str, Any] | None = None,
    ) -> None:
        """Record an event about an object."""
        ...


class JobMetrics(Protocol):
    """Metrics about jobs and pods. Durations are seconds; Workloads are raw objects as last written."""

    def workload_created(self, job_kind: str, seconds: float, queue: ObjectKey) -> None:
        """Record the time between the creations of a job (generation 1) and its Workload, by LocalQueue."""
        ...

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        """Record how long a scheduling gate held a pod after the gate could have been removed."""
        ...

    def excess_pods(self, workload: Mapping[str, Any], job_kind: str, number: int) -> None:
        """Count pods of a job that ran, or could run, without quota reserved for its Workload."""
        ...

    def pod_forcefully_deleted(self) -> None:
        """Count a pod on an unreachable node that was force-deleted."""
        ...


class CoreView(Protocol):
    """The questions that controllers may ask the core."""

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        """Return the status of a ClusterQueue; None if the core does not know the ClusterQueue."""
        ...

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        """Return the status of a LocalQueue; None if the core does not know the LocalQueue."""
        ...

    def is_cluster_queue_active(self, name: str) -> bool | None:
        """Whether the ClusterQueue is active; None if the core does not know it."""
        ...

    def has_local_queue(self, key: ObjectKey) -> bool:
        """Whether the core knows the LocalQueue."""
        ...

    def cluster_queue_has_reservations(self, name: str) -> bool:
        """Whether any workload holds quota of the ClusterQueue."""
        ...

    def cohort_status(self, name: str) -> CohortStatus | None:
        """Return the status of a cohort, with or without an object; None if no object names the cohort."""
        ...

    def last_refusal(self, key: ObjectKey) -> Refusal | None:
        """Return why the core last refused a pending workload, or one with its scheduling key."""
        ...

    def is_bypassed(self, key: ObjectKey) -> bool:
        """Whether a pending workload is parked without an attempt, because one with its key was refused."""
        ...

    def find_inadmissibility(self, key: ObjectKey) -> Refusal | None:
        """Return why a workload would be refused whatever quota is free; None if no such reason is known."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What all controllers share.

    ``observe_write`` puts the answer to a write into the store. All subscribers of the store see the
    answer at once, without waiting for the watch.
    """

    client: Client
    names: Names
    settings: ControllerSettings
    recorder: EventRecorder
    clock: Clock
    stores: WatchedStores
    metrics: JobMetrics
    observe_write: Callable[[Resource, dict[str, Any]], None]

    @property
    def kinds(self) -> Kinds:
        """The resources of admitq's kinds."""
        return kinds_of(self.names)
