"""How a job is started and stopped: the patches of its object, or of its members."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from admitq.controllers.job import members, workload_slices
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.plan import NO_ACTIONS, ActionPlan, Patch, plan_of
from admitq.runtime.rate_limit import CallPriority
from admitq.workloads.template_injection import (
    FlavorMissing,
    InjectionConflict,
    inject_into_template,
    pod_set_infos,
    restore_template,
    without_scheduling_gate,
)
from admitq.workloads.transitions import find_condition
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, create_merge_patch, value_at

WORKLOAD_DELETED: Final = "WorkloadDeleted"
WORKLOAD_FINISHED: Final = "WorkloadFinished"
NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
NOT_ADMITTED: Final = "NotAdmitted"
"""Reasons for stopping a job. Members carry them in their status."""


def eviction_stop_reason(reason: str) -> str:
    """Return the reason for stopping a job after its Workload was evicted."""
    return f"WorkloadEvictedDueTo{reason}"


def started_job(case: JobCase, workload: JsonObject) -> JsonObject:
    """Return the job, unsuspended, with everything that the admission injects into its podsets.

    The pod counts of an elastic job stay as they are, even if its admission is for fewer pods. A slice for
    the other pods may be waiting for quota.

    Raises:
        InjectionConflict: the admission contradicts the job; a retry cannot succeed.
        FlavorMissing: an assigned flavor does not exist.
    """
    result: JsonObject = case.job or {}
    infos = {
        info.name: info
        for info in pod_set_infos(workload, case.lookups.flavor, case.names, case.settings.jobs.marks)
    }
    counts: dict[str, int] = {}
    for pod_set in case.integration.list_pod_sets(result, case.names):
        info = infos.get(pod_set.name)
        if info is None:
            continue
        # The gate is left over if no Workload was there to restore the templates at the last stop.
        ungated = without_scheduling_gate(pod_set.get_template(result), case.names.topology_gate)
        template = inject_into_template(ungated, info)
        result = case.integration.templates.with_template(result, pod_set, template, case.names)
        if info.count != pod_set.count and not workload_slices.is_elastic(case):
            counts[pod_set.name] = info.count
    if counts and case.integration.scaling.with_pod_counts is not None:
        result = case.integration.scaling.with_pod_counts(result, counts, case.names)
    return case.integration.with_suspend(result, False)


def stopped_job(case: JobCase, workload: JsonObject | None) -> JsonObject:
    """Return the job, suspended, with the pod templates and counts that its Workload recorded."""
    result: JsonObject = case.job or {}
    counts: dict[str, int] = {}
    kept_labels = case.integration.templates.platform_labels | case.integration.templates.own_labels
    listed = value_at(workload, ("spec", "podSets"), [])
    for pod_set, original in zip(case.integration.list_pod_sets(result, case.names), listed, strict=False):
        restored = restore_template(pod_set.get_template(result), original.get("template") or {}, kept_labels)
        result = case.integration.templates.with_template(result, pod_set, restored, case.names)
        # Only a partial admission changes counts; any other count is what the job's owner wants now.
        if original.get("minCount") is not None and original.get("count") != pod_set.count:
            counts[pod_set.name] = original["count"]
    if counts and case.integration.scaling.with_pod_counts is not None:
        result = case.integration.scaling.with_pod_counts(result, counts, case.names)
    return case.integration.with_suspend(result, True)


def has_admission_marks(case: JobCase) -> bool:
    """Whether the pod templates of the job have labels of an admission."""
    job: JsonObject = case.job or {}
    return _have_admission_marks(
        case, (pod_set.get_template(job) for pod_set in case.integration.list_pod_sets(job, case.names))
    )


def is_started_by_others(case: JobCase, workload: JsonObject) -> bool:
    """Whether a job runs without the marks that its start under this admission writes.

    Its user unsuspended it when quota was reserved, or removed the marks while it was suspended. Such a job
    also lacks the node selectors of its flavors. This excludes jobs that an importer admitted while they ran.
    """
    reserved = find_condition(workload, ConditionType.QUOTA_RESERVED) or {}
    if case.composition is not None or has_admission_marks(case) or reserved.get("reason") == Reason.IMPORTED:
        return False
    try:
        return has_admission_marks(replace(case, job=started_job(case, workload)))
    except (InjectionConflict, FlavorMissing):
        return False


def was_created_with_marks(case: JobCase, workload: JsonObject) -> bool:
    """Whether the Workload was created from a job with labels of an admission in its templates."""
    listed = value_at(workload, ("spec", "podSets"), [])
    return _have_admission_marks(case, (value_at(pod_set, ("template",), {}) for pod_set in listed))


def _have_admission_marks(case: JobCase, templates: Iterable[JsonObject]) -> bool:
    return any(
        value_at(template, ("metadata", "labels", case.names.podset)) is not None for template in templates
    )


def stop_job(case: JobCase, workload: JsonObject | None, message: str, reason: str) -> ActionPlan | None:
    """Return the plan that stops the job and restores its templates; None if it is stopped and restored.

    While a stop waits for pods, the plan is empty. For a composed job, running members are deleted. If the
    Workload is deleted, members that wait or have ended are deleted too.
    """
    if case.composition is not None:
        return members.stop_members(case, message, reason, everyone=reason == WORKLOAD_DELETED)
    job: JsonObject = case.job or {}
    target = stopped_job(case, workload)
    if case.integration.is_suspended(job, case.names) and not (
        has_admission_marks(case) and create_merge_patch(job, target)
    ):
        return None
    steps = case.integration.lifecycle.plan_stop(job, target, case.names)
    if not steps:
        return NO_ACTIONS
    begun = case.integration.lifecycle.is_stop_in_progress(job, case.names)
    event = None if begun or not message else case.event("Stopped", message)
    return plan_of(Patch(case.resource, job, steps, CONCERN, priority=CallPriority.EVICTION), event)


def start_job(case: JobCase, workload: JsonObject) -> ActionPlan:
    """Return the plan that starts an admitted job.

    Raises:
        InjectionConflict: the admission contradicts the job; a retry cannot succeed.
        FlavorMissing: an assigned flavor does not exist.
    """
    note = f"Admitted by clusterQueue {value_at(workload, ('status', 'admission', 'clusterQueue'), '')}"
    if case.composition is not None:
        return members.start_members(case, workload, note)
    job: JsonObject = case.job or {}
    steps = case.integration.lifecycle.plan_start(job, started_job(case, workload), case.names)
    return plan_of(
        Patch(case.resource, job, steps, CONCERN), case.event("Started", note), started_workload=workload
    )
