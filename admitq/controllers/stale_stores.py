"""Stores that are older than the API server.

Watches are independent: the store of jobs or pods may be newer than the store of Workloads. A controller
reads the Workloads from the API server before an action that cannot be undone.
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
    for workload in current:
        metadata = workload["metadata"]
        stored = known.get(metadata["namespace"], metadata["name"]) or {"metadata": {}}
        if stored["metadata"].get("resourceVersion") != metadata["resourceVersion"]:
            newer.append(workload)
    for workload in newer:
        ctx.observe_write(ctx.kinds.workloads, dict(workload))
    return bool(newer)
