"""Lookups in stores that the controllers of jobs and of serving objects share."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from admitq.controllers.context import Context
from admitq.controllers.indexes import BY_CHAIN, slice_chain_index
from admitq.controllers.plan import has_finalizer
from admitq.controllers.pods.elastic_pods import STARTED_PODS, filter_pods_of_job, is_gated
from admitq.integrations.families import pods
from admitq.runtime.resources import PRIORITY_CLASSES
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups of a decision. They read only from memory."""

    flavor: Callable[[str], JsonObject | None]
    workload_priority_class: Callable[[str], JsonObject | None]
    priority_class: Callable[[str], JsonObject | None]
    priority_classes: Callable[[], Iterable[JsonObject]]
    workload: Callable[[str], JsonObject | None]
    """Return a Workload of the job's namespace by name."""
    running_pods: Callable[[JsonObject], Mapping[str, int] | None] = lambda _slice: {}
    """Count the running pods of an elastic job, by podset, for one of the job's slices.

    A pod counts if no gate holds it and it has not ended, even if it is being deleted. None while pods
    are not watched.
    """


def lookups_for_namespace(ctx: Context, namespace: str) -> Lookups:
    """Return the lookups for decisions about an object of a namespace."""
    stores, kinds = ctx.stores, ctx.kinds
    return Lookups(
        flavor=lambda name: stores.of(kinds.resource_flavors).get("", name),
        workload_priority_class=lambda name: stores.of(kinds.workload_priority_classes).get("", name),
        priority_class=lambda name: stores.of(PRIORITY_CLASSES).get("", name),
        priority_classes=lambda: stores.of(PRIORITY_CLASSES).list(),
        workload=lambda name: stores.of(kinds.workloads).get(namespace, name),
        running_pods=lambda slice_: _running_pods(ctx, slice_),
    )


def _running_pods(ctx: Context, slice_: JsonObject) -> Mapping[str, int] | None:
    store = ctx.stores.find(STARTED_PODS)
    if store is None or not store.is_complete:
        return None
    named = [
        pod for chain in slice_chain_index(ctx.names)(dict(slice_)) for pod in store.by_index(BY_CHAIN, chain)
    ]
    return Counter(
        pods.get_label(pod, ctx.names.podset)
        for pod in filter_pods_of_job((slice_,), named, ctx.settings.integrations)
        if not is_gated(pod, ctx.names) and not pods.has_ended(pod)
    )


def needs_cleanup(workload: JsonObject, names: Names) -> bool:
    """Whether a Workload without a job must still be finished or lose its finalizer."""
    return not is_condition_true(workload, ConditionType.FINISHED) or has_finalizer(workload, names.finalizer)
