"""Handlers of events about ClusterQueues."""

from functools import partial
from typing import Final

from admitq.core import charging
from admitq.core.cohorts import declared_quotas
from admitq.core.entries import ClusterQueueEntry
from admitq.core.events import ClusterQueueChanged, ClusterQueueDeleted
from admitq.core.flavor_options import FlavorOptions
from admitq.core.handlers.eligibility import update_activity, update_flavor_options
from admitq.core.handlers.local_queues import settle_workloads_in
from admitq.core.handlers.namespaces import retry_namespace
from admitq.core.model import ClusterQueue, Instant
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.scheduling_key import KeyRules
from admitq.core.world import World

_NO_FLAVORS: Final = FlavorOptions()


def update_cluster_queue(world: World, event: ClusterQueueChanged, now: Instant) -> None:
    """Record a ClusterQueue as it is now, and retry the workloads of its cohort tree."""
    spec = event.cluster_queue
    entry = world.cluster_queues.get(spec.name)
    if entry is not None and entry.spec == spec:
        return
    if entry is not None:
        world.tree_edited(entry.node)
        world.catalog.remove_cluster_queue(entry.spec)
    node = world.cohort_trees.put_cluster_queue(
        spec.name, spec.cohort, declared_quotas(spec.resource_groups), spec.fair_weight
    )
    world.catalog.add_cluster_queue(spec)
    if entry is None:
        entry = ClusterQueueEntry(spec, node, _new_queue(world, spec), _NO_FLAVORS)
        world.cluster_queues[spec.name] = entry
        account = world.reservations.ledger.of_cluster_queue(spec.name)
        world.cohort_trees.add_usage(node, account.reserved_usage.items())
        _settle_workloads_of(world, spec.name, now)
    entry.spec = spec
    world.reservations.settle_cluster_queue(spec.name)
    entry.queue.change_strategy(spec.queueing_strategy)
    entry.queue.order_by_past_usage(world.charging.local_queue_usage if spec.usage_based_admission else None)
    world.waiting.heads.note_empty_lanes(spec.name)
    for key in world.indexes.local_queues_by_cluster_queue.get(spec.name, ()):
        charging.schedule_sample(world, key)
    update_flavor_options(world, entry)
    world.touch_local_queues_of(spec.name)
    update_activity(world, entry)
    for namespace in entry.queue.held_back.namespaces:
        retry_namespace(world, entry, namespace)
    world.waiting.cluster_queue_changed(entry)
    world.tree_edited(node)


def _new_queue(world: World, spec: ClusterQueue) -> PendingQueue:
    rules = KeyRules(
        world.request_rules.rules_of,
        partial(world.reservations.original_to_take_over, spec.name),
        shares_lanes=world.settings.gates.scheduling_equivalence_hashing,
    )
    return PendingQueue(
        spec.queueing_strategy,
        rules,
        world.cohort_trees.registrations[spec.name],
        takes_head_by_need=not world.settings.requeue_batch_period,
    )


def delete_cluster_queue(world: World, event: ClusterQueueDeleted, now: Instant) -> None:
    """Remove a ClusterQueue. Its workloads keep their reservations. Pending workloads are in no queue."""
    entry = world.cluster_queues.get(event.name)
    if entry is None:
        return
    world.tree_edited(entry.node)
    world.catalog.remove_cluster_queue(entry.spec)
    del world.cluster_queues[event.name]
    world.cohort_trees.drop_cluster_queue(event.name)
    world.reservations.settle_cluster_queue(event.name)
    _settle_workloads_of(world, event.name, now)
    world.touch_local_queues_of(event.name)


def _settle_workloads_of(world: World, cluster_queue: str, now: Instant) -> None:
    for key in world.indexes.local_queues_by_cluster_queue.get(cluster_queue, ()):
        settle_workloads_in(world, key, now)
