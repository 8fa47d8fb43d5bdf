"""Decisions about serving objects: their Workloads, and the marks on their pods.

A serving object is a StatefulSet or LeaderWorkerSet. Its pods form groups, each with one Workload. The
controller of pods starts and stops the pods. Each decision depends only on the present state, so that the
next reconciliation resumes an interrupted one (semantics, StatefulSet and LeaderWorkerSet).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.controllers.lookups import Lookups
from admitq.controllers.plan import (
    Action,
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordEvent,
    RemoveFinalizer,
    has_finalizer,
    namespaced_name,
    plan_of,
    record_gate_wait,
    status_patch,
    workload_status_patch,
)
from admitq.controllers.pods import remaining_pods
from admitq.controllers.pods.remaining_pods import RemainingPods
from admitq.controllers.settings import ControllerSettings, WorkloadConventions
from admitq.core.model import Instant
from admitq.integrations.base import Integration, PatchStep, PodLocation, ServedGroup, Serving
from admitq.integrations.families.pods import get_annotation, get_label, get_mapping, has_ended, has_gate
from admitq.integrations.families.serving import is_suspended_by
from admitq.integrations.ownership import get_controller, get_prebuilt_name, get_queue_name, has_other_owner
from admitq.integrations.workload_names import MAX_LABEL_LENGTH, create_workload_name
from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import PODS
from admitq.workloads.job_workloads import (
    PriorityClassMissing,
    WorkloadNotPossible,
    admission_gates_patch,
    has_same_pods,
    job_uid_label,
    new_workload,
    priority_patch,
    spec_patch,
    workload_pod_sets,
)
from admitq.workloads.transitions import (
    StatusTransition,
    holds_quota,
    is_active,
    is_condition_true,
    is_on_hold,
    is_reserved,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, create_merge_patch, value_at, with_value, without_value_pruned
from admitq_api.labels import Names

CONCERN: Final = "serving-controller"

TAKEN_RETRY_SECONDS: Final = 5.0
"""When to retry if the Workload with the name of a group belongs to another object, which may be deleted."""

_GATES: Final = ("spec", "schedulingGates")


@dataclass(frozen=True, slots=True)
class ServingCase:
    """The inputs of a decision about one serving object.

    ``workloads`` are those that name an object of its kind and name as the object they were created for.
    ``job`` is None if the object does not exist.
    """

    integration: Integration
    serving: Serving
    names: Names
    kinds: Kinds
    settings: ControllerSettings
    now: Instant
    job: JsonObject | None
    pods: tuple[JsonObject, ...]
    workloads: tuple[JsonObject, ...]
    lookups: Lookups
    namespace_matches: bool = True
    is_namespace_terminating: bool = False
    """Nothing can be created in the namespace any more."""
    remaining_pods: Mapping[str, RemainingPods] = field(default_factory=dict[str, RemainingPods])
    """Pods that can still run although their object does not exist, by UID of their Workload."""

    def members(self, group: ServedGroup) -> list[JsonObject]:
        """Return the pods of a group."""
        return [
            pod
            for pod in self.pods
            if (self.place_of(pod) or PodLocation("")).group_index == group.group_index
        ]

    def place_of(self, pod: JsonObject) -> PodLocation | None:
        """Return the group and index of a pod."""
        return self.serving.locate_pod(pod)


@dataclass(frozen=True, slots=True)
class GroupSource:
    """One group of an object as the source of a Workload: the object with the name of the group."""

    integration: Integration
    names: Names
    job: JsonObject | None
    conventions: WorkloadConventions
    lookups: Lookups


def decide_serving(case: ServingCase) -> ActionPlan:
    """Return the plan for a serving object."""
    job = case.job
    if job is None:
        return plan_of(
            *(action for workload in case.workloads for action in _release_workload(case, workload))
        )
    is_managed = case.namespace_matches and _is_ours(case, job)
    is_going = "deletionTimestamp" in job["metadata"]
    kept_free = set(_names_left_free(case, job)) if is_managed and not is_going else set[str]()
    former = [
        workload
        for workload in case.workloads
        if not is_owned(workload, job)
        and not (workload["metadata"]["name"] in kept_free and _is_free(case, job, workload))
    ]
    released = tuple(action for workload in former for action in _release_workload(case, workload))
    ending = {
        workload["metadata"]["name"]
        for workload in case.workloads
        if is_owned(workload, job) and _must_end(workload)
    }
    if is_going or not (is_managed or ending):
        return plan_of(*released)
    groups = {name: group for name, group in _groups(case, job) if is_managed or name in ending}
    unwanted = (
        action
        for workload in case.workloads
        for action in _delete_unwanted_workload(case, job, workload, groups)
    )
    requeue_after = TAKEN_RETRY_SECONDS if any(_is_name_taken(case, job, name) for name in groups) else None
    return plan_of(*released, *unwanted, *_sync_groups(case, job, groups), requeue_after=requeue_after)


def _groups(case: ServingCase, job: JsonObject) -> Iterator[tuple[str, ServedGroup]]:
    """Yield the groups of an object, each with the name of its Workload."""
    for group in case.serving.list_groups(job, case.pods) if case.serving.list_groups else ():
        yield _workload_name(case, job, group), group


def _is_ours(case: ServingCase, job: JsonObject) -> bool:
    """Whether our webhook gates the pods of this object."""
    if not get_queue_name(job, case.names) and not case.settings.without_queue_name:
        return False
    return any(
        is_suspended_by(template, case.serving.suspending_parent, case.names)
        for template in case.serving.list_templates(job)
    )


def _must_end(workload: JsonObject) -> bool:
    """Whether a Workload has quota or is deleted, so that this controller must still handle it."""
    return holds_quota(workload) or "deletionTimestamp" in workload["metadata"]


def is_owned(workload: JsonObject, job: JsonObject) -> bool:
    """Whether the object owns the Workload."""
    references = value_at(workload, ("metadata", "ownerReferences"), [])
    return any(reference.get("uid") == value_at(job, ("metadata", "uid")) for reference in references)


def _workload_name(case: ServingCase, job: JsonObject, group: ServedGroup) -> str:
    by_annotation = case.settings.names_by_annotation
    prebuilt = (
        get_prebuilt_name(job, case.names, by_annotation=by_annotation) if _is_remote(case, job) else ""
    )
    if prebuilt:
        return prebuilt
    name = _derived_name(case, group, job["metadata"]["uid"])
    if case.lookups.workload(name) is not None:
        return name
    existing = _find_by_old_name(case, group)
    if existing is None or not (is_owned(existing, job) or _is_adoptable(case, job, existing)):
        return name
    return str(existing["metadata"]["name"])


def _derived_name(case: ServingCase, group: ServedGroup, uid: str) -> str:
    kind, longest = case.integration, case.settings.conventions.longest_workload_name
    return create_workload_name(kind.kind, kind.group, group.name, uid, longest=longest)


def _find_by_old_name(case: ServingCase, group: ServedGroup) -> JsonObject | None:
    """Return the Workload of a group under the old name without UID, if the kind has such names."""
    is_found = case.serving.may_have_name_without_uid
    return case.lookups.workload(_derived_name(case, group, "")) if is_found else None


def _names_left_free(case: ServingCase, job: JsonObject) -> Iterator[str]:
    """Yield names of free Workloads that the object adopts, or that stay without owner."""
    for name, group in _groups(case, job):
        yield name
        older = _find_by_old_name(case, group)
        if older is not None and not _is_adoptable(case, job, older):
            yield str(older["metadata"]["name"])


def _is_adoptable(case: ServingCase, job: JsonObject, workload: JsonObject) -> bool:
    """Whether the object may adopt a Workload with the name of a group.

    The Workload must be free. It must have the podsets of the object, unless its label names the object.
    """
    if not _is_free(case, job, workload):
        return False
    labelled = get_label(workload, case.names.job_uid) == value_at(job, ("metadata", "uid"))
    return labelled or _has_pod_sets_of(case, job, workload)


def _has_pod_sets_of(case: ServingCase, job: JsonObject, workload: JsonObject) -> bool:
    """Whether the podsets of a Workload equal those of the object.

    Counts do not matter for an object on hold.
    """
    source = GroupSource(case.integration, case.names, job, case.settings.conventions, case.lookups)
    return _are_equal(source, workload, counted=not case.integration.lifecycle.is_on_hold(job))


def _is_free(case: ServingCase, job: JsonObject, workload: JsonObject) -> bool:
    """Whether a Workload is unfinished, has no controller, and no owners except the object and its pods."""
    own = {value_at(obj, ("metadata", "uid"), "") for obj in (job, *case.pods)}
    is_foreign = has_other_owner(workload, own, case.names)
    is_ending = "deletionTimestamp" in workload["metadata"] or is_condition_true(
        workload, ConditionType.FINISHED
    )
    return get_controller(workload) is None and not is_foreign and not is_ending and not _is_remote(case, job)


def _is_remote(case: ServingCase, job: JsonObject) -> bool:
    """Whether another cluster sent the object, together with its Workloads."""
    return bool(get_label(job, case.names.multikueue_origin))


# --- Workloads ------------------------------------------------------------------------------------


def _release_workload(case: ServingCase, workload: JsonObject) -> Iterator[Action]:
    """Yield the next action for a Workload without existing object."""
    write: Action | None = None
    if remaining := case.remaining_pods.get(workload["metadata"]["uid"]):
        transition = StatusTransition(workload, case.now)
        remaining_pods.set_pods_outlive_job(transition, remaining)
        write = status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)
    elif case.settings.finish_orphaned and not is_condition_true(workload, ConditionType.FINISHED):
        transition = StatusTransition(workload, case.now)
        remaining_pods.drop_pods_outlive_job(transition)
        transition.finish(Reason.OWNER_NOT_FOUND, "The workload's owner no longer exists")
        write = status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN)
    elif has_finalizer(workload, case.names.finalizer):
        write = RemoveFinalizer(case.kinds.workloads, workload)
    if write is not None:
        yield write


def _delete_unwanted_workload(
    case: ServingCase, job: JsonObject, workload: JsonObject, groups: Mapping[str, ServedGroup]
) -> Iterator[Action]:
    """Delete the Workload of a group that no longer exists, after its pods have ended."""
    name = workload["metadata"]["name"]
    if name in groups or not is_owned(workload, job) or _is_remote(case, job):
        return
    index = get_annotation(workload, case.names.component_workload_index)
    if "deletionTimestamp" not in workload["metadata"]:
        yield Delete(case.kinds.workloads, workload, as_seen=True)
    elif not _has_pods(case, ServedGroup(name, index)) and has_finalizer(workload, case.names.finalizer):
        yield RemoveFinalizer(case.kinds.workloads, workload)


def _has_pods(case: ServingCase, group: ServedGroup) -> bool:
    return any(not has_ended(pod) for pod in case.members(group))


def _sync_groups(case: ServingCase, job: JsonObject, groups: Mapping[str, ServedGroup]) -> Iterator[Action]:
    """Yield the actions for all groups, and at most one event about why a group gets no Workload.

    Actions that precede this, such as the release of quota, are not lost.
    """
    missed: RecordEvent | None = None
    for name, group in groups.items():
        try:
            yield from _sync_group(case, job, group, name)
        except (PriorityClassMissing, WorkloadNotPossible) as missing:
            missed = RecordEvent(job, "Warning", missing.reason, str(missing))
    if missed:
        yield missed


def _sync_group(case: ServingCase, job: JsonObject, group: ServedGroup, name: str) -> Iterator[Action]:
    """Yield the actions for one group. Its pods are marked only once its Workload is up to date."""
    view = with_value(job, ("metadata", "name"), group.name)
    source = GroupSource(case.integration, case.names, view, case.settings.conventions, case.lookups)
    workload = case.lookups.workload(name)
    yield from _release_outdated_pods(case, job, group, workload)
    if _is_remote(case, job):
        yield from _mark_pods(case, job, group, name)
        return
    if workload is None:
        if not case.integration.lifecycle.is_on_hold(job) and not case.is_namespace_terminating:
            created = _new_workload(case, job, group, source, name)
            yield from _report_not_adopted(case, job, _find_by_old_name(case, group))
            yield Create(case.kinds.workloads, created, CONCERN)
            yield RecordEvent(
                job, "Normal", "CreatedWorkload", f"Created Workload: {namespaced_name(created)}"
            )
        return
    if "deletionTimestamp" in workload["metadata"]:
        if not _has_pods(case, group) and has_finalizer(workload, case.names.finalizer):
            yield RemoveFinalizer(case.kinds.workloads, workload)
        return
    if not is_owned(workload, job):
        if _is_adoptable(case, job, workload):
            yield _adopt_workload(case, job, group, source, workload)
        elif _is_free(case, job, workload):
            yield from _report_not_adopted(case, job, workload)
        elif _is_name_taken(case, job, name):
            note = f"Workload {name} exists already and belongs to something else"
            yield RecordEvent(job, "Warning", WorkloadNotPossible.reason, note)
        return
    if is_condition_true(workload, ConditionType.FINISHED):
        if case.integration.lifecycle.is_on_hold(job) and not _has_pods(case, group):
            # A finished Workload cannot be put on hold. Another one is created when the object is scaled up.
            yield Delete(case.kinds.workloads, workload, as_seen=True)
        return
    if _lacks_identity(case, job, group, workload):
        yield _adopt_workload(case, job, group, source, workload)
        return
    changed = [*_requeue_evicted(case, group, workload)] or [
        *_update_workload(case, job, group, source, workload)
    ]
    yield from changed
    if not changed:
        yield from _mark_pods(case, job, group, name)


def _report_not_adopted(case: ServingCase, job: JsonObject, workload: JsonObject | None) -> Iterator[Action]:
    """Yield the event about a Workload that the object does not adopt, because its podsets differ."""
    if workload is not None and _is_free(case, job, workload):
        name = workload["metadata"]["name"]
        note = f"Workload {name} is not adopted: its podsets differ from those of the {case.integration.kind}"
        yield RecordEvent(job, "Warning", WorkloadNotPossible.reason, note)


def _new_workload(
    case: ServingCase, job: JsonObject, group: ServedGroup, source: GroupSource, name: str
) -> dict[str, Any]:
    workload = new_workload(source)
    annotations = workload["metadata"].get("annotations", {}) | _identity(case, job, group)
    own_metadata = {"name": name, "annotations": annotations, "ownerReferences": [_owner(case, job)]}
    return {**workload, "metadata": {**workload["metadata"], **own_metadata}}


def _identity(case: ServingCase, job: JsonObject, group: ServedGroup) -> dict[str, str]:
    """Return the annotations by which the Workload of a group is found."""
    names, kind = case.names, case.integration
    identity = {
        names.is_group_workload: "true",
        names.job_owner_gvk: f"{kind.api_version}, Kind={kind.kind}",
        names.job_owner_name: job["metadata"]["name"],
    }
    return identity | ({names.component_workload_index: group.group_index} if group.group_index else {})


def _owner(case: ServingCase, job: JsonObject) -> dict[str, str]:
    kind, metadata = case.integration, job["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _adopt_workload(
    case: ServingCase, job: JsonObject, group: ServedGroup, source: GroupSource, workload: JsonObject
) -> Patch:
    """Return the patch that adds an owner reference and the annotations of a group."""
    owners = value_at(workload, ("metadata", "ownerReferences"), [])
    metadata = {
        "annotations": _identity(case, job, group),
        "labels": job_uid_label(source),
        "ownerReferences": owners if is_owned(workload, job) else [*owners, _owner(case, job)],
    }
    return Patch(case.kinds.workloads, workload, (PatchStep({"metadata": metadata}),), CONCERN)


def _lacks_identity(case: ServingCase, job: JsonObject, group: ServedGroup, workload: JsonObject) -> bool:
    """Whether a Workload of the object lacks the annotations of its group."""
    return any(get_annotation(workload, key) != value for key, value in _identity(case, job, group).items())


def _is_name_taken(case: ServingCase, job: JsonObject, name: str) -> bool:
    """Whether another object owns the Workload of this name and keeps it."""
    workload = case.lookups.workload(name)
    if workload is None or _is_remote(case, job) or "deletionTimestamp" in workload["metadata"]:
        return False
    if is_owned(workload, job):
        return False
    if _is_free(case, job, workload):
        return not _is_adoptable(case, job, workload)
    return workload not in case.workloads or next(_release_workload(case, workload), None) is None


def _requeue_evicted(case: ServingCase, group: ServedGroup, workload: JsonObject) -> Iterator[Action]:
    """Release the quota of an evicted Workload without pods, for which no other controller waits."""
    if (
        is_condition_true(workload, ConditionType.EVICTED)
        and is_reserved(workload)
        and not _has_pods(case, group)
    ):
        transition = StatusTransition(workload, case.now)
        transition.requeue(case.settings.pending.reported_reason(Reason.PENDING_EVALUATION))
        if write := workload_status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN):
            yield write


def _update_workload(
    case: ServingCase, job: JsonObject, group: ServedGroup, source: GroupSource, workload: JsonObject
) -> Iterator[Action]:
    """Yield the next update of a Workload that does not match the object.

    The quota of an object on hold is released once all its pods have ended, because they may be deleted one
    by one.
    """
    on_hold = case.integration.lifecycle.is_on_hold(job)
    was_on_hold, active = is_on_hold(workload), is_active(workload)
    if active and on_hold and not was_on_hold:
        if is_reserved(workload) and _has_pods(case, group):
            return
        yield from _release_quota(case, workload, Reason.ON_HOLD, case.serving.on_hold_message)
        return
    if not is_reserved(workload):
        stays = on_hold or _matches_group(source, workload)
        patch = {} if stays else spec_patch(source, workload)
    else:
        patch = priority_patch(source, workload, reserved=True)
    patch = {**patch, **admission_gates_patch(workload, [job], case.names)}
    if patch:
        yield Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN)
        if "priorityClassRef" in patch.get("spec", {}):
            note = f"Updated workload priority class: {namespaced_name(workload)}"
            yield RecordEvent(job, "Normal", "UpdatedWorkload", note)
        return
    if active and was_on_hold and not on_hold:
        pending = case.settings.pending.reported_reason(Reason.PENDING_EVALUATION)
        message = "Workload no longer on hold; waiting for quota reservation"
        yield from _release_quota(case, workload, pending, message)


def _release_quota(case: ServingCase, workload: JsonObject, reason: str, message: str) -> Iterator[Action]:
    transition = StatusTransition(workload, case.now)
    transition.release(reason, message)
    if write := workload_status_patch(case.kinds.workloads, workload, transition.patch(), CONCERN):
        yield write


def _matches_group(source: GroupSource, workload: JsonObject) -> bool:
    return (
        value_at(workload, ("spec", "queueName"), "") == get_queue_name(source.job or {}, source.names)
        and not priority_patch(source, workload, reserved=False)
        and _are_equal(source, workload)
    )


def _are_equal(source: GroupSource, workload: JsonObject, *, counted: bool = True) -> bool:
    """Whether the podsets of a Workload equal those of the object, by name, count and pods."""
    expected, listed = workload_pod_sets(source), value_at(workload, ("spec", "podSets")) or []
    return len(expected) == len(listed) and all(
        pod_set["name"] == other.get("name", "main")
        and (not counted or pod_set["count"] == other.get("count", 1))
        and has_same_pods(source, pod_set, other, tolerations=True)
        for pod_set, other in zip(expected, listed, strict=True)
    )


# --- pods -----------------------------------------------------------------------------------------


def _release_outdated_pods(
    case: ServingCase, job: JsonObject, group: ServedGroup, workload: JsonObject | None
) -> Iterator[Action]:
    """Remove our gates from outdated pods without an admission, so that their controller can replace them."""
    own_gates = (case.names.admission_gate, case.names.topology_gate)
    for pod in case.members(group):
        if has_gate(pod, case.names.admission_gate) and case.serving.is_outdated(job, pod):
            lifted = [gate for gate in own_gates if has_gate(pod, gate)]
            remaining = [
                gate for gate in value_at(pod, _GATES, []) if value_at(gate, ("name",)) not in lifted
            ]
            yield Patch(PODS, pod, (PatchStep({"spec": {"schedulingGates": remaining}}),), CONCERN)
            yield from (record_gate_wait(gate, pod, workload, case.now, is_group=True) for gate in lifted)


def _mark_pods(case: ServingCase, job: JsonObject, group: ServedGroup, name: str) -> Iterator[Action]:
    """Yield patches of pods with wrong labels or annotations for their group and queue."""
    size = sum(pod_set.count for pod_set in case.integration.list_pod_sets(job, case.names))
    for pod in case.members(group):
        if "deletionTimestamp" in pod["metadata"] or has_ended(pod) or case.serving.is_outdated(job, pod):
            continue
        if patch := create_merge_patch(pod, _marked_pod(case, job, pod, name, size)):
            yield Patch(PODS, pod, (PatchStep(patch),), CONCERN)


def _marked_pod(case: ServingCase, job: JsonObject, pod: JsonObject, name: str, size: int) -> JsonObject:
    names = case.names
    is_held = has_gate(pod, names.admission_gate)
    labels = {names.managed: "true"}
    annotations = {
        names.pod_group_total_count: str(size),
        names.pod_group_fast_admission: "true",
        names.pod_group_serving: "true",
        names.pod_group_pod_index_label: case.serving.index_label,
        names.role_hash: case.serving.get_role(job, pod),
    }
    in_annotations = case.settings.names_by_annotation or len(name) > MAX_LABEL_LENGTH
    identity = annotations if in_annotations else labels
    identity |= {names.prebuilt_workload_name: name, names.pod_group_name: name}
    marked = pod
    # A started pod keeps the queue of its admission. It gets another class only if it had one.
    for key, value in (
        (names.queue_name, get_queue_name(job, names)),
        (names.priority_class, get_label(job, names.priority_class)),
    ):
        if value and (is_held or (key == names.priority_class and get_label(pod, key))):
            labels[key] = value
        elif is_held:
            marked = without_value_pruned(marked, ("metadata", "labels", key))
    metadata = get_mapping(marked, "metadata")
    return {
        **marked,
        "metadata": {
            **metadata,
            "labels": {**get_mapping(metadata, "labels"), **labels},
            "annotations": {**get_mapping(metadata, "annotations"), **annotations},
        },
    }
