"""Handlers of events about what ClusterQueues refer to: flavors, their topologies, and admission checks."""

from collections.abc import Iterable

from admitq.core.events import (
    AdmissionCheckChanged,
    AdmissionCheckDeleted,
    ResourceFlavorChanged,
    ResourceFlavorDeleted,
    TopologyChanged,
    TopologyDeleted,
)
from admitq.core.model import Instant
from admitq.core.world import World


def update_flavor(world: World, event: ResourceFlavorChanged, _now: Instant) -> None:
    """Take a ResourceFlavor as it is now."""
    flavor = event.flavor
    if world.flavors.get(flavor.name) != flavor:
        world.flavors[flavor.name] = flavor
        _retry(world, world.users_of_flavor.get(flavor.name, ()))


def delete_flavor(world: World, event: ResourceFlavorDeleted, _now: Instant) -> None:
    """Remove a ResourceFlavor."""
    if world.flavors.pop(event.name, None) is not None:
        _retry(world, world.users_of_flavor.get(event.name, ()))


def update_check(world: World, event: AdmissionCheckChanged, _now: Instant) -> None:
    """Take an AdmissionCheck as it is now."""
    check = event.admission_check
    if world.checks.get(check.name) != check:
        world.checks[check.name] = check
        _settle_activity(world, world.users_of_check.get(check.name, ()))


def delete_check(world: World, event: AdmissionCheckDeleted, _now: Instant) -> None:
    """Remove an AdmissionCheck."""
    if world.checks.pop(event.name, None) is not None:
        _settle_activity(world, world.users_of_check.get(event.name, ()))


def update_topology(world: World, event: TopologyChanged, _now: Instant) -> None:
    """Record that a Topology exists."""
    if event.name not in world.topologies:
        world.topologies[event.name] = None
        _retry(world, _users_of_topology(world, event.name))


def delete_topology(world: World, event: TopologyDeleted, _now: Instant) -> None:
    """Remove a Topology."""
    if event.name in world.topologies:
        del world.topologies[event.name]
        _retry(world, _users_of_topology(world, event.name))


def _users_of_topology(world: World, name: str) -> list[str]:
    return [
        user
        for flavor in world.flavors.values()
        if flavor.topology_name == name
        for user in world.users_of_flavor.get(flavor.name, ())
    ]


def _settle_activity(world: World, cluster_queues: Iterable[str]) -> None:
    for name in list(cluster_queues):
        world.settle_activity(world.cluster_queues[name])


def _retry(world: World, cluster_queues: Iterable[str]) -> None:
    """Retry the workloads of ClusterQueues that refer to a flavor which changed."""
    names = list(cluster_queues)
    _settle_activity(world, names)
    for name in names:
        entry = world.cluster_queues[name]
        world.lay_out_offer(entry)
        world.waiting.cluster_queue_changed(entry)
