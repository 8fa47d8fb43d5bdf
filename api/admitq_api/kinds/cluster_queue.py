"""ClusterQueue: a pool of quota, and the rules by which workloads are admitted to it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.kinds.common import (
    AdmissionCheckName,
    AtomicLabelSelector,
    Conditions,
    FairSharingSpec,
    FairSharingStatus,
    Int32,
    Quantity,
    ResourceGroups,
    StopPolicy,
    Subdomain,
    require_parent_for_limits,
)
from admitq_api.schema import SET, ApiKind, ApiModel, Column, ValidationRule, map_list


class FlavorFungibility(ApiModel):
    """Whether the search for flavors continues after a flavor that the workload can use."""

    rules = (
        ValidationRule(
            "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' "
            "&& has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
            ".preference",
        ),
    )

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """Whether the search continues if the workload fits in the flavor by borrowing."""

    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """Whether the search continues if the workload fits in the flavor by preemption."""

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which flavor is preferred if the workload can use several."""


class BorrowWithinCohort(ApiModel):
    """Whether workloads can preempt others while they borrow quota."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Which workloads can be preempted."""

    max_priority_threshold: Int32 | None = None
    """The highest priority of workloads that can be preempted."""


class Preemption(ApiModel):
    """Which workloads can be preempted for a pending workload that does not fit."""

    rules = (
        ValidationRule(
            "!(has(self.reclaimWithinCohort) && self.reclaimWithinCohort == 'Never' "
            "&& has(self.borrowWithinCohort) && has(self.borrowWithinCohort.policy) "
            "&& self.borrowWithinCohort.policy != 'Never')",
            "reclaimWithinCohort must not be Never when borrowWithinCohort.policy is not Never",
            ".reclaimWithinCohort",
        ),
    )

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other ClusterQueues that borrow can be preempted to reclaim nominal quota."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of this ClusterQueue can be preempted."""

    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    """Whether workloads can preempt others while they borrow quota."""


class AdmissionCheckRule(ApiModel):
    """An AdmissionCheck and the flavors that it applies to."""

    name: AdmissionCheckName
    """The name of the AdmissionCheck."""

    on_flavors: Annotated[tuple[Subdomain, ...], Field(max_length=64), SET] = ()
    """The flavors that the check applies to. If empty, it applies to all flavors."""


class AdmissionChecksStrategy(ApiModel):
    """The AdmissionChecks that workloads must pass."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...] | None, Field(min_length=1, max_length=64), map_list("name")
    ] = None
    """The AdmissionChecks, with the flavors that they apply to."""


class AdmissionScope(ApiModel):
    """What determines the order of admission."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """Whether LocalQueues with less past usage come first."""


class MigrationConstraints(ApiModel):
    """Limits of migration."""

    last_acceptable_flavor_name: Subdomain | None = None
    """The last flavor, in the order of flavors, to which workloads migrate."""


class Migration(ApiModel):
    """What happens when a preferred flavor becomes available."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """Whether admitted workloads migrate to preferred flavors."""

    constraints: MigrationConstraints | None = None
    """Limits of migration."""


class ConcurrentAdmissionPolicy(ApiModel):
    """How workloads try several flavors at the same time."""

    migration: Migration
    """What happens when a preferred flavor becomes available."""


class ClusterQueueSpec(ApiModel):
    """The desired state of the ClusterQueue."""

    rules = (require_parent_for_limits("cohortName", "cohort"),)

    resource_groups: ResourceGroups = ()
    """The quota, by groups of resources that the same flavors provide."""

    cohort_name: Subdomain | None = None
    """The Cohort of the ClusterQueue. Quota can be borrowed from its other members and lent to them."""

    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit blocks the workloads behind it. With StrictFIFO it does."""

    namespace_selector: AtomicLabelSelector | None = None
    """The namespaces of workloads that can be admitted. By default no namespace is selected. An empty
    selector selects all namespaces."""

    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    """Whether the search for flavors continues after a flavor that the workload can use."""

    preemption: Preemption = Preemption()
    """Which workloads can be preempted for a pending workload that does not fit."""

    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """The AdmissionChecks that workloads must pass."""

    stop_policy: StopPolicy = "None"
    """Hold admits no new workloads. HoldAndDrain also evicts admitted workloads."""

    fair_sharing: FairSharingSpec | None = None
    """The weight of this ClusterQueue among the members of its cohort."""

    admission_scope: AdmissionScope | None = None
    """What determines the order of admission."""

    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """How workloads try several flavors at the same time."""


class ResourceUsage(ApiModel):
    """The usage of a resource."""

    name: str
    """The name of the resource."""

    total: Quantity | None = None
    """The amount in use."""

    borrowed: Quantity | None = None
    """The part of the amount in use that is borrowed."""


class FlavorUsage(ApiModel):
    """The usage of a flavor."""

    name: Subdomain
    """The name of the ResourceFlavor."""

    resources: Annotated[tuple[ResourceUsage, ...], Field(max_length=64), map_list("name")]
    """The usage of each resource."""


FlavorsUsage = Annotated[tuple[FlavorUsage, ...], Field(max_length=64), map_list("name")]


class ClusterQueueStatus(ApiModel):
    """The observed state of the ClusterQueue."""

    conditions: Conditions = ()
    """The conditions of the ClusterQueue. Active states whether workloads can be admitted."""

    flavors_reservation: FlavorsUsage = ()
    """The quota that workloads have reserved."""

    flavors_usage: FlavorsUsage = ()
    """The quota that admitted workloads use."""

    pending_workloads: Int32 | None = None
    """The number of workloads that wait for admission."""

    reserving_workloads: Int32 | None = None
    """The number of workloads that have reserved quota."""

    admitted_workloads: Int32 | None = None
    """The number of workloads that are admitted and not finished."""

    fair_sharing: FairSharingStatus | None = None
    """The state of fair sharing. It is set only if fair sharing is enabled."""


class ClusterQueue(ApiKind):
    """A pool of quota, and the rules by which workloads are admitted to it."""

    plural: ClassVar[str] = "clusterqueues"
    short_names: ClassVar[tuple[str, ...]] = ("cq",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Cohort", ".spec.cohortName"),
        Column("Strategy", ".spec.queueingStrategy", wide=True),
        Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", "integer", wide=True),
    )

    spec: ClusterQueueSpec | None = None
    """The desired state of the ClusterQueue."""

    status: ClusterQueueStatus | None = None
    """The observed state of the ClusterQueue."""
