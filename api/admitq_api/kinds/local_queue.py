"""LocalQueue: where the jobs of a namespace line up for a ClusterQueue."""

from typing import Annotated, ClassVar

from pydantic import Field

from admitq_api.kinds.common import (
    Conditions,
    FairSharingSpec,
    FairSharingStatus,
    Int32,
    Quantity,
    StopPolicy,
    Subdomain,
    Time,
)
from admitq_api.schema import (
    ApiKind,
    ApiModel,
    Column,
    ValidationRule,
    immutable,
    immutable_with_spec,
    map_list,
)


class LocalQueueSpec(ApiModel):
    """Where the queue leads."""

    rules = (
        ValidationRule(
            "!has(oldSelf.clusterQueue) || has(self.clusterQueue)",
            "clusterQueue is immutable",
            ".clusterQueue",
        ),
    )

    cluster_queue: Annotated[Subdomain | None, immutable("clusterQueue")] = None
    """The ClusterQueue that admits the workloads."""

    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new. HoldAndDrain: also evict what is admitted."""

    fair_sharing: FairSharingSpec | None = None
    """How much this queue counts against others of its ClusterQueue."""


class LocalQueueResourceUsage(ApiModel):
    """How much of a resource is used."""

    name: str
    """The resource."""

    total: Quantity | None = None
    """How much is used."""


class LocalQueueFlavorUsage(ApiModel):
    """How much of a flavor is used."""

    name: Subdomain
    """The ResourceFlavor."""

    resources: Annotated[tuple[LocalQueueResourceUsage, ...], Field(max_length=64), map_list("name")]
    """The use of each resource."""


LocalQueueFlavorsUsage = Annotated[tuple[LocalQueueFlavorUsage, ...], Field(max_length=64), map_list("name")]


class AdmissionFairSharingStatus(ApiModel):
    """What was used in the past."""

    consumed_resources: dict[str, Quantity]
    """Use by resource, of which older use counts less."""

    last_update: Time
    """When it was computed."""


class LocalQueueFairSharingStatus(FairSharingStatus):
    """How much is used, weighed."""

    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """What was used in the past."""


class LocalQueueStatus(ApiModel):
    """What is waiting and what is used."""

    conditions: Conditions = ()
    """Active: whether workloads can be admitted."""

    pending_workloads: Int32 | None = None
    """How many workloads wait."""

    reserving_workloads: Int32 | None = None
    """How many workloads have reserved quota."""

    admitted_workloads: Int32 | None = None
    """How many workloads are admitted and not finished."""

    flavors_reservation: LocalQueueFlavorsUsage = ()
    """The quota that workloads have reserved."""

    flavors_usage: LocalQueueFlavorsUsage = ()
    """The quota that admitted workloads use."""

    fair_sharing: LocalQueueFairSharingStatus | None = None
    """How much is used, weighed."""


class LocalQueue(ApiKind):
    """Where the jobs of a namespace line up for a ClusterQueue."""

    plural: ClassVar[str] = "localqueues"
    namespaced: ClassVar[bool] = True
    short_names: ClassVar[tuple[str, ...]] = ("queue", "queues", "lq")
    columns: ClassVar[tuple[Column, ...]] = (
        Column("ClusterQueue", ".spec.clusterQueue"),
        Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", "integer"),
    )
    rules = (immutable_with_spec("clusterQueue"),)

    spec: LocalQueueSpec | None = None
    """Where the queue leads."""

    status: LocalQueueStatus | None = None
    """What is waiting and what is used."""
