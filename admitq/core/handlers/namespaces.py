"""Handlers of events about namespaces, which ClusterQueues select by label."""

from admitq.core.entries import ClusterQueueEntry
from admitq.core.events import NamespaceChanged, NamespaceDeleted
from admitq.core.model import Instant
from admitq.core.selectors import selects_namespace
from admitq.core.waiting.concerned_queues import namespace_cause
from admitq.core.world import World


def update_namespace(world: World, event: NamespaceChanged, _now: Instant) -> None:
    """Record the labels of a namespace as they are now."""
    labels = dict(event.labels)
    if world.catalog.namespaces.get(event.name) == labels:
        return
    world.catalog.namespaces[event.name] = labels
    _retry(world, event.name)


def delete_namespace(world: World, event: NamespaceDeleted, _now: Instant) -> None:
    """Remove a namespace."""
    if world.catalog.namespaces.pop(event.name, None) is not None:
        _retry(world, event.name)


def _retry(world: World, namespace: str) -> None:
    for entry in world.waiting.concerned.take(namespace_cause(namespace)):
        head = entry.queue.blocking_head
        if head is not None and head.workload.key.namespace == namespace:
            world.waiting.end_blocking(entry)
        if not retry_namespace(world, entry, namespace):
            world.waiting.concerned.add(entry, (namespace_cause(namespace),))


def retry_namespace(world: World, entry: ClusterQueueEntry, namespace: str) -> bool:
    """Retry the workloads of a namespace in a ClusterQueue, if the ClusterQueue selects the namespace.

    Returns:
        Whether the namespace is selected.
    """
    if not selects_namespace(entry.spec.namespace_selector, world.catalog.namespaces.get(namespace)):
        return False
    entry.queue.namespace_selected(namespace)
    world.waiting.heads.touch(entry)
    return True
