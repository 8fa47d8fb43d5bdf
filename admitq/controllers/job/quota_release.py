"""Releases the quota of a Workload when its job no longer runs and none of its pods can run.

The steps here finish a Workload or release its quota. Each waits for the pods.
"""

from dataclasses import replace

from admitq.controllers.job import kept_children, members, start_stop, unadmitted_jobs
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.job.matching import (
    is_comparable,
    is_equivalent,
    prebuilt_name,
)
from admitq.controllers.plan import (
    NO_ACTIONS,
    Action,
    ActionPlan,
    Delete,
    RemoveFinalizer,
    has_finalizer,
    namespaced_name,
    plan_of,
    status_patch,
)
from admitq.controllers.pods import remaining_pods
from admitq.core.model import Instant
from admitq.integrations.ownership import is_served_workload, is_single_pod_workload
from admitq.workloads.transitions import (
    condition_since,
    find_condition,
    is_active,
    is_admitted,
    is_condition_true,
    is_finished_or_deleting,
    is_on_hold,
    is_reserved,
)
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import JsonObject

# --- the job is gone ------------------------------------------------------------------------------


def _release_workload(case: JobCase, workload: JsonObject) -> tuple[Action | None, ...]:
    """Return the next actions for a Workload without job. Its quota is kept while its pods can run."""
    remaining = case.remaining_pods.get(workload["metadata"]["uid"])
    listed = () if remaining is None else remaining.listed
    stopped = remaining_pods.delete_excess_remaining_pods(
        workload, listed, case.names, case.settings, case.workloads_without_job
    )
    if remaining and remaining_pods.may_have_pods(workload):
        return (*stopped, _report_remaining_pods(case, workload))
    if stopped:
        return tuple(stopped)
    is_requeued = _is_evicted_with_its_pod(case, workload) or _is_evicted_without_pods(case, workload)
    if is_requeued and (returned := _requeue_evicted(case, workload)):
        return returned.actions
    if case.settings.finish_orphaned and not is_condition_true(workload, ConditionType.FINISHED):
        transition = case.begin_transition(workload)
        remaining_pods.drop_pods_outlive_job(transition)
        transition.finish(Reason.OWNER_NOT_FOUND, "The workload's owner no longer exists")
        write = status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)
        return (write,)
    if has_finalizer(workload, case.names.finalizer):
        return (RemoveFinalizer(case.kinds.workloads, workload),)
    return ()


def _report_remaining_pods(case: JobCase, workload: JsonObject) -> Action | None:
    transition = case.begin_transition(workload)
    remaining_pods.set_pods_outlive_job(transition, case.remaining_pods[workload["metadata"]["uid"]])
    return status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)


def release_after_pods(case: JobCase, workload: JsonObject, freeing: ActionPlan | None) -> ActionPlan | None:
    """Return the plan, which releases the quota of a Workload, if no pod of the Workload can run.

    The status of a job does not cover pods that take long to end, or that its controller does not delete.
    Children that its controller does not stop are deleted first, because they create pods.
    Members of a composed job are observed one by one, so they need no search.
    """
    if freeing is None or case.composition is not None or not remaining_pods.may_have_pods(workload):
        return freeing
    if case.running_children:
        return kept_children.delete_running_children(case.running_children, case.names.product)
    if case.has_remaining_pods(workload):
        return plan_of(
            _report_remaining_pods(case, workload),
            requeue_after=remaining_pods.next_check_seconds(workload, case.now),
        )
    return replace(freeing, released_workloads=(*freeing.released_workloads, workload))


def _is_evicted_with_its_pod(case: JobCase, workload: JsonObject) -> bool:
    """Whether an eviction has deleted the single pod for which the Workload holds quota."""
    is_evicted = (
        is_condition_true(workload, ConditionType.EVICTED)
        and is_reserved(workload)
        and not is_finished_or_deleting(workload)
    )
    return is_evicted and case.job is not None and is_single_pod_workload(workload)


def _is_evicted_without_pods(case: JobCase, workload: JsonObject) -> bool:
    """Whether the Workload of a group was evicted before it had pods, so that no job has to stop first."""
    return case.job is None and members.is_evicted_before_first_pod(workload, case.names)


def release_workloads_without_job(case: JobCase) -> ActionPlan | None:
    """Finish and release the Workloads of jobs that are gone or terminating, after their pods."""
    released = plan_of(
        *(action for workload in case.workloads_without_job for action in _release_workload(case, workload)),
        *(members.release_all_members(case) if case.is_gone_or_terminating else ()),
    )
    return released if case.is_gone_or_terminating or released.actions else None


# --- the job or the Workload ends -----------------------------------------------------------------


def end_out_of_sync_workload(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Finish a prebuilt Workload that requests something else than its job."""
    if not prebuilt_name(case) or is_finished_or_deleting(workload) or not is_comparable(case):
        return None
    if is_equivalent(case, workload):
        return None
    message = "The prebuilt workload is out of sync with its user job"
    if case.composition is None and is_admitted(workload):
        if stopping := start_stop.stop_job(case, None, message, start_stop.NO_MATCHING_WORKLOAD):
            return unadmitted_jobs.with_excess_report(case, workload, stopping)
        if case.integration.is_active(case.job or {}):
            return NO_ACTIONS
    return release_after_pods(case, workload, finish_workload(case, workload, Reason.OUT_OF_SYNC, message))


def finish_workload(case: JobCase, workload: JsonObject, reason: Reason, message: str) -> ActionPlan | None:
    """Finish a Workload, which releases its quota."""
    transition = case.begin_transition(workload)
    remaining_pods.drop_pods_outlive_job(transition)
    transition.finish(reason, message)
    return case.plan_transition(workload, transition)


def handle_finished_workload(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Stop the job of a finished Workload, report it once, and remove the finalizer of the Workload."""
    if not is_condition_true(workload, ConditionType.FINISHED):
        return None
    if case.integration.find_outcome(case.job or {}) is None and (
        stopping := start_stop.stop_job(case, workload, "Workload is finished", start_stop.WORKLOAD_FINISHED)
    ):
        return unadmitted_jobs.with_excess_report(case, workload, stopping)
    if not has_finalizer(workload, case.names.finalizer):
        return plan_of(*members.release_all_members(case))
    note = f"Workload '{namespaced_name(workload)}' is declared finished"
    return plan_of(
        *members.release_all_members(case),
        RemoveFinalizer(case.kinds.workloads, workload),
        case.event("FinishedWorkload", note),
    )


def handle_deleted_workload(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Stop the job of a deleted Workload. The finalizer stays until no pod of the job can run."""
    if "deletionTimestamp" not in workload["metadata"]:
        return None
    job: JsonObject = case.job or {}
    if case.integration.find_outcome(job) is None:
        if stopping := start_stop.stop_job(
            case, workload, "Workload is deleted", start_stop.WORKLOAD_DELETED
        ):
            return stopping
        if case.integration.is_active(job):
            return NO_ACTIONS
    if not has_finalizer(workload, case.names.finalizer):
        return plan_of(*members.release_all_members(case))
    released = plan_of(*members.release_all_members(case), RemoveFinalizer(case.kinds.workloads, workload))
    return release_after_pods(case, workload, released)


def sync_on_hold(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Release the quota of a job on hold. When the job is no longer on hold, queue its Workload again.

    A deactivated Workload is left to the Workload controller, which reports the deactivation.
    """
    if is_served_workload(workload, case.names) or not is_active(workload):
        return None
    on_hold = case.integration.lifecycle.is_on_hold(case.job or {})
    if on_hold == is_on_hold(workload):
        return None
    transition = case.begin_transition(workload)
    remaining_pods.drop_pods_outlive_job(transition)
    if on_hold:
        transition.release(Reason.ON_HOLD, "Job is on hold")
    else:
        transition.release(
            case.settings.pending.reported_reason(Reason.PENDING_EVALUATION),
            "Workload no longer on hold; waiting for quota reservation",
        )
    return release_after_pods(case, workload, case.plan_transition(workload, transition))


def finish_with_job(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Finish the Workload with the outcome of its job."""
    ended = case.integration.find_outcome(case.job or {})
    if ended is None:
        return None
    reason = Reason.SUCCEEDED if ended.success else Reason.FAILED
    finishing = finish_workload(case, workload, reason, ended.message) or NO_ACTIONS
    return (
        finishing
        if case.integration.lifecycle.ends_after_pods
        else release_after_pods(case, workload, finishing)
    )


# --- the Workload is evicted ----------------------------------------------------------------------


def handle_eviction(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Stop the job of an evicted Workload, and requeue the Workload when no pod runs any more."""
    evicted = find_condition(workload, ConditionType.EVICTED)
    if evicted is None or evicted.get("status") != "True":
        return None
    reason: str = evicted.get("reason", "")
    if stopping := start_stop.stop_job(
        case, workload, evicted.get("message", ""), start_stop.eviction_stop_reason(reason)
    ):
        return unadmitted_jobs.with_excess_report(case, workload, stopping)
    if is_reserved(workload):
        if case.integration.is_active(case.job or {}):
            return NO_ACTIONS
        return release_after_pods(case, workload, _requeue_evicted(case, workload))
    return _delete_job_after_retention(case, workload, reason)


def _requeue_evicted(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Release the quota of an evicted Workload.

    The Workload of a started single pod is requeued only if the feature gate
    SkipReassignmentForPodOwnedWorkloads is off, because the pod is deleted and the Workload ends with it.
    The Workload of a pod that was not started is always
    requeued: that pod can still start, and no controller creates another in its place.
    """
    transition = case.begin_transition(workload)
    remaining_pods.drop_pods_outlive_job(transition)
    ends = (
        is_single_pod_workload(workload)
        and case.job is not None
        and "deletionTimestamp" in case.job["metadata"]
    )
    stays_out = ends and case.settings.pods.skip_reassignment
    transition.requeue(
        case.settings.pending.reported_reason(Reason.PENDING_EVALUATION), may_return=not stays_out
    )
    return case.plan_transition(workload, transition)


def _delete_job_after_retention(case: JobCase, workload: JsonObject, reason: str) -> ActionPlan | None:
    """Delete a job after the configured retention if its Workload was deactivated for a cause, not by a user.

    All members of a composed job are deleted and released.
    """
    if is_served_workload(workload, case.names):
        # The controller of the members would create them again.
        return None
    retention = case.settings.retention.after_deactivated
    evicted_at = condition_since(workload, ConditionType.EVICTED)
    if retention is None or evicted_at is None or not reason.startswith("DeactivatedDueTo"):
        return None
    if is_active(workload) or _was_returned_since(workload, evicted_at):
        # If the Workload was reactivated since then and is inactive again, a user deactivated it.
        return None
    if evicted_at + retention > case.now:
        return ActionPlan(requeue_after=(evicted_at + retention - case.now) / SECOND)
    note = "Deleted job: deactivation retention period expired"
    going = [obj for obj in case.objects if "deletionTimestamp" not in obj["metadata"]]
    # Members that have ended are released too: no replacements are awaited any more.
    actions = (*(Delete(case.resource, obj) for obj in going), *members.release_all_members(case))
    return plan_of(*actions, case.event("Deleted", note)) if actions else NO_ACTIONS


def _was_returned_since(workload: JsonObject, evicted_at: Instant) -> bool:
    """Whether the Workload was requeued after an eviction, by admitq or by another program."""
    requeued = find_condition(workload, ConditionType.REQUEUED) or {}
    returned_at = (
        condition_since(workload, ConditionType.REQUEUED) if requeued.get("status") == "True" else None
    )
    is_later = returned_at is not None and returned_at > evicted_at
    return is_later or requeued.get("reason") == Reason.REACTIVATED
