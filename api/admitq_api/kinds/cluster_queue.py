"""ClusterQueue: a pool of quota, and the rules by which it is given out."""

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
    """When to try the next flavor although this one would do."""

    rules = (
        ValidationRule(
            "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' "
            "&& has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
            ".preference",
        ),
    )

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """What to do when a workload fits by borrowing."""

    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """What to do when a workload fits by preempting others."""

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which flavor to take when all were tried."""


class BorrowWithinCohort(ApiModel):
    """Whether to preempt others in order to borrow."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Whom to preempt while borrowing."""

    max_priority_threshold: Int32 | None = None
    """Only workloads of at most this priority are preempted while borrowing."""


class Preemption(ApiModel):
    """Whom to preempt for a workload that does not fit."""

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
    """Whom to preempt in the cohort, of those that borrow, to get the own nominal quota back."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Whom to preempt in this ClusterQueue."""

    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    """Whether to preempt others in order to borrow."""


class AdmissionCheckRule(ApiModel):
    """An AdmissionCheck and where it applies."""

    name: AdmissionCheckName
    """The AdmissionCheck."""

    on_flavors: Annotated[tuple[Subdomain, ...], Field(max_length=64), SET] = ()
    """The flavors that it applies to; empty: all."""


class AdmissionChecksStrategy(ApiModel):
    """The AdmissionChecks that workloads must pass."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...] | None, Field(min_length=1, max_length=64), map_list("name")
    ] = None
    """The checks."""


class AdmissionScope(ApiModel):
    """What the order of admission is computed from."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """Whether LocalQueues that used less in the past go first."""


class MigrationConstraints(ApiModel):
    """How far a workload may move."""

    last_acceptable_flavor_name: Subdomain | None = None
    """The last flavor, in their order, that is still worth moving to."""


class Migration(ApiModel):
    """What happens when a better flavor becomes free."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """Whether to move an admitted workload."""

    constraints: MigrationConstraints | None = None
    """How far to move it."""


class ConcurrentAdmissionPolicy(ApiModel):
    """Trying several flavors at a time."""

    migration: Migration
    """What happens when a better flavor becomes free."""


class ClusterQueueSpec(ApiModel):
    """What a ClusterQueue provides and to whom."""

    rules = (require_parent_for_limits("cohortName", "cohort"),)

    resource_groups: ResourceGroups = ()
    """The quota, by groups of resources that come together."""

    cohort_name: Subdomain | None = None
    """The Cohort to borrow from and lend to."""

    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit holds up those behind it."""

    namespace_selector: AtomicLabelSelector | None = None
    """The namespaces whose workloads are admitted; absent: none, empty: all."""

    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    """When to try the next flavor although this one would do."""

    preemption: Preemption = Preemption()
    """Whom to preempt for a workload that does not fit."""

    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """The AdmissionChecks that workloads must pass."""

    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new. HoldAndDrain: also evict what is admitted."""

    fair_sharing: FairSharingSpec | None = None
    """How much this queue counts against others of its cohort."""

    admission_scope: AdmissionScope | None = None
    """What the order of admission is computed from."""

    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Trying several flavors at a time."""


class ResourceUsage(ApiModel):
    """How much of a resource is used."""

    name: str
    """The resource."""

    total: Quantity | None = None
    """How much is used."""

    borrowed: Quantity | None = None
    """How much of that is borrowed."""


class FlavorUsage(ApiModel):
    """How much of a flavor is used."""

    name: Subdomain
    """The ResourceFlavor."""

    resources: Annotated[tuple[ResourceUsage, ...], Field(max_length=64), map_list("name")]
    """The use of each resource."""


FlavorsUsage = Annotated[tuple[FlavorUsage, ...], Field(max_length=64), map_list("name")]


class ClusterQueueStatus(ApiModel):
    """What is waiting and what is used."""

    conditions: Conditions = ()
    """Active: whether workloads can be admitted."""

    flavors_reservation: FlavorsUsage = ()
    """The quota that workloads have reserved."""

    flavors_usage: FlavorsUsage = ()
    """The quota that admitted workloads use."""

    pending_workloads: Int32 | None = None
    """How many workloads wait."""

    reserving_workloads: Int32 | None = None
    """How many workloads have reserved quota."""

    admitted_workloads: Int32 | None = None
    """How many workloads are admitted and not finished."""

    fair_sharing: FairSharingStatus | None = None
    """How much is borrowed, weighed; only with fair sharing."""


class ClusterQueue(ApiKind):
    """A pool of quota, and the rules by which it is given out."""

    plural: ClassVar[str] = "clusterqueues"
    short_names: ClassVar[tuple[str, ...]] = ("cq",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Cohort", ".spec.cohortName"),
        Column("Strategy", ".spec.queueingStrategy", wide=True),
        Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", "integer", wide=True),
    )

    spec: ClusterQueueSpec | None = None
    """What the ClusterQueue provides and to whom."""

    status: ClusterQueueStatus | None = None
    """What is waiting and what is used."""
