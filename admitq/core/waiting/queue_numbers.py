"""Numbers and refusals of the pending workloads of a ClusterQueue, for metrics and statuses."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import chain

from admitq.core.amounts import add, multiply
from admitq.core.model import ObjectKey
from admitq.core.refusals import Refusal
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.scheduling_key import EquivalenceClass, local_queue_of


def equivalence_classes(
    queue: PendingQueue,
) -> tuple[AbstractSet[EquivalenceClass], AbstractSet[EquivalenceClass]]:
    """Return the equivalence classes of active workloads, and those of inadmissible workloads. Slow."""
    lanes = [lane for lane in queue.lanes.by_key.values() if lane.size]
    active = {lane.key.equivalence for lane in lanes if not lane.is_parked}
    parked = {lane.key.equivalence for lane in lanes if lane.is_parked}
    return active, parked | {queue.key_of(pending.workload).equivalence for pending in queue.held_back}


def requests(queue: PendingQueue) -> Mapping[str, int]:
    """Return the sum of the requests of all workloads that are queued or held back, by resource. Slow."""
    total: dict[str, int] = {}
    queued = ((lane.key, lane.size) for lane in queue.lanes.by_key.values())
    held_back = ((queue.key_of(pending.workload), 1) for pending in queue.held_back)
    for key, count in chain(queued, held_back):
        for resource, amount in chain.from_iterable(demand.totals for demand in key.demands):
            if amount and count:
                total[resource] = add(total.get(resource, 0), multiply(amount, count))
    return total


def count_inadmissible(queue: PendingQueue) -> Counter[ObjectKey]:
    """Return how many workloads of each LocalQueue are in parked lanes or held back.

    The cost grows with the number of lanes and of workloads that are held back, not with those in lanes.
    """
    counted = Counter(local_queue_of(pending.workload) for pending in queue.held_back)
    for lane in queue.lanes.waiting.parked:
        counted.update(lane.size_by_local_queue)
    return counted


def is_inadmissible(pending: PendingEntry) -> bool:
    """Whether the workload is in a parked lane or held back."""
    return pending.is_held_back or (pending.lane is not None and pending.lane.is_parked)


def is_bypassed(queue: PendingQueue, key: ObjectKey) -> bool:
    """Whether the workload is parked without an attempt of its own: another one of its lane was refused."""
    pending = queue.members.get(key)
    return (
        pending is not None
        and pending.refusal is None
        and pending.lane is not None
        and pending.lane.is_parked
    )


def refusal_of(queue: PendingQueue, key: ObjectKey) -> Refusal | None:
    """Return why the workload waits: its own last refusal, or else the refusal of its lane."""
    pending = queue.members.get(key)
    if pending is None:
        return None
    return pending.refusal or (None if pending.lane is None else pending.lane.refusal)
