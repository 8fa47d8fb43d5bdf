"""Stores that are older than the API server.

Watches are independent: the store of jobs or pods may be newer than the store of Workloads. A controller
reads the Workloads from the API server before it does what it cannot undo.
"""

from collections.abc import Iterable
from typing import Final

from admitq.controllers.context import Context
from admitq_api.json_objects import JsonObject

STALE_STORE_RETRY_SECONDS: Final = 1.0
"""When to reconcile again if a store is older than the API server."""


def observe_newer_workloads(ctx: Context, current: Iterable[JsonObject]) -> bool:
    """Put Workloads from the API server into the store; returns whether any was newer than in the store."""
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
