"""What is to be done about a job now: a chain of steps, of which the first with something to do decides.

Whatever a step writes leads to the next decision, so that a step need not think of those behind it. The
order is that of the reference: who is not ours, what has ended, what must stop, what may start.
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
from admitq.controllers.job.case import CONCERN, JobCase, concern_of
from admitq.controllers.job.matching import (
    Match,
    match_of,
    prebuilt_name,
)
from admitq.controllers.plan import (
    NOTHING,
    Patch,
    Plan,
    Tell,
    name_of,
    plan,
)
from admitq.integrations.base import PatchStep, list_members
from admitq.integrations.ownership import is_served_workload
from admitq.workloads.job_workloads import (
    PriorityClassMissing,
    WorkloadNotPossible,
    admission_gates_patch,
    priority_patch,
)
from admitq.workloads.pod_templates import FlavorMissing, InjectionConflict
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


def decide(case: JobCase) -> Plan:
    """What is to be done about a job now."""
    for step in BEFORE_MATCHING:
        decided = step(case)
        if decided is not None:
            return decided
    refusal: Tell | None = None
    try:
        if sliced := workload_slices.settle(case):
            return sliced
    except (PriorityClassMissing, WorkloadNotPossible) as refused:
        # What cannot grow is stopped all the same when it has to be.
        refusal = case.tell(refused.reason, str(refused), warning=True)
    match = _match_of(case)
    if match.workload is None:
        return workload_sync.without_workload(case, match)
    if match.others and (decided := workload_sync.delete_others(case, match.others)):
        return decided
    following = (step(case, match.workload) for step in AFTER_MATCHING)
    decided = next((one for one in following if one is not None), NOTHING)
    if decided.actions:
        return decided
    return plan(refusal or _class_missing(case, match.workload), again=decided.again)


def refuse_group(case: JobCase) -> Plan:
    """Report to pods that the Workload they name as their group is not theirs; end those that run."""
    return (
        quota_release.gone(case)
        or unadmitted_jobs.stop_without_prebuilt(case)
        or members.name_taken(case)
        or NOTHING
    )


def _match_of(case: JobCase) -> Match:
    if prebuilt_name(case):
        return prebuilt_workloads.match_of(case)
    return workload_slices.match_of(case) if workload_slices.is_elastic(case) else match_of(case)


# --- whose job it is ------------------------------------------------------------------------------


def _elsewhere(case: JobCase) -> Plan | None:
    """Namespaces that are not selected are left alone, but for what has quota from before: it is to end."""
    return None if case.namespace_matches or _holds_quota(case) else NOTHING


def _holds_quota(case: JobCase) -> bool:
    return any(holds_quota(one) for one in case.owned)


def _skipped(case: JobCase) -> Plan | None:
    """A job of a kind that we manage, but that makes no pods, needs no Workload.

    One that has quota may still run what it was before it changed, and is stopped like any other.
    """
    is_skipped = case.integration.lifecycle.is_ignored(case.job or {}) and not _holds_quota(case)
    return workload_sync.without_waiting(case) if is_skipped else None


def _nested(case: JobCase) -> Plan | None:
    """A job inside a queued job runs when that one is admitted, and is not queued itself.

    If it was before, it would hold quota that the other one has for it. One that has ended is left as it is:
    there is nothing to stop, and the API server refuses to.
    """
    if case.ancestor is None:
        return None
    if case.ancestor.admitted or case.job is None or case.integration.find_outcome(case.job) is not None:
        return workload_sync.without_waiting(case)
    return unadmitted_jobs.stop_child(case) or workload_sync.without_waiting(case)


def _unmanaged(case: JobCase) -> Plan | None:
    """Without a queue name a job is left alone, unless quota is already reserved for it.

    What waits for it would hold quota for nothing, and goes; but not if whoever made it would make it again.
    """
    if case.queue_name or case.settings.without_queue_name:
        return None
    is_kept = _holds_quota(case) or any(is_served_workload(one, case.names) for one in case.owned)
    return None if is_kept else workload_sync.without_waiting(case)


# --- while it lives -------------------------------------------------------------------------------


def _class_followed(case: JobCase, workload: JsonObject) -> Plan | Tell | None:
    """What makes the Workload follow the label of the job's class, or tells that there is no such class."""
    if is_served_workload(workload, case.names):
        return None
    try:
        patch = priority_patch(case, workload, reserved=is_reserved(workload))
    except PriorityClassMissing as missing:
        return case.tell(missing.reason, str(missing), warning=True)
    if not patch:
        return None
    return plan(
        Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN),
        case.tell("UpdatedWorkload", f"Updated workload priority class: {name_of(workload)}"),
    )


def _priority_changed(case: JobCase, workload: JsonObject) -> Plan | None:
    """Have the Workload follow the job's class, and so those slices of an elastic job that wait beside it.

    A class that is not there changes nothing: least of all may it keep a job from being stopped.
    """
    others = (one for one in case.owned if one is not workload and not is_finished_or_deleting(one))
    following = (_class_followed(case, one) for one in (workload, *others))
    return next((one for one in following if isinstance(one, Plan)), None)


def _class_missing(case: JobCase, workload: JsonObject) -> Tell | None:
    """Tell that the class is not there which the Workload should follow."""
    followed = None if is_finished_or_deleting(workload) else _class_followed(case, workload)
    return followed if isinstance(followed, Tell) else None


def _gates_lifted(case: JobCase, workload: JsonObject) -> Plan | None:
    """An admission gate that is taken off the job is taken off its Workload; of a group, off all its pods."""
    if prebuilt_name(case) or is_served_workload(workload, case.names):
        return None
    job = case.job or {}
    patch = admission_gates_patch(workload, list_members(job) or (job,), case.names)
    return plan(Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN)) if patch else None


def _reclaim(case: JobCase, workload: JsonObject) -> Plan | None:
    """Report pods that need no successor: they give their quota back.

    Under a reservation the counts only grow. Those of an elastic job that has the size of its slice are
    derived from the job alone: a scale-down may have removed pods that were counted.
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
    return reclaimable_pods.report(case, workload, counts)


def _pods_ready(case: JobCase, workload: JsonObject) -> Plan | None:
    """Tell whether the pods of an admission are ready; of an eviction nobody needs to hear it."""
    if case.settings.pods_ready is None or workload_slices.is_growing(case):
        # Pods that have no quota yet are not expected to be ready.
        return None
    if is_condition_true(workload, ConditionType.EVICTED) and is_reserved(workload):
        return None
    job: JsonObject = case.job or {}
    ready = not case.integration.is_suspended(job, case.names) and case.integration.are_pods_ready(job)
    transition = case.begin(workload)
    transition.update_pods_ready(admitted=is_admitted(workload), ready=ready)
    return case.end(workload, transition, concern=concern_of(ConditionType.PODS_READY))


def _suspended(case: JobCase, workload: JsonObject) -> Plan | None:
    """A suspended job is started once it is admitted; until then its Workload follows its queue."""
    job: JsonObject = case.job or {}
    if is_admitted(workload) and members.awaits_start(case):
        if not is_active(workload):
            return NOTHING
        # Each member has room of its own beside those that run; anything else starts as a whole.
        still_stops = case.composition is None and case.integration.is_active(job)
        return NOTHING if still_stops else _start(case, workload)
    if not case.integration.is_suspended(job, case.names):
        return None
    if is_reserved(workload):
        return _tell_pending_checks(case, workload)
    if stopping := unadmitted_jobs.stop_unadmitted(case, workload):
        return stopping
    if is_served_workload(workload, case.names):
        return NOTHING
    if case.queue_name != value_at(workload, ("spec", "queueName"), ""):
        if not case.queue_name and prebuilt_name(case):
            # Whoever made the Workload has said where it queues.
            return NOTHING
        patch = {"spec": {"queueName": case.queue_name or None}}
        return plan(Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN))
    return NOTHING


def _start(case: JobCase, workload: JsonObject) -> Plan | None:
    if incomplete := workload_sync.incomplete(case):
        return incomplete
    try:
        return start_stop.start(case, workload)
    except InjectionConflict as conflict:
        return quota_release.finish(case, workload, Reason.FAILED_TO_START, str(conflict))
    except FlavorMissing as missing:
        remedy = f"create it, or set spec.active of Workload {name_of(workload)} to false"
        tell = case.tell("ErrWorkloadCompose", f"{missing}: {remedy}", warning=True)
        return plan(tell, again=MISSING_FLAVOR_RETRY_SECONDS)


def _tell_pending_checks(case: JobCase, workload: JsonObject) -> Plan:
    pending = [
        f"{check['name']}: {check['message']}"
        for check in value_at(workload, ("status", "admissionChecks"), [])
        if check.get("state") == "Pending" and check.get("message")
    ]
    return plan(case.tell("UpdatedAdmissionCheck", "; ".join(pending))) if pending else NOTHING


BEFORE_MATCHING: Final[tuple[Callable[[JobCase], Plan | None], ...]] = (
    quota_release.gone,
    _elsewhere,
    _skipped,
    _nested,
    _unmanaged,
    prebuilt_workloads.adopt,
    prebuilt_workloads.refuse_group,
    members.name_taken,
    members.excess,
)

AFTER_MATCHING: Final[tuple[Callable[[JobCase, JsonObject], Plan | None], ...]] = (
    quota_release.out_of_sync,
    members.awaited,
    quota_release.workload_finished,
    quota_release.workload_deleted,
    members.owners,
    quota_release.on_hold,
    quota_release.job_finished,
    members.replaced,
    unadmitted_jobs.end_begun_stop,
    _priority_changed,
    _gates_lifted,
    _reclaim,
    _pods_ready,
    quota_release.evicted,
    _suspended,
    unadmitted_jobs.stop_running,
)
"""In the order in which they are asked."""
