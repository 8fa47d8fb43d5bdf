"""Who holds how much: reservations counted by ClusterQueue and by LocalQueue.

The books are kept by name, also for queues that do not exist now: what is reserved in a ClusterQueue that
was deleted, or has not been seen yet, counts from the moment it appears.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.model import Admission, ObjectKey, PodSetAssignment, Workload

_Key = TypeVar("_Key", str, ObjectKey)

Usage = tuple[tuple[FlavorResource, int], ...]


class Reservation(NamedTuple):
    """What a workload holds, where, and whether it is admitted."""

    cluster_queue: str
    local_queue: ObjectKey
    usage: Usage
    admitted: bool


def usage_of(workload: Workload, admission: Admission, *, reclaimable_pods: bool = True) -> Usage:
    """What the workload uses now: what it was assigned, less where fewer pods remain to run.

    Args:
        workload: as it is now.
        admission: what it was assigned.
        reclaimable_pods: the gate of that name; without it all pods count to the end.
    """
    assignments = admission.pod_set_assignments
    if not (reclaimable_pods and workload.reclaimable_pods):
        return _usage(assignments, None)
    counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
    reclaimable = dict(workload.reclaimable_pods)
    remaining: list[int] = []
    for assignment in assignments:
        count = counts.get(assignment.name, assignment.count)
        remaining.append(min(assignment.count, count - min(reclaimable.get(assignment.name, 0), count)))
    return _usage(assignments, tuple(remaining))


@lru_cache(maxsize=4096)
def _usage(assignments: tuple[PodSetAssignment, ...], remaining: tuple[int, ...] | None) -> Usage:
    """What is used while so many pods of each assignment remain to run; None stands for all of them.

    Results are kept, because each is asked for when it is decided and when it is observed, and many workloads
    are assigned the same. So equal usages are one object, too.
    """
    total: dict[FlavorResource, int] = {}
    for index, assignment in enumerate(assignments):
        flavors = dict(assignment.flavors)
        count = assignment.count if remaining is None else remaining[index]
        for resource, amount in assignment.resource_usage:
            flavor = flavors.get(resource)
            if flavor is None:
                continue
            if count < assignment.count:
                # Rounded up, should an assignment ever not divide by its pods: never too little.
                amount = -(-amount * count // assignment.count)  # noqa: PLW2901
            if amount:
                pair = FlavorResource(flavor, resource)
                total[pair] = total.get(pair, 0) + amount
    return tuple(sorted(total.items()))


@dataclass(slots=True, eq=False)
class Account:
    """Sums over the reservations of one queue."""

    reserving: int = 0
    reserved_usage: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    awaiting: int = 0
    """How many of those who reserve are not admitted. They are few, and so it is them who are counted."""
    awaiting_usage: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    age: int = 0
    """Differs after every change; 0 is that of an account without any."""

    @property
    def admitted(self) -> int:
        """How many are admitted."""
        return self.reserving - self.awaiting

    @property
    def admitted_usage(self) -> dict[FlavorResource, int]:
        """What the admitted use."""
        awaiting = self.awaiting_usage
        usage = {pair: amount - awaiting.get(pair, 0) for pair, amount in self.reserved_usage.items()}
        return {pair: amount for pair, amount in usage.items() if amount}


def _count(into: dict[FlavorResource, int], usage: Iterable[tuple[FlavorResource, int]], sign: int) -> None:
    for pair, amount in usage:
        result = into.get(pair, 0) + sign * amount
        if result:
            into[pair] = result
        else:
            into.pop(pair, None)


_NOTHING = Account()


class Ledger:
    """The accounts of all queues."""

    def __init__(self) -> None:
        self._by_cluster_queue: dict[str, Account] = {}
        self._by_local_queue: dict[ObjectKey, Account] = {}
        self._changes = 0

    def add(self, reservation: Reservation) -> None:
        """Count a reservation."""
        self._change(self._by_cluster_queue, reservation.cluster_queue, reservation, 1)
        self._change(self._by_local_queue, reservation.local_queue, reservation, 1)

    def remove(self, reservation: Reservation) -> None:
        """Take a reservation off."""
        self._change(self._by_cluster_queue, reservation.cluster_queue, reservation, -1)
        self._change(self._by_local_queue, reservation.local_queue, reservation, -1)

    def of_cluster_queue(self, name: str) -> Account:
        """The account of a ClusterQueue, whether it exists or not. To be read only."""
        return self._by_cluster_queue.get(name, _NOTHING)

    def of_local_queue(self, key: ObjectKey) -> Account:
        """The account of a LocalQueue, whether it exists or not. To be read only."""
        return self._by_local_queue.get(key, _NOTHING)

    @property
    def cluster_queues(self) -> Mapping[str, Account]:
        """All accounts with reservations, by ClusterQueue."""
        return self._by_cluster_queue

    def _change(self, accounts: dict[_Key, Account], key: _Key, reservation: Reservation, sign: int) -> None:
        account = accounts.get(key)
        if account is None:
            account = accounts[key] = Account()
        # One count for all accounts: one that is closed and opened again must not look unchanged.
        self._changes = account.age = self._changes + 1
        account.reserving += sign
        _count(account.reserved_usage, reservation.usage, sign)
        if not reservation.admitted:
            account.awaiting += sign
            _count(account.awaiting_usage, reservation.usage, sign)
        if not account.reserving:
            del accounts[key]
