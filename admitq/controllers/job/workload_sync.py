"""Creates, updates, replaces and deletes the Workload of a job, so that it requests what the job requests."""

from dataclasses import replace

from admitq.controllers.job import (
    members,
    prebuilt_workloads,
    quota_release,
    start_stop,
    unadmitted_jobs,
    workload_slices,
)
from admitq.controllers.job.case import CONCERN, JobCase, seconds_between
from admitq.controllers.job.matching import (
    WorkloadMatch,
    prebuilt_name,
)
from admitq.controllers.plan import (
    NO_ACTIONS,
    Action,
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordMetric,
    RemoveFinalizer,
    has_finalizer,
    namespaced_name,
    plan_of,
)
from admitq.core.model import ObjectKey
from admitq.integrations.base import PatchStep
from admitq.workloads.job_workloads import (
    InvalidJob,
    PriorityClassMissing,
    WorkloadNotPossible,
    spec_patch,
)
from admitq.workloads.transitions import (
    is_condition_true,
    is_finished_or_deleting,
    is_reserved,
)
from admitq_api.conditions import ConditionType, parse_time
from admitq_api.json_objects import JsonObject, value_at


def handle_missing_workload(case: JobCase, match: WorkloadMatch) -> ActionPlan:
    """Return the plan for a job that no Workload matches: stop the job, or create or update a Workload."""
    job: JsonObject = case.job or {}
    if case.integration.find_outcome(job) is not None:
        return plan_of(*members.release_all_members(case))
    if not match.others and (forgotten := members.release_ended_members(case)):
        return forgotten
    if prebuilt_name(case):
        stopping = unadmitted_jobs.stop_without_prebuilt(case)
        others = None if case.integration.is_active(job) else _delete_stopped(case, match.others)
        return stopping or others or plan_of(prebuilt_workloads.prebuilt_problem_event(case))
    if not case.integration.is_suspended(job, case.names):
        if workload_slices.is_elastic(case) and not match.others and not case.is_namespace_terminating:
            return report_missing_objects(case) or _create_workload(case)
        return unadmitted_jobs.stop_unmatched(case, match.others) or NO_ACTIONS
    if match.others:
        return _restore_templates(case, match.others) or _replace_workloads(case, match.others)
    if case.is_namespace_terminating or case.integration.is_active(job):
        return NO_ACTIONS
    return report_missing_objects(case) or _create_workload(case)


def report_missing_objects(case: JobCase) -> ActionPlan | None:
    """Report missing objects that define pods of the job. Their creation triggers the next decision."""
    required = [reference for reference in case.missing if case.integration.is_required(reference)]
    if not required:
        return None
    missing = ", ".join(map(str, required))
    note = f"{missing} not found: create it, or name another one in a new job"
    return plan_of(case.event("ErrWorkloadCompose", note, warning=True))


def _restore_templates(case: JobCase, others: list[JsonObject]) -> ActionPlan | None:
    """Restore a suspended job that still has injected fields of an admission, before its Workload is updated.

    Otherwise the Workload would request the nodes of a former flavor, as if the author of the job had chosen
    them.
    """
    first, *remaining = others
    if remaining or start_stop.was_created_with_marks(case, first):
        return None
    return start_stop.stop_job(case, first, "", start_stop.NO_MATCHING_WORKLOAD)


def _replace_workloads(case: JobCase, others: list[JsonObject]) -> ActionPlan:
    """Update a Workload that does not match, or delete it if it has quota."""
    first, *remaining = others
    if not is_reserved(first) and not is_finished_or_deleting(first):
        return delete_others(case, remaining) or _update_workload(case, first)
    if case.integration.is_active(case.job or {}):
        return NO_ACTIONS
    return _delete_stopped(case, others) or NO_ACTIONS


def _update_workload(case: JobCase, workload: JsonObject) -> ActionPlan:
    try:
        patch = spec_patch(case, workload)
    except InvalidJob as problem:
        return _quarantine_job(case, problem, *_delete_workload(case, workload))
    except (PriorityClassMissing, WorkloadNotPossible) as missing:
        return plan_of(case.event(missing.reason, str(missing), warning=True))
    note = f"Updated not matching Workload for suspended job: {namespaced_name(workload)}"
    return plan_of(
        Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN),
        case.event("UpdatedWorkload", note),
    )


def _create_workload(case: JobCase) -> ActionPlan:
    try:
        workload = workload_slices.new_job_workload(case)
    except InvalidJob as problem:
        return _quarantine_job(case, problem)
    except (PriorityClassMissing, WorkloadNotPossible) as missing:
        return plan_of(case.event(missing.reason, str(missing), warning=True))
    metadata = (case.job or {})["metadata"]
    counted = case.settings.jobs.creation_latency and metadata.get("generation", 1) == 1
    since_creation = seconds_between(parse_time(metadata["creationTimestamp"]), case.now)
    kind = f"{case.integration.kind}.{case.integration.group}"
    queue = ObjectKey(metadata.get("namespace", ""), value_at(workload, ("spec", "queueName"), ""))
    return plan_of(
        Create(case.kinds.workloads, workload, CONCERN),
        case.event("CreatedWorkload", f"Created Workload: {namespaced_name(workload)}"),
        RecordMetric(lambda metrics, _: metrics.workload_created(kind, since_creation, queue))
        if counted
        else None,
    )


def delete_outdated_workloads(case: JobCase, refused: ActionPlan) -> ActionPlan:
    """Return the plan for Workloads that cannot be updated to match the job: delete those without quota.

    Otherwise they would be admitted for pods that the job no longer requests.
    """
    outdated = [
        action.obj
        for action in refused.actions
        if isinstance(action, Patch)
        and action.resource == case.kinds.workloads
        and not is_reserved(action.obj)
    ]
    return plan_of(*(action for workload in outdated for action in _delete_workload(case, workload)))


def _quarantine_job(case: JobCase, problem: InvalidJob, *actions: Action) -> ActionPlan:
    """Report on the job why it cannot have a Workload until it changes."""
    reported = plan_of(case.event(problem.reason, str(problem), warning=True), *actions)
    return replace(reported, quarantine_reason=str(problem))


def delete_unfinished_workloads(case: JobCase) -> ActionPlan:
    """Delete all Workloads of the job that are not finished."""
    waiting = [workload for workload in case.owned if not is_condition_true(workload, ConditionType.FINISHED)]
    return plan_of(*(action for workload in waiting for action in _delete_workload(case, workload)))


def delete_others(case: JobCase, others: list[JsonObject]) -> ActionPlan | None:
    """Delete the Workloads of a job besides the matching one."""
    decided = plan_of(*(action for workload in others for action in _delete_workload(case, workload)))
    return decided if decided.actions else None


def _delete_stopped(case: JobCase, others: list[JsonObject]) -> ActionPlan | None:
    """Delete Workloads of a stopped job, each after its pods have ended."""
    decided = delete_others(case, others)
    for workload in others:
        decided = quota_release.release_after_pods(case, workload, decided)
        if case.has_remaining_pods(workload):
            break
    return decided


def _delete_workload(case: JobCase, workload: JsonObject) -> tuple[Action, ...]:
    """Delete a Workload, then remove its finalizer. If the Workload has changed, both writes fail."""
    workloads = case.kinds.workloads
    if "deletionTimestamp" in workload["metadata"]:
        has = has_finalizer(workload, case.names.finalizer)
        return (RemoveFinalizer(workloads, workload),) if has else ()
    note = f"Deleted not matching Workload: {namespaced_name(workload)}"
    return (
        Delete(workloads, workload, as_seen=True),
        # The event precedes the removal of the finalizer. If that write conflicts, the next decision finds
        # the Workload deleted.
        case.event("DeletedWorkload", note),
        RemoveFinalizer(workloads, workload),
    )
