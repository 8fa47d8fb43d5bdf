"""What is to be done about a job now: a chain of steps, of which the first with something to do decides.

Whatever a step writes leads to the next decision, so that a step need not think of those behind it. The
order is that of the reference: who is not ours, what has ended, what must stop, what may start.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from admitq.controllers import outliving
from admitq.controllers.job import excess, members, prebuilt, reclaim, running, slices
from admitq.controllers.job.case import CONCERN, JobCase, concern_of, name_of, seconds
from admitq.controllers.job.matching import (
    Match,
    is_comparable,
    is_equivalent,
    match_of,
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
    Tell,
    has_finalizer,
    plan,
    status_patch,
)
from admitq.controllers.workload import told
from admitq.core.model import Instant, ObjectKey
from admitq.integrations.base import Step, members_of
from admitq.integrations.ownership import is_of_pod_alone, is_served
from admitq.integrations.paths import Object, value_at
from admitq.job_workloads import (
    PriorityClassMissing,
    Unfit,
    WithoutPodSets,
    priority_update,
    spec_update,
    without_lifted_gates,
)
from admitq.podsets import Conflict, FlavorMissing
from admitq.transitions import (
    condition,
    holds,
    holds_quota,
    is_active,
    is_admitted,
    is_on_hold,
    is_over,
    is_reserved,
    since,
)
from admitq_api.conditions import SECOND, ConditionType, Reason, parse_time

MISSING_FLAVOR_RETRY_SECONDS: Final = 1.0


def decide(case: JobCase) -> Plan:
    """What is to be done about a job now."""
    for step in BEFORE_MATCHING:
        decided = step(case)
        if decided is not None:
            return decided
    refusal: Tell | None = None
    try:
        if sliced := slices.settle(case):
            return sliced
    except (PriorityClassMissing, Unfit) as refused:
        # What cannot grow is stopped all the same when it has to be.
        refusal = case.tell(refused.reason, str(refused), warning=True)
    match = _match_of(case)
    if match.workload is None:
        return _without_workload(case, match)
    if match.others and (decided := _delete_others(case, match.others)):
        return decided
    following = (step(case, match.workload) for step in AFTER_MATCHING)
    decided = next((one for one in following if one is not None), NOTHING)
    if decided.actions:
        return decided
    return plan(refusal or _class_missing(case, match.workload), again=decided.again)


def refuse_group(case: JobCase) -> Plan:
    """Report to pods that the Workload they name as their group is not theirs; end those that run."""
    return _gone(case) or excess.stop_without_prebuilt(case) or members.name_taken(case) or NOTHING


def _match_of(case: JobCase) -> Match:
    if prebuilt_name(case):
        return prebuilt.match_of(case)
    return slices.match_of(case) if slices.is_elastic(case) else match_of(case)


# --- whose job it is ------------------------------------------------------------------------------


def _release(case: JobCase, workload: Object) -> tuple[Action | None, ...]:
    """The next thing to do with a Workload whose job is gone; none is released while its pods can run."""
    found = case.outliving.get(workload["metadata"]["uid"], ())
    stopped = outliving.stop_excess(workload, found, case.names, case.settings)
    if found and outliving.may_have_pods(workload):
        return (*stopped, _report_outliving(case, workload))
    if stopped:
        return tuple(stopped)
    is_requeued = _is_evicted_with_its_pod(case, workload) or _is_evicted_without_pods(case, workload)
    if is_requeued and (returned := _requeue(case, workload)):
        return returned.actions
    if case.settings.finish_orphaned and not holds(workload, ConditionType.FINISHED):
        transition = case.begin(workload)
        outliving.withdraw(transition)
        transition.finish(Reason.OWNER_NOT_FOUND, "The workload's owner no longer exists")
        write = status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)
        return (write,)
    if has_finalizer(workload, case.names.finalizer):
        return (RemoveFinalizer(case.kinds.workloads, workload),)
    return ()


def _report_outliving(case: JobCase, workload: Object) -> Action | None:
    transition = case.begin(workload)
    outliving.report(transition, case.outliving[workload["metadata"]["uid"]])
    return status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)


def _after_pods(case: JobCase, workload: Object, freeing: Plan | None) -> Plan | None:
    """The plan, which frees the quota of a Workload, once no pod of the Workload can run.

    The status of a job says little of pods that take long to end, or that its controller does not delete.
    Members of a composed job are known one by one.
    """
    if freeing is None or case.composition is not None or not outliving.may_have_pods(workload):
        return freeing
    if case.is_outlived(workload):
        return plan(_report_outliving(case, workload), again=outliving.next_look(workload, case.now))
    return replace(freeing, frees=(*freeing.frees, workload))


def _is_evicted_with_its_pod(case: JobCase, workload: Object) -> bool:
    """Whether an eviction has deleted the single pod for which the Workload holds quota."""
    is_evicted = holds(workload, ConditionType.EVICTED) and is_reserved(workload) and not is_over(workload)
    return is_evicted and case.job is not None and is_of_pod_alone(workload)


def _is_evicted_without_pods(case: JobCase, workload: Object) -> bool:
    """Whether the Workload of a group was evicted that has no pods yet: no job has to stop first."""
    return case.job is None and members.is_evicted_before_first(workload, case.names)


def _gone(case: JobCase) -> Plan | None:
    """Workloads of jobs that are gone, or going, are finished and freed; unless pods outlive the job."""
    released = plan(
        *(action for one in case.without_job for action in _release(case, one)),
        *(members.freed(case) if case.is_going else ()),
    )
    return released if case.is_going or released.actions else None


def _elsewhere(case: JobCase) -> Plan | None:
    """Namespaces that are not selected are left alone, but for what has quota from before: it is to end."""
    return None if case.namespace_matches or _holds_quota(case) else NOTHING


def _holds_quota(case: JobCase) -> bool:
    return any(holds_quota(one) for one in case.owned)


def _skipped(case: JobCase) -> Plan | None:
    """A job of a kind that we manage, but that makes no pods, needs no Workload.

    One that has quota may still run what it was before it changed, and is stopped like any other.
    """
    is_skipped = case.integration.is_skipped(case.job or {}) and not _holds_quota(case)
    return _without_waiting(case) if is_skipped else None


def _nested(case: JobCase) -> Plan | None:
    """A job inside a queued job runs when that one is admitted, and is not queued itself.

    If it was before, it would hold quota that the other one has for it. One that has ended is left as it is:
    there is nothing to stop, and the API server refuses to.
    """
    if case.ancestor is None:
        return None
    if case.ancestor.admitted or case.job is None or case.integration.finished(case.job) is not None:
        return _without_waiting(case)
    return excess.stop_child(case) or _without_waiting(case)


def _unmanaged(case: JobCase) -> Plan | None:
    """Without a queue name a job is left alone, unless quota is already reserved for it.

    What waits for it would hold quota for nothing, and goes; but not if whoever made it would make it again.
    """
    if case.queue_name or case.settings.without_queue_name:
        return None
    is_kept = _holds_quota(case) or any(is_served(one, case.names) for one in case.owned)
    return None if is_kept else _without_waiting(case)


def _without_waiting(case: JobCase) -> Plan:
    """Nothing is left that stands for the job, but for what has ended."""
    waiting = [one for one in case.owned if not holds(one, ConditionType.FINISHED)]
    return plan(*(action for one in waiting for action in _deletion(case, one)))


# --- a Workload for each job ----------------------------------------------------------------------


def _deletion(case: JobCase, workload: Object) -> tuple[Action, ...]:
    """Delete a Workload, and let it go only then: one that has changed in the meantime stays held."""
    workloads = case.kinds.workloads
    if "deletionTimestamp" in workload["metadata"]:
        has = has_finalizer(workload, case.names.finalizer)
        return (RemoveFinalizer(workloads, workload),) if has else ()
    note = f"Deleted not matching Workload: {name_of(workload)}"
    return (
        Delete(workloads, workload, as_seen=True),
        # Told before it is let go: where that meets another writer, the next decision finds it deleted.
        case.tell("DeletedWorkload", note),
        RemoveFinalizer(workloads, workload),
    )


def _delete_others(case: JobCase, others: list[Object]) -> Plan | None:
    decided = plan(*(action for one in others for action in _deletion(case, one)))
    return decided if decided.actions else None


def _delete_stopped(case: JobCase, others: list[Object]) -> Plan | None:
    """Delete Workloads of a job that has stopped, each once its pods have ended."""
    decided = _delete_others(case, others)
    for one in others:
        decided = _after_pods(case, one, decided)
        if case.is_outlived(one):
            break
    return decided


def _without_workload(case: JobCase, match: Match) -> Plan:
    """No Workload stands for the job as it is: stop it, or bring one about."""
    job: Object = case.job or {}
    if case.integration.finished(job) is not None:
        return plan(*members.freed(case))
    if not match.others and (forgotten := members.forgotten(case)):
        return forgotten
    if prebuilt_name(case):
        stopping = excess.stop_without_prebuilt(case)
        others = None if case.integration.is_active(job) else _delete_stopped(case, match.others)
        return stopping or others or plan(prebuilt.refusal(case))
    if not case.integration.is_suspended(job, case.names):
        if slices.is_elastic(case) and not match.others and not case.namespace_ends:
            return _incomplete(case) or _create(case)
        return excess.stop_unmatched(case, match.others) or NOTHING
    if match.others:
        return _unmarked(case, match.others) or _replace(case, match.others)
    if case.namespace_ends or case.integration.is_active(job):
        return NOTHING
    return _incomplete(case) or _create(case)


def _incomplete(case: JobCase) -> Plan | None:
    """Tell what is missing without which nobody knows the job's pods; its coming brings us back."""
    required = [one for one in case.missing if case.integration.requires(one)]
    if not required:
        return None
    missing = ", ".join(map(str, required))
    note = f"{missing} not found: create it, or name another one in a new job"
    return plan(case.tell("ErrWorkloadCompose", note, warning=True))


def _unmarked(case: JobCase, others: list[Object]) -> Plan | None:
    """Restore a suspended job that still has what an admission gave it, before its Workload follows it.

    Otherwise the Workload would request the nodes of a former flavor, as if the job's author had chosen them.
    """
    first, *rest = others
    if rest or running.is_marked_workload(case, first):
        return None
    return running.stop(case, first, "", running.NO_MATCHING_WORKLOAD)


def _replace(case: JobCase, others: list[Object]) -> Plan:
    """A Workload that does not match is made to, where it holds no quota; else it goes with its quota."""
    first, *rest = others
    if not is_reserved(first) and not is_over(first):
        return _delete_others(case, rest) or _update(case, first)
    if case.integration.is_active(case.job or {}):
        return NOTHING
    return _delete_stopped(case, others) or NOTHING


def _update(case: JobCase, workload: Object) -> Plan:
    try:
        patch = spec_update(case, workload)
    except WithoutPodSets as problem:
        return _refused(case, problem, *_deletion(case, workload))
    except (PriorityClassMissing, Unfit) as missing:
        return plan(case.tell(missing.reason, str(missing), warning=True))
    note = f"Updated not matching Workload for suspended job: {name_of(workload)}"
    return plan(
        Patch(case.kinds.workloads, workload, (Step(patch),), CONCERN), case.tell("UpdatedWorkload", note)
    )


def without_outdated(case: JobCase, refused: Plan) -> Plan:
    """What is left to do where Workloads cannot be made to ask for what the job does now: they go.

    They would be admitted for pods that nobody wants any more. What has quota already keeps it for those that
    it stands for.
    """
    outdated = [
        one.obj
        for one in refused.actions
        if isinstance(one, Patch) and one.resource == case.kinds.workloads and not is_reserved(one.obj)
    ]
    return plan(*(action for one in outdated for action in _deletion(case, one)))


def _refused(case: JobCase, problem: Unfit, *actions: Action) -> Plan:
    """Report on the job why no Workload can stand for it until it changes."""
    reported = plan(case.tell(problem.reason, str(problem), warning=True), *actions)
    return replace(reported, refusal=str(problem))


def _create(case: JobCase) -> Plan:
    try:
        workload = slices.made(case)
    except WithoutPodSets as problem:
        return _refused(case, problem)
    except (PriorityClassMissing, Unfit) as missing:
        return plan(case.tell(missing.reason, str(missing), warning=True))
    metadata = (case.job or {})["metadata"]
    counted = case.settings.creation_latency and metadata.get("generation", 1) == 1
    since_creation = seconds(parse_time(metadata["creationTimestamp"]), case.now)
    kind = f"{case.integration.kind}.{case.integration.group}"
    queue = ObjectKey(metadata.get("namespace", ""), value_at(workload, ("spec", "queueName"), ""))
    return plan(
        Create(case.kinds.workloads, workload, CONCERN),
        case.tell("CreatedWorkload", f"Created Workload: {name_of(workload)}"),
        Count(lambda metrics, _: metrics.workload_created(kind, since_creation, queue)) if counted else None,
    )


# --- ends -----------------------------------------------------------------------------------------


def _out_of_sync(case: JobCase, workload: Object) -> Plan | None:
    """A prebuilt Workload that asks for something else than its job ends."""
    if not prebuilt_name(case) or is_over(workload) or not is_comparable(case):
        return None
    if is_equivalent(case, workload):
        return None
    message = "The prebuilt workload is out of sync with its user job"
    if case.composition is None and is_admitted(workload):
        if stopping := running.stop(case, None, message, running.NO_MATCHING_WORKLOAD):
            return excess.with_excess(case, workload, stopping)
        if case.integration.is_active(case.job or {}):
            return NOTHING
    return _after_pods(case, workload, _finish(case, workload, Reason.OUT_OF_SYNC, message))


def _finish(case: JobCase, workload: Object, reason: Reason, message: str) -> Plan | None:
    transition = case.begin(workload)
    outliving.withdraw(transition)
    transition.finish(reason, message)
    return case.end(workload, transition)


def _workload_finished(case: JobCase, workload: Object) -> Plan | None:
    """A finished Workload is told of once, and freed."""
    if not holds(workload, ConditionType.FINISHED):
        return None
    if case.integration.finished(case.job or {}) is None and (
        stopping := running.stop(case, workload, "Workload is finished", running.WORKLOAD_FINISHED)
    ):
        return excess.with_excess(case, workload, stopping)
    if not has_finalizer(workload, case.names.finalizer):
        return plan(*members.freed(case))
    note = f"Workload '{name_of(workload)}' is declared finished"
    return plan(
        *members.freed(case),
        RemoveFinalizer(case.kinds.workloads, workload),
        case.tell("FinishedWorkload", note),
    )


def _workload_deleted(case: JobCase, workload: Object) -> Plan | None:
    """Who deletes the Workload stops the job; it goes when the job holds nothing any more."""
    if "deletionTimestamp" not in workload["metadata"]:
        return None
    job: Object = case.job or {}
    if case.integration.finished(job) is None:
        if stopping := running.stop(case, workload, "Workload is deleted", running.WORKLOAD_DELETED):
            return stopping
        if case.integration.is_active(job):
            return NOTHING
    if not has_finalizer(workload, case.names.finalizer):
        return plan(*members.freed(case))
    released = plan(*members.freed(case), RemoveFinalizer(case.kinds.workloads, workload))
    return _after_pods(case, workload, released)


def _on_hold(case: JobCase, workload: Object) -> Plan | None:
    """A job on hold keeps its Workload and no quota; afterwards it waits again.

    That a Workload is deactivated goes before, and is told by others.
    """
    if is_served(workload, case.names) or not is_active(workload):
        return None
    on_hold = case.integration.is_on_hold(case.job or {})
    if on_hold == is_on_hold(workload):
        return None
    transition = case.begin(workload)
    outliving.withdraw(transition)
    if on_hold:
        transition.release(Reason.ON_HOLD, "Job is on hold")
    else:
        transition.release(
            told(Reason.PENDING_EVALUATION, case.settings),
            "Workload no longer on hold; waiting for quota reservation",
        )
    return _after_pods(case, workload, case.end(workload, transition))


def _job_finished(case: JobCase, workload: Object) -> Plan | None:
    """The Workload ends as its job did."""
    ended = case.integration.finished(case.job or {})
    if ended is None:
        return None
    reason = Reason.SUCCEEDED if ended.success else Reason.FAILED
    finishing = _finish(case, workload, reason, ended.message) or NOTHING
    return finishing if case.integration.ends_after_pods else _after_pods(case, workload, finishing)


# --- while it lives -------------------------------------------------------------------------------


def _class_followed(case: JobCase, workload: Object) -> Plan | Tell | None:
    """What makes the Workload follow the label of the job's class, or tells that there is no such class."""
    if is_served(workload, case.names):
        return None
    try:
        patch = priority_update(case, workload, reserved=is_reserved(workload))
    except PriorityClassMissing as missing:
        return case.tell(missing.reason, str(missing), warning=True)
    if not patch:
        return None
    return plan(
        Patch(case.kinds.workloads, workload, (Step(patch),), CONCERN),
        case.tell("UpdatedWorkload", f"Updated workload priority class: {name_of(workload)}"),
    )


def _priority_changed(case: JobCase, workload: Object) -> Plan | None:
    """Have the Workload follow the job's class, and so those slices of an elastic job that wait beside it.

    A class that is not there changes nothing: least of all may it keep a job from being stopped.
    """
    others = (one for one in case.owned if one is not workload and not is_over(one))
    following = (_class_followed(case, one) for one in (workload, *others))
    return next((one for one in following if isinstance(one, Plan)), None)


def _class_missing(case: JobCase, workload: Object) -> Tell | None:
    """Tell that the class is not there which the Workload should follow."""
    followed = None if is_over(workload) else _class_followed(case, workload)
    return followed if isinstance(followed, Tell) else None


def _gates_lifted(case: JobCase, workload: Object) -> Plan | None:
    """An admission gate that is taken off the job is taken off its Workload; of a group, off all its pods."""
    if prebuilt_name(case) or is_served(workload, case.names):
        return None
    job = case.job or {}
    patch = without_lifted_gates(workload, members_of(job) or (job,), case.names)
    return plan(Patch(case.kinds.workloads, workload, (Step(patch),), CONCERN)) if patch else None


def _reclaim(case: JobCase, workload: Object) -> Plan | None:
    """Report pods that need no successor: they give their quota back.

    Under a reservation the counts only grow. Those of an elastic job that has the size of its slice are
    derived from the job alone: a scale-down may have removed pods that were counted.
    """
    if not reclaim.is_reported(case):
        return None
    reclaimable = case.integration.reclaimable(case.job or {})
    is_derived = slices.has_size_of_job(case, workload)
    if reclaimable is None and not is_derived:
        return None
    before = reclaim.reported_counts(workload)
    only_grows = is_reserved(workload) and not is_derived
    counts: dict[str, int] = {}
    for pod_set in value_at(workload, ("spec", "podSets"), []):
        name = pod_set.get("name", "main")
        count = min((reclaimable or {}).get(name, 0), pod_set.get("count", 1))
        counts[name] = max(count, before.get(name, 0)) if only_grows else count
    return reclaim.report(case, workload, counts)


def _pods_ready(case: JobCase, workload: Object) -> Plan | None:
    """Tell whether the pods of an admission are ready; of an eviction nobody needs to hear it."""
    if case.settings.pods_ready is None or slices.is_growing(case):
        # Pods that have no quota yet are not expected to be ready.
        return None
    if holds(workload, ConditionType.EVICTED) and is_reserved(workload):
        return None
    job: Object = case.job or {}
    ready = not case.integration.is_suspended(job, case.names) and case.integration.pods_ready(job)
    transition = case.begin(workload)
    transition.pods_ready(admitted=is_admitted(workload), ready=ready)
    return case.end(workload, transition, concern=concern_of(ConditionType.PODS_READY))


def _evicted(case: JobCase, workload: Object) -> Plan | None:
    """An eviction stops the job; when nothing runs any more its quota is free."""
    evicted = condition(workload, ConditionType.EVICTED)
    if evicted is None or evicted.get("status") != "True":
        return None
    reason: str = evicted.get("reason", "")
    if stopping := running.stop(case, workload, evicted.get("message", ""), running.evicted_due_to(reason)):
        return excess.with_excess(case, workload, stopping)
    if is_reserved(workload):
        if case.integration.is_active(case.job or {}):
            return NOTHING
        return _after_pods(case, workload, _requeue(case, workload))
    return _retention_over(case, workload, reason)


def _half_stopped(case: JobCase, workload: Object) -> Plan | None:
    """A stop that was begun is ended, whatever has been decided since."""
    if not case.integration.is_half_stopped(case.job or {}, case.names):
        return None
    return running.stop(case, workload, "", running.NOT_ADMITTED)


def _requeue(case: JobCase, workload: Object) -> Plan | None:
    """The quota of an eviction is given back.

    A pod alone that was started is deleted, and its Workload ends with it: until then it competes again only
    where the feature gate SkipReassignmentForPodOwnedWorkloads is off. One that is still held competes again
    whatever that says: it can be started, and nobody would make another in its place.
    """
    transition = case.begin(workload)
    outliving.withdraw(transition)
    ends = is_of_pod_alone(workload) and case.job is not None and "deletionTimestamp" in case.job["metadata"]
    stays_out = ends and case.settings.skips_reassignment_of_pods
    transition.requeue(told(Reason.PENDING_EVALUATION, case.settings), may_return=not stays_out)
    return case.end(workload, transition)


def _retention_over(case: JobCase, workload: Object, reason: str) -> Plan | None:
    """A job that was deactivated for a cause, not by hand, is deleted after a while, if so configured.

    So are all members of one that is put together, and let go.
    """
    if is_served(workload, case.names):
        # Whoever made the members would make them again.
        return None
    retention = case.settings.retention_of_deactivated
    evicted_at = since(workload, ConditionType.EVICTED)
    if retention is None or evicted_at is None or not reason.startswith("DeactivatedDueTo"):
        return None
    if is_active(workload) or _was_returned_since(workload, evicted_at):
        # What was reactivated since, and is not active, was deactivated by hand.
        return None
    if evicted_at + retention > case.now:
        return Plan(again=(evicted_at + retention - case.now) / SECOND)
    note = "Deleted job: deactivation retention period expired"
    going = [one for one in case.objects if "deletionTimestamp" not in one["metadata"]]
    # Nobody waits for others in the place of members that were ended, whom that would keep.
    actions = (*(Delete(case.resource, one) for one in going), *members.freed(case))
    return plan(*actions, case.tell("Deleted", note)) if actions else NOTHING


def _was_returned_since(workload: Object, evicted_at: Instant) -> bool:
    """Whether the Workload was requeued after an eviction, by admitq or by another program."""
    requeued = condition(workload, ConditionType.REQUEUED) or {}
    returned_at = since(workload, ConditionType.REQUEUED) if requeued.get("status") == "True" else None
    is_later = returned_at is not None and returned_at > evicted_at
    return is_later or requeued.get("reason") == Reason.REACTIVATED


def _suspended(case: JobCase, workload: Object) -> Plan | None:
    """A suspended job is started once it is admitted; until then its Workload follows its queue."""
    job: Object = case.job or {}
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
    if stopping := excess.stop_unadmitted(case, workload):
        return stopping
    if is_served(workload, case.names):
        return NOTHING
    if case.queue_name != value_at(workload, ("spec", "queueName"), ""):
        if not case.queue_name and prebuilt_name(case):
            # Whoever made the Workload has said where it queues.
            return NOTHING
        patch = {"spec": {"queueName": case.queue_name or None}}
        return plan(Patch(case.kinds.workloads, workload, (Step(patch),), CONCERN))
    return NOTHING


def _start(case: JobCase, workload: Object) -> Plan | None:
    if incomplete := _incomplete(case):
        return incomplete
    try:
        return running.start(case, workload)
    except Conflict as conflict:
        return _finish(case, workload, Reason.FAILED_TO_START, str(conflict))
    except FlavorMissing as missing:
        remedy = f"create it, or set spec.active of Workload {name_of(workload)} to false"
        tell = case.tell("ErrWorkloadCompose", f"{missing}: {remedy}", warning=True)
        return plan(tell, again=MISSING_FLAVOR_RETRY_SECONDS)


def _tell_pending_checks(case: JobCase, workload: Object) -> Plan:
    pending = [
        f"{check['name']}: {check['message']}"
        for check in value_at(workload, ("status", "admissionChecks"), [])
        if check.get("state") == "Pending" and check.get("message")
    ]
    return plan(case.tell("UpdatedAdmissionCheck", "; ".join(pending))) if pending else NOTHING


BEFORE_MATCHING: Final[tuple[Callable[[JobCase], Plan | None], ...]] = (
    _gone,
    _elsewhere,
    _skipped,
    _nested,
    _unmanaged,
    prebuilt.adopt,
    prebuilt.refuse_group,
    members.name_taken,
    members.excess,
)

AFTER_MATCHING: Final[tuple[Callable[[JobCase, Object], Plan | None], ...]] = (
    _out_of_sync,
    members.awaited,
    _workload_finished,
    _workload_deleted,
    members.owners,
    _on_hold,
    _job_finished,
    members.replaced,
    _half_stopped,
    _priority_changed,
    _gates_lifted,
    _reclaim,
    _pods_ready,
    _evicted,
    _suspended,
    excess.stop_running,
)
"""In the order in which they are asked."""
