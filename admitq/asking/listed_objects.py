"""Stored objects, listed from a cluster. A user needs the right to list them in all namespaces."""

import asyncio
import time
from typing import Any, Final

from admitq.asking.stored_objects import (
    ESSENTIAL,
    ObjectSorter,
    SourceError,
    StoredObjects,
    find_configuration,
)
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import TOPOLOGY_NODES, TOPOLOGY_PODS, kinds_of, list_core_resources
from admitq.runtime.resources import (
    CONFIG_MAPS,
    PRIORITY_CLASSES,
    Resource,
)
from admitq.translate.resource_flavors import TOPOLOGY_OF_FLAVOR
from admitq_api.json_objects import text_at
from admitq_api.labels import Names

PARTS: Final = "app.kubernetes.io/part-of=admitq"
"""The label of all objects of the chart."""

_CONSEQUENCES: Final = {
    "admissionchecks": "AdmissionChecks count as missing",
    "cohorts": "cohorts have no quota of their own",
    "topologies": "topologies count as missing",
    "pods": "pods of others take no room on nodes",
    "limitranges": "requests have no defaults of LimitRanges",
    "runtimeclasses": "pods have no overhead",
    "workloadpriorityclasses": "priority classes of new jobs are not known",
    "priorityclasses": "priority classes of new pods are not known",
}
"""What an answer assumes without the objects of a kind."""


async def list_stored_objects(client: Client, names: Names) -> StoredObjects:
    """Return the objects of a cluster that matter for answers, and the configuration of its manager.

    Kinds that may not be listed, or that are not installed, are notes of the result.

    Raises:
        SourceError: Workloads, queues or flavors may not be listed.
        ApiError: a call failed.
    """
    kinds = kinds_of(names)
    observed = list_core_resources(kinds)
    others = (kinds.workload_priority_classes, PRIORITY_CLASSES)
    sorter = ObjectSorter(names)
    listed = await asyncio.gather(*(_list(client, resource, sorter) for resource in (*observed, *others)))
    by_resource = dict(zip((*observed, *others), listed, strict=True))
    if any(text_at(flavor, TOPOLOGY_OF_FLAVOR) for flavor in by_resource[kinds.resource_flavors]):
        for resource in (TOPOLOGY_PODS, TOPOLOGY_NODES):
            by_resource[resource] = await _list(client, resource, sorter)
    for resource, objects in by_resource.items():
        for obj in objects:
            if resource in others:
                sorter.add({"apiVersion": resource.api_version, "kind": resource.kind, **obj})
            else:
                sorter.add_observed(resource.plural, obj)
    sorter.configuration = await _read_configuration(client, sorter)
    return sorter.sorted_objects(time.time_ns())


async def _list(client: Client, resource: Resource, sorter: ObjectSorter) -> list[dict[str, Any]]:
    try:
        found, _ = await client.list(resource)
    except ApiError as error:
        if not (error.is_forbidden or error.is_not_found):
            raise
        if resource.plural in ESSENTIAL:
            raise SourceError(
                f"{resource} of all namespaces cannot be listed: {error.message}\n"
                "Ask an administrator for this right, or for the visibility API, which needs less."
            ) from error
        if resource.plural in _CONSEQUENCES:
            sorter.notes.append(f"{resource} cannot be listed: {_CONSEQUENCES[resource.plural]}")
        return []
    return found


async def _read_configuration(client: Client, sorter: ObjectSorter) -> str | None:
    try:
        found, _ = await client.list(CONFIG_MAPS, label_selector=PARTS)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        sorter.notes.append(
            "the configuration of the manager cannot be read: defaults are assumed; give it with --config"
        )
        return None
    return find_configuration(found)
