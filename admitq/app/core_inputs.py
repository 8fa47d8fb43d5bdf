"""What decisions depend on."""

from collections.abc import Iterable, Iterator
from typing import Any

from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import Store


def list_core_resources(kinds: Kinds) -> tuple[Resource, ...]:
    """What the core reads: all that decides who is admitted, and where."""
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
    """All objects of some stores; they may come and go meanwhile."""
    for store in stores:
        for key in store.keys():  # noqa: SIM118 - a copy, which the store does not change
            if (obj := store.get(*key)) is not None:
                yield store.resource, obj
