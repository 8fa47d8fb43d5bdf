"""A job has one Workload, which asks for what the job asks for: created, updated, replaced or deleted."""

from dataclasses import replace

from admitq.controllers.job import (
    members,
    prebuilt_workloads,
    quota_release,
    start_stop,
    unadmitted_jobs,
    workload_slices,
)
from admitq.controllers.job.case import CONCERN, JobCase, seconds
from admitq.controllers.job.matching import (
    Match,
    prebuilt_name,
)
from admitq.controllers.plan import (
    NOTHING,
    Action,
    Count,
    Create,
    Delete,
    Patch,
    Plan,
    RemoveFinalizer,
    has_finalizer,
    name_of,
    plan,
)
from admitq.core.model import ObjectKey
from admitq.integrations.base import PatchStep
from admitq.workloads.job_workloads import (
    NoPodSets,
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


def without_workload(case: JobCase, match: Match) -> Plan:
    """No Workload stands for the job as it is: stop it, or bring one about."""
    job: JsonObject = case.job or {}
    if case.integration.find_outcome(job) is not None:
        return plan(*members.freed(case))
    if not match.others and (forgotten := members.forgotten(case)):
        return forgotten
    if prebuilt_name(case):
        stopping = unadmitted_jobs.stop_without_prebuilt(case)
        others = None if case.integration.is_active(job) else _delete_stopped(case, match.others)
        return stopping or others or plan(prebuilt_workloads.refusal(case))
    if not case.integration.is_suspended(job, case.names):
        if workload_slices.is_elastic(case) and not match.others and not case.namespace_ends:
            return incomplete(case) or _create(case)
        return unadmitted_jobs.stop_unmatched(case, match.others) or NOTHING
    if match.others:
        return _unmarked(case, match.others) or _replace(case, match.others)
    if case.namespace_ends or case.integration.is_active(job):
        return NOTHING
    return incomplete(case) or _create(case)


def incomplete(case: JobCase) -> Plan | None:
    """Report a missing object that defines pods of the job. Its creation triggers the next decision."""
    required = [one for one in case.missing if case.integration.is_required(one)]
    if not required:
        return None
    missing = ", ".join(map(str, required))
    note = f"{missing} not found: create it, or name another one in a new job"
    return plan(case.tell("ErrWorkloadCompose", note, warning=True))


def _unmarked(case: JobCase, others: list[JsonObject]) -> Plan | None:
    """Restore a suspended job that still has what an admission gave it, before its Workload follows it.

    Otherwise the Workload would request the nodes of a former flavor, as if the job's author had chosen them.
    """
    first, *rest = others
    if rest or start_stop.is_marked_workload(case, first):
        return None
    return start_stop.stop(case, first, "", start_stop.NO_MATCHING_WORKLOAD)


def _replace(case: JobCase, others: list[JsonObject]) -> Plan:
    """A Workload that does not match is made to, where it holds no quota; else it goes with its quota."""
    first, *rest = others
    if not is_reserved(first) and not is_finished_or_deleting(first):
        return delete_others(case, rest) or _update(case, first)
    if case.integration.is_active(case.job or {}):
        return NOTHING
    return _delete_stopped(case, others) or NOTHING


def _update(case: JobCase, workload: JsonObject) -> Plan:
    try:
        patch = spec_patch(case, workload)
    except NoPodSets as problem:
        return _refused(case, problem, *_deletion(case, workload))
    except (PriorityClassMissing, WorkloadNotPossible) as missing:
        return plan(case.tell(missing.reason, str(missing), warning=True))
    note = f"Updated not matching Workload for suspended job: {name_of(workload)}"
    return plan(
        Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN),
        case.tell("UpdatedWorkload", note),
    )


def _create(case: JobCase) -> Plan:
    try:
        workload = workload_slices.made(case)
    except NoPodSets as problem:
        return _refused(case, problem)
    except (PriorityClassMissing, WorkloadNotPossible) as missing:
        return plan(case.tell(missing.reason, str(missing), warning=True))
    metadata = (case.job or {})["metadata"]
    counted = case.settings.jobs.creation_latency and metadata.get("generation", 1) == 1
    since_creation = seconds(parse_time(metadata["creationTimestamp"]), case.now)
    kind = f"{case.integration.kind}.{case.integration.group}"
    queue = ObjectKey(metadata.get("namespace", ""), value_at(workload, ("spec", "queueName"), ""))
    return plan(
        Create(case.kinds.workloads, workload, CONCERN),
        case.tell("CreatedWorkload", f"Created Workload: {name_of(workload)}"),
        Count(lambda metrics, _: metrics.workload_created(kind, since_creation, queue)) if counted else None,
    )


def without_outdated(case: JobCase, refused: Plan) -> Plan:
    """What is left to do where Workloads cannot be made to ask for what the job does now: they go.

    Otherwise they would be admitted for pods that the job does not ask for any more. A Workload that has
    quota keeps it.
    """
    outdated = [
        one.obj
        for one in refused.actions
        if isinstance(one, Patch) and one.resource == case.kinds.workloads and not is_reserved(one.obj)
    ]
    return plan(*(action for one in outdated for action in _deletion(case, one)))


def _refused(case: JobCase, problem: WorkloadNotPossible, *actions: Action) -> Plan:
    """Report on the job why no Workload can stand for it until it changes."""
    reported = plan(case.tell(problem.reason, str(problem), warning=True), *actions)
    return replace(reported, refusal=str(problem))


def without_waiting(case: JobCase) -> Plan:
    """Nothing is left that stands for the job, but for what has ended."""
    waiting = [one for one in case.owned if not is_condition_true(one, ConditionType.FINISHED)]
    return plan(*(action for one in waiting for action in _deletion(case, one)))


def delete_others(case: JobCase, others: list[JsonObject]) -> Plan | None:
    """Delete the Workloads of a job beside the one that asks for what the job asks for."""
    decided = plan(*(action for one in others for action in _deletion(case, one)))
    return decided if decided.actions else None


def _delete_stopped(case: JobCase, others: list[JsonObject]) -> Plan | None:
    """Delete Workloads of a job that has stopped, each once its pods have ended."""
    decided = delete_others(case, others)
    for one in others:
        decided = quota_release.after_pods(case, one, decided)
        if case.is_outlived(one):
            break
    return decided


def _deletion(case: JobCase, workload: JsonObject) -> tuple[Action, ...]:
    """Delete a Workload, and let it go only then: one that has changed in the meantime stays held."""
    workloads = case.kinds.workloads
    if "deletionTimestamp" in workload["metadata"]:
        has = has_finalizer(workload, case.names.finalizer)
        return (RemoveFinalizer(workloads, workload),) if has else ()
    note = f"Deleted not matching Workload: {name_of(workload)}"
    return (
        Delete(workloads, workload, as_seen=True),
        # Reported before the finalizer goes: if that write conflicts, the next decision finds it deleted.
        case.tell("DeletedWorkload", note),
        RemoveFinalizer(workloads, workload),
    )
