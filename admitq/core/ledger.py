"""The ledger: reservations counted by ClusterQueue and by LocalQueue.

The ledger has accounts of all queues that workloads name, also of queues that do not exist. So reservations
in a ClusterQueue count as soon as the ClusterQueue is observed.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.model import Admission, ClusterQueue, ObjectKey, PodSetAssignment, Workload
from admitq.core.topology.topologies import Place

Usage = tuple[tuple[FlavorResource, int], ...]


class Reservation(NamedTuple):
    """The quota that a workload holds, its queues, whether it is admitted, and its places in topologies."""

    cluster_queue: str
    local_queue: ObjectKey
    usage: Usage
    admitted: bool
    places: tuple[Place, ...] = ()


def is_void(workload: Workload, cluster_queue: ClusterQueue) -> bool:
    """Whether a reservation in the status of a workload is not charged to its ClusterQueue.

    A reservation is void if the workload is inactive, and was reserved and evicted before the ClusterQueue
    was created. It was never charged there, and its job must stop. An inactive workload that was reserved or
    evicted later is charged until its job has stopped. An active workload is always charged.

    The function compares instants, because objects are observed in any order after a start. Instants are
    whole seconds. A workload that was evicted in the second of the creation is charged, because its job may
    run.
    """
    created_at = cluster_queue.created_at
    return (
        not workload.active
        and workload.evicted
        and 0 < workload.evicted_at < created_at
        and workload.reserved_at < created_at
    )


def usage_of(workload: Workload, admission: Admission, *, reclaimable_pods: bool = True) -> Usage:
    """Return the present usage of a workload: its assignment, in proportion to the pods that remain to run.

    Fewer pods remain if the podset was scaled down since the assignment, or if pods are reclaimable.

    Args:
        workload: the present value of the workload.
        admission: its assignment.
        reclaimable_pods: the gate of this name. Without it, reclaimable pods count until the workload ends.
    """
    assignments = admission.pod_set_assignments
    counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
    reclaimable = dict(workload.reclaimable_pods) if reclaimable_pods else {}
    remaining: list[int] = []
    for assignment in assignments:
        count = counts.get(assignment.name, assignment.count)
        remaining.append(min(assignment.count, count - min(reclaimable.get(assignment.name, 0), count)))
    return _usage(assignments, tuple(remaining))


@lru_cache(maxsize=4096)
def _usage(assignments: tuple[PodSetAssignment, ...], remaining: tuple[int, ...]) -> Usage:
    """Return the usage of assignments while these numbers of their pods remain to run.

    Results are cached: a usage is computed when a reservation is decided and when it is observed, and many
    workloads have equal assignments. So equal usages are one object.
    """
    total: dict[FlavorResource, int] = {}
    for assignment, count in zip(assignments, remaining, strict=True):
        flavors = dict(assignment.flavors)
        for resource, amount in assignment.resource_usage:
            flavor = flavors.get(resource)
            if flavor is None:
                continue
            if count < assignment.count:
                # The amount is rounded up if it is not divisible by the pods, so that it is never too small.
                amount = -(-amount * count // assignment.count)  # noqa: PLW2901
            if amount:
                pair = FlavorResource(flavor, resource)
                total[pair] = total.get(pair, 0) + amount
    return tuple(sorted(total.items()))


_UNCOUNTED: Final = 256
"""The number of changes after which an account is summed up, even without a read."""


@dataclass(slots=True, eq=False)
class Account:
    """Sums over the reservations of one queue.

    Every admission and every finish of a workload changes two accounts. Reads are rare. So a read sums usage
    up, and costs in proportion to the changes since the last read.
    """

    reserving: int = 0
    awaiting_admission: int = 0
    """The number of workloads with a reservation that are not admitted."""
    version: int = 0
    """A number that differs after every change; 0 before the first change."""
    _reserved: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    _awaiting: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    _uncounted: list[tuple[Reservation, int]] = field(default_factory=list[tuple[Reservation, int]])

    @property
    def admitted(self) -> int:
        """The number of admitted workloads."""
        return self.reserving - self.awaiting_admission

    @property
    def reserved_usage(self) -> Mapping[FlavorResource, int]:
        """The usage of all workloads with a reservation, admitted or not."""
        self._sum_up()
        return self._reserved

    @property
    def admitted_usage(self) -> Mapping[FlavorResource, int]:
        """The usage of admitted workloads."""
        self._sum_up()
        awaiting_admission = self._awaiting
        usage = {pair: amount - awaiting_admission.get(pair, 0) for pair, amount in self._reserved.items()}
        return {pair: amount for pair, amount in usage.items() if amount}

    def change(self, reservation: Reservation, sign: int, version: int) -> int:
        """Count a reservation (``sign`` 1) or remove it (-1), and set the version.

        Returns:
            The number of workloads that have a reservation now.
        """
        self.version = version
        self.reserving += sign
        if not reservation.admitted:
            self.awaiting_admission += sign
        self._uncounted.append((reservation, sign))
        if len(self._uncounted) > _UNCOUNTED:
            self._sum_up()
        return self.reserving

    def _sum_up(self) -> None:
        for reservation, sign in self._uncounted:
            _count(self._reserved, reservation.usage, sign)
            if not reservation.admitted:
                _count(self._awaiting, reservation.usage, sign)
        self._uncounted.clear()


def _count(into: dict[FlavorResource, int], usage: Usage, sign: int) -> None:
    for pair, amount in usage:
        result = into.get(pair, 0) + sign * amount
        if result:
            into[pair] = result
        else:
            into.pop(pair, None)


_EMPTY_ACCOUNT = Account()


class Ledger:
    """The accounts of all queues."""

    def __init__(self) -> None:
        self._by_cluster_queue = defaultdict[str, Account](Account)
        self._by_local_queue = defaultdict[ObjectKey, Account](Account)
        self._changes = 0

    def count(self, reservation: Reservation, sign: int) -> None:
        """Count a reservation (``sign`` 1) or remove it (-1)."""
        # All accounts share one count: an account that is closed and opened again must not look unchanged.
        self._changes += 1
        name, key = reservation.cluster_queue, reservation.local_queue
        if not self._by_cluster_queue[name].change(reservation, sign, self._changes):
            del self._by_cluster_queue[name]
        if not self._by_local_queue[key].change(reservation, sign, self._changes):
            del self._by_local_queue[key]

    def of_cluster_queue(self, name: str) -> Account:
        """Return the account of a ClusterQueue, whether it exists or not. Callers must not change it."""
        return self._by_cluster_queue.get(name, _EMPTY_ACCOUNT)

    def of_local_queue(self, key: ObjectKey) -> Account:
        """Return the account of a LocalQueue, whether it exists or not. Callers must not change it."""
        return self._by_local_queue.get(key, _EMPTY_ACCOUNT)

    @property
    def cluster_queues(self) -> Mapping[str, Account]:
        """All accounts with reservations, by ClusterQueue."""
        return self._by_cluster_queue
