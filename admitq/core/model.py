"""Values of the objects that decisions depend on: queues, quotas and workloads.

All values are frozen. Their names are those of the API. An absent optional field is ``None``. Times are
integers, in nanoseconds since the Unix epoch: the core never reads a clock and never rounds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, NamedTuple

from admitq.core.amounts import Amounts
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.request import TopologyRequest

Instant = int
"""Nanoseconds since the Unix epoch."""

SECOND = 1_000_000_000
"""Nanoseconds in a second."""


ONE: Final = Fraction(1)
"""The default weight of a queue or cohort."""


class ObjectKey(NamedTuple):
    """The namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class QueueingStrategy(StrEnum):
    """Whether a head that does not fit blocks the workloads behind it."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """Whether a queue admits workloads, and whether it evicts admitted workloads."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class SelectorOperator(StrEnum):
    """Operators of label selectors and of node selector terms."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


@dataclass(frozen=True, slots=True)
class SelectorRequirement:
    """One condition on the value of a label."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector. All requirements must hold. Without requirements, it selects all objects."""

    requirements: tuple[SelectorRequirement, ...] = ()


Labels = tuple[tuple[str, str], ...]
"""Labels sorted by key."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of nodes. ``effect`` is a string: new versions of Kubernetes may add values."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. An empty operator means Equal, an empty effect all effects.

    ``operator`` and ``effect`` are strings: new versions of Kubernetes may add values.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements that must all hold for the labels of a node. The core ignores matchFields."""

    requirements: tuple[SelectorRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term that nodes for a pod should satisfy, with a weight from 1 to 100."""

    weight: int
    term: NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """The quota of one resource in one flavor. A limit of None does not limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quota of one flavor, by resource."""

    name: str
    resources: tuple[tuple[str, ResourceQuota], ...]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that get their quota from the same flavor, and these flavors in order of preference."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True)
class AdmissionCheckRule:
    """An admission check of a ClusterQueue. Without flavors, it applies to all flavors."""

    name: str
    on_flavors: tuple[str, ...] = ()


class CheckState(StrEnum):
    """The state of an admission check of one workload. With ``READY``, the check allows admission."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An AdmissionCheck."""

    name: str
    controller_name: str
    active: bool


class FlavorFungibilityPolicy(StrEnum):
    """Whether the search for a flavor may stop at a flavor that needs borrowing or preemption."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FlavorFungibilityPreference(StrEnum):
    """Which of two flavors is better: one that needs borrowing, or one that needs preemption."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True)
class FlavorFungibility:
    """When the search for a flavor tries the next flavor, and which of the tried flavors it prefers."""

    when_can_borrow: FlavorFungibilityPolicy = FlavorFungibilityPolicy.MAY_STOP_SEARCH
    when_can_preempt: FlavorFungibilityPolicy = FlavorFungibilityPolicy.TRY_NEXT_FLAVOR
    preference: FlavorFungibilityPreference | None = None


class PreemptionPolicy(StrEnum):
    """Which workloads may be preempted, by their priority compared with that of the preemptor."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """Which workloads of other ClusterQueues a borrower may preempt."""

    policy: PreemptionPolicy = PreemptionPolicy.NEVER
    max_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterQueuePreemption:
    """Which workloads may be preempted for a workload of the ClusterQueue."""

    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue: quota, and rules of admission. A namespace selector of None selects no namespace."""

    name: str
    uid: str = ""
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: LabelSelector | None = None
    stop_policy: StopPolicy = StopPolicy.NONE
    admission_checks: tuple[AdmissionCheckRule, ...] = ()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: ClusterQueuePreemption = ClusterQueuePreemption()
    fair_weight: Fraction = ONE
    usage_based_admission: bool = False
    """Whether its LocalQueues are ordered by past usage (admissionMode UsageBasedAdmissionFairSharing)."""
    terminating: bool = False
    created_at: Instant = 0
    """The instant of its creation; 0 if not known."""
    quarantined: bool = False
    """Whether only its quota and cohort are known. Its workloads count, but it admits no others."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """A group of ClusterQueues and cohorts that lend each other unused quota."""

    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight: Fraction = ONE


@dataclass(frozen=True, slots=True)
class ConsumedResources:
    """The consumed amounts in the status of a LocalQueue, decayed until an instant."""

    consumed: Amounts
    at: Instant


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue. Workloads of its namespace use a ClusterQueue through it.

    ``consumed`` is the past usage in its status. The core reads it when it first observes the LocalQueue.
    From then on, the core has its own usage account.
    """

    key: ObjectKey
    cluster_queue: str
    uid: str = ""
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: Fraction = ONE
    consumed: ConsumedResources | None = None
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A ResourceFlavor: labels and taints of its nodes, and tolerations that its workloads get."""

    name: str
    node_labels: Labels = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


ExactAmounts = tuple[tuple[str, Fraction], ...]
"""Amounts as stated in an object, in the unit of the resource (cores, bytes), sorted by resource."""


class HashedOnce:
    """A frozen value that caches its hash. Such values are looked up far more often than created."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        """Return the hash of all fields."""
        try:
            return self._hash
        except AttributeError:
            result = hash(tuple(getattr(self, name) for name in self.__slots__))
            object.__setattr__(self, "_hash", result)
            return result


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """The requests and limits of a container. ``restartable`` marks an init container that is a sidecar."""

    requests: ExactAmounts = ()
    limits: ExactAmounts = ()
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class PodTemplate(HashedOnce):
    """The fields of a pod template that decide what its pods request.

    ``requests`` and ``limits`` are those of the pod level. ``overhead`` is that of the template. If it is
    None, the overhead of the RuntimeClass counts.
    """

    containers: tuple[ContainerResources, ...] = ()
    init_containers: tuple[ContainerResources, ...] = ()
    requests: ExactAmounts = ()
    limits: ExactAmounts = ()
    overhead: ExactAmounts | None = None
    runtime_class: str | None = None

    __hash__ = HashedOnce.__hash__


class LimitedType(StrEnum):
    """The types of LimitRange items that the core evaluates."""

    CONTAINER = "Container"
    POD = "Pod"


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """Bounds and defaults for containers or pods."""

    type: LimitedType
    maximum: ExactAmounts = ()
    minimum: ExactAmounts = ()
    default_limits: ExactAmounts = ()
    default_requests: ExactAmounts = ()


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Bounds and defaults for the requests of pods in a namespace."""

    items: tuple[LimitRangeItem, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSet(HashedOnce):
    """Pods with the same template. Podsets with the same ``group`` get the same flavors."""

    name: str
    count: int
    template: PodTemplate = PodTemplate()
    min_count: int | None = None
    group: str | None = None
    node_selector: Labels = ()
    required_node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_request: TopologyRequest | None = None

    __hash__ = HashedOnce.__hash__


@dataclass(frozen=True, slots=True)
class PodSetAssignment(HashedOnce):
    """The flavors that a podset was assigned, by resource, and the usage of the whole podset.

    ``topology`` has the domains of the pods; None without topology. ``lacks_topology_assignment`` is true if
    the topology assignment was deferred and is still missing: delayedTopologyRequest is Pending, and there is
    no topologyAssignment.
    """

    name: str
    flavors: tuple[tuple[str, str], ...]
    resource_usage: Amounts
    count: int
    lacks_topology_assignment: bool = False
    topology: TopologyAssignment | None = None

    __hash__ = HashedOnce.__hash__


@dataclass(frozen=True, slots=True)
class Admission:
    """The ClusterQueue, flavors and counts that a workload was assigned."""

    cluster_queue: str
    pod_set_assignments: tuple[PodSetAssignment, ...]

    def has_quota_of(self, other: "Admission") -> bool:
        """Whether another admission differs at most in the topology assignments."""
        return self.without_places() == other.without_places()

    def without_places(self) -> "Admission":
        """Return the same reservation without topology assignments."""
        parts = (
            replace(part, topology=None, lacks_topology_assignment=False) for part in self.pod_set_assignments
        )
        return replace(self, pod_set_assignments=tuple(parts))


class ResourceProblem(NamedTuple):
    """A request of a pod template that is not a quantity, or is negative.

    ``field`` is the path of the request in the Workload. ``detail`` says what is wrong with the request.
    """

    field: str
    detail: str


@dataclass(frozen=True, slots=True)
class PodSetUpdate(HashedOnce):
    """What an admission check adds to the pods of a podset and what decides on which nodes they may run."""

    pod_set: str
    node_selector: Labels = ()
    tolerations: tuple[Toleration, ...] = ()

    __hash__ = HashedOnce.__hash__


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """What a workload requests, and when it may be evaluated.

    ``queued_at`` is the queue-order timestamp (semantics, Ordering). The workload is not evaluated before
    ``requeue_at``. ``requeue_blocked``: condition Requeued is False. ``priority`` is the effective priority.
    ``replaces`` is the workload that this one replaces (semantics, Elastic jobs).
    """

    key: ObjectKey
    uid: str
    queue_name: str
    queued_at: Instant
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    generation: int = 1
    active: bool = True
    on_hold: bool = False
    requeue_at: Instant | None = None
    requeue_blocked: bool = False
    admission_gates: tuple[str, ...] = ()
    reclaimable_pods: tuple[tuple[str, int], ...] = ()
    has_closed_preemption_gate: bool = False
    resource_problems: tuple[ResourceProblem, ...] = ()
    replaces: ObjectKey | None = None


@dataclass(frozen=True, slots=True)
class Workload(WorkloadRequest):
    """A workload: its request and its state.

    ``admission`` is set while quota is reserved, since ``reserved_at``. ``admitted`` and ``pods_ready`` are
    the conditions of these names. ``evicted`` is condition Evicted, which stays True after the eviction until
    the next reservation. ``evicted_at`` is the instant since which it is True; 0 if not known.
    ``pod_set_updates`` are those of all admission checks. ``unhealthy_nodes`` are the failed hosts of its
    topology assignment. ``is_single_pod`` is true if its job is one pod.
    """

    admission: Admission | None = None
    reserved_at: Instant = 0
    admitted: bool = False
    pods_ready: bool = False
    evicted: bool = False
    evicted_at: Instant = 0
    finished: bool = False
    deleting: bool = False
    waiting_for_replacement_pods: bool = False
    admission_checks: tuple[tuple[str, CheckState], ...] = ()
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    is_single_pod: bool = False
