"""Update whether a ClusterQueue is active, and its flavor options."""

from admitq.core.activity import ReferencedObjects, inactive_causes
from admitq.core.entries import ClusterQueueEntry
from admitq.core.flavor_options import build_flavor_options
from admitq.core.world import World


def update_flavor_options(world: World, entry: ClusterQueueEntry) -> None:
    """Build the flavor options of a ClusterQueue, after the ClusterQueue or one of its flavors changed."""
    entry.flavor_options = build_flavor_options(
        entry.spec,
        world.cohort_trees,
        entry.node,
        world.catalog.flavors,
        world.settings,
        world.topologies,
        world.catalog.checks,
    )


def update_activity(world: World, entry: ClusterQueueEntry) -> None:
    """Update whether a ClusterQueue is active, after it or an object to which it refers changed."""
    catalog = world.catalog
    objects = ReferencedObjects(catalog.flavors, catalog.checks, world.topologies.levels, world.settings)
    causes = inactive_causes(entry.spec, objects)
    if causes == entry.inactive_causes:
        return
    was_active, entry.inactive_causes = entry.is_active, causes
    world.waiting.heads.touch(entry)
    if was_active == entry.is_active:
        return
    world.touch_local_queues_of(entry.spec.name)
    if entry.is_active:
        world.waiting.cluster_queue_changed(entry)
    else:
        entry.queue.forget_refusals()
        world.waiting.end_blocking(entry)
    # Workloads of an inactive ClusterQueue are not candidates for preemption.
    world.waiting.candidates_changed(entry.node)
