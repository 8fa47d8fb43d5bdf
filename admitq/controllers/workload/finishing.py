"""The end of a Workload: orphaned, finished, replaced by another slice, deleted after its retention."""

from admitq.controllers.plan import (
    NO_ACTIONS,
    ActionPlan,
    Delete,
    Patch,
    RecordEvent,
    RemoveFinalizer,
    has_finalizer,
    plan_of,
    status_patch,
)
from admitq.controllers.pods import remaining_pods
from admitq.controllers.pods.remaining_pods import RemainingPods
from admitq.controllers.settings import ControllerSettings
from admitq.controllers.workload.case import CONCERN, WorkloadCase, WorkloadInputs
from admitq.core.model import Instant
from admitq.integrations.base import PatchStep
from admitq.translate import messages
from admitq.workloads.transitions import StatusTransition, is_condition_true
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names


def is_final(workload: JsonObject, names: Names, settings: ControllerSettings) -> bool:
    """Whether a Workload has finished, is kept without a time limit, and has not lost its owner.

    No step has anything to do for it, whatever the other inputs are.
    """
    metadata = workload["metadata"]
    return (
        settings.retention.after_finished is None
        and is_condition_true(workload, ConditionType.FINISHED)
        and "deletionTimestamp" not in metadata
        and (bool(metadata.get("ownerReferences")) or not _had_owner(workload, names))
    )


def _had_owner(workload: JsonObject, names: Names) -> bool:
    return bool(value_at(workload, ("metadata", "labels", names.job_uid)))


def remove_false_label(case: WorkloadCase) -> ActionPlan | None:
    """Remove the label of finished Workloads from one that has not finished, and report it.

    A manager that starts lists labelled Workloads last. Until then it would not count the quota of this one.
    """
    label = case.inputs.names.finished
    if case.is_true(ConditionType.FINISHED) or label not in value_at(
        case.workload, ("metadata", "labels"), {}
    ):
        return None
    note = f"Removed the label {label}, because the workload has not finished"
    return plan_of(
        Patch(
            case.inputs.kinds.workloads,
            case.workload,
            (PatchStep({"metadata": {"labels": {label: None}}}),),
            CONCERN,
        ),
        RecordEvent(case.workload, "Warning", "RemovedFinishedLabel", note),
    )


def is_orphan(workload: JsonObject, inputs: WorkloadInputs) -> bool:
    """Whether a Workload without an owner must end: it is deleted, or it had an owner before."""
    metadata = workload["metadata"]
    if metadata.get("ownerReferences") and not inputs.owners_gone:
        return False
    return "deletionTimestamp" in metadata or (
        inputs.settings.finish_orphaned and _had_owner(workload, inputs.names)
    )


def finish_orphan(case: WorkloadCase) -> ActionPlan | None:
    """Finish a Workload without an owner and remove its finalizer, once no pods outlive its job."""
    if not is_orphan(case.workload, case.inputs):
        return None
    if (
        case.inputs.remaining_pods
        and (plan := _handle_remaining_pods(case, case.inputs.remaining_pods)) is not None
    ):
        return plan
    deleting = "deletionTimestamp" in case.workload["metadata"]
    if case.settings.finish_orphaned and not case.is_true(ConditionType.FINISHED):
        transition = case.begin_transition()
        remaining_pods.drop_pods_outlive_job(transition)
        transition.finish(Reason.OWNER_NOT_FOUND, "The workload's owner no longer exists")
        return case.plan_transition(transition)
    if has_finalizer(case.workload, case.inputs.names.finalizer):
        return plan_of(RemoveFinalizer(case.inputs.kinds.workloads, case.workload))
    return NO_ACTIONS if deleting else None


def _handle_remaining_pods(case: WorkloadCase, remaining: RemainingPods) -> ActionPlan | None:
    """Stop excess pods of a job that no longer exists, and report the pods that remain."""
    inputs, workload = case.inputs, case.workload
    stopped = remaining_pods.delete_excess_remaining_pods(
        workload, remaining.listed, inputs.names, inputs.settings, inputs.slices
    )
    requeue_after = remaining_pods.next_check_seconds(workload, case.now)
    if not remaining_pods.may_have_pods(workload):
        return plan_of(*stopped, requeue_after=requeue_after) if stopped else None
    transition = case.begin_transition()
    remaining_pods.set_pods_outlive_job(transition, remaining)
    reported = case.plan_transition(transition) or NO_ACTIONS
    return plan_of(*stopped, *reported.actions, requeue_after=requeue_after)


def retain_or_delete_finished(case: WorkloadCase) -> ActionPlan | None:
    """Leave a finished Workload as it is until its retention ends, then delete it."""
    if not case.is_true(ConditionType.FINISHED):
        return None
    due = _retention_end(case)
    if due is None or due > case.now or "deletionTimestamp" in case.workload["metadata"]:
        return ActionPlan(requeue_after=case.seconds_until(due))
    workloads = case.inputs.kinds.workloads
    return plan_of(
        RemoveFinalizer(workloads, case.workload),
        Delete(workloads, case.workload),
        RecordEvent(case.workload, "Normal", "Deleted", "Deleted finished workload due to elapsed retention"),
    )


def _retention_end(case: WorkloadCase) -> Instant | None:
    finished_at = case.conditions.since(ConditionType.FINISHED)
    retention = case.settings.retention.after_finished
    return None if finished_at is None or retention is None else finished_at + retention


def finish_replaced_slice(case: WorkloadCase) -> ActionPlan | None:
    """Finish the slice that a slice with quota replaces. Its pods and its quota pass to the new slice.

    The write changes the replaced slice and causes no decision about this one. So the plan requests the next
    decision at once.
    """
    original = case.inputs.original
    if original is None or not case.is_reserved or is_condition_true(original, ConditionType.FINISHED):
        return None
    metadata, workloads = case.workload["metadata"], case.inputs.kinds.workloads
    message = messages.replaced_message(
        metadata["uid"], value_at(metadata, ("labels", case.inputs.names.job_uid), "")
    )
    transition = StatusTransition(original, case.now)
    transition.finish(Reason.WORKLOAD_SLICE_REPLACED, message)
    return plan_of(
        status_patch(workloads, original, transition.patch(), CONCERN),
        RecordEvent(original, "Normal", "WorkloadSliceReplaced", message),
        requeue_after=0.0,
    )
