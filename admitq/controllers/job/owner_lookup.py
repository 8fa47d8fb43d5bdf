"""Finds the owners of jobs: in the stores of watched kinds, else at the API server.

Kinds that another program queues, or that stand between a job and its ancestor, are not watched. Their
objects are cached for a while, by UID, so that a thousand jobs of one owner cost one read.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.indexes import followed_resource, resource_of
from admitq.integrations.base import Integration
from admitq.integrations.ownership import Owner
from admitq.integrations.references import ObjectReference, OwnerKind
from admitq.process.logs import logger
from admitq.runtime.discovery import find_resource_of_kind
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject, select_fields, value_at

log = logger(__name__)

CACHE_SECONDS: Final = 30.0
"""How long a cached owner is used. A change of its queue affects the jobs inside it only after this time."""

MAX_CACHED_OWNERS: Final = 1000
"""Maximum number of cached owners. Beyond it, the oldest are dropped."""

_KEPT: Final = ("name", "namespace", "uid", "labels", "ownerReferences")


class OwnerLookup:
    """Finds the owners of jobs.

    Args:
        ctx: stores, client and settings.
        clock: monotonic seconds.
    """

    def __init__(self, ctx: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx = ctx
        self._clock = clock
        self._watched = {
            OwnerKind(*integration.gvk): resource_of(integration) for integration in ctx.settings.integrations
        }
        self._resources: dict[OwnerKind, tuple[float, Resource | None]] = {}
        self._read: OrderedDict[str, tuple[float, JsonObject]] = OrderedDict()

    async def find(self, owner: Owner) -> JsonObject | None:
        """Return the object that a reference names; None if it or its kind does not exist or may not be read.

        The result may be another object of the same name. The caller compares the UID.

        Raises:
            ApiError: a call to the API server failed.
        """
        watched = self._watched.get(owner.kind)
        store = None if watched is None else self._ctx.stores.find(watched)
        if store is not None:
            return store.get(owner.namespace, owner.name)
        at, read_before = self._read.get(owner.uid, (0.0, None))
        if read_before is not None and self._clock() - at < CACHE_SECONDS:
            return read_before
        resource = await self._resource(owner.kind)
        return None if resource is None else await self._ask(resource, owner)

    async def read(self, owner: Owner) -> JsonObject | None:
        """Return the complete object that a reference names, read from the API server.

        Otherwise like ``find``.

        Raises:
            ApiError: a call to the API server failed.
        """
        resource = self._watched.get(owner.kind) or await self._resource(owner.kind)
        return None if resource is None else await self._ask(resource, owner)

    async def resolved(self, integration: Integration, owner: JsonObject) -> JsonObject:
        """Return an owner with the watched objects that define its further pods."""
        followed = {kind.kind: kind for kind in integration.templates.referenced_kinds if kind.is_required}
        objects: dict[ObjectReference, JsonObject] = {}
        for reference in integration.templates.list_references(owner) if followed else ():
            if (kind := followed.get(reference.kind)) is None:
                continue
            store = self._ctx.stores.find(followed_resource(integration, kind))
            obj = None if store is None else store.get(reference.namespace, reference.name)
            if obj is not None:
                objects[reference] = obj
        return integration.templates.resolve(owner, objects) if objects else owner

    async def _resource(self, kind: OwnerKind) -> Resource | None:
        at, resource = self._resources.get(kind, (None, None))
        if at is None or self._clock() - at >= CACHE_SECONDS:
            resource = await find_resource_of_kind(self._ctx.client, *kind)
            self._resources[kind] = (self._clock(), resource)
        return resource

    async def _ask(self, resource: Resource, owner: Owner) -> JsonObject | None:
        try:
            stored = await self._ctx.client.get(
                resource, owner.name, namespace=owner.namespace if resource.namespaced else None
            )
        except ApiError as error:
            if error.is_not_found:
                return None
            if error.is_forbidden:
                log.warning(
                    "owners of jobs cannot be read",
                    resource=str(resource),
                    effect="jobs that they control are not managed",
                    remedy="allow the manager to get them",
                )
                self._resources[owner.kind] = (self._clock(), None)
                return None
            raise
        except ValueError:
            # No object has a name that cannot be part of a URL path.
            return None
        self._keep(stored)
        return stored

    def _keep(self, owner: JsonObject) -> None:
        metadata = value_at(owner, ("metadata",), {})
        uid = metadata.get("uid")
        if not isinstance(uid, str):
            return
        self._read.pop(uid, None)
        summary = select_fields(metadata, _KEPT)
        slim = {"apiVersion": owner.get("apiVersion"), "kind": owner.get("kind"), "metadata": summary}
        self._read[uid] = (self._clock(), slim)
        while len(self._read) > MAX_CACHED_OWNERS:
            self._read.popitem(last=False)
