"""Whether the Workloads that are known here are those of the API server.

Watches are independent: the store of jobs or pods may be newer than that of Workloads. A controller asks the
API server before it ends what cannot be brought back.
"""

from collections.abc import Iterable
from typing import Final

from admitq.controllers.context import Context
from admitq_api.json_objects import JsonObject

STALE_STORE_RETRY_SECONDS: Final = 1.0
"""When to decide again where the stores are behind the API server."""


def observe_newer_workloads(ctx: Context, current: Iterable[JsonObject]) -> bool:
    """Take Workloads that were just read into the store; returns whether any was not known as it is."""
    known = ctx.stores.of(ctx.kinds.workloads)
    newer: list[JsonObject] = []
    for one in current:
        metadata = one["metadata"]
        seen = known.get(metadata["namespace"], metadata["name"]) or {"metadata": {}}
        if seen["metadata"].get("resourceVersion") != metadata["resourceVersion"]:
            newer.append(one)
    for one in newer:
        ctx.observe_write(ctx.kinds.workloads, dict(one))
    return bool(newer)
