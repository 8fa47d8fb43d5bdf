"""Prebuilt Workloads: a job may name an existing Workload instead of getting a new one."""

from enum import Enum, auto
from typing import Any

from admitq.controllers.job import unadmitted_jobs
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.job.matching import WorkloadMatch, is_comparable, is_equivalent, prebuilt_name
from admitq.controllers.plan import ActionPlan, Patch, RecordEvent, plan_of
from admitq.integrations.base import PatchStep, list_members
from admitq.integrations.ownership import get_controller, has_other_owner, is_served_workload
from admitq.workloads.job_workloads import job_uid_label, owner_references
from admitq.workloads.transitions import is_finished_or_deleting
from admitq_api.json_objects import JsonObject, select_fields, value_at


class PrebuiltClaim(Enum):
    """What a job may do with the prebuilt Workload that it names."""

    OWNED = auto()
    """The Workload already belongs to the job."""
    FREE = auto()
    """The Workload belongs to no object, and its podsets equal those of the job. The job adopts it."""
    FOREIGN = auto()
    """The Workload belongs to another object. The job must not change it."""
    DIFFERENT = auto()
    """The Workload belongs to no object, and its podsets differ from those of the job."""
    UNKNOWN = auto()
    """The pods of the job are unknown now, so that nothing can be compared."""


def get_claim(case: JobCase, workload: JsonObject) -> PrebuiltClaim:
    """Return what the job may do with the Workload that it names."""
    uid = str(value_at(case.job, ("metadata", "uid"), ""))
    controller = get_controller(workload)
    if controller is not None:
        return PrebuiltClaim.OWNED if controller.get("uid") == uid else PrebuiltClaim.FOREIGN
    is_marked = value_at(workload, ("metadata", "annotations", case.names.is_group_workload)) == "true"
    if is_marked or is_served_workload(workload, case.names) or has_other_owner(workload, {uid}, case.names):
        return PrebuiltClaim.FOREIGN
    if has_other_owner(workload, set(), case.names):
        # All owner references and the label name this job, so the job has adopted the Workload before.
        return PrebuiltClaim.OWNED
    if not is_comparable(case):
        return PrebuiltClaim.UNKNOWN
    return PrebuiltClaim.FREE if is_equivalent(case, workload) else PrebuiltClaim.DIFFERENT


def _find_prebuilt_workload(case: JobCase) -> JsonObject | None:
    name = "" if case.group else prebuilt_name(case)
    return case.lookups.workload(name) if name else None


def match_prebuilt_workload(case: JobCase) -> WorkloadMatch:
    """Match a job with the prebuilt Workload that it names, if the job may use it."""
    prebuilt = case.lookups.workload(prebuilt_name(case))
    is_claimed = prebuilt is not None and (
        get_controller(prebuilt) is None
        if case.group
        else get_claim(case, prebuilt) in (PrebuiltClaim.OWNED, PrebuiltClaim.FREE)
    )
    match = prebuilt if is_claimed else None
    name = None if match is None else match["metadata"]["name"]
    return WorkloadMatch(match, [workload for workload in case.owned if workload["metadata"]["name"] != name])


def adopt(case: JobCase) -> ActionPlan | None:
    """Make the job the controller of its prebuilt Workload, and write the UID of the job into a label.

    Another program may have written only a part: an owner reference that is not the controller, or no label.
    """
    workload = _find_prebuilt_workload(case)
    if (
        workload is None
        or is_finished_or_deleting(workload)
        or get_claim(case, workload) not in (PrebuiltClaim.OWNED, PrebuiltClaim.FREE)
    ):
        return None
    metadata: dict[str, Any] = {}
    if get_controller(workload) is None:
        metadata["ownerReferences"] = owner_references(case)
    label = job_uid_label(case)
    if label != select_fields(value_at(workload, ("metadata", "labels"), {}), label):
        metadata["labels"] = label
    if not metadata:
        return None
    return plan_of(Patch(case.kinds.workloads, workload, (PatchStep({"metadata": metadata}),), CONCERN))


def prebuilt_problem_event(case: JobCase) -> RecordEvent | None:
    """Return the event on a job that may not use the Workload that it names; None if it may."""
    workload = _find_prebuilt_workload(case)
    if workload is None:
        return None
    name = workload["metadata"]["name"]
    claim = get_claim(case, workload)
    if claim is PrebuiltClaim.FOREIGN:
        note = f"Workload {name} exists already and belongs to something else"
        return case.event("ErrWorkloadCompose", note, warning=True)
    return _out_of_sync_event(case) if claim is PrebuiltClaim.DIFFERENT else None


def _out_of_sync_event(case: JobCase) -> RecordEvent:
    note = "The prebuilt workload is out of sync with its user job"
    return case.event("ErrWorkloadCompose", note, warning=True)


def stop_mismatched_group(case: JobCase) -> ActionPlan | None:
    """Stop a pod group if its Workload is not yet its own and its podsets do not fit the pods."""
    if not case.group or not prebuilt_name(case) or not is_comparable(case):
        return None
    uids = {str(member["metadata"].get("uid", "")) for member in list_members(case.job or {})}
    for workload in case.workloads:
        references = value_at(workload, ("metadata", "ownerReferences"), [])
        is_owned = any(reference.get("uid") in uids for reference in references)
        if is_owned or is_finished_or_deleting(workload) or is_equivalent(case, workload):
            continue
        return unadmitted_jobs.stop_without_prebuilt(case) or plan_of(_out_of_sync_event(case))
    return None
