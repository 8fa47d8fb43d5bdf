"""Events: observations of objects, results of writes, and requests for cycles.

Events are named by past participles. An observation is level-triggered: it has the whole present value of an
object. So a missed or repeated observation does no harm. Observations of different objects may come in any
order.
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
from admitq.core.topology.domains import Node
from admitq.core.topology.topologies import PodOnNode


@dataclass(frozen=True, slots=True)
class ClusterQueueChanged:
    """A ClusterQueue was created or changed."""

    cluster_queue: ClusterQueue


@dataclass(frozen=True, slots=True)
class ClusterQueueDeleted:
    """A ClusterQueue was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class CohortChanged:
    """A Cohort object was created or changed."""

    cohort: Cohort


@dataclass(frozen=True, slots=True)
class CohortDeleted:
    """A Cohort object was deleted. While other objects name the cohort, it stays, without quota."""

    name: str


@dataclass(frozen=True, slots=True)
class LocalQueueChanged:
    """A LocalQueue was created or changed."""

    local_queue: LocalQueue


@dataclass(frozen=True, slots=True)
class LocalQueueDeleted:
    """A LocalQueue was deleted."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class ResourceFlavorChanged:
    """A ResourceFlavor was created or changed."""

    flavor: ResourceFlavor


@dataclass(frozen=True, slots=True)
class ResourceFlavorDeleted:
    """A ResourceFlavor was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class AdmissionCheckChanged:
    """An AdmissionCheck was created, changed, or became active or inactive."""

    admission_check: AdmissionCheck


@dataclass(frozen=True, slots=True)
class AdmissionCheckDeleted:
    """An AdmissionCheck was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """A Topology was created or changed. ``levels`` are labels of nodes, the widest level first."""

    name: str
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyDeleted:
    """A Topology was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node was created or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class PodOfOthersChanged:
    """A pod that belongs to no admitted workload of a topology runs on a node."""

    key: ObjectKey
    pod: PodOnNode


@dataclass(frozen=True, slots=True)
class PodOfOthersDeleted:
    """Such a pod does not run any more."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """A namespace was created, or its labels changed."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NamespaceDeleted:
    """A namespace was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A Workload was created or changed. It may be in any phase."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadDeleted:
    """A Workload was deleted."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class ReservationFailed:
    """A reservation could not be written. The core forgets it and retries after a backoff."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class ReservationDiscarded:
    """A reservation will not be written, because another program decides. The core forgets it."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class TopologyAssignmentFailed:
    """Topology assignments of a workload with quota could not be written. The core searches them again."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class PreemptionFailed:
    """A preemption could not be written: the victim is not evicted. The core retries the preemptors."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class LimitRangeChanged:
    """A LimitRange was created or changed."""

    key: ObjectKey
    limit_range: LimitRange


@dataclass(frozen=True, slots=True)
class LimitRangeDeleted:
    """A LimitRange was deleted."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class RuntimeClassChanged:
    """A RuntimeClass was created or changed. Its pods need this overhead beside their requests."""

    name: str
    overhead: ExactAmounts


@dataclass(frozen=True, slots=True)
class RuntimeClassDeleted:
    """A RuntimeClass was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class CyclesRequested:
    """The driver requests admission cycles until no head is left, at most ``limit`` cycles."""

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
    | NodeChanged
    | NodeDeleted
    | PodOfOthersChanged
    | PodOfOthersDeleted
    | NamespaceChanged
    | NamespaceDeleted
    | WorkloadChanged
    | WorkloadDeleted
    | ReservationFailed
    | ReservationDiscarded
    | TopologyAssignmentFailed
    | PreemptionFailed
    | LimitRangeChanged
    | LimitRangeDeleted
    | RuntimeClassChanged
    | RuntimeClassDeleted
    | CyclesRequested
)
