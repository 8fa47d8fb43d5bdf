"""Positions of pending workloads in their LocalQueues, from the visibility API."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from admitq.plugin.rows import QueueKey
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import as_int, objects_at, text_at, value_at

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

VERSION: Final = "v1beta2"
MOST_WORKLOADS: Final = 100_000
"""The largest list that the visibility API returns."""


async def read_positions(
    access: "ClusterAccess", queues: Collection[QueueKey]
) -> tuple[dict[QueueKey, int] | None, list[str]]:
    """Return the positions of the workloads of LocalQueues, by namespace and name of the workload.

    Returns:
        The positions, or None if the cluster does not serve the visibility API; and why those of some queues
        are missing.
    """
    if access.names.visibility_group not in access.groups:
        return None, []
    positions: dict[QueueKey, int] = {}
    missing: list[str] = []

    async def read(queue: QueueKey) -> None:
        try:
            positions.update(await _read(access, queue))
        except ApiError as error:
            if not error.is_not_found:
                missing.append(
                    f"positions in localqueue {queue[0]}/{queue[1]} are not shown: {error.message}"
                )

    await asyncio.gather(*map(read, queues))
    return positions, sorted(missing)


async def _read(access: "ClusterAccess", queue: QueueKey) -> dict[QueueKey, int]:
    group = access.names.visibility_group
    resource = Resource(group, VERSION, "localqueues", "LocalQueue", namespaced=True)
    path = resource.path(*queue, "pendingworkloads")
    answer = await access.client.request_json("GET", path, query={"limit": str(MOST_WORKLOADS)})
    return {
        (text_at(item, ("metadata", "namespace")), text_at(item, ("metadata", "name"))): as_int(
            value_at(item, ("positionInLocalQueue",))
        )
        for item in objects_at(answer, ("items",))
    }
