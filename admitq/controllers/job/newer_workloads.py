"""Workloads of a job that are newer at the API server than in the store."""

from collections.abc import Sequence

from admitq.controllers.context import Context
from admitq.controllers.job.case import JobCase
from admitq.controllers.stale_stores import observe_newer_workloads
from admitq.runtime.errors import ApiError
from admitq.workloads.transitions import is_reserved
from admitq_api.json_objects import JsonObject


async def observe_newer_workloads_of_job(ctx: Context, case: JobCase) -> bool:
    """Read the Workloads of a job from the API server; returns whether any is newer than in the store.

    The store of jobs may be newer than the store of Workloads. It may show a job that another leader
    started for an admission that is not in the store yet. A stop cannot be undone. So this read must
    precede every stop of a job without a known admission.

    Raises:
        ApiError: the read failed.
    """
    return observe_newer_workloads(ctx, await _read_current_workloads(ctx, case))


async def _read_current_workloads(ctx: Context, case: JobCase) -> Sequence[JsonObject]:
    metadata: JsonObject = (case.job or {})["metadata"]
    resource, namespace = ctx.kinds.workloads, metadata["namespace"]
    if (reserved := _only_reserved(case)) is not None:
        # If this Workload has not changed, no other Workload is admitted for the job. A list would be a
        # larger request.
        try:
            return [await ctx.client.get(resource, reserved, namespace=namespace)]
        except ApiError as error:
            if not error.is_not_found:
                raise
    if not case.group:
        selector = f"{ctx.names.job_uid}={metadata['uid']}"
        listed, _ = await ctx.client.list(resource, namespace, label_selector=selector)
        return listed
    try:
        return [await ctx.client.get(resource, case.group, namespace=namespace)]
    except ApiError as error:
        if error.is_not_found:
            return []
        raise


def _only_reserved(case: JobCase) -> str | None:
    """Return the name of the one Workload of a job, if it has quota."""
    [*names] = (workload["metadata"]["name"] for workload in case.owned if is_reserved(workload))
    return names[0] if len(names) == len(case.owned) == 1 and not case.group else None
