"""LocalQueue: the queue of a namespace, which submits its jobs to a ClusterQueue."""

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
    """The desired state of the LocalQueue."""

    rules = (
        ValidationRule(
            "!has(oldSelf.clusterQueue) || has(self.clusterQueue)",
            "clusterQueue is immutable",
            ".clusterQueue",
        ),
    )

    cluster_queue: Annotated[Subdomain | None, immutable("clusterQueue")] = None
    """The ClusterQueue that admits the workloads of this queue."""

    stop_policy: StopPolicy = "None"
    """Hold admits no new workloads. HoldAndDrain also evicts admitted workloads."""

    fair_sharing: FairSharingSpec | None = None
    """The weight of this queue among the LocalQueues of its ClusterQueue."""


class LocalQueueResourceUsage(ApiModel):
    """The usage of a resource."""

    name: str
    """The name of the resource."""

    total: Quantity | None = None
    """The amount in use."""


class LocalQueueFlavorUsage(ApiModel):
    """The usage of a flavor."""

    name: Subdomain
    """The name of the ResourceFlavor."""

    resources: Annotated[tuple[LocalQueueResourceUsage, ...], Field(max_length=64), map_list("name")]
    """The usage of each resource."""


LocalQueueFlavorsUsage = Annotated[tuple[LocalQueueFlavorUsage, ...], Field(max_length=64), map_list("name")]


class AdmissionFairSharingStatus(ApiModel):
    """The past usage of the queue."""

    consumed_resources: dict[str, Quantity]
    """The usage by resource. Older usage counts less."""

    last_update: Time
    """The time of the last computation."""


class LocalQueueFairSharingStatus(FairSharingStatus):
    """The state of fair sharing."""

    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """The past usage of the queue."""


class LocalQueueStatus(ApiModel):
    """The observed state of the LocalQueue."""

    conditions: Conditions = ()
    """The conditions of the queue. Active states whether its workloads can be admitted."""

    pending_workloads: Int32 | None = None
    """The number of workloads that wait for admission."""

    reserving_workloads: Int32 | None = None
    """The number of workloads that have reserved quota."""

    admitted_workloads: Int32 | None = None
    """The number of workloads that are admitted and not finished."""

    flavors_reservation: LocalQueueFlavorsUsage = ()
    """The quota that workloads have reserved."""

    flavors_usage: LocalQueueFlavorsUsage = ()
    """The quota that admitted workloads use."""

    fair_sharing: LocalQueueFairSharingStatus | None = None
    """The state of fair sharing."""


class LocalQueue(ApiKind):
    """A queue of a namespace. Its workloads are admitted by a ClusterQueue."""

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
    """The desired state of the LocalQueue."""

    status: LocalQueueStatus | None = None
    """The observed state of the LocalQueue."""
