"""Workload slices: the Workloads of an elastic job, and how they follow its size (semantics, Elastic jobs).

If a job grows while it runs, it gets a new Workload for all its pods. The new Workload replaces the one with
quota when the quota suffices. Until then, a scheduling gate holds the new pods. If a job shrinks, its
Workload shrinks as the pods end. So at most one slice has quota and one slice waits. Further slices are
finished, the oldest first. A suspended job, or one with changed pod templates, is handled like any other job.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from admitq.controllers.job import reclaimable_pods
from admitq.controllers.job.case import CONCERN, JobCase
from admitq.controllers.job.matching import WorkloadMatch, is_comparable, prebuilt_name
from admitq.controllers.plan import (
    ActionPlan,
    Create,
    Patch,
    RecordEvent,
    RemoveFinalizer,
    has_finalizer,
    namespaced_name,
    plan_of,
)
from admitq.integrations.base import PatchStep
from admitq.integrations.workload_names import create_workload_name
from admitq.translate import messages
from admitq.translate.admissions import read_topology_assignment
from admitq.translate.workloads import read_replaced_key
from admitq.workloads.job_workloads import (
    has_same_pods,
    maximum_execution_seconds,
    new_workload,
    workload_pod_sets,
)
from admitq.workloads.pod_counts import covered_pod_counts, requested_pod_counts
from admitq.workloads.template_injection import (
    injected_annotations,
    injected_labels,
    without_scheduling_gate,
)
from admitq.workloads.transitions import (
    find_condition,
    is_admitted,
    is_condition_true,
    is_finished_or_deleting,
    is_reserved,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.quantity import format_quantity, parse_amount
from admitq_api.stored_fields import MalformedField
from admitq_api.topology_assignments import encode

Counts = Mapping[str, int]
"""Pods by podset."""


class JobSlices(NamedTuple):
    """The unfinished slices of a job, each oldest first: those with quota, and those that wait for it."""

    holding: Sequence[JsonObject]
    waiting: Sequence[JsonObject]


def is_elastic(case: JobCase) -> bool:
    """Whether the job may grow and shrink while it runs."""
    return (
        case.settings.elastic_jobs
        and case.integration.scaling.can_be_elastic
        and case.annotation(case.names.elastic_job) == "true"
        and not prebuilt_name(case)
    )


def list_slices(case: JobCase) -> JobSlices:
    """Return the unfinished slices of the job."""
    alive = [workload for workload in case.owned if not is_finished_or_deleting(workload)]
    # Two slices may have been created within one second.
    alive.sort(
        key=lambda workload: (
            workload["metadata"].get("creationTimestamp", ""),
            _position_in_chain(case, workload),
        )
    )
    return JobSlices(
        [workload for workload in alive if is_reserved(workload)],
        [workload for workload in alive if not is_reserved(workload)],
    )


def _position_in_chain(case: JobCase, workload: JsonObject) -> int:
    """Return how many known slices the slice replaces, directly and indirectly."""
    known = {workload["metadata"]["name"]: workload for workload in case.owned}
    depth, at = 0, read_replaced_key(workload, case.names)
    while at is not None and at.name in known and depth <= len(known):
        depth, at = depth + 1, read_replaced_key(known[at.name], case.names)
    return depth


def sync_slices(case: JobCase) -> ActionPlan | None:
    """Update the slices to match the job; None if they match, or if the job is not handled by slices now."""
    if not is_elastic(case):
        return None
    holding, waiting = list_slices(case)
    if (
        ended := _release_finished_slices(case, is_continued=bool(holding or waiting))
        or _finish_extra_slice(case, holding)
        or _finish_extra_slice(case, waiting)
    ):
        return ended
    if not is_comparable(case):
        # A job that has ended does not grow any more. A job with unknown pods may still grow.
        has_ended = case.integration.find_outcome(case.job or {}) is not None
        return (
            _finish_replaced_slice(case, waiting[0], holding[0])
            if has_ended and holding and waiting
            else None
        )
    misfit = next(
        (workload for workload in (*holding, *waiting) if not _has_pods_of_job(case, workload)), None
    )
    if misfit is not None:
        # Another program may change a waiting slice. The API server keeps podsets with quota unchanged.
        return _finish_replaced_slice(case, misfit, holding[0]) if holding and misfit in waiting else None
    counts = _job_counts(case)
    if not holding or is_condition_true(holding[0], ConditionType.EVICTED):
        is_suspended = case.integration.is_suspended(case.job or {}, case.names)
        return None if is_suspended or not waiting else _resize_slice(case, waiting[0], counts)
    return _sync_slices_with_quota(case, holding[0], waiting, counts)


def _sync_slices_with_quota(
    case: JobCase, holder: JsonObject, waiting: Sequence[JsonObject], counts: Counts
) -> ActionPlan | None:
    """Update the slices of a job with quota: create, update, shrink or finish a slice."""
    granted = requested_pod_counts(holder) | covered_pod_counts(holder)
    if all(count <= granted[name] for name, count in counts.items()):
        if waiting:
            return _finish_replaced_slice(case, waiting[0], holder)
        sizes = _shrunk_counts(case, holder, counts)
        lowered = (
            reclaimable_pods.lower_counts(case, holder, sizes)
            if requested_pod_counts(holder) != sizes
            else None
        )
        return lowered or _resize_slice(case, holder, sizes) or _release_shrunk_quota(case, holder)
    if waiting:
        return _update_waiting_slice(case, waiting[0], holder, counts)
    return None if case.is_namespace_terminating else _create_larger_slice(case, holder, counts)


def _shrunk_counts(case: JobCase, holder: JsonObject, job_counts: Counts) -> Counts:
    """Return the pod counts to which a slice with quota shrinks: requested or still running pods.

    The quota of pods that the job no longer requests is released when they have ended. Pods that ended
    and need no replacement hold no quota; they count in addition to running pods.
    """
    counts, running = requested_pod_counts(holder), case.lookups.running_pods(holder)
    if running is None:
        return counts
    ended = (
        (case.integration.scaling.count_reclaimable_pods(case.job or {}) or {})
        if reclaimable_pods.is_reported(case)
        else {}
    )
    return {
        name: max(count, min(counts[name], running.get(name, 0) + ended.get(name, 0)))
        for name, count in job_counts.items()
    }


def is_shrinking(case: JobCase) -> bool:
    """Whether a slice holds quota for pods that the job no longer requests and that have not ended."""
    if not is_elastic(case) or not is_comparable(case):
        return False
    holding, job_counts = list_slices(case).holding, _job_counts(case)
    return any(
        count > job_counts.get(name, count)
        for workload in holding
        for name, count in requested_pod_counts(workload).items()
    )


def match_slice(case: JobCase) -> WorkloadMatch:
    """Match the job with a slice: a deleted one, else the one with quota, else the waiting one.

    The slice with quota matches the job even while a larger slice waits.
    """
    slices = list_slices(case)
    deleted = [workload for workload in case.owned if "deletionTimestamp" in workload["metadata"]]
    matching = next(iter((*deleted, *slices.holding, *slices.waiting)), None)
    if matching is None:
        failed = [workload for workload in case.owned if not _was_replaced(workload)]
        failed_workload = (workload for workload in failed if has_finalizer(workload, case.names.finalizer))
        return WorkloadMatch(next(failed_workload, failed[-1] if failed else None), [])
    if not is_comparable(case) or deleted:
        return WorkloadMatch(matching, [])
    job_counts = _job_counts(case)
    stands = _has_pods_of_job(case, matching) and (
        bool(slices.holding) or requested_pod_counts(matching) == job_counts
    )
    return WorkloadMatch(matching, []) if stands else WorkloadMatch(None, [*slices.holding, *slices.waiting])


def is_growing(case: JobCase) -> bool:
    """Whether the job runs with the quota of one slice while a larger slice waits."""
    slices = list_slices(case)
    return is_elastic(case) and bool(slices.holding and slices.waiting)


def has_size_of_job(case: JobCase, workload: JsonObject) -> bool:
    """Whether the Workload is a slice of an elastic job and has exactly the pod counts of the job."""
    return is_elastic(case) and is_comparable(case) and requested_pod_counts(workload) == _job_counts(case)


def may_children_run(workloads: Sequence[JsonObject], *, elastic: bool) -> bool:
    """Whether the objects that a job creates may run, given the unfinished Workloads of the job.

    An elastic job keeps running while a larger slice waits, until one of its slices is evicted. The Workload
    of another job is admitted until its pods have ended. Until then, the objects are stopped with the job.
    """
    if elastic:
        return bool(workloads) and not any(
            is_condition_true(workload, ConditionType.EVICTED) for workload in workloads
        )
    latest = max(
        workloads, key=lambda workload: workload["metadata"].get("creationTimestamp", ""), default=None
    )
    return latest is not None and is_admitted(latest)


def _job_counts(case: JobCase) -> dict[str, int]:
    return {pod_set["name"]: pod_set["count"] for pod_set in workload_pod_sets(case)}


def _has_pods_of_job(case: JobCase, workload: JsonObject) -> bool:
    spec = value_at(workload, ("spec",), {})
    expected, listed = workload_pod_sets(case), spec.get("podSets") or []
    # A running job also has the tolerations of its flavors.
    running = not case.integration.is_suspended(case.job or {}, case.names)
    return (
        spec.get("maximumExecutionTimeSeconds") == maximum_execution_seconds(case)
        and [pod_set["name"] for pod_set in expected] == [pod_set.get("name", "main") for pod_set in listed]
        and all(
            has_same_pods(case, pod_set, other, tolerations=not running)
            for pod_set, other in zip(expected, listed, strict=True)
        )
    )


# --- excess slices -------------------------------------------------------------------------------


def _was_replaced(workload: JsonObject) -> bool:
    finished = find_condition(workload, ConditionType.FINISHED) or {}
    return finished.get("reason") == Reason.WORKLOAD_SLICE_REPLACED


def _release_finished_slices(case: JobCase, *, is_continued: bool) -> ActionPlan | None:
    """Remove the finalizer of slices that were replaced.

    If the job has other unfinished slices, slices that another program finished lose their finalizer too.
    """
    over = [
        workload
        for workload in case.owned
        if has_finalizer(workload, case.names.finalizer)
        and (
            _was_replaced(workload) or (is_continued and is_condition_true(workload, ConditionType.FINISHED))
        )
    ]
    return plan_of(*(RemoveFinalizer(case.kinds.workloads, workload) for workload in over)) if over else None


def _finish_extra_slice(case: JobCase, slices: Sequence[JsonObject]) -> ActionPlan | None:
    return _finish_replaced_slice(case, slices[0], slices[-1]) if len(slices) > 1 else None


def _finish_replaced_slice(case: JobCase, workload: JsonObject, by: JsonObject) -> ActionPlan | None:
    """Finish a slice in favour of another. The Workload controller may do the same to a slice with quota."""
    message = messages.replaced_message(by["metadata"]["uid"], value_at(case.job, ("metadata", "uid"), ""))
    transition = case.begin_transition(workload)
    transition.finish(Reason.WORKLOAD_SLICE_REPLACED, message)
    return case.plan_transition(
        workload, transition, RecordEvent(workload, "Normal", Reason.WORKLOAD_SLICE_REPLACED, message)
    )


# --- growing and shrinking -----------------------------------------------------------------------


def _with_counts(workload: JsonObject, counts: Counts) -> list[dict[str, Any]]:
    listed = value_at(workload, ("spec", "podSets"), [])
    return [{**pod_set, "count": counts[pod_set.get("name", "main")]} for pod_set in listed]


def _resize_slice(case: JobCase, workload: JsonObject, job_counts: Counts) -> ActionPlan | None:
    """Set the pod counts of a slice: a waiting slice follows the job, one with quota shrinks."""
    if requested_pod_counts(workload) == job_counts:
        return None
    return _plan_slice_update(case, workload, {"spec": {"podSets": _with_counts(workload, job_counts)}})


def _update_waiting_slice(
    case: JobCase, workload: JsonObject, holder: JsonObject, job_counts: Counts
) -> ActionPlan | None:
    """Update the slice that waits to replace another, also after another program changed it."""
    annotations = value_at(workload, ("metadata", "annotations"), {})
    marks = {
        key: value
        for key, value in _replacement_annotations(case, holder).items()
        if annotations.get(key) != value
    }
    spec: dict[str, Any] = {}
    if requested_pod_counts(workload) != job_counts:
        spec["podSets"] = _with_counts(workload, job_counts)
    if value_at(workload, ("spec", "queueName"), "") != case.queue_name:
        spec["queueName"] = case.queue_name or None
    patch = {**({"metadata": {"annotations": marks}} if marks else {}), **({"spec": spec} if spec else {})}
    return _plan_slice_update(case, workload, patch) if patch else None


def _plan_slice_update(case: JobCase, workload: JsonObject, patch: dict[str, Any]) -> ActionPlan:
    note = f"Updated workload slice: {namespaced_name(workload)}"
    write = Patch(case.kinds.workloads, workload, (PatchStep(patch),), CONCERN)
    return plan_of(write, case.event("UpdatedWorkload", note))


def _replacement_annotations(case: JobCase, holder: JsonObject) -> dict[str, str]:
    """Return the annotations of a slice that is to replace the one with quota."""
    return {
        case.names.elastic_job: "true",
        case.names.workload_slice_name: chain_name(holder, case.names.workload_slice_name),
        case.names.workload_slice_replacement_for: namespaced_name(holder),
    }


def _release_shrunk_quota(case: JobCase, workload: JsonObject) -> ActionPlan | None:
    """Reduce the assigned quota of a slice that shrank."""
    counts = requested_pod_counts(workload)
    admission = value_at(workload, ("status", "admission"), {})
    if not admission:
        return None
    transition = case.begin_transition(workload)
    transition.status["admission"] = {
        **admission,
        "podSetAssignments": [
            _shrink_assignment(assignment, counts.get(assignment.get("name", "main"), 0))
            for assignment in admission.get("podSetAssignments") or ()
        ],
    }
    return case.plan_transition(workload, transition)


def _shrink_assignment(assignment: JsonObject, count: int) -> JsonObject:
    before = assignment.get("count", count)
    if count >= before:
        return assignment
    usage = {
        resource: format_quantity(resource, parse_amount(resource, used) * count // before)
        for resource, used in (assignment.get("resourceUsage") or {}).items()
    }
    shrunk = {**assignment, "count": count, **({"resourceUsage": usage} if usage else {})}
    topology = _shrink_topology(shrunk.pop("topologyAssignment", None), count)
    return shrunk if topology is None else {**shrunk, "topologyAssignment": topology}


def _shrink_topology(raw: Any, count: int) -> Any:
    """Return a stored topology assignment for so many pods; None without pods. An unreadable one stays."""
    try:
        topology = read_topology_assignment(raw, "topologyAssignment") if count else None
    except MalformedField:
        return raw
    return None if topology is None else encode(topology.levels, topology.keep(count).domains)


def _create_larger_slice(case: JobCase, holder: JsonObject, job_counts: Counts) -> ActionPlan:
    """Create a slice for all pods of the job.

    It is to replace the one with quota and has the same pod templates.
    """
    workload = new_job_workload(case)
    workload["metadata"]["annotations"] |= _replacement_annotations(case, holder)
    pod_sets = [_without_admission_marks(pod_set, case.names) for pod_set in _with_counts(holder, job_counts)]
    workload["spec"] = {**workload["spec"], "podSets": pod_sets}
    note = f"Created Workload: {namespaced_name(workload)}"
    return plan_of(Create(case.kinds.workloads, workload, CONCERN), case.event("CreatedWorkload", note))


def chain_name(workload: JsonObject, annotation: str) -> str:
    """Return the name of the first slice of the chain that a slice belongs to."""
    return value_at(workload, ("metadata", "annotations", annotation)) or workload["metadata"]["name"]


def new_job_workload(case: JobCase) -> dict[str, Any]:
    """Return the Workload to create for the job. For an elastic job it is the first slice of a chain.

    Raises:
        PriorityClassMissing: the priority class of the job does not exist.
        WorkloadNotPossible: no Workload can represent the job.
    """
    workload = new_workload(case)
    if not is_elastic(case):
        return workload
    metadata = workload["metadata"]
    metadata["name"] = _unused_name(case)
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        case.names.elastic_job: "true",
        case.names.workload_slice_name: _chain_of_running_pods(case) or metadata["name"],
    }
    pod_sets = [_without_admission_marks(pod_set, case.names) for pod_set in workload["spec"]["podSets"]]
    workload["spec"] = {**workload["spec"], "podSets": pod_sets}
    return workload


def _without_admission_marks(pod_set: JsonObject, names: Names) -> dict[str, Any]:
    """Return the podset without labels, annotations and gates that an admission injected into its template.

    The templates of a running job have them. If a Workload kept them, a stop would restore them into the
    job, where they would contradict the next admission. Node selectors and tolerations of the flavor
    stay, because the running pods are on its nodes.
    """
    metadata = value_at(pod_set, ("template", "metadata"), {})
    annotations_kept: dict[str, Any] = {}
    for field, marks in (("labels", injected_labels(names)), ("annotations", injected_annotations(names))):
        if entries := {
            key: value for key, value in value_at(metadata, (field,), {}).items() if key not in marks
        }:
            annotations_kept[field] = entries
    ungated = without_scheduling_gate(value_at(pod_set, ("template",), {}), names.topology_gate)
    template = {key: value for key, value in ungated.items() if key != "metadata"}
    return {
        **pod_set,
        "template": {**({"metadata": annotations_kept} if annotations_kept else {}), **template},
    }


def _unused_name(case: JobCase) -> str:
    """Return a Workload name for the present state of the job that none of its slices has.

    The generations in the name may repeat, because an object that the job refers to may be deleted and
    created again.
    """
    metadata = (case.job or {})["metadata"]
    version = case.integration.scaling.get_slice_version(case.job or {}, case.names)
    used_names = {workload["metadata"]["name"] for workload in case.owned}
    names = (
        create_workload_name(
            case.integration.kind,
            case.integration.group,
            metadata["name"],
            metadata["uid"],
            extra=suffix,
            longest=case.settings.conventions.longest_workload_name,
        )
        for suffix in chain((version,), (f"{version}+{number}" for number in count(1)))
    )
    return next(name for name in names if name not in used_names)


def _chain_of_running_pods(case: JobCase) -> str | None:
    """Return the chain that running pods of the job belong to; their quota counts toward it."""
    templates = [
        pod_set.get_template(case.job or {})
        for pod_set in case.integration.list_pod_sets(case.job or {}, case.names)
    ]
    chains = [
        value_at(template, ("metadata", "annotations", case.names.workload_slice_name))
        for template in templates
    ]
    return next((chain for chain in chains if isinstance(chain, str) and chain), None)
