"""Whether the owners of a deleted Workload still exist, if no job controller handles their kind.

The job controller releases a deleted Workload after it has stopped the job. No job controller runs for a kind
that is disabled or not served by the API server. The objects of such a kind may be gone, for example with
their CustomResourceDefinition. Nothing can run without an owner, so the Workload and its quota are released
(semantics, Finalizers and ownership).
"""

from typing import Any

from admitq.controllers.context import Context
from admitq.controllers.indexes import job_kind_of_workload, resource_of
from admitq.process.logs import logger
from admitq.runtime.discovery import find_resources_of_kind
from admitq.runtime.errors import ApiError
from admitq_api.json_objects import JsonObject, value_at

log = logger(__name__)


class AbsentOwners:
    """Finds Workloads without existing owners that no job controller handles."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._resources = {
            f"{integration.kind}.{integration.group}": resource_of(integration)
            for integration in ctx.settings.integrations
        }

    async def are_all(self, workload: dict[str, Any]) -> bool:
        """Whether no job controller handles the Workload, and none of its owners exists.

        Raises:
            ApiError: a call to the API server failed.
        """
        if self._is_looked_after(workload):
            return False
        metadata = workload["metadata"]
        for reference in value_at(metadata, ("ownerReferences",), []):
            if not await self._is_gone(reference, metadata["namespace"]):
                return False
        return True

    def _is_looked_after(self, workload: dict[str, Any]) -> bool:
        resource = self._resources.get(job_kind_of_workload(workload, self._ctx.names))
        return resource is not None and self._ctx.stores.find(resource) is not None

    async def _is_gone(self, reference: JsonObject, namespace: str) -> bool:
        group, kind = str(reference.get("apiVersion", "")).rpartition("/")[0], str(reference.get("kind", ""))
        for resource in await find_resources_of_kind(self._ctx.client, group, kind):
            try:
                owner = await self._ctx.client.get(
                    resource,
                    str(reference.get("name", "")),
                    namespace=namespace if resource.namespaced else None,
                )
            except ApiError as error:
                if error.is_not_found:
                    continue
                if error.is_forbidden:
                    log.warning(
                        "owner of deleted workload cannot be read",
                        namespace=namespace,
                        owner=f"{kind}.{group} {reference.get('name')}",
                        remedy="allow the manager to get it",
                    )
                    return False
                raise
            return value_at(owner, ("metadata", "uid")) != reference.get("uid")
        return True
