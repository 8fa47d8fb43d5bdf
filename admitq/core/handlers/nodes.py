"""Handlers of events about nodes, and about the pods on them that belong to no admitted workload."""

from admitq.core.events import NodeChanged, NodeDeleted, PodOfOthersChanged, PodOfOthersDeleted
from admitq.core.model import Instant
from admitq.core.world import World


def update_node(world: World, event: NodeChanged, _now: Instant) -> None:
    """Record a node as it is now. Pods may fit on it that did not before."""
    world.room_changed(world.topologies.set_node(event.node))


def delete_node(world: World, event: NodeDeleted, _now: Instant) -> None:
    """Remove a node."""
    world.topologies.delete_node(event.name)


def update_pod_of_others(world: World, event: PodOfOthersChanged, _now: Instant) -> None:
    """Record what a pod requests on its node. It may have left another node, or request less than before."""
    world.room_changed(world.topologies.set_pod_of_others(event.key, event.pod))


def delete_pod_of_others(world: World, event: PodOfOthersDeleted, _now: Instant) -> None:
    """Record that a pod does not run any more."""
    world.room_changed(world.topologies.set_pod_of_others(event.key, None))
