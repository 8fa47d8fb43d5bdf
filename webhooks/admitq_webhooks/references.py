"""What the pods of a job follow from besides the job itself, looked up for a review."""

from admitq.integrations.base import Integration, ObjectReference
from admitq_api.json_objects import JsonObject
from admitq_webhooks.lookups import ClusterLookups


async def resolve_references(
    job: JsonObject, namespace: str, integration: Integration, lookups: ClusterLookups
) -> JsonObject:
    """Return the job with what it refers to, as far as that is there.

    Raises:
        LookupFailed: the cluster cannot be asked.
    """
    followed = {one.kind: one for one in integration.templates.referenced_kinds if one.is_required}
    found: dict[ObjectReference, JsonObject] = {}
    for reference in integration.templates.list_references(job):
        kind = followed.get(reference.kind)
        if kind is None:
            continue
        # Looked for where the request says the job is: what the job itself says may be empty.
        where = namespace if kind.namespaced else ""
        one = await lookups.get_object(*reference.kind, where, reference.name)
        if one is not None:
            found[reference] = one
    return integration.templates.resolve(job, found) if found else job
