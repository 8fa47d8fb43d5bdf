"""Handlers of events about Cohorts."""

from admitq.core.cohorts import declared_quotas
from admitq.core.events import CohortChanged, CohortDeleted
from admitq.core.model import Instant
from admitq.core.world import World


def update_cohort(world: World, event: CohortChanged, _now: Instant) -> None:
    """Record a Cohort as it is now."""
    cohort = event.cohort
    if world.catalog.cohorts.get(cohort.name) == cohort:
        return
    world.catalog.cohorts[cohort.name] = cohort
    _retry_tree_of(world, cohort.name)
    world.cohort_trees.put_cohort(
        cohort.name, cohort.parent, declared_quotas(cohort.resource_groups), cohort.fair_weight
    )
    _retry_tree_of(world, cohort.name)


def delete_cohort(world: World, event: CohortDeleted, _now: Instant) -> None:
    """Remove a Cohort object. Queues that name the cohort stay in it; it has no quota of its own."""
    if world.catalog.cohorts.pop(event.name, None) is not None:
        _retry_tree_of(world, event.name)
        world.cohort_trees.drop_cohort(event.name)
        _retry_tree_of(world, event.name)


def _retry_tree_of(world: World, cohort: str) -> None:
    """Retry the workloads of the tree of a cohort. Call this before and after an edit, which may move it."""
    node = world.cohort_trees.cohorts.get(cohort)
    if node is not None:
        world.tree_edited(node)
