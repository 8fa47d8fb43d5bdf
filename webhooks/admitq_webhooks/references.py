"""Lookups of the objects to which a job refers and that describe its pods."""

from admitq.integrations.base import Integration
from admitq.integrations.references import ObjectReference
from admitq_api.json_objects import JsonObject
from admitq_webhooks.lookups import ClusterLookups


async def resolve_references(
    job: JsonObject, namespace: str, integration: Integration, lookups: ClusterLookups
) -> JsonObject:
    """Return the job with the objects to which it refers, as far as they exist.

    Raises:
        LookupFailed: an object cannot be read.
    """
    followed = {kind.kind: kind for kind in integration.templates.referenced_kinds if kind.is_required}
    objects: dict[ObjectReference, JsonObject] = {}
    for reference in integration.templates.list_references(job):
        kind = followed.get(reference.kind)
        if kind is None:
            continue
        # The namespace comes from the request, because the job's own metadata.namespace may be empty.
        where = namespace if kind.namespaced else ""
        obj = await lookups.get_object(*reference.kind, where, reference.name)
        if obj is not None:
            objects[reference] = obj
    return integration.templates.resolve(job, objects) if objects else job
