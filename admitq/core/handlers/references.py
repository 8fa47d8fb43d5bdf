"""Handlers of events about objects to which ClusterQueues refer: flavors, topologies and admission checks."""

from collections.abc import Iterable

from admitq.core.events import (
    AdmissionCheckChanged,
    AdmissionCheckDeleted,
    ResourceFlavorChanged,
    ResourceFlavorDeleted,
    TopologyChanged,
    TopologyDeleted,
)
from admitq.core.handlers.eligibility import update_activity, update_flavor_options
from admitq.core.model import Instant
from admitq.core.world import World


def update_flavor(world: World, event: ResourceFlavorChanged, _now: Instant) -> None:
    """Record a ResourceFlavor as it is now."""
    flavor = event.flavor
    if world.catalog.flavors.get(flavor.name) != flavor:
        world.catalog.flavors[flavor.name] = flavor
        world.topologies.set_flavor(flavor)
        _retry(world, world.catalog.cluster_queues_by_flavor.get(flavor.name, ()))


def delete_flavor(world: World, event: ResourceFlavorDeleted, _now: Instant) -> None:
    """Remove a ResourceFlavor."""
    if world.catalog.flavors.pop(event.name, None) is not None:
        world.topologies.delete_flavor(event.name)
        _retry(world, world.catalog.cluster_queues_by_flavor.get(event.name, ()))


def update_check(world: World, event: AdmissionCheckChanged, _now: Instant) -> None:
    """Record an AdmissionCheck as it is now."""
    check = event.admission_check
    if world.catalog.checks.get(check.name) != check:
        world.catalog.checks[check.name] = check
        _check_changed(world, world.catalog.cluster_queues_by_check.get(check.name, ()))


def delete_check(world: World, event: AdmissionCheckDeleted, _now: Instant) -> None:
    """Remove an AdmissionCheck."""
    if world.catalog.checks.pop(event.name, None) is not None:
        _check_changed(world, world.catalog.cluster_queues_by_check.get(event.name, ()))


def _check_changed(world: World, cluster_queues: Iterable[str]) -> None:
    """Update the ClusterQueues that refer to a changed check. It may decide when pods are placed."""
    names = list(cluster_queues)
    _update_activity(world, names)
    for name in names:
        entry = world.cluster_queues[name]
        former = entry.flavor_options
        if former.topologies:
            update_flavor_options(world, entry)
            if entry.flavor_options.placed_later != former.placed_later:
                world.waiting.cluster_queue_changed(entry)


def update_topology(world: World, event: TopologyChanged, _now: Instant) -> None:
    """Record a Topology as it is now."""
    if world.topologies.set_topology(event.name, event.levels):
        _retry(world, world.catalog.cluster_queues_of_topology(event.name))


def delete_topology(world: World, event: TopologyDeleted, _now: Instant) -> None:
    """Remove a Topology."""
    if world.topologies.delete_topology(event.name):
        _retry(world, world.catalog.cluster_queues_of_topology(event.name))


def _update_activity(world: World, cluster_queues: Iterable[str]) -> None:
    for name in list(cluster_queues):
        update_activity(world, world.cluster_queues[name])


def _retry(world: World, cluster_queues: Iterable[str]) -> None:
    """Retry the workloads of ClusterQueues that refer to a changed flavor."""
    names = list(cluster_queues)
    _update_activity(world, names)
    for name in names:
        entry = world.cluster_queues[name]
        update_flavor_options(world, entry)
        world.waiting.cluster_queue_changed(entry)
