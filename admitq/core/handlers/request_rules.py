"""Handlers of events about what decides over the requests of pods: LimitRanges and RuntimeClasses."""

from admitq.core.events import LimitRangeChanged, LimitRangeDeleted, RuntimeClassChanged, RuntimeClassDeleted
from admitq.core.model import Instant
from admitq.core.world import World


def update_limit_range(world: World, event: LimitRangeChanged, _now: Instant) -> None:
    """Take a LimitRange as it is now."""
    ranges = world.limit_ranges.setdefault(event.key.namespace, {})
    if ranges.get(event.key.name) != event.limit_range:
        ranges[event.key.name] = event.limit_range
        world.limit_ranges_changed(event.key.namespace)


def delete_limit_range(world: World, event: LimitRangeDeleted, _now: Instant) -> None:
    """Remove a LimitRange."""
    ranges = world.limit_ranges.get(event.key.namespace, {})
    if ranges.pop(event.key.name, None) is not None:
        if not ranges:
            del world.limit_ranges[event.key.namespace]
        world.limit_ranges_changed(event.key.namespace)


def update_runtime_class(world: World, event: RuntimeClassChanged, _now: Instant) -> None:
    """Take the overhead of a RuntimeClass as it is now."""
    if world.overheads.get(event.name) != event.overhead:
        world.overheads[event.name] = event.overhead
        world.runtime_class_changed(event.name)


def delete_runtime_class(world: World, event: RuntimeClassDeleted, _now: Instant) -> None:
    """Remove a RuntimeClass."""
    if world.overheads.pop(event.name, None) is not None:
        world.runtime_class_changed(event.name)
