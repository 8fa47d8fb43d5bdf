"""The finalizer that keeps an object from being deleted while other objects use it."""

from collections.abc import Callable

from admitq.controllers.context import Context
from admitq.controllers.plan import ActionPlan, Patch, RemoveFinalizer, execute_plan, has_finalizer, plan_of
from admitq.integrations.base import PatchStep
from admitq.runtime.resources import Resource
from admitq.runtime.store import Key
from admitq_api.json_objects import JsonObject, value_at


def sync_in_use_finalizer(
    resource: Resource, obj: JsonObject, finalizer: str, *, in_use: bool
) -> ActionPlan | None:
    """Return the plan that adds or removes the finalizer; None if the object is as it should be.

    The finalizer is added to objects that lack it, and removed from deleted objects that are no longer
    used. The webhook adds it at creation. This function covers objects that were created without the
    webhook.
    """
    has_own_finalizer = has_finalizer(obj, finalizer)
    if "deletionTimestamp" in obj["metadata"]:
        return plan_of(RemoveFinalizer(resource, obj)) if has_own_finalizer and not in_use else None
    if has_own_finalizer:
        return None
    finalizers = [*value_at(obj, ("metadata", "finalizers"), []), finalizer]
    return plan_of(Patch(resource, obj, (PatchStep({"metadata": {"finalizers": finalizers}}),), "finalizer"))


class InUseProtectionController:
    """Protects the objects of one cluster-scoped kind from deletion while they are in use."""

    def __init__(self, ctx: Context, resource: Resource, is_in_use: Callable[[str], bool]) -> None:
        self._ctx = ctx
        self._resource = resource
        self._is_in_use = is_in_use

    async def reconcile(self, key: Key) -> float | None:
        """Add or remove the finalizer of one object."""
        obj = self._ctx.stores.of(self._resource).get("", key.name)
        if obj is None:
            return None
        decided = sync_in_use_finalizer(
            self._resource, obj, self._ctx.names.finalizer, in_use=self._is_in_use(key.name)
        )
        return None if decided is None else await execute_plan(self._ctx, decided)
