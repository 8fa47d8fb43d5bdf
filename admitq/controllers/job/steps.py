"""The steps of a decision about a job, and their order.

The first step that returns a plan ends the decision. Its writes lead to the next decision, so that a step
need not consider later steps. The order: skip jobs that are not managed, process jobs that have ended, stop
jobs, start jobs.
"""

from collections.abc import Callable
from typing import Final

from admitq.controllers.job import (
    members,
    prebuilt_workloads,
    quota_release,
    reclaimable_pods,
    start_stop,
    unadmitted_jobs,
    workload_slices,
    workload_sync,
)
from admitq.controllers.job.case import CONCERN, JobCase, condition_concern
from admitq.controllers.job.matching import (
    WorkloadMatch,
    match_workload,
    prebuilt_name,
)
from admitq.controllers.plan import (
    NO_ACTIONS,
    ActionPlan,
    Patch,
    RecordEvent,
    namespaced_name,
    plan_of,
)
from admitq.integrations.base import PatchStep, list_members
from admitq.integrations.ownership import is_served_workload
from admitq.workloads.job_workloads import (
    PriorityClassMissing,
    WorkloadNotPossible,
    admission_gates_patch,
    priority_patch,
)
from admitq.workloads.template_injection import FlavorMissing, InjectionConflict
from admitq.workloads.transitions import (
    holds_quota,
    is_active,
    is_admitted,
    is_condition_true,
    is_finished_or_deleting,
    is_reserved,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at

MISSING_FLAVOR_RETRY_SECONDS: Final = 1.0
"""When to retry a start that needs a flavor which does not exist."""


def decide_job(case: JobCase) -> ActionPlan:
    """Return the plan of the first step that has something to do."""
    for step in BEFORE_MATCHING:
        decided = step(case)
        if decided is not None:
            return decided
    refusal: RecordEvent | None = None
    try:
        if sliced := workload_slices.sync_slices(case):
            return sliced
    except (PriorityClassMissing, WorkloadNotPossible) as refused:
        # A job that cannot grow must still be stopped if necessary.
        refusal = case.event(refused.reason, str(refused), warning=True)
    match = _match_of(case)
    if match.workload is None:
        return workload_sync.handle_missing_workload(case, match)
    if match.others and (decided := workload_sync.delete_others(case, match.others)):
        return decided
    following = (step(case, match.workload) for step in AFTER_MATCHING)
    decided = next((plan for plan in following if plan is not None), NO_ACTIONS)
    if decided.actions:
        return decided
    return plan_of(refusal or _missing_class_event(case, match.workload), requeue_after=decided.requeue_after)


def refuse_foreign_members(case: JobCase) -> ActionPlan:
    """Return the plan that reports and stops pods which name the Workload of another object."""
    return (
        quota_release.release_workloads_without_job(case)
        or unadmitted_jobs.stop_without_prebuilt(case)
        or members.report_name_conflict(case)
        or NO_ACTIONS
    )


def _match_of(case: JobCase) -> WorkloadMatch:
    if prebuilt_name(case):
        return prebuilt_workloads.match_prebuilt_workload(case)
    return workload_slices.match_slice(case) if workload_slices.is_elastic(case) else match_workload(case)


# --- owners of the job ----------------------------------------------------------------------------


def _skip_unselected_namespace(case: JobCase) -> ActionPlan | None:
    """Ignore jobs of namespaces that are not selected, unless they still hold quota."""
    return None if case.namespace_matches or _holds_quota(case) else NO_ACTIONS


def _holds_quota(case: JobCase) -> bool:
    return any(holds_quota(workload) for workload in case.owned)


def _skip_job_without_pods(case: JobCase) -> ActionPlan | None:
    """Delete the Workload of a managed job that creates no pods.

    A job with quota may still run the pods that it had before a change, so it is stopped like any other job.
    """
    is_skipped = case.integration.lifecycle.is_ignored(case.job or {}) and not _holds_quota(case)
    return workload_sync.delete_unfinished_workloads(case) if is_skipped else None


def _follow_ancestor(case: JobCase) -> ActionPlan | None:
    """Run a job inside a queued job with that job, without a Workload of its own.

    If it had its own Workload, its quota would count twice. A job that has ended is left as it is, because
    the API server rejects the change.
    """
    if case.ancestor is None:
        return None
    stopping: ActionPlan | None = None
    if case.ancestor.admitted:
        stopping = unadmitted_jobs.delete_unresumed_child(case)
    elif case.job is not None and case.integration.find_outcome(case.job) is None:
        stopping = unadmitted_jobs.stop_child(case)
    return stopping or workload_sync.delete_unfinished_workloads(case)


def _skip_job_without_queue(case: JobCase) -> ActionPlan | None:
    """Ignore a job without queue name, unless quota is reserved for it.

    Its pending Workload is deleted, unless the controller of a serving object would create it again.
    """
    if case.queue_name or case.settings.without_queue_name:
        return None
    is_kept = _holds_quota(case) or any(is_served_workload(workload, case.names) for workload in case.owned)
    return None if is_kept else workload_sync.delete_unfinished_workloads(case)


# --- while it lives -------------------------------------------------------------------------------


def _priority_class_update(case: JobCase, workload: JsonObject) -> ActionPlan | RecordEvent | None:
    """Return the update of the Workload's priority class, or the event that the class is missing."""
    if is_served_workload(workload, case.names):
        return None
    try:
        patch = priority_patch(case, workload, reserved=is_reserved(workload))
    except PriorityClassMissing as missing:
        return case.event(missing.reason, str(missing), warning=True)
    if not patch:
        return None
    return plan_of(
        Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN),
        case.event("UpdatedWorkload", f"Updated workload priority class: {namespaced_name(workload)}"),
    )


def _update_priority_class(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Update the priority class of the Workload, and of waiting slices beside it.

    A class that does not exist changes nothing. It must not prevent the stop of a job.
    """
    others = (other for other in case.owned if other is not workload and not is_finished_or_deleting(other))
    following = (_priority_class_update(case, candidate) for candidate in (workload, *others))
    return next((plan for plan in following if isinstance(plan, ActionPlan)), None)


def _missing_class_event(case: JobCase, workload: JsonObject) -> RecordEvent | None:
    """Return the event that the priority class of the job does not exist; None if it does."""
    followed = None if is_finished_or_deleting(workload) else _priority_class_update(case, workload)
    return followed if isinstance(followed, RecordEvent) else None


def _remove_lifted_gates(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Remove an admission gate from the Workload once the job, or all pods of a group, lack it."""
    if prebuilt_name(case) or is_served_workload(workload, case.names):
        return None
    job = case.job or {}
    patch = admission_gates_patch(workload, list_members(job) or (job,), case.names)
    return plan_of(Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN)) if patch else None


def _report_reclaimable_pods(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Report pods that have ended and need no replacement; their quota is released.

    While quota is reserved, the counts only grow. If the slice of an elastic job has the size of the job,
    the counts follow the job alone, because a scale-down may have removed counted pods.
    """
    if not reclaimable_pods.is_reported(case):
        return None
    reclaimable = case.integration.scaling.count_reclaimable_pods(case.job or {})
    is_derived = workload_slices.has_size_of_job(case, workload)
    if reclaimable is None and not is_derived:
        return None
    before = reclaimable_pods.reported_counts(workload)
    only_grows = is_reserved(workload) and not is_derived
    counts: dict[str, int] = {}
    for pod_set in value_at(workload, ("spec", "podSets"), []):
        name = pod_set.get("name", "main")
        count = min((reclaimable or {}).get(name, 0), pod_set.get("count", 1))
        counts[name] = max(count, before.get(name, 0)) if only_grows else count
    return reclaimable_pods.report_counts(case, workload, counts)


def _report_pods_ready(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Set PodsReady according to the pods of an admission, unless the Workload is being evicted."""
    if case.settings.pods_ready is None or workload_slices.is_growing(case):
        # Pods without quota are not expected to be ready.
        return None
    if is_condition_true(workload, ConditionType.EVICTED) and is_reserved(workload):
        return None
    job: JsonObject = case.job or {}
    is_running = not case.integration.is_suspended(job, case.names) and not case.lacks_active_object
    ready = is_running and case.integration.are_pods_ready(job)
    transition = case.begin_transition(workload)
    transition.update_pods_ready(admitted=is_admitted(workload), ready=ready)
    return case.plan_transition(workload, transition, concern=condition_concern(ConditionType.PODS_READY))


def _handle_suspended_job(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Start a suspended job with an admitted Workload.

    Otherwise keep the Workload in the queue that the job names.
    """
    job: JsonObject = case.job or {}
    if is_admitted(workload) and members.awaits_start(case):
        if not is_active(workload):
            return NO_ACTIONS
        # Members are started one by one. A job of one object must have stopped completely before.
        still_stops = case.composition is None and case.integration.is_active(job)
        return NO_ACTIONS if still_stops else _start_admitted_job(case, workload)
    if not case.integration.is_suspended(job, case.names):
        return None
    if is_reserved(workload):
        return _report_pending_checks(case, workload)
    if stopping := unadmitted_jobs.stop_unadmitted(case, workload):
        return stopping
    if is_served_workload(workload, case.names):
        return NO_ACTIONS
    if case.queue_name != value_at(workload, ("spec", "queueName"), ""):
        if not case.queue_name and prebuilt_name(case):
            # The prebuilt Workload names its own queue.
            return NO_ACTIONS
        patch = {"spec": {"queueName": case.queue_name or None}}
        return plan_of(Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN))
    return NO_ACTIONS


def _start_admitted_job(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Start an admitted job, or report why it cannot start."""
    if incomplete := workload_sync.report_missing_objects(case):
        return incomplete
    try:
        return start_stop.start_job(case, workload)
    except InjectionConflict as conflict:
        return quota_release.finish_workload(case, workload, Reason.FAILED_TO_START, str(conflict))
    except FlavorMissing as missing:
        remedy = f"create it, or set spec.active of Workload {namespaced_name(workload)} to false"
        tell = case.event("ErrWorkloadCompose", f"{missing}: {remedy}", warning=True)
        return plan_of(tell, requeue_after=MISSING_FLAVOR_RETRY_SECONDS)


def _report_pending_checks(case: JobCase, workload: JsonObject) -> ActionPlan:
    pending = [
        f"{check['name']}: {check['message']}"
        for check in value_at(workload, ("status", "admissionChecks"), [])
        if check.get("state") == "Pending" and check.get("message")
    ]
    return plan_of(case.event("UpdatedAdmissionCheck", "; ".join(pending))) if pending else NO_ACTIONS


BEFORE_MATCHING: Final[tuple[Callable[[JobCase], ActionPlan | None], ...]] = (
    quota_release.release_workloads_without_job,
    _skip_unselected_namespace,
    _skip_job_without_pods,
    _follow_ancestor,
    _skip_job_without_queue,
    prebuilt_workloads.adopt,
    prebuilt_workloads.stop_mismatched_group,
    members.report_name_conflict,
    members.delete_excess_members,
)
"""Steps that need no matching Workload, in the order of evaluation."""

AFTER_MATCHING: Final[tuple[Callable[[JobCase, JsonObject], ActionPlan | None], ...]] = (
    quota_release.end_out_of_sync_workload,
    members.report_awaited_replacements,
    quota_release.handle_finished_workload,
    quota_release.handle_deleted_workload,
    members.add_owner_references,
    quota_release.sync_on_hold,
    quota_release.finish_with_job,
    members.release_replaced_members,
    unadmitted_jobs.finish_begun_stop,
    _update_priority_class,
    _remove_lifted_gates,
    _report_reclaimable_pods,
    _report_pods_ready,
    quota_release.handle_eviction,
    _handle_suspended_job,
    unadmitted_jobs.stop_unadmitted_run,
)
"""Steps for a job and the Workload that matches it, in the order of evaluation."""
