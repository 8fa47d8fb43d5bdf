"""The statuses of queues and cohorts: numbers and conditions as values.

A status is computed when a caller reads it. Whether it may have changed is known without computing it, from
its *mark*: while the mark is equal, so is the status. Marks are cheap: many events come between two reads.
"""

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from admitq.core import quota
from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share
from admitq.core.ledger import Account
from admitq.core.model import ClusterQueue, ConsumedResources, LocalQueue, ObjectKey, StopPolicy


class ResourceTotal(NamedTuple):
    """How much of a resource is in use, and how much of that is beyond the nominal quota."""

    resource: str
    total: int
    borrowed: int


class FlavorTotals(NamedTuple):
    """What is in use of one flavor, by resource."""

    flavor: str
    resources: tuple[ResourceTotal, ...]


class ClusterQueueStatus(NamedTuple):
    """The status of a ClusterQueue.

    ``reason`` is that of condition Active. ``pending`` counts all pending workloads, ``inadmissible`` the
    parked ones of them (all of them, while the queue is not active).
    """

    active: bool
    reason: ActiveReason
    causes: tuple[InactiveCause, ...]
    pending: int
    inadmissible: int
    reserving: int
    admitted: int
    flavors_reservation: tuple[FlavorTotals, ...]
    flavors_usage: tuple[FlavorTotals, ...]
    share: Share | None = None
    """Its dominant resource share; None without fair sharing."""


class LocalQueueReason(StrEnum):
    """Reasons of a LocalQueue's Active condition."""

    READY = "Ready"
    STOPPED = "Stopped"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"


class LocalQueueStatus(NamedTuple):
    """A LocalQueue as its status reports it; ``borrowed`` of its totals means nothing and is 0.

    Without its ClusterQueue it counts no workloads, and there are no totals.
    """

    active: bool
    reason: LocalQueueReason
    pending: int
    reserving: int
    admitted: int
    flavors_reservation: tuple[FlavorTotals, ...] | None
    flavors_usage: tuple[FlavorTotals, ...] | None
    consumed: ConsumedResources | None = None
    """What it used in the past; None without admission fair sharing."""
    fair_usage: Fraction | None = None
    """Its weighted past use, which orders LocalQueues; None as above, or if it is infinite."""


class PendingWorkload(NamedTuple):
    """A pending workload; ``cluster_queue`` is empty if its LocalQueue names one that does not exist."""

    workload: ObjectKey
    local_queue: ObjectKey
    cluster_queue: str
    is_parked: bool
    """Whether it is inadmissible, as the statuses count it."""


class CohortStatus(NamedTuple):
    """Quota of a cohort's subtree and what is reserved of it, by flavor and resource."""

    subtree_quota: tuple[tuple[FlavorResource, int], ...]
    subtree_reservations: tuple[tuple[FlavorResource, int], ...]
    share: Share | None = None
    """Its dominant resource share; None without fair sharing."""


ClusterQueueMark = tuple[ClusterQueue, tuple[InactiveCause, ...], int, int, int, int]
"""All that a ClusterQueue's status depends on: its specification, why it does not admit, the age of its
account, how many are pending and how many of them inadmissible, and the age of its tree's quota if the
status has a share."""

LocalQueueMark = tuple[LocalQueueReason, ClusterQueue | None, int, int, int]
"""All that a LocalQueue's status depends on: its reason, its ClusterQueue's specification, the age of its
account, how many are pending, and the age of its usage account."""


class ReportedUse(NamedTuple):
    """The past use that the status of a LocalQueue reports."""

    consumed: ConsumedResources | None
    fair_usage: Fraction | None


def _nominal(node: Node, pair: FlavorResource) -> int | None:
    """Return the nominal quota beyond which use is borrowing: None without a cohort to borrow from."""
    return node.cells[pair].nominal if node.declared_parent is not None and pair in node.cells else None


def _totals(
    spec: ClusterQueue, usage: Mapping[FlavorResource, int], node: Node | None
) -> tuple[FlavorTotals, ...]:
    # Lists of a status name each flavor once, also where a stored ClusterQueue has it in several groups.
    result: dict[str, dict[str, ResourceTotal]] = {}
    for group in spec.resource_groups:
        for flavor in group.flavors:
            resources = result.setdefault(flavor.name, {})
            for resource in group.covered_resources:
                pair = FlavorResource(flavor.name, resource)
                total = usage.get(pair, 0)
                nominal = None if node is None else _nominal(node, pair)
                borrowed = 0 if nominal is None else max(0, total - nominal)
                resources[resource] = ResourceTotal(resource, quota.bounded(total), quota.bounded(borrowed))
    return tuple(FlavorTotals(name, tuple(resources.values())) for name, resources in result.items())


def cluster_queue_status(
    spec: ClusterQueue,
    node: Node,
    causes: tuple[InactiveCause, ...],
    account: Account,
    pending: int,
    inadmissible: int,
    *,
    share: Share | None = None,
) -> ClusterQueueStatus:
    """Return the status of a ClusterQueue."""
    return ClusterQueueStatus(
        active=not causes,
        reason=causes[0].reason if causes else ActiveReason.READY,
        causes=causes,
        pending=pending,
        inadmissible=pending if causes else inadmissible,
        reserving=account.reserving,
        admitted=account.admitted,
        flavors_reservation=_totals(spec, account.reserved_usage, node),
        flavors_usage=_totals(spec, account.admitted_usage, node),
        share=share,
    )


def local_queue_reason(
    spec: LocalQueue, *, cluster_queue_exists: bool, cluster_queue_active: bool
) -> LocalQueueReason:
    """Return the reason of a LocalQueue's Active condition: its own stop comes first."""
    if spec.stop_policy is not StopPolicy.NONE:
        return LocalQueueReason.STOPPED
    if not cluster_queue_exists:
        return LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST
    return LocalQueueReason.READY if cluster_queue_active else LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE


def local_queue_status(
    reason: LocalQueueReason,
    cluster_queue: ClusterQueue | None,
    account: Account,
    pending: int,
    past_use: ReportedUse,
) -> LocalQueueStatus:
    """Return the status of a LocalQueue."""
    exists = cluster_queue is not None
    return LocalQueueStatus(
        active=reason is LocalQueueReason.READY,
        reason=reason,
        pending=pending if exists else 0,
        reserving=account.reserving if exists else 0,
        admitted=account.admitted if exists else 0,
        flavors_reservation=_totals(cluster_queue, account.reserved_usage, None) if exists else None,
        flavors_usage=_totals(cluster_queue, account.admitted_usage, None) if exists else None,
        consumed=past_use.consumed,
        fair_usage=past_use.fair_usage,
    )


def cohort_status(node: Node, *, share: Share | None = None) -> CohortStatus:
    """Return the status of a cohort."""
    cells = sorted(node.cells.items())
    return CohortStatus(
        tuple((pair, quota.bounded(cell.subtree)) for pair, cell in cells),
        tuple((pair, quota.bounded(cell.reserved)) for pair, cell in cells),
        share,
    )
