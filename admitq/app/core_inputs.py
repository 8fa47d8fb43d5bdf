"""The resources that the core observes, and their objects."""

from collections.abc import Iterable, Iterator
from typing import Any

from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import Store


def list_core_resources(kinds: Kinds) -> tuple[Resource, ...]:
    """Return the resources that the core observes."""
    return (
        kinds.resource_flavors,
        kinds.admission_checks,
        kinds.topologies,
        kinds.cohorts,
        kinds.cluster_queues,
        NAMESPACES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        kinds.local_queues,
        kinds.workloads,
    )


def iterate_objects(stores: Iterable[Store]) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield all objects of the stores. The stores may change during the iteration."""
    for store in stores:
        for key in store.keys():  # noqa: SIM118 - keys() returns a copy, because the store may change
            if (obj := store.get(*key)) is not None:
                yield store.resource, obj
