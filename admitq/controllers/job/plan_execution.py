"""Executes plans about jobs, and handles rejections by the API server."""

from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.job.workload_sync import delete_outdated_workloads
from admitq.controllers.plan import (
    Action,
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordEvent,
    RecordMetric,
    execute_plan,
    plan_of,
    status_patch,
    writes_pod_sets,
)
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS
from admitq.integrations.ownership import is_controlled_by
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.resources import Resource
from admitq.workloads.job_workloads import WorkloadNotPossible
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject

ORPHAN_RETRY_SECONDS: Final = 5.0
"""When to reconcile a job again if its owner is unknown, or if the name of its Workload is taken."""

STOP_REFUSED: Final = "StopRefused"
"""Reason of the event about a job that cannot be stopped, because a webhook or a policy rejects the write."""


async def execute_job_plan(ctx: Context, case: JobCase, decided: ActionPlan) -> float | None:
    """Execute a plan about a job, and report rejections of the API server on the job.

    Returns:
        the seconds until the job is reconciled again; None if only a change causes that.

    Raises:
        ApiError: a write failed.
        PermanentRejection: no Workload can be created for the job until the job changes.
    """
    try:
        requeue_after = await execute_plan(ctx, decided)
    except ApiError as error:
        if error.is_already_exists:
            return await _adopt_existing(ctx, case, decided)
        if not error.is_rejected or case.job is None:
            raise
        if writes_pod_sets(decided, ctx.kinds.workloads):
            if error.is_namespace_terminating:
                return None
            ctx.recorder.event(dict(case.objects[0]), "Warning", WorkloadNotPossible.reason, error.message)
            await execute_plan(ctx, delete_outdated_workloads(case, decided))
            if error.is_invalid:
                # The API server would reject the same podsets again. Only a change of the job can help.
                raise PermanentRejection(error.message) from error
        elif error.is_invalid and decided.started_workload is not None:
            return await execute_plan(ctx, _finish_failed_start(ctx, case, decided.started_workload, error))
        elif error.is_forbidden and _only_changes_jobs(case.resource, decided):
            reason = STOP_REFUSED if decided.started_workload is None else WorkloadNotPossible.reason
            ctx.recorder.event(dict(case.objects[0]), "Warning", reason, error.message)
        raise
    if decided.quarantine_reason:
        raise PermanentRejection(decided.quarantine_reason)
    return requeue_after


async def _adopt_existing(ctx: Context, case: JobCase, decided: ActionPlan) -> float | None:
    """Observe the Workload that already has the name, or report that it belongs to another object."""
    for action in decided.actions:
        if isinstance(action, Create) and case.job is not None:
            metadata = action.obj["metadata"]
            existing = await ctx.client.get(
                action.resource, metadata["name"], namespace=metadata["namespace"]
            )
            if case.group or is_controlled_by(existing, case.job):
                ctx.observe_write(action.resource, existing)
                return STALE_STORE_RETRY_SECONDS
            note = f"Workload {metadata['name']} exists already and belongs to something else"
            ctx.recorder.event(dict(case.job), "Warning", "ErrWorkloadCompose", note)
    return ORPHAN_RETRY_SECONDS


def _finish_failed_start(ctx: Context, case: JobCase, workload: JsonObject, error: ApiError) -> ActionPlan:
    """Finish a Workload if the API server never lets its job start. Otherwise it would keep its quota."""
    transition = StatusTransition(workload, case.now)
    transition.finish(Reason.FAILED_TO_START, error.message)
    return plan_of(status_patch(ctx.kinds.workloads, workload, transition.patch(), CONCERN))


def _only_changes_jobs(jobs: Resource, decided: ActionPlan) -> bool:
    """Whether a plan starts or stops a job and writes nothing else."""
    return all(
        isinstance(action, RecordEvent | RecordMetric) or _changes_job(action, jobs)
        for action in decided.actions
    )


def _changes_job(action: Action, jobs: Resource) -> bool:
    return isinstance(action, Patch | Delete) and action.resource == jobs
