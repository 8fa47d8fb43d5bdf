"""Dry runs: the API server says whether it accepts objects, and how it would store them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from admitq.asking.object_checks import ObjectCheck
from admitq.integrations.registry import load_integrations
from admitq.manifests.documents import Document
from admitq.plugin.cluster_access import FIELD_MANAGER, ClusterAccess
from admitq.runtime.discovery import find_resource_of_kind
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject, text_at, value_at, with_value


async def dry_run(access: ClusterAccess, document: Document) -> ObjectCheck:
    """Let the API server validate an object with all webhooks, and return it as it would be stored.

    Raises:
        ApiError: the API server cannot be reached, or rejects the credentials.
    """
    obj = {**document.value}
    group, _, version = text_at(obj, ("apiVersion",)).rpartition("/")
    resource = await find_resource_of_kind(access.client, group, version, text_at(obj, ("kind",)))
    if resource is None:
        return ObjectCheck(document, (f"the cluster serves no {obj.get('kind')} of {obj.get('apiVersion')}",))
    if resource.namespaced and not value_at(obj, ("metadata", "namespace")):
        obj = with_value(obj, ("metadata", "namespace"), access.namespace)
    shown = replace(document, value=obj)
    try:
        stored = await _try_write(access, resource, obj)
    except ApiError as error:
        if error.status in {0, 401}:
            raise
        return ObjectCheck(shown, (error.message,))
    except ValueError as error:
        return ObjectCheck(shown, (str(error),))
    return ObjectCheck(
        replace(document, value={"apiVersion": obj["apiVersion"], "kind": obj["kind"], **stored})
    )


async def _try_write(access: ClusterAccess, resource: Resource, obj: dict[str, Any]) -> JsonObject:
    try:
        return await access.client.create(resource, obj, dry_run=True, field_manager=FIELD_MANAGER)
    except ApiError as error:
        is_job = any(
            (kind.group, kind.kind) == (resource.group, resource.kind) for kind in load_integrations()
        )
        if not error.is_already_exists or is_job:
            raise
        # Queues and other objects of a job may exist already. Then they would be changed.
        return await access.client.apply(resource, obj, field_manager=FIELD_MANAGER, dry_run=True)


async def read_referenced(access: ClusterAccess, manifests: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the objects of the cluster that determine the pods of jobs, such as the runtime of a TrainJob.

    Each object occurs once. Objects that are among the manifests, that do not exist, or that may not be read,
    are left out.

    Args:
        access: the cluster.
        manifests: jobs and other objects, each with its namespace.

    Raises:
        ApiError: a call failed.
    """
    kinds = {kind.gvk: kind for kind in load_integrations()}
    known = {_identify(obj) for obj in manifests}
    objects: list[JsonObject] = []
    for obj in manifests:
        integration = kinds.get(_kind_of(obj))
        if integration is None:
            continue
        for reference in filter(integration.is_required, integration.templates.list_references(obj)):
            kind = reference.kind
            identity = (kind.group, kind.kind, reference.namespace, reference.name)
            if identity in known:
                continue
            known.add(identity)
            plural = next(each.plural for each in integration.templates.referenced_kinds if each.kind == kind)
            resource = Resource(
                kind.group, kind.version, plural, kind.kind, namespaced=bool(reference.namespace)
            )
            try:
                found = await access.client.get(resource, reference.name, reference.namespace or None)
            except ApiError as error:
                if not (error.is_not_found or error.is_forbidden):
                    raise
                continue
            objects.append({"apiVersion": resource.api_version, "kind": resource.kind, **found})
    return objects


def _kind_of(obj: JsonObject) -> tuple[str, str, str]:
    group, _, version = text_at(obj, ("apiVersion",)).rpartition("/")
    return group, version, text_at(obj, ("kind",))


def _identify(obj: JsonObject) -> tuple[str, str, str, str]:
    group, _, kind = _kind_of(obj)
    return group, kind, text_at(obj, ("metadata", "namespace")), text_at(obj, ("metadata", "name"))
