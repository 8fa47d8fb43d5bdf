"""Whether a ClusterQueue admits workloads, and which flavors it has for them."""

from admitq.core.activity import inactive_causes
from admitq.core.entries import ClusterQueueEntry
from admitq.core.flavor_options import build_flavor_options
from admitq.core.world import World


def update_flavor_options(world: World, entry: ClusterQueueEntry) -> None:
    """Compute which flavors a ClusterQueue has, after it or a flavor changed."""
    flavors = world.catalog.flavors
    entry.flavor_options = build_flavor_options(
        entry.spec, world.cohort_trees, entry.node, flavors, world.settings
    )


def update_activity(world: World, entry: ClusterQueueEntry) -> None:
    """Compute whether a ClusterQueue is active, after it or an object that it refers to changed."""
    causes = inactive_causes(entry.spec, world.catalog.referenced_objects(world.settings))
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
    # Workloads that hold quota in it may be preempted now, or no more.
    world.waiting.candidates_changed(entry.node)
