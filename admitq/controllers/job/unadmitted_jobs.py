"""Stops jobs that run without an admission or with more pods than admitted, and counts the excess pods.

Events report each stop. The metric counts the pods that the job could run at that moment beyond those for
which quota is reserved.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from admitq.controllers.job import start_stop, workload_slices
from admitq.controllers.job.case import JobCase
from admitq.controllers.job.matching import find_increases
from admitq.controllers.plan import Action, ActionPlan, Delete, Patch, RecordEvent, RecordMetric, plan_of
from admitq.controllers.pods.excess_pods import kind_label, record_excess_pods
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_queue_name
from admitq.workloads.transitions import is_admitted, is_condition_true, is_reserved
from admitq_api.conditions import SECOND, ConditionType, parse_time
from admitq_api.json_objects import JsonObject

STARTED_BY_OTHERS: Final = "Started before it was admitted"
SECONDS_FOR_QUOTA: Final = 2
"""How long an elastic job may run without quota after the creation of its Workload.

Creation times have whole seconds, so the real limit is between one and two seconds.
"""
RESUMED_WITHIN_SECONDS: Final = 1.0
"""When to look again whether an admitted ancestor is resumed."""


# --- what is stopped ------------------------------------------------------------------------------


def stop_unadmitted_run(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Stop a job that runs without an admission, or that another program started.

    A running elastic job keeps its pods while admission checks of its next slice are pending. A job that
    another program started before its admission has pods without the injected fields.
    """
    admitted = is_admitted(workload)
    if not workload_slices.is_elastic(case):
        if admitted and start_stop.is_started_by_others(case, workload):
            return start_stop.stop_job(case, workload, STARTED_BY_OTHERS, start_stop.NOT_ADMITTED)
        return None if admitted else stop_unadmitted(case, workload)
    if admitted:
        if start_stop.has_admission_marks(case):
            return None
        return start_stop.stop_job(case, workload, STARTED_BY_OTHERS, start_stop.NOT_ADMITTED)
    if is_reserved(workload) and start_stop.has_admission_marks(case):
        return None
    return _await_quota(case, workload) or stop_unadmitted(case, workload)


def _await_quota(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Wait a short time for the quota of a running elastic job's new Workload."""
    created = parse_time(workload["metadata"]["creationTimestamp"])
    remaining = created + SECONDS_FOR_QUOTA * SECOND - case.now
    return ActionPlan(requeue_after=remaining / SECOND) if remaining > 0 else None


def stop_unadmitted(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Stop a job without admitted Workload. Restore the templates of a suspended job."""
    message = "Not admitted by cluster queue"
    stopping = start_stop.stop_job(case, workload, message, start_stop.NOT_ADMITTED)
    return _as_unadmitted_stop(with_excess_report(case, workload, stopping))


def stop_unmatched(case: JobCase, others: list[JsonObject]) -> ActionPlan | None:
    """Stop a running job of which no Workload has the same podsets."""
    reason = start_stop.NO_MATCHING_WORKLOAD
    if len(others) == 1:
        message = "No matching Workload; restoring pod templates according to existent Workload"
        stopping = start_stop.stop_job(case, others[0], message, reason)
        return _as_unadmitted_stop(with_excess_report(case, others[0], stopping))
    stopping = start_stop.stop_job(case, None, "Missing Workload; unable to restore pod templates", reason)
    holding = next((workload for workload in others if is_reserved(workload)), None)
    return _as_unadmitted_stop(with_excess_report(case, holding, stopping))


def stop_without_prebuilt(case: JobCase) -> ActionPlan | None:
    """Stop a job if its prebuilt Workload does not exist or must not be used by the job."""
    stopping = start_stop.stop_job(case, None, "missing workload", start_stop.NO_MATCHING_WORKLOAD)
    return with_excess_report(case, None, stopping)


def stop_child(case: JobCase) -> ActionPlan | None:
    """Stop a job that runs although its ancestor is not admitted or does not cover its pods."""
    if case.ancestor is None or case.job is None:
        return None
    begun = case.integration.lifecycle.is_stop_in_progress(case.job, case.names)
    stopping = start_stop.stop_job(case, None, "", start_stop.NOT_ADMITTED)
    if stopping is None or begun:
        return stopping
    note = f"{case.names.product} managed child job suspended"
    if (difference := case.ancestor.difference) is not None:
        owner = case.ancestor.job
        note += f": its {difference} exceeds that of {owner.get('kind')} {owner['metadata']['name']}"
    reports: list[RecordEvent | RecordMetric] = [case.event("Suspended", note)]
    number = _number_of_pods(case) if difference is not None or not case.ancestor.holds_quota else 0
    if number:
        queue = get_queue_name(case.ancestor.job, case.names)
        reports.append(record_excess_pods(_workload_stub(case, queue), _kind_label(case), number))
    return _report_after_first_step(stopping, reports)


def delete_unresumed_child(case: JobCase) -> ActionPlan | None:
    """Delete a suspended job of a resumed ancestor with a controller that does not resume it.

    The controller creates it again.
    """
    if case.ancestor is None or case.job is None or not case.ancestor.keeps_children:
        return None
    if not case.integration.is_suspended(case.job, case.names):
        return None
    if case.ancestor.is_suspended:
        return ActionPlan(requeue_after=RESUMED_WITHIN_SECONDS)
    return plan_of(Delete(case.resource, case.job, as_seen=True))


def finish_begun_stop(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Finish a stop that has begun, whatever the state of the Workload is now."""
    if not case.integration.lifecycle.is_stop_in_progress(case.job or {}, case.names):
        return None
    return start_stop.stop_job(case, workload, "", start_stop.NOT_ADMITTED)


def _as_unadmitted_stop(stopping: ActionPlan | None) -> ActionPlan | None:
    """Return the plan, marked as the stop of a job without a known admission."""
    return None if stopping is None else replace(stopping, stops_unadmitted=True)


# --- what is reported -----------------------------------------------------------------------------


def with_excess_report(
    case: JobCase, workload: JsonObject | None, stopping: ActionPlan | None
) -> ActionPlan | None:
    """Return the stop of a job with a report of what the job runs beyond its admission.

    Args:
        case: the job before the stop.
        workload: the Workload with the job's quota, or the one that waits for quota; None if there is none.
        stopping: the stop. A stop that had begun before was reported at that time.
    """
    if stopping is None or not stopping.actions or _is_already_stopped(case):
        return stopping
    if workload is not None and is_reserved(workload):
        reports = _report_increases(case, workload)
    else:
        number = _pods_without_grant(case, workload, stopping.actions)
        source = _workload_stub(case, case.queue_name) if workload is None else workload
        reports = [record_excess_pods(source, _kind_label(case), number)] if number else []
    return _report_after_first_step(stopping, reports) if reports else stopping


def _is_already_stopped(case: JobCase) -> bool:
    job: JsonObject = case.job or {}
    if case.composition is not None:
        return False
    return case.integration.is_suspended(job, case.names) or case.integration.lifecycle.is_stop_in_progress(
        job, case.names
    )


def _report_increases(case: JobCase, workload: JsonObject) -> list[RecordEvent | RecordMetric]:
    """Return the report of what the job requests beyond its admission."""
    increases = find_increases(case, workload)
    if not increases:
        return []
    return [
        case.event("ExceedsAdmission", "; ".join(map(str, increases)), warning=True),
        record_excess_pods(
            workload, _kind_label(case), sum(increase.additional_pods for increase in increases)
        ),
    ]


def _pods_without_grant(case: JobCase, workload: JsonObject | None, actions: Iterable[Action]) -> int:
    """Count the pods that run or could run without reserved quota.

    After an eviction, or after the Workload finished, pods that the admission had started are not excess.
    The gate of an elastic job holds its pods.
    """
    is_over = workload is not None and any(
        is_condition_true(workload, type_) for type_ in (ConditionType.EVICTED, ConditionType.FINISHED)
    )
    if case.composition is not None:
        ended = (
            action.obj
            for action in actions
            if isinstance(action, Delete) and action.resource == case.resource
        )
        return sum(not (is_over and pods.get_label(pod, case.names.podset)) for pod in ended)
    if workload_slices.is_elastic(case) or (is_over and start_stop.has_admission_marks(case)):
        return 0
    return _number_of_pods(case)


def _number_of_pods(case: JobCase) -> int:
    """Return how many pods the job runs at a time."""
    return sum(pod_set.count for pod_set in case.integration.list_pod_sets(case.job or {}, case.names))


def _workload_stub(case: JobCase, queue: str) -> JsonObject:
    """Return the fields of a missing Workload that a metric needs: metadata and queue name."""
    return {"metadata": case.objects[0]["metadata"], "spec": {"queueName": queue}}


def _kind_label(case: JobCase) -> str:
    return kind_label(case.integration.group, case.integration.kind)


def _report_after_first_step(
    stopping: ActionPlan, reports: Iterable[RecordEvent | RecordMetric]
) -> ActionPlan:
    """Return the stop with all its reports recorded as soon as its first step is written.

    If a later step conflicts with another writer, the next decision finds a stop that has begun and reports
    nothing.
    """
    all_reports = (
        *(action for action in stopping.actions if isinstance(action, RecordEvent | RecordMetric)),
        *reports,
    )
    [*writes] = (action for action in stopping.actions if not isinstance(action, RecordEvent | RecordMetric))
    if len(writes) == 1 and isinstance(write := writes[0], Patch) and len(write.steps) > 1:
        return replace(stopping, actions=(replace(write, reports=all_reports),))
    return replace(stopping, actions=(*stopping.actions, *reports))
