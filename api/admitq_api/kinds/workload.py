"""Workload: one job as it is queued: its pods, what was reserved for it, and how it fares."""

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
    """The schema of pod templates, which `hack/generate` takes from the API server."""
    return json.loads(resources.files("admitq_api").joinpath(SCHEMA_FILE).read_text())


class _PodTemplateSchema(SchemaKeywords):
    """The schema of pod templates, read when it is first asked for."""

    def get_keywords(self) -> dict[str, Any]:
        return pod_template_schema()


PodTemplate = Annotated[dict[str, Any], _PodTemplateSchema({}, replaces=True)]


def _is_condition_true(of: str, condition: ConditionType) -> str:
    """The CEL expression for a condition being True in an object."""
    return (
        f"(has({of}.status) && has({of}.status.conditions) && "
        f"{of}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


_RESERVED = _is_condition_true("self", ConditionType.QUOTA_RESERVED)
WAS_RESERVED = _is_condition_true("oldSelf", ConditionType.QUOTA_RESERVED)
"""The CEL expression, in a rule of Workloads, for quota being reserved before the change."""

_ADMITTED = _is_condition_true("self", ConditionType.ADMITTED)
_WAS_ADMITTED = _is_condition_true("oldSelf", ConditionType.ADMITTED)


class SliceConstraint(ApiModel):
    """Slices of pods that must be placed within one domain."""

    topology: Annotated[str, Field(max_length=63)]
    """The level of the domain."""

    size: Annotated[Int32, Field(ge=1)]
    """How many pods make a slice."""


class TopologyRequest(ApiModel):
    """Where pods must be relative to each other."""

    required: Annotated[str | None, Field(max_length=63)] = None
    """All pods within one domain of this level."""

    preferred: Annotated[str | None, Field(max_length=63)] = None
    """Pods within one domain of this level if possible, else of the level above."""

    unconstrained: bool | None = None
    """Pods anywhere, but counted exactly."""

    pod_index_label: Annotated[str | None, Field(max_length=317)] = None
    """The label of pods with their index."""

    sub_group_index_label: Annotated[str | None, Field(max_length=317)] = None
    """The label of pods with the index of their sub-group."""

    sub_group_count: Count | None = None
    """How many sub-groups there are."""

    pod_set_group_name: Annotated[str | None, Field(max_length=256)] = None
    """Pod sets of the same group are placed together."""

    pod_set_slice_required_topology: Annotated[str | None, Field(max_length=63)] = None
    """Each slice within one domain of this level."""

    pod_set_slice_size: Annotated[Int32 | None, Field(ge=1)] = None
    """How many pods make a slice."""

    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...], Field(max_length=3), ATOMIC_LIST
    ] = ()
    """Slices within slices, outermost first."""


class PodSet(ApiModel):
    """Pods of one template."""

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
    """How many pods."""

    min_count: Annotated[Int32 | None, Field(ge=1)] = None
    """The fewest pods that the job can start with; absent: all."""

    topology_request: TopologyRequest | None = None
    """Where the pods must be relative to each other."""


class PriorityClassRef(ApiModel):
    """The class that the priority comes from."""

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
    """Something that must be opened before others are preempted."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The name of the gate."""


class WorkloadSpec(ApiModel):
    """What is to run, where it queues, and how urgent it is."""

    rules = (
        ValidationRule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority must be set when priorityClassRef is set",
            ".priority",
        ),
    )

    pod_sets: Annotated[tuple[PodSet, ...], Field(min_length=1, max_length=MAX_POD_SETS), map_list("name")]
    """The pods, by template."""

    queue_name: Subdomain | None = None
    """The LocalQueue."""

    priority_class_ref: PriorityClassRef | None = None
    """The class that the priority comes from."""

    priority: Int32 | None = None
    """The priority in the queue: more goes first."""

    active: bool = True
    """Whether it may run; false evicts it and keeps it out of the queue."""

    maximum_execution_time_seconds: Annotated[Int32 | None, Field(ge=1)] = None
    """How long it may run; then it is deactivated."""

    preemption_gates: Annotated[tuple[PreemptionGate, ...], Field(max_length=8), map_list("name")] = ()
    """What must be opened before others are preempted for it."""


class IndividualValues(ApiModel):
    """The value of each domain: prefix + root + suffix."""

    prefix: Annotated[str | None, Field(max_length=63)] = None
    """What all values start with."""

    suffix: Annotated[str | None, Field(max_length=63)] = None
    """What all values end with."""

    roots: Annotated[
        tuple[Annotated[str, Field(max_length=63)], ...], Field(min_length=1, max_length=100000), ATOMIC_LIST
    ]
    """What is between."""


class ValuesOfLevel(ApiModel):
    """The values of one level: all alike, or one for each domain."""

    rules = (
        ValidationRule(
            "has(self.universal) != has(self.individual)",
            "exactly one of universal and individual must be set",
        ),
    )

    universal: Annotated[str | None, Field(max_length=63)] = None
    """The value that all domains have."""

    individual: IndividualValues | None = None
    """The value of each domain."""


class PodCounts(ApiModel):
    """How many pods: the same in all domains, or one number for each."""

    rules = (
        ValidationRule(
            "has(self.universal) != has(self.individual)",
            "exactly one of universal and individual must be set",
        ),
    )

    universal: Annotated[Int32 | None, Field(ge=1)] = None
    """The number of pods in every domain."""

    individual: Annotated[
        tuple[Annotated[Int32, Field(ge=1)], ...] | None, Field(min_length=1, max_length=100000), ATOMIC_LIST
    ] = None
    """The number of pods in each domain."""


class TopologyAssignmentSlice(ApiModel):
    """Domains that are written together."""

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
    """How many domains."""

    values_per_level: Annotated[tuple[ValuesOfLevel, ...], Field(min_length=1, max_length=16), ATOMIC_LIST]
    """The values of each level."""

    pod_counts: PodCounts
    """How many pods each domain gets."""


class TopologyAssignment(ApiModel):
    """How many pods go to which domain."""

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
    """The levels that domains are named by."""

    slices: Annotated[tuple[TopologyAssignmentSlice, ...], Field(min_length=1, max_length=1000), ATOMIC_LIST]
    """The domains."""


class PodSetAssignment(ApiModel):
    """What was reserved for a pod set."""

    name: PodSetName = "main"
    """The pod set."""

    flavors: dict[str, Subdomain] = Field(default_factory=dict)
    """The flavor of each resource."""

    resource_usage: dict[str, Quantity] = Field(default_factory=dict)
    """The quota of each resource, for all pods together."""

    count: Count | None = None
    """How many pods."""

    topology_assignment: TopologyAssignment | None = None
    """Where the pods go."""

    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Whether the place of the pods is still to be found."""


class Admission(ApiModel):
    """What was reserved, and where."""

    cluster_queue: Subdomain
    """The ClusterQueue."""

    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ]
    """What was reserved for each pod set."""


class RequeueState(ApiModel):
    """When an evicted workload comes back."""

    count: Count | None = None
    """How often it came back."""

    requeue_at: Time | None = None
    """When it comes back."""


class ReclaimablePod(ApiModel):
    """Pods that are done, and whose quota is free again."""

    name: PodSetName
    """The pod set."""

    count: Count
    """How many pods."""


class PodSetUpdate(ApiModel):
    """What a check changes in the pods of a pod set."""

    name: PodSetName
    """The pod set."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that are added."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations that are added."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Node selectors that are added."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """Tolerations that are added."""


class AdmissionCheckState(ApiModel):
    """What an AdmissionCheck says."""

    name: AdmissionCheckName
    """The AdmissionCheck."""

    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """What it says."""

    last_transition_time: Time
    """When state last changed."""

    message: Annotated[str, Field(max_length=32768)]
    """Why, for people."""

    requeue_after_seconds: Count | None = None
    """How long to wait before the workload is tried again."""

    retry_count: Count | None = None
    """How often the check asked to try again."""

    pod_set_updates: Annotated[
        tuple[PodSetUpdate, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """What the check changes in the pods."""


class PodSetRequest(ApiModel):
    """What a pod set asks for."""

    name: PodSetName = "main"
    """The pod set."""

    resources: dict[str, Quantity] = Field(default_factory=dict)
    """The quota that it asks for, for all pods together."""


class EvictionCount(ApiModel):
    """How often the workload was evicted for a reason."""

    reason: Annotated[str, Field(max_length=316)]
    """The reason."""

    underlying_cause: Annotated[str, Field(max_length=316)]
    """The cause of that; may be empty."""

    count: Count
    """How often."""


class SchedulingStats(ApiModel):
    """What happened to the workload so far."""

    evictions: Annotated[
        tuple[EvictionCount, ...], Field(max_length=256), map_list("reason", "underlyingCause")
    ] = ()
    """How often it was evicted."""


class UnhealthyNode(ApiModel):
    """A node that pods were placed on and that failed."""

    name: Annotated[str, Field(max_length=253)]
    """The node."""


class PreemptionGateState(PreemptionGate):
    """The state of a preemption gate."""

    position: Literal["Closed", "Open"]
    """Whether others may be preempted."""

    last_transition_time: Time
    """When position last changed."""


class WorkloadStatus(ApiModel):
    """How the workload fares."""

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
    """QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished and others."""

    admission: Admission | None = None
    """What was reserved, and where."""

    requeue_state: RequeueState | None = None
    """When an evicted workload comes back."""

    reclaimable_pods: Annotated[
        tuple[ReclaimablePod, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """Pods that are done, and whose quota is free again."""

    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Field(max_length=8), map_list("name")] = ()
    """What AdmissionChecks say."""

    resource_requests: Annotated[
        tuple[PodSetRequest, ...], Field(max_length=MAX_POD_SETS), map_list("name")
    ] = ()
    """What the workload asks for; shown while it is not admitted."""

    accumulated_past_execution_time_seconds: Annotated[Int32 | None, Field(ge=0)] = None
    """How long it ran before it was evicted."""

    scheduling_stats: SchedulingStats | None = None
    """What happened to the workload so far."""

    nominated_cluster_names: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...], Field(max_length=20), SET
    ] = ()
    """Worker clusters that it is offered to."""

    cluster_name: Annotated[str | None, Field(max_length=256)] = None
    """The worker cluster that it runs in."""

    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], Field(max_length=8), map_list("name")] = ()
    """Nodes that pods were placed on and that failed."""

    preemption_gates: Annotated[tuple[PreemptionGateState, ...], Field(max_length=8), map_list("name")] = ()
    """The states of the preemption gates."""


class Workload(ApiKind):
    """One job as it is queued: its pods, what was reserved for it, and how it fares."""

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

    rules = (
        ValidationRule(
            f"!({_RESERVED} && has(self.status.admission)) || "
            "size(self.status.admission.podSetAssignments) == size(self.spec.podSets)",
            "podSetAssignments must have the same number of podSets as the spec",
            ".status.admission.podSetAssignments",
        ),
        ValidationRule(
            f"!{WAS_RESERVED} || has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
            "priorityClassRef cannot be added or removed while quota is reserved",
            ".spec.priorityClassRef",
        ),
        ValidationRule(
            f"!{WAS_RESERVED} || !has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || "
            "(oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group && "
            "oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind)",
            "group and kind of priorityClassRef are immutable while quota is reserved",
            ".spec.priorityClassRef",
        ),
        ValidationRule(
            f"!{WAS_RESERVED} || !has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || "
            "oldSelf.spec.priorityClassRef.kind != 'PriorityClass' || "
            "oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name",
            "name of priorityClassRef is immutable for a PriorityClass while quota is reserved",
            ".spec.priorityClassRef.name",
        ),
        ValidationRule(
            f"!({WAS_RESERVED} && {_RESERVED}) || "
            "(has(oldSelf.spec.queueName) ? has(self.spec.queueName) && "
            "oldSelf.spec.queueName == self.spec.queueName : !has(self.spec.queueName))",
            "queueName is immutable while quota is reserved",
            ".spec.queueName",
        ),
        ValidationRule(
            f"!({_WAS_ADMITTED} && {_ADMITTED}) || "
            "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? "
            "oldSelf.spec.maximumExecutionTimeSeconds : 0) == "
            "(has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)",
            "maximumExecutionTimeSeconds is immutable while admitted",
            ".spec.maximumExecutionTimeSeconds",
        ),
    )

    spec: WorkloadSpec | None = None
    """What is to run, where it queues, and how urgent it is."""

    status: WorkloadStatus | None = None
    """How the workload fares."""
