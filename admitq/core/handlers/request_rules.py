"""Handlers of events about LimitRanges and RuntimeClasses. Both change the requests of pods.

Pods of admitted workloads take these requests from their nodes, too.
"""

from collections.abc import Mapping

from admitq.core.entries import WorkloadEntry
from admitq.core.events import LimitRangeChanged, LimitRangeDeleted, RuntimeClassChanged, RuntimeClassDeleted
from admitq.core.model import Instant, ObjectKey
from admitq.core.world import World


def update_limit_range(world: World, event: LimitRangeChanged, _now: Instant) -> None:
    """Record a LimitRange as it is now."""
    if world.request_rules.put_limit_range(event.key, event.limit_range):
        _update_requests_in(world, event.key.namespace)


def delete_limit_range(world: World, event: LimitRangeDeleted, _now: Instant) -> None:
    """Remove a LimitRange."""
    if world.request_rules.delete_limit_range(event.key):
        _update_requests_in(world, event.key.namespace)


def update_runtime_class(world: World, event: RuntimeClassChanged, _now: Instant) -> None:
    """Record the overhead of a RuntimeClass as it is now."""
    if world.request_rules.put_overhead(event.name, event.overhead):
        _update_requests_with(world, event.name)


def delete_runtime_class(world: World, event: RuntimeClassDeleted, _now: Instant) -> None:
    """Remove a RuntimeClass."""
    if world.request_rules.delete_overhead(event.name):
        _update_requests_with(world, event.name)


def _update_requests_in(world: World, namespace: str) -> None:
    for key in world.indexes.local_queues_by_namespace.get(namespace, ()):
        _update_requests(world, world.indexes.workloads_by_local_queue[key])


def _update_requests_with(world: World, runtime_class: str) -> None:
    _update_requests(world, world.indexes.workloads_by_runtime_class.get(runtime_class, {}))


def _update_requests(world: World, workloads: Mapping[ObjectKey, WorkloadEntry]) -> None:
    world.update_requests(workloads)
    for entry in workloads.values():
        if entry.held is not None and entry.held.places:
            world.settle_reservation(entry)
