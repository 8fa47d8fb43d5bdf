"""Handlers of events about LocalQueues."""

from admitq.core import charging
from admitq.core.entries import LocalQueueEntry
from admitq.core.events import LocalQueueChanged, LocalQueueDeleted
from admitq.core.model import Instant, ObjectKey
from admitq.core.world import World


def update_local_queue(world: World, event: LocalQueueChanged, now: Instant) -> None:
    """Record a LocalQueue as it is now, and queue its workloads again."""
    spec = event.local_queue
    entry = world.local_queues.get(spec.key)
    if entry is None:
        entry = world.local_queues[spec.key] = LocalQueueEntry(spec)
    elif entry.spec == spec:
        return
    else:
        world.indexes.remove_local_queue(entry.spec)
        entry.spec = spec
    world.indexes.add_local_queue(spec)
    world.outbox.touched_local_queues.add(spec.key)
    charging.open_account(world, spec, now)
    settle_workloads_in(world, spec.key, now)


def delete_local_queue(world: World, event: LocalQueueDeleted, now: Instant) -> None:
    """Remove a LocalQueue. Its pending workloads are in no queue."""
    entry = world.local_queues.pop(event.key, None)
    if entry is not None:
        world.indexes.remove_local_queue(entry.spec)
        settle_workloads_in(world, event.key, now)
        charging.close_account(world, event.key)


def settle_workloads_in(world: World, key: ObjectKey, now: Instant) -> None:
    """Queue each workload of a LocalQueue where it belongs at present."""
    for entry in world.indexes.workloads_by_local_queue.get(key, {}).values():
        world.settle_queue(entry, now)
