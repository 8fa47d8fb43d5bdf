"""Operations on the members of a composed job, such as the pods of a group: start, stop, release.

Each step handles members one by one, and each write is guarded by the version that was read. The next
reconciliation resumes an interrupted step, because a step depends only on the present state of the
members. For a job of one object, most functions here do nothing (semantics, Pods and pod groups).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.plan import (
    NO_ACTIONS,
    Action,
    ActionPlan,
    Delete,
    Patch,
    RecordEvent,
    RemoveFinalizer,
    has_finalizer,
    plan_of,
    record_gate_wait,
)
from admitq.controllers.pods.excess_pods import kind_label, record_excess_pods
from admitq.integrations.base import Composition, PatchStep, get_group_name, list_members
from admitq.integrations.families import pods
from admitq.integrations.ownership import (
    get_controller,
    has_other_owner,
    is_group_workload,
    list_prebuilt_names,
)
from admitq.workloads.job_workloads import RoleMismatch, owner_references
from admitq.workloads.pod_charges import NO_CHARGE, PodCharge, granted_charges, pod_charge
from admitq.workloads.pod_counts import assigned_pod_counts, requested_pod_counts
from admitq.workloads.template_injection import inject_into_template, pod_set_infos
from admitq.workloads.transitions import (
    find_condition,
    is_condition_true,
    is_finished_or_deleting,
    is_reserved,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, create_merge_patch, value_at
from admitq_api.labels import Names


def _assigned_counts(workload: JsonObject) -> dict[str, int]:
    """Return the pods that the Workload was admitted with, by podset."""
    return requested_pod_counts(workload) | assigned_pod_counts(workload)


# --- started and ended ----------------------------------------------------------------------------


def awaits_start(case: JobCase) -> bool:
    """Whether any part of the job must still be started once the Workload is admitted."""
    job: JsonObject = case.job or {}
    if case.composition is None:
        return case.integration.is_suspended(job, case.names)
    return bool(case.composition.list_startable(job, None, case.names))


def start_members(case: JobCase, workload: JsonObject, note: str) -> ActionPlan:
    """Return the plan that starts the members for which there is room.

    Raises:
        InjectionConflict: the admission contradicts a member; a retry cannot succeed.
        FlavorMissing: an assigned flavor does not exist.
    """
    composition, job = case.composition, case.job or {}
    if composition is None:
        return NO_ACTIONS
    infos = {
        info.name: info
        for info in pod_set_infos(workload, case.lookups.flavor, case.names, case.settings.jobs.marks)
    }
    placed = _list_placed_pod_sets(workload) if case.settings.jobs.marks.topology else frozenset[str]()
    gates = (case.names.admission_gate, case.names.topology_gate)
    actions: list[Action] = []
    refused: list[Action] = []
    allowed = granted_charges(workload) if case.group else {}
    for member in composition.list_startable(job, _assigned_counts(workload), case.names):
        pod_set = composition.get_pod_set(job, member)
        if (info := infos.get(pod_set)) is None:
            continue
        if case.group and (more := _exceeded_resources(member, allowed.get(pod_set, NO_CHARGE))):
            note = (
                f"Not started: the pod requests more {more} than role '{pod_set}' of Workload "
                f"'{workload['metadata']['name']}' was admitted with; delete it, and create one that "
                "requests no more"
            )
            refused.append(RecordEvent(member, "Warning", RoleMismatch.reason, note))
            continue
        # A pod has its gates from the start: the API server rejects new ones.
        injected = inject_into_template(member, replace(info, scheduling_gates=()))
        released = composition.without_gates(injected, pod_set in placed, case.names)
        patch = PatchStep(create_merge_patch(member, released))
        lifted = [gate for gate in gates if pods.has_gate(member, gate) and not pods.has_gate(released, gate)]
        actions += (
            Patch(case.resource, member, (patch,), CONCERN),
            RecordEvent(member, "Normal", "Started", note),
            *(
                record_gate_wait(gate, member, workload, case.now, is_group=bool(case.group))
                for gate in lifted
            ),
        )
    return plan_of(*actions, *refused, started_workload=workload if actions else None)


def _list_placed_pod_sets(workload: JsonObject) -> frozenset[str]:
    """Return the podsets with a topology assignment, or with a delayed one."""
    return frozenset(
        assignment.get("name", "main")
        for assignment in value_at(workload, ("status", "admission", "podSetAssignments"), [])
        if assignment.get("topologyAssignment") or assignment.get("delayedTopologyRequest")
    )


def _exceeded_resources(member: JsonObject, charged: PodCharge) -> str:
    """Return the resources of which a member requests more than its podset was admitted with."""
    return ", ".join(pod_charge(value_at(member, ("spec",), {})).resources_above(charged))


def stop_members(case: JobCase, message: str, reason: str, *, everyone: bool) -> ActionPlan | None:
    """Return the plan that deletes members and reports the reason; None if none must be stopped."""
    composition = case.composition
    if composition is None:
        return None
    actions: list[Action] = []
    for member in composition.list_stoppable(case.job or {}, everyone, case.names):
        condemned = composition.mark_for_termination(member, reason, message, case.now)
        if patch := create_merge_patch(member, condemned):
            actions.append(Patch(case.resource, member, (PatchStep(patch, "status"),), CONCERN))
        actions += (Delete(case.resource, member), RecordEvent(member, "Normal", "Stopped", message))
    return plan_of(*actions) if actions else None


# --- release --------------------------------------------------------------------------------------


def _finalizer_removals(
    case: JobCase, composition: Composition, members: Iterable[JsonObject]
) -> tuple[Action, ...]:
    finalizer = composition.get_finalizer(case.names)
    return tuple(
        RemoveFinalizer(case.resource, member, finalizer)
        for member in members
        if has_finalizer(member, finalizer)
    )


def release_all_members(case: JobCase) -> tuple[Action, ...]:
    """Return the actions that remove our finalizer from all members. No pod counts against quota any more."""
    return () if case.composition is None else _finalizer_removals(case, case.composition, case.objects)


def release_ended_members(case: JobCase) -> ActionPlan | None:
    """Remove the finalizer of members that have ended, if there is no Workload that could count them."""
    if case.composition is None:
        return None
    ended = case.composition.list_replaced(case.job or {}, {}, case.names)
    return plan_of(*_finalizer_removals(case, case.composition, ended)) if ended else None


def release_replaced_members(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Remove the finalizer of ended members that have replacements."""
    if case.composition is None or not case.group:
        return None
    ended = case.composition.list_replaced(case.job or {}, requested_pod_counts(workload), case.names)
    return plan_of(*_finalizer_removals(case, case.composition, ended)) if ended else None


# --- a group and its Workload ---------------------------------------------------------------------


def find_group_workload(
    job: JsonObject,
    candidate: JsonObject | None,
    names: Names,
    *,
    validate: bool,
    by_annotation: bool = True,
) -> JsonObject | None:
    """Return the Workload with the name of the group, if it belongs to the group.

    It belongs to the group if it was created for a group. It also belongs to the group if the pods name it
    and no other object owns it. Without validation, the pods need not name it.
    """
    if candidate is None or is_group_workload(candidate, names):
        return candidate
    named = {name for _, name in list_prebuilt_names(job, names, by_annotation=by_annotation)}
    is_claimed = not validate or get_group_name(job) in named
    uids = {value_at(member, ("metadata", "uid")) for member in list_members(job)}
    references = value_at(candidate, ("metadata", "ownerReferences"), [])
    is_owned = any(reference.get("uid") in uids for reference in references)
    is_free = get_controller(candidate) is None and (is_owned or not has_other_owner(candidate, uids, names))
    return candidate if is_claimed and is_free else None


def awaits_first_pod(workload: JsonObject, names: Names) -> bool:
    """Whether the Workload of a group was created before its first pod: it has never had an owner."""
    metadata = value_at(workload, ("metadata",), {})
    is_unowned = not metadata.get("ownerReferences") and "deletionTimestamp" not in metadata
    return (
        is_unowned
        and is_group_workload(workload, names)
        and not is_condition_true(workload, ConditionType.FINISHED)
    )


def is_evicted_before_first_pod(workload: JsonObject, names: Names) -> bool:
    """Whether the Workload of a group was evicted before its first pod was created, and still holds quota."""
    is_evicted = is_condition_true(workload, ConditionType.EVICTED) and is_reserved(workload)
    return is_evicted and awaits_first_pod(workload, names)


def report_name_conflict(case: JobCase) -> ActionPlan | None:
    """Report a group with the name of another object's Workload.

    The group gets no Workload and does not run.
    """
    if case.composition is None or not case.group or case.workloads:
        return None
    if not case.integration.is_suspended(case.job or {}, case.names):
        return None
    stored = case.lookups.workload(case.group)
    if stored is None:
        return None
    note = (
        f'A Workload named "{case.group}" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    ended = case.composition.list_replaced(case.job or {}, {}, case.names)
    return plan_of(
        *_finalizer_removals(case, case.composition, ended),
        case.event("WorkloadNameConflict", note, warning=True),
    )


def delete_excess_members(case: JobCase) -> ActionPlan | None:
    """Delete members beyond the admission, or beyond the size of the group, newest first."""
    if case.composition is None or not case.group:
        return None
    reserved: JsonObject | None = None
    for workload in case.workloads:
        if is_finished_or_deleting(workload):
            return None
        if is_reserved(workload):
            reserved = workload
    counts = None if reserved is None else requested_pod_counts(reserved)
    kind = kind_label(case.integration.group, case.integration.kind)
    unreserved = {"metadata": case.objects[0]["metadata"], "spec": {"queueName": case.queue_name}}
    actions: list[Action] = []
    for member in case.composition.list_excess(case.job or {}, counts, case.names):
        actions += (
            *_finalizer_removals(case, case.composition, (member,)),
            Delete(case.resource, member),
            RecordEvent(member, "Normal", "ExcessPodDeleted", "Excess pod deleted"),
        )
        if not pods.has_gate(member, case.names.admission_gate):
            # A pod that its gate holds does not run.
            actions.append(record_excess_pods(reserved or unreserved, kind, 1))
    return plan_of(*actions) if actions else None


def add_owner_references(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Make every member of a group an owner of its Workload, which then lives as long as any member."""
    if case.composition is None or not case.group:
        return None
    references = value_at(workload, ("metadata", "ownerReferences"), [])
    known = {reference.get("uid") for reference in references}
    added = [reference for reference in owner_references(case) if reference["uid"] not in known]
    if not added:
        return None
    metadata: dict[str, Any] = {"ownerReferences": [*references, *added]}
    if not is_group_workload(workload, case.names):
        metadata["annotations"] = {case.names.is_group_workload: "true"}
    patch = PatchStep({"metadata": metadata})
    note = f"Added {len(added)} owner reference(s)"
    return plan_of(
        Patch(case.kinds.workloads, workload, (patch,), CONCERN),
        RecordEvent(workload, "Normal", "OwnerReferencesAdded", note),
    )


def report_awaited_replacements(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Set WaitingForReplacementPods: whether the group needs replacements before its admission.

    This precedes the end of the group, because a group may end when no replacement comes.
    """
    if case.composition is None or not case.group or is_condition_true(workload, ConditionType.FINISHED):
        return None
    lacks = case.composition.needs_more_members(case.job or {}, requested_pod_counts(workload))
    waiting = find_condition(workload, ConditionType.WAITING_FOR_REPLACEMENT_PODS)
    if not lacks and waiting is None:
        return None
    transition = case.begin_transition(workload)
    evicted = find_condition(workload, ConditionType.EVICTED) or {}
    if not lacks:
        reason, message = Reason.PODS_READY, "No pods need replacement"
    elif evicted.get("status") == "True":
        reason, message = evicted.get("reason", ""), evicted.get("message", "")
    elif waiting is not None and waiting.get("status") == "True":
        # The reason why members ended stays valid, even if the condition Evicted changes.
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
    else:
        reason, message = Reason.PODS_FAILED, "Some Failed pods need replacement"
    transition.set_condition(ConditionType.WAITING_FOR_REPLACEMENT_PODS, lacks, reason, message)
    # Only this kind of job has the condition.
    return case.plan_transition(workload, transition, concern=f"{case.integration.kind.lower()}-controller")
