"""The statuses of queues and cohorts: numbers and conditions as values.

A status is computed when a caller reads it. Its *mark* shows whether it may have changed: while the mark is
equal, the status is, too. A mark costs much less than a status, and many events come between two reads.
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
    """The usage of a resource, and the part of it beyond the nominal quota."""

    resource: str
    total: int
    borrowed: int


class FlavorTotals(NamedTuple):
    """The usage of one flavor, by resource."""

    flavor: str
    resources: tuple[ResourceTotal, ...]


class ClusterQueueStatus(NamedTuple):
    """The status of a ClusterQueue.

    ``reason`` is the reason of condition Active. ``pending`` is the number of all pending workloads.
    ``inadmissible`` is the number of those that are parked or held back. While the ClusterQueue is not
    active, it equals ``pending``.
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
    """The status of a LocalQueue. ``borrowed`` of its totals is not used, and is 0.

    If its ClusterQueue does not exist, all counts are 0, and there are no totals.
    """

    active: bool
    reason: LocalQueueReason
    pending: int
    reserving: int
    admitted: int
    flavors_reservation: tuple[FlavorTotals, ...] | None
    flavors_usage: tuple[FlavorTotals, ...] | None
    consumed: ConsumedResources | None = None
    """The consumed amounts; None without admission fair sharing."""
    weighted_past_usage: Fraction | None = None
    """The weighted past usage, which orders LocalQueues; None if infinite or without fair sharing."""


class PendingWorkload(NamedTuple):
    """A pending workload. ``cluster_queue`` is empty if the ClusterQueue does not exist."""

    workload: ObjectKey
    local_queue: ObjectKey
    cluster_queue: str
    is_inadmissible: bool
    """Whether statuses count it as inadmissible."""


class CohortStatus(NamedTuple):
    """The status of a cohort: the quota and the reservations of its subtree, by flavor and resource."""

    subtree_quota: tuple[tuple[FlavorResource, int], ...]
    subtree_reservations: tuple[tuple[FlavorResource, int], ...]
    share: Share | None = None
    """Its dominant resource share; None without fair sharing."""


ClusterQueueFingerprint = tuple[ClusterQueue, tuple[InactiveCause, ...], int, int, int, int]
"""The inputs of a ClusterQueue's status: its specification, its inactive causes, the version of its account,
the numbers of pending and of inadmissible workloads, and the quota generation of its tree if it has a share.
"""

LocalQueueFingerprint = tuple[LocalQueueReason, ClusterQueue | None, int, int, int]
"""The inputs of a LocalQueue's status: its reason, the specification of its ClusterQueue, the version of its
account, the number of pending workloads, and the version of its usage account."""


class ReportedPastUsage(NamedTuple):
    """The past usage that the status of a LocalQueue reports."""

    consumed: ConsumedResources | None
    weighted_past_usage: Fraction | None


def _nominal(node: Node, pair: FlavorResource) -> int | None:
    """Return the nominal quota beyond which usage is borrowed; None without a cohort to borrow from."""
    return node.cells[pair].nominal if node.declared_parent is not None and pair in node.cells else None


def _totals(
    spec: ClusterQueue, usage: Mapping[FlavorResource, int], node: Node | None
) -> tuple[FlavorTotals, ...]:
    # A status lists each flavor once, even if a stored ClusterQueue has a flavor in several groups.
    result: dict[str, dict[str, ResourceTotal]] = {}
    for group in spec.resource_groups:
        for flavor in group.flavors:
            resources = result.setdefault(flavor.name, {})
            for resource in group.covered_resources:
                pair = FlavorResource(flavor.name, resource)
                total = usage.get(pair, 0)
                nominal = None if node is None else _nominal(node, pair)
                borrowed = 0 if nominal is None else max(0, total - nominal)
                resources[resource] = ResourceTotal(resource, quota.clamp_to_int64(total), quota.clamp_to_int64(borrowed))
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
    """Return the reason of a LocalQueue's Active condition. Its own stop policy comes first."""
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
    past_usage: ReportedPastUsage,
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
        consumed=past_usage.consumed,
        weighted_past_usage=past_usage.weighted_past_usage,
    )


def cohort_status(node: Node, *, share: Share | None = None) -> CohortStatus:
    """Return the status of a cohort."""
    cells = sorted(node.cells.items())
    return CohortStatus(
        tuple((pair, quota.clamp_to_int64(cell.subtree_quota)) for pair, cell in cells),
        tuple((pair, quota.clamp_to_int64(cell.reserved)) for pair, cell in cells),
        share,
    )
