"""Plans about jobs are carried out, and refusals of the API server handled."""

from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.job.workload_sync import without_outdated
from admitq.controllers.plan import (
    Action,
    Count,
    Create,
    Delete,
    Patch,
    Plan,
    Tell,
    act,
    describes_pods,
    plan,
    status_patch,
)
from admitq.controllers.stale_stores import BEHIND_RETRY_SECONDS
from admitq.integrations.ownership import is_controlled_by
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.resources import Resource
from admitq.workloads.job_workloads import WorkloadNotPossible
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject

ORPHAN_RETRY_SECONDS: Final = 5.0
"""When to reconcile a job again whose owner, or whose Workload's name, is not available."""

STOP_REFUSED: Final = "StopRefused"
"""Reason of the event about a job that cannot be stopped: a webhook or a policy refuses the write."""


async def carry_out(ctx: Context, case: JobCase, decided: Plan) -> float | None:
    """Carry out a plan about a job, and report refusals of the API server on the job.

    Returns:
        in how many seconds to reconcile the job again; None for never.

    Raises:
        ApiError: a write failed.
        PermanentRejection: no Workload can be created for the job until the job changes.
    """
    try:
        again = await act(ctx, decided)
    except ApiError as error:
        if error.is_already_exists:
            return await _adopt_existing(ctx, case, decided)
        if not error.is_refused or case.job is None:
            raise
        if describes_pods(decided, ctx.kinds.workloads):
            if error.is_namespace_terminating:
                return None
            ctx.recorder.event(dict(case.objects[0]), "Warning", WorkloadNotPossible.reason, error.message)
            await act(ctx, without_outdated(case, decided))
            if error.is_invalid:
                # The API server will refuse the same podsets again; only a change of the job can help.
                raise PermanentRejection(error.message) from error
        elif error.is_invalid and decided.starts is not None:
            return await act(ctx, _finish_failed_start(ctx, case, decided.starts, error))
        elif error.is_forbidden and _changes_only(case.resource, decided):
            reason = STOP_REFUSED if decided.starts is None else WorkloadNotPossible.reason
            ctx.recorder.event(dict(case.objects[0]), "Warning", reason, error.message)
        raise
    if decided.refusal:
        raise PermanentRejection(decided.refusal)
    return again


async def _adopt_existing(ctx: Context, case: JobCase, decided: Plan) -> float | None:
    """Observe the Workload that has the name already, or report that it belongs to another object."""
    for action in decided.actions:
        if isinstance(action, Create) and case.job is not None:
            metadata = action.obj["metadata"]
            found = await ctx.client.get(action.resource, metadata["name"], namespace=metadata["namespace"])
            if case.group or is_controlled_by(found, case.job):
                ctx.observed(action.resource, found)
                return BEHIND_RETRY_SECONDS
            note = f"Workload {metadata['name']} exists already and belongs to something else"
            ctx.recorder.event(dict(case.job), "Warning", "ErrWorkloadCompose", note)
    return ORPHAN_RETRY_SECONDS


def _finish_failed_start(ctx: Context, case: JobCase, workload: JsonObject, error: ApiError) -> Plan:
    """Finish a Workload whose job the API server never lets start; otherwise it would keep its quota."""
    transition = StatusTransition(workload, case.now)
    transition.finish(Reason.FAILED_TO_START, error.message)
    return plan(status_patch(ctx.kinds.workloads, workload, transition.patch(), CONCERN))


def _changes_only(jobs: Resource, decided: Plan) -> bool:
    """Whether a plan starts or stops a job and writes nothing else."""
    return all(isinstance(one, Tell | Count) or _is_change(one, jobs) for one in decided.actions)


def _is_change(action: Action, jobs: Resource) -> bool:
    return isinstance(action, Patch | Delete) and action.resource == jobs
