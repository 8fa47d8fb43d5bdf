"""Workload: one job in a queue, with its pods, its reserved quota and its state."""

import json
from functools import cache
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from admitq_api.conditions import ConditionType
from admitq_api.kinds.common import (
    AdmissionCheckName,
    Conditions,
    Count,
    Int32,
    PodSetName,
    Quantity,
    Subdomain,
    Time,
    Toleration,
)
from admitq_api.schema import (
    AGE,
    ATOMIC_LIST,
    ATOMIC_MAP,
    GROUP,
    SET,
    ApiKind,
    ApiModel,
    Column,
    SchemaKeywords,
    ValidationRule,
    condition_column,
    map_list,
)

SCHEMA_FILE = "pod_template_schema.json"
"""The file, in this distribution, with the schema of pod templates."""

MAX_POD_SETS = 18


@cache
def pod_template_schema() -> dict[str, Any]:
    """Return the schema of pod templates, which `hack/generate` reads from the API server."""
    return json.loads(resources.files("admitq_api").joinpath(SCHEMA_FILE).read_text())


class _PodTemplateSchema(SchemaKeywords):
    """The schema of pod templates, which is read at its first use."""

    def get_keywords(self) -> dict[str, Any]:
        return pod_template_schema()


# Field managers own the template as a whole. Otherwise, each write of a status would compare its fields, and
# each Workload would list them a second time in its managed fields.
PodTemplate = Annotated[dict[str, Any], _PodTemplateSchema({}, replaces=True), ATOMIC_MAP]


def _is_condition_true(of: str, condition: ConditionType) -> str:
    """Return the CEL expression that a condition of an object is True."""
    return (
        f"(has({of}.status) && has({of}.status.conditions) && "
        f"{of}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


_RESERVED = _is_condition_true("self", ConditionType.QUOTA_RESERVED)
WAS_RESERVED = _is_condition_true("oldSelf", ConditionType.QUOTA_RESERVED)
"""The CEL expression, in a rule of Workloads, that quota was reserved before the change."""

_ADMITTED = _is_condition_true("self", ConditionType.ADMITTED)
_WAS_ADMITTED = _is_condition_true("oldSelf", ConditionType.ADMITTED)


class SliceConstraint(ApiModel):
    """Slices of pods that must be placed within one domain."""

    topology: Annotated[str, Field(max_length=63)]
    """The topology level of the domain."""

    size: Annotated[Int32, Field(ge=1)]
    """The number of pods in a slice."""


class TopologyRequest(ApiModel):
    """The placement of pods relative to each other."""

    required: Annotated[str | None, Field(max_length=63)] = None
    """All pods must be placed within one domain of this level."""

    preferred: Annotated[str | None, Field(max_length=63)] = None
    """All pods are placed within one domain of this level if possible, otherwise of a higher level."""

    unconstrained: bool | None = None
    """Pods can be placed in any domain, but the free capacity of nodes is taken into account."""

    pod_index_label: Annotated[str | None, Field(max_length=317)] = None
    """The key of the pod label with the index of the pod."""

    sub_group_index_label: Annotated[str | None, Field(max_length=317)] = None
    """The key of the pod label with the index of the pod's sub-group."""

    sub_group_count: Count | None = None
    """The number of sub-groups."""

    pod_set_group_name: Annotated[str | None, Field(max_length=256)] = None
    """The name of the pod set group. Pod sets of one group are placed together."""

    pod_set_slice_required_topology: Annotated[str | None, Field(max_length=63)] = None
    """Each slice must be placed within one domain of this level."""

    pod_set_slice_size: Annotated[Int32 | None, Field(ge=1)] = None
    """The number of pods in a slice."""

    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...], Field(max_length=3), ATOMIC_LIST
    ] = ()
    """Constraints of nested slices, outermost first."""


class PodSet(ApiModel):
    """Pods that have one template."""

    rules = (
        ValidationRule(
            "!has(self.minCount) || self.minCount <= self.count",
            "minCount should be positive and less or equal to count",
            ".minCount",
        ),
    )

    name: PodSetName = "main"
    """The name of the pod set."""

    template: PodTemplate = Field(default_factory=dict)
    """The template of the pods."""

    count: Count = 1
    """The number of pods."""

    min_count: Annotated[Int32 | None, Field(ge=1)] = None
    """The minimum number of pods for partial admission. By default all pods are required."""

    topology_request: TopologyRequest | None = None
    """The placement of the pods relative to each other."""


class PriorityClassRef(ApiModel):
    """The class that determines the priority."""

    rules = (
        ValidationRule(
            "self.group == 'scheduling.k8s.io' ? self.kind == 'PriorityClass' "
            ": self.kind == 'WorkloadPriorityClass'",
            "kind must be PriorityClass for group scheduling.k8s.io, and WorkloadPriorityClass otherwise",
            ".kind",
        ),
    )

    group: Annotated[str, SchemaKeywords({"enum": [GROUP, "scheduling.k8s.io"]})]
    """The API group of the class."""

    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """The kind of the class."""

    name: Subdomain
    """The name of the class."""


class PreemptionGate(ApiModel):
    """A gate that must be open before other workloads are preempted."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The name of the gate."""


class WorkloadSpec(ApiModel):
    """The desired state of the Workload: its pods, its queue and its priority."""

    rules = (
        ValidationRule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority must be set when priorityClassRef is set",
            ".priority",
        ),
    )

    pod_sets: Annotated[tuple[PodSet, ...], Field(min_length=1, max_length=MAX_POD_SETS), map_list("name")]
    """The pods of the job, grouped by template."""

    queue_name: Subdomain | None = None
    """The name of the LocalQueue."""

    priority_class_ref: PriorityClassRef | None = None
    """The class that determines the priority."""

    priority: Int32 | None = None
    """The priority in the queue. Workloads of higher priority come first."""

    active: bool = True
    """Whether the workload can be admitted. If false, it is evicted and not queued."""

    maximum_execution_time_seconds: Annotated[Int32 | None, Field(ge=1)] = None
    """The maximum time that the workload can run, in seconds. After that time it is deactivated."""

    preemption_gates: Annotated[tuple[PreemptionGate, ...], Field(max_length=8), map_list("name")] = ()
    """Gates that must be open before other workloads are preempted for this workload."""


class IndividualValues(ApiModel):
    """The value of each domain: prefix + root + suffix."""

    prefix: Annotated[str | None, Field(max_length=63)] = None
    """The common prefix of all values."""

    suffix: Annotated[str | None, Field(max_length=63)] = None
    """The common suffix of all values."""

    roots: Annotated[
        tuple[Annotated[str, Field(max_length=63)], ...], Field(min_length=1, max_length=100000), ATOMIC_LIST
    ]
    """The parts of the values between prefix and suffix."""


class ValuesOfLevel(ApiModel):
    """The values of one level: one value for all domains, or one for each domain."""

    rules = (
        ValidationRule(
            "has(self.universal) != has(self.individual)",
            "exactly one of universal and individual must be set",
        ),
    )

    universal: Annotated[str | None, Field(max_length=63)] = None
    """The value of all domains."""

    individual: IndividualValues | None = None
    """The value of each domain."""


class PodCounts(ApiModel):
    """The numbers of pods: one number for all domains, or one for each domain."""

    rules = (
        ValidationRule(
            "has(self.universal) != has(self.individual)",
            "exactly one of universal and individual must be set",
        ),
    )

    universal: Annotated[Int32 | None, Field(ge=1)] = None
    """The number of pods in each of the domains."""

    individual: Annotated[
        tuple[Annotated[Int32, Field(ge=1)], ...] | None, Field(min_length=1, max_length=100000), ATOMIC_LIST
    ] = None
    """The number of pods in each domain."""


class TopologyAssignmentSlice(ApiModel):
    """Domains that are encoded together."""

    rules = (
        ValidationRule(
            "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "roots must have domainCount values",
            ".valuesPerLevel",
        ),
        ValidationRule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "individual must have domainCount values",
            ".podCounts",
        ),
    )

    domain_count: Annotated[Int32, Field(ge=1)]
    """The number of domains."""

    values_per_level: Annotated[tuple[ValuesOfLevel, ...], Field(min_length=1, max_length=16), ATOMIC_LIST]
    """The values of each level."""

    pod_counts: PodCounts
    """The number of pods in each domain."""


class TopologyAssignment(ApiModel):
    """The number of pods that are assigned to each topology domain."""

    rules = (
        ValidationRule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have a value for each of levels",
            ".slices",
        ),
    )

    levels: Annotated[
        tuple[Annotated[str, Field(max_length=316)], ...], Field(min_length=1, max_length=16), ATOMIC_LIST
    ]
    """The keys of the node labels that identify domains, from the widest level to the narrowest."""

    slices: Annotated[tuple[TopologyAssignmentSlice, ...], Field(min_length=1, max_length=1000), ATOMIC_LIST]
    """The domains, encoded in slices."""


class PodSetAssignment(ApiModel):
    """The quota that is reserved for a pod set."""

    name: PodSetName = "main"
    """The name of the pod set."""

    flavors: dict[str, Subdomain] = Field(default_factory=dict)
    """The flavor that is assigned to each resource."""

    resource_usage: dict[str, Quantity] = Field(default_factory=dict)
    """The quota of each resource, for all pods of the pod set together."""

    count: Count | None = None
    """The number of pods."""

    topology_assignment: TopologyAssignment | None = None
    """The topology domains that the pods are assigned to."""

    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Whether the topology assignment is still pending."""


class Admission(ApiModel):
    """The reserved quota, and the ClusterQueue that it was reserved in."""

    cluster_queue: Subdomain
    """The name of the ClusterQueue."""

    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ]
    """The quota that is reserved for each pod set."""


class RequeueState(ApiModel):
    """When an evicted workload is requeued."""

    count: Count | None = None
    """How often the workload has been requeued."""

    requeue_at: Time | None = None
    """The time at which the workload is requeued."""


class ReclaimablePod(ApiModel):
    """Pods that have ended and released their quota."""

    name: PodSetName
    """The name of the pod set."""

    count: Count
    """The number of pods."""


class PodSetUpdate(ApiModel):
    """Changes of the pods of a pod set by an AdmissionCheck."""

    name: PodSetName
    """The name of the pod set."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that are added."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations that are added."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Node selectors that are added."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """Tolerations that are added."""


class AdmissionCheckState(ApiModel):
    """The state of an AdmissionCheck for the workload."""

    name: AdmissionCheckName
    """The name of the AdmissionCheck."""

    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """The state of the check."""

    last_transition_time: Time
    """The time at which the state last changed."""

    message: Annotated[str, Field(max_length=32768)]
    """A message for people that explains the state."""

    requeue_after_seconds: Count | None = None
    """The delay before the workload is retried, in seconds."""

    retry_count: Count | None = None
    """How often the check requested a retry."""

    pod_set_updates: Annotated[
        tuple[PodSetUpdate, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """Changes of the pods by the check."""


class PodSetRequest(ApiModel):
    """The requests of a pod set."""

    name: PodSetName = "main"
    """The name of the pod set."""

    resources: dict[str, Quantity] = Field(default_factory=dict)
    """The quota that the pod set requests, for all pods together."""


class EvictionCount(ApiModel):
    """The number of evictions for one reason."""

    reason: Annotated[str, Field(max_length=316)]
    """The reason of the evictions."""

    underlying_cause: Annotated[str, Field(max_length=316)]
    """The cause of that reason. It can be empty."""

    count: Count
    """The number of evictions."""


class SchedulingStats(ApiModel):
    """Statistics of the workload's scheduling."""

    evictions: Annotated[
        tuple[EvictionCount, ...], Field(max_length=256), map_list("reason", "underlyingCause")
    ] = ()
    """The numbers of evictions, by reason and cause."""


class UnhealthyNode(ApiModel):
    """A failed node that pods of the workload are assigned to."""

    name: Annotated[str, Field(max_length=253)]
    """The name of the node."""


class PreemptionGateState(PreemptionGate):
    """The state of a preemption gate."""

    position: Literal["Closed", "Open"]
    """Whether the gate is open, so that other workloads can be preempted."""

    last_transition_time: Time
    """The time at which the position last changed."""


class WorkloadStatus(ApiModel):
    """The observed state of the Workload."""

    rules = (
        ValidationRule(
            "!(has(self.clusterName) && has(self.nominatedClusterNames) "
            "&& size(self.nominatedClusterNames) > 0)",
            "clusterName and nominatedClusterNames are mutually exclusive",
            ".clusterName",
        ),
        ValidationRule(
            "!has(oldSelf.clusterName) || (has(self.clusterName) ? self.clusterName == oldSelf.clusterName : "
            "has(self.conditions) && self.conditions.exists(c, c.type == 'Evicted' && c.status == 'True'))",
            "clusterName is immutable once it is set, until the workload is evicted",
            ".clusterName",
        ),
    )

    conditions: Conditions = ()
    """The conditions of the workload, such as QuotaReserved, Admitted, PodsReady, Evicted, Preempted,
    Requeued and Finished."""

    # One field for field managers, so that an apply leaves no part of an earlier admission.
    admission: Annotated[Admission | None, ATOMIC_MAP] = None
    """The reserved quota, and the ClusterQueue that it was reserved in."""

    requeue_state: RequeueState | None = None
    """When the evicted workload is requeued."""

    reclaimable_pods: Annotated[
        tuple[ReclaimablePod, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """Pods that have ended and released their quota."""

    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Field(max_length=8), map_list("name")] = ()
    """The states of the workload's AdmissionChecks."""

    resource_requests: Annotated[
        tuple[PodSetRequest, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """The requests of the workload. They are shown while it is not admitted."""

    accumulated_past_execution_time_seconds: Annotated[Int32 | None, Field(ge=0)] = None
    """How long the workload ran before its evictions, in seconds."""

    scheduling_stats: SchedulingStats | None = None
    """Statistics of the workload's scheduling."""

    nominated_cluster_names: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...], Field(max_length=20), SET
    ] = ()
    """The worker clusters that are considered for the workload."""

    cluster_name: Annotated[str | None, Field(max_length=256)] = None
    """The worker cluster that the workload runs in."""

    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], Field(max_length=8), map_list("name")] = ()
    """Failed nodes that pods of the workload are assigned to."""

    preemption_gates: Annotated[tuple[PreemptionGateState, ...], Field(max_length=8), map_list("name")] = ()
    """The states of the preemption gates."""


class Workload(ApiKind):
    """One job in a queue, with its pods, its reserved quota and its state."""

    plural: ClassVar[str] = "workloads"
    namespaced: ClassVar[bool] = True
    short_names: ClassVar[tuple[str, ...]] = ("kwl", "kueueworkload", "kueueworkloads")
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Queue", ".spec.queueName"),
        Column("Reserved in", ".status.admission.clusterQueue"),
        condition_column("Admitted", ConditionType.ADMITTED),
        condition_column("Finished", ConditionType.FINISHED),
        AGE,
        Column("Priority", ".spec.priority", "integer", wide=True),
        condition_column("Reason", ConditionType.QUOTA_RESERVED, field="reason", wide=True),
    )
    selectable: ClassVar[tuple[str, ...]] = (".status.admission.clusterQueue",)

    # Each rule first compares the fields that rarely change: writes of the status are frequent, and the
    # conditions cost the API server more.
    rules = (
        ValidationRule(
            "!has(self.status) || !has(self.status.admission) || "
            f"size(self.status.admission.podSetAssignments) == size(self.spec.podSets) || !{_RESERVED}",
            "podSetAssignments must have the same number of podSets as the spec",
            ".status.admission.podSetAssignments",
        ),
        ValidationRule(
            f"has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef) || !{WAS_RESERVED}",
            "priorityClassRef cannot be added or removed while quota is reserved",
            ".spec.priorityClassRef",
        ),
        ValidationRule(
            "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || "
            "(oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group && "
            f"oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind) || !{WAS_RESERVED}",
            "group and kind of priorityClassRef are immutable while quota is reserved",
            ".spec.priorityClassRef",
        ),
        ValidationRule(
            "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || "
            "oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name || "
            f"oldSelf.spec.priorityClassRef.kind != 'PriorityClass' || !{WAS_RESERVED}",
            "name of priorityClassRef is immutable for a PriorityClass while quota is reserved",
            ".spec.priorityClassRef.name",
        ),
        ValidationRule(
            "(has(oldSelf.spec.queueName) ? has(self.spec.queueName) && "
            "oldSelf.spec.queueName == self.spec.queueName : !has(self.spec.queueName)) || "
            f"!({WAS_RESERVED} && {_RESERVED})",
            "queueName is immutable while quota is reserved",
            ".spec.queueName",
        ),
        ValidationRule(
            "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? "
            "oldSelf.spec.maximumExecutionTimeSeconds : 0) == "
            "(has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0) || "
            f"!({_WAS_ADMITTED} && {_ADMITTED})",
            "maximumExecutionTimeSeconds is immutable while admitted",
            ".spec.maximumExecutionTimeSeconds",
        ),
    )

    spec: WorkloadSpec | None = None
    """The desired state of the Workload."""

    status: WorkloadStatus | None = None
    """The observed state of the Workload."""
