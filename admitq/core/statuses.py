"""The statuses of queues and cohorts: immutable values with the numbers and conditions of the API statuses.

A status is computed when a caller reads it. The status of a queue has a *fingerprint*: a tuple of its inputs,
with version numbers in place of large inputs. If two fingerprints of a queue are equal, the statuses are
equal. A fingerprint costs much less than a status. So ``refreshes`` compares fingerprints, and requests a
refresh of a queue only if its fingerprint changed.

A *ledger account* has the sums of the reservations in one queue (``ledger``). A *pair* is a (flavor,
resource). A *cell* has quota and usage of one pair at one node of a cohort tree (``quota``).
"""

from collections import Counter
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
    """The usage of a resource, and the part of the usage that is borrowed."""

    resource: str
    total: int
    borrowed: int


class FlavorTotals(NamedTuple):
    """The usage of one flavor, by resource."""

    flavor: str
    resources: tuple[ResourceTotal, ...]


class ClusterQueueStatus(NamedTuple):
    """The status of a ClusterQueue.

    ``active`` and ``reason`` are the status and the reason of condition Active. ``pending`` is the number of
    all pending workloads. ``inadmissible`` is the number of pending workloads that are parked or held back.
    If the ClusterQueue is inactive, ``inadmissible`` equals ``pending``.

    ``reserving`` is the number of workloads with a reservation, and ``flavors_reservation`` is their usage.
    ``admitted`` is the number of admitted workloads, and ``flavors_usage`` is their usage.
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
    """The dominant resource share of the ClusterQueue; None if fair sharing is not configured."""


class LocalQueueReason(StrEnum):
    """Reasons of a LocalQueue's Active condition."""

    READY = "Ready"
    STOPPED = "Stopped"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"


class LocalQueueStatus(NamedTuple):
    """The status of a LocalQueue.

    A LocalQueue has no quota, so ``borrowed`` is 0 in all its totals. If the ClusterQueue of the LocalQueue
    does not exist, all counts are 0, and the totals are None.
    """

    active: bool
    reason: LocalQueueReason
    pending: int
    reserving: int
    admitted: int
    flavors_reservation: tuple[FlavorTotals, ...] | None
    flavors_usage: tuple[FlavorTotals, ...] | None
    consumed: ConsumedResources | None = None
    """The decayed amounts that the LocalQueue consumed. None if admission fair sharing is not configured."""
    weighted_past_usage: Fraction | None = None
    """The weighted past usage: consumed amounts and penalties, divided by the weight of the LocalQueue.

    If the ClusterQueue orders LocalQueues by past usage, it evaluates those with smaller values first.
    None if admission fair sharing is not configured. Also None if the value is infinite, because the
    weight of the LocalQueue is 0 or less.
    """


class PendingWorkload(NamedTuple):
    """A pending workload. ``cluster_queue`` is empty if the ClusterQueue does not exist."""

    workload: ObjectKey
    local_queue: ObjectKey
    cluster_queue: str
    is_inadmissible: bool
    """Whether the workload is parked or held back, or its ClusterQueue is inactive or does not exist."""


class CohortStatus(NamedTuple):
    """The status of a cohort.

    ``subtree_quota`` is the cohort's own quota and the quota that its children lend. ``subtree_reservations``
    is the usage of all workloads with a reservation in the ClusterQueues below the cohort.
    """

    subtree_quota: tuple[tuple[FlavorResource, int], ...]
    subtree_reservations: tuple[tuple[FlavorResource, int], ...]
    share: Share | None = None
    """The dominant resource share of the cohort; None if fair sharing is not configured."""


ClusterQueueFingerprint = tuple[ClusterQueue, tuple[InactiveCause, ...], int, int, int, int]
"""The fingerprint of a ClusterQueue's status. The elements are, in this order:

- the specification of the ClusterQueue;
- its inactive causes;
- the version of its ledger account;
- the number of pending workloads;
- the number of workloads that are parked or held back;
- the *quota generation* of its cohort tree, a number that gets a new value at each change of quota or
  shape of the tree. It is 0 if fair sharing is not configured, because the status then has no share.
"""

LocalQueueFingerprint = tuple[LocalQueueReason, ClusterQueue | None, int, int, int]
"""The fingerprint of a LocalQueue's status. The elements are, in this order:

- the reason of its condition Active;
- the specification of its ClusterQueue; None if the ClusterQueue does not exist;
- the version of its ledger account;
- the number of pending workloads;
- the version of its *usage account*, which has its past usage (``admission_fair_sharing``). It is 0 if
  admission fair sharing is not configured.
"""


class ReportedPastUsage(NamedTuple):
    """The past usage of a LocalQueue, for the fields of the same names in ``LocalQueueStatus``."""

    consumed: ConsumedResources | None
    weighted_past_usage: Fraction | None


def _nominal(node: Node, pair: FlavorResource) -> int | None:
    """Return the nominal quota of a node for a pair. Usage beyond this quota is borrowed.

    None if the node declares no parent cohort, and so cannot borrow. Also None if the node has no cell of the
    pair.
    """
    return node.cells[pair].nominal if node.declared_parent is not None and pair in node.cells else None


def _totals(
    spec: ClusterQueue, usage: Mapping[FlavorResource, int], node: Node | None
) -> tuple[FlavorTotals, ...]:
    """Return the usage of each flavor of a ClusterQueue.

    ``node`` is the node of the ClusterQueue. It is None for the status of a LocalQueue, which borrows
    nothing.
    """
    # The webhook rejects a flavor in two resource groups. A ClusterQueue that was written without the webhook
    # can have the same flavor in two groups. The status lists such a flavor once.
    result: dict[str, dict[str, ResourceTotal]] = {}
    for group in spec.resource_groups:
        for flavor in group.flavors:
            resources = result.setdefault(flavor.name, {})
            for resource in group.covered_resources:
                pair = FlavorResource(flavor.name, resource)
                total = usage.get(pair, 0)
                nominal = None if node is None else _nominal(node, pair)
                borrowed = 0 if nominal is None else max(0, total - nominal)
                resources[resource] = ResourceTotal(
                    resource, quota.clamp_to_int64(total), quota.clamp_to_int64(borrowed)
                )
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
    """Return the reason of a LocalQueue's Active condition.

    The stop policy of the LocalQueue takes precedence over the state of its ClusterQueue.
    """
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
    reserved = Counter[FlavorResource]()
    for queue in node.cluster_queues_below():
        for pair, cell in queue.cells.items():
            reserved[pair] += cell.usage
    return CohortStatus(
        tuple((pair, quota.clamp_to_int64(cell.subtree_quota)) for pair, cell in cells),
        tuple((pair, quota.clamp_to_int64(reserved[pair])) for pair, _ in cells),
        share,
    )
