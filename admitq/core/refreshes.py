"""Find the statuses of queues and cohorts that must be refreshed.

Handlers record the queues and cohorts whose statuses may have changed. A recorded queue is refreshed if the
*fingerprint* of its status changed since the last refresh (``statuses``). A recorded cohort is always
refreshed.
"""

from admitq.core.entries import ClusterQueueEntry, LocalQueueEntry
from admitq.core.instructions import Instruction, RefreshCohort
from admitq.core.statuses import (
    ClusterQueueFingerprint,
    LocalQueueFingerprint,
    LocalQueueReason,
    local_queue_reason,
)
from admitq.core.world import World


def take_refreshes(world: World) -> list[Instruction]:
    """Return one instruction for each status to refresh, and forget which statuses may have changed."""
    result: list[Instruction] = []
    if world.outbox.touched_cluster_queues:
        _refresh_cluster_queues(world, result)
    if world.outbox.touched_local_queues:
        _refresh_local_queues(world, result)
    if world.cohort_trees.changed_cohorts:
        changed = world.cohort_trees.changed_cohorts
        result += [RefreshCohort(name) for name in sorted(changed)]
        changed.clear()
    return result


def discard_refreshes(world: World) -> None:
    """Forget which statuses may have changed, for drivers that write no statuses."""
    world.outbox.touched_cluster_queues.clear()
    world.outbox.touched_local_queues.clear()
    world.cohort_trees.changed_cohorts.clear()


def _refresh_cluster_queues(world: World, result: list[Instruction]) -> None:
    shows_share = world.settings.fair_sharing is not None
    for name in sorted(world.outbox.touched_cluster_queues):
        entry = world.cluster_queues.get(name)
        if entry is None:
            continue
        queue = entry.queue
        fingerprint: ClusterQueueFingerprint = (
            entry.spec,
            entry.inactive_causes,
            world.reservations.ledger.of_cluster_queue(name).version,
            len(queue.members),
            queue.inadmissible,
            entry.node.root.quota_generation if shows_share else 0,
        )
        if fingerprint != entry.last_fingerprint:
            entry.last_fingerprint = fingerprint
            result.append(entry.refresh)
    world.outbox.touched_cluster_queues.clear()


def _refresh_local_queues(world: World, result: list[Instruction]) -> None:
    for key in sorted(world.outbox.touched_local_queues):
        entry = world.local_queues.get(key)
        if entry is None:
            continue
        queue = world.cluster_queues.get(entry.spec.cluster_queue)
        fingerprint: LocalQueueFingerprint = (
            reason_of(entry, queue),
            None if queue is None else queue.spec,
            world.reservations.ledger.of_local_queue(key).version,
            entry.pending,
            0 if world.charging.accounts is None else world.charging.accounts.version(key),
        )
        if fingerprint != entry.last_fingerprint:
            entry.last_fingerprint = fingerprint
            result.append(entry.refresh)
    world.outbox.touched_local_queues.clear()


def reason_of(entry: LocalQueueEntry, queue: ClusterQueueEntry | None) -> LocalQueueReason:
    """Return the reason of a LocalQueue's Active condition, given its ClusterQueue, if that exists."""
    return local_queue_reason(
        entry.spec,
        cluster_queue_exists=queue is not None,
        cluster_queue_active=queue is not None and queue.is_active,
    )
