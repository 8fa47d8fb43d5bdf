"""Events: observations of objects, results of writes, and requests for cycles.

Events are past participles. An observation is level-triggered: it carries the whole value as it is now,
so that a missed or repeated one does no harm, and observations of different objects may come in any order.
"""

from dataclasses import dataclass

from admitq.core.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    ExactAmounts,
    Labels,
    LimitRange,
    LocalQueue,
    ObjectKey,
    ResourceFlavor,
    Workload,
)


@dataclass(frozen=True, slots=True)
class ClusterQueueChanged:
    """A ClusterQueue was created or changed."""

    cluster_queue: ClusterQueue


@dataclass(frozen=True, slots=True)
class ClusterQueueDeleted:
    """A ClusterQueue is gone from the API."""

    name: str


@dataclass(frozen=True, slots=True)
class CohortChanged:
    """A Cohort object was created or changed."""

    cohort: Cohort


@dataclass(frozen=True, slots=True)
class CohortDeleted:
    """A Cohort object is gone; while it is still named it goes on without quota of its own."""

    name: str


@dataclass(frozen=True, slots=True)
class LocalQueueChanged:
    """A LocalQueue was created or changed."""

    local_queue: LocalQueue


@dataclass(frozen=True, slots=True)
class LocalQueueDeleted:
    """A LocalQueue is gone from the API."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class ResourceFlavorChanged:
    """A ResourceFlavor was created or changed."""

    flavor: ResourceFlavor


@dataclass(frozen=True, slots=True)
class ResourceFlavorDeleted:
    """A ResourceFlavor is gone from the API."""

    name: str


@dataclass(frozen=True, slots=True)
class AdmissionCheckChanged:
    """An AdmissionCheck was created, changed, or became active or inactive."""

    admission_check: AdmissionCheck


@dataclass(frozen=True, slots=True)
class AdmissionCheckDeleted:
    """An AdmissionCheck is gone from the API."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """A Topology exists."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologyDeleted:
    """A Topology is gone from the API."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """A namespace exists with these labels."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NamespaceDeleted:
    """A namespace is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A Workload was created or changed, in whatever phase it now is."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadDeleted:
    """A Workload is gone from the API."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class ReservationFailed:
    """The write of a reservation was refused or lost: forget the assumption, retry after a backoff."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class ReservationDiscarded:
    """A reservation is not to be written, because another program decides: forget the assumption."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class PreemptionFailed:
    """The write of a preemption was refused or lost: the victim is not evicted; retry the preemptors."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class LimitRangeChanged:
    """A LimitRange of a namespace was created or changed."""

    key: ObjectKey
    limit_range: LimitRange


@dataclass(frozen=True, slots=True)
class LimitRangeDeleted:
    """A LimitRange is gone."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class RuntimeClassChanged:
    """A RuntimeClass exists; its pods need this overhead beside the requests of their containers."""

    name: str
    overhead: ExactAmounts


@dataclass(frozen=True, slots=True)
class RuntimeClassDeleted:
    """A RuntimeClass is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class CyclesRequested:
    """Run admission cycles back to back until nothing more fits, or at most ``limit`` of them."""

    limit: int | None = None


Event = (
    ClusterQueueChanged
    | ClusterQueueDeleted
    | CohortChanged
    | CohortDeleted
    | LocalQueueChanged
    | LocalQueueDeleted
    | ResourceFlavorChanged
    | ResourceFlavorDeleted
    | AdmissionCheckChanged
    | AdmissionCheckDeleted
    | TopologyChanged
    | TopologyDeleted
    | NamespaceChanged
    | NamespaceDeleted
    | WorkloadChanged
    | WorkloadDeleted
    | ReservationFailed
    | ReservationDiscarded
    | PreemptionFailed
    | LimitRangeChanged
    | LimitRangeDeleted
    | RuntimeClassChanged
    | RuntimeClassDeleted
    | CyclesRequested
)
