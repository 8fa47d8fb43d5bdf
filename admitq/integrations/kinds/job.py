"""``batch/v1`` Job: one podset, a suspend field, and a stop in three steps.

The API server accepts changes of a Job's template only while the Job is suspended and has no pods. Older
servers also require that it was never started. So a stop suspends the Job, waits for its pods to end, removes
the start time, and then restores the template. An annotation marks a stop in progress, so that the next
reconciliation resumes a stop that was interrupted.
"""

from collections.abc import Mapping

from admitq.integrations.base import (
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    JobOutcome,
    KindOwnership,
    KindWebhook,
    PatchStep,
    PodIndexLabels,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    Scaling,
)
from admitq.integrations.children import (
    MAX_GENERATED_STEM,
    get_name,
    is_generated,
    is_pod_within,
    is_selected,
)
from admitq.integrations.families import partial_admission
from admitq.integrations.families.batch_jobs import (
    COMPLETION_INDEX_LABEL,
    count_ended_indexes,
    count_parallel_pods,
)
from admitq.integrations.job_fields import find_end
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import (
    JsonObject,
    as_int,
    as_list,
    create_merge_patch,
    object_at,
    text_at,
    value_at,
    with_value,
)
from admitq_api.labels import Names

TEMPLATE = ("spec", "template")
SUSPEND = ("spec", "suspend")
ANNOTATIONS = ("metadata", "annotations")
_SPEC_AND_CONDITIONS = (("metadata", "generation"), ("status", "conditions"))
MAIN = "main"
OWN_CONTROLLER = "kubernetes.io/job-controller"

FINISHING_CONDITIONS = {"Complete": True, "Failed": False}
"""The conditions that end a Job, and whether it succeeded."""

PLATFORM_LABELS = frozenset({"batch.kubernetes.io/controller-uid", "controller-uid", "job-name"})
"""Labels that the API server adds to the template of each Job, besides ``JOB_NAME_LABEL``."""

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""The label with the name of the Job. It is constant, so Workloads keep it."""


def _count_pods(job: JsonObject) -> int:
    return count_parallel_pods(object_at(job, ("spec",)))


def list_pod_sets(job: JsonObject, names: Names) -> list[PodSetTemplate]:
    """Return one podset with the pods that run in parallel."""
    fewest = partial_admission.get_min_count(job, names)
    return [
        PodSetTemplate(
            MAIN, _count_pods(job), TEMPLATE, fewest, index_labels=PodIndexLabels(COMPLETION_INDEX_LABEL)
        )
    ]


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome from the Job's conditions; None while it has not ended."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """Whether the Job has pods that are pending, running or terminating."""
    status = object_at(job, ("status",))
    return as_int(status.get("active")) != 0 or as_int(status.get("terminating")) != 0


def are_pods_ready(job: JsonObject) -> bool:
    """Whether all pods that run in parallel are ready or have succeeded."""
    status = object_at(job, ("status",))
    uncounted = value_at(status, ("uncountedTerminatedPods", "succeeded"))
    succeeded = as_int(status.get("succeeded")) + (len(uncounted) if isinstance(uncounted, list) else 0)
    return succeeded + as_int(status.get("ready")) >= _count_pods(job)


def count_reclaimable_pods(job: JsonObject) -> Mapping[str, int] | None:
    """Return the number of ended pods that are not replaced, because few completions remain.

    A Job without completions starts no pods after one has succeeded. After a scale-down, more of its pods can
    run than its parallelism minus its succeeded pods.
    """
    count = _count_pods(job)
    completions = as_int(value_at(job, ("spec", "completions")), count)
    if value_at(job, ("spec", "completionMode")) == "Indexed":
        terminal = count_ended_indexes(object_at(job, ("status",)), completions)
    else:
        terminal = as_int(value_at(job, ("status", "succeeded")))
    if count <= 1 or terminal <= 0:
        return None
    running = completions - terminal
    if value_at(job, ("spec", "completions")) is None:
        running = max(running, as_int(value_at(job, ("status", "active"))))
    return {MAIN: min(count, max(0, count - running))}


def is_stop_in_progress(job: JsonObject, names: Names) -> bool:
    """Whether a stop has begun and not ended."""
    return value_at(job, (*ANNOTATIONS, names.stopping)) == "true"


def plan_stop(job: JsonObject, stopped: JsonObject, names: Names) -> tuple[PatchStep, ...]:
    """Suspend and mark the Job. Without pods, remove the start time, then restore the template and unmark.

    While pods start, the Job controller updates their numbers in the status several times a second. So the
    first step of a running Job requires only that its generation and conditions have not changed.
    """
    mark = (*ANNOTATIONS, names.stopping)
    suspended = with_value(with_value(job, SUSPEND, True), mark, "true")
    patch = create_merge_patch(job, suspended)
    if is_active(job):
        return (PatchStep(patch, required_unchanged=_SPEC_AND_CONDITIONS),) if patch else ()
    started = value_at(job, ("status", "startTime")) is not None
    steps = (
        PatchStep(patch),
        PatchStep({"status": {"startTime": None}} if started else {}, "status"),
        PatchStep(create_merge_patch(suspended, with_value(stopped, mark, None))),
    )
    return tuple(step for step in steps if step.patch)


def with_pod_counts(job: JsonObject, counts: Mapping[str, int], names: Names) -> JsonObject:
    """Return the Job with the admitted number of pods."""
    return partial_admission.with_pod_count(job, counts[MAIN], names) if MAIN in counts else job


def compare_child(job: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how a pod differs from those that the Job controller creates.

    That controller counts all pods that match its selector and have the Job as their controller. It deletes
    pods in excess of the Job's parallelism, and one of two pods with the same index.
    """
    if not is_selected(job, pod) or not _has_generated_name(job, pod):
        return ChildDifference.IDENTITY
    return None if is_pod_within(pod, object_at(job, TEMPLATE)) else ChildDifference.REQUESTS


def _has_generated_name(job: JsonObject, pod: JsonObject) -> bool:
    if value_at(job, ("spec", "managedBy")) not in (None, OWN_CONTROLLER):
        # The names of pods of other controllers are unknown.
        return True
    tail = "-"
    if value_at(job, ("spec", "completionMode")) == "Indexed":
        index = text_at(pod, (*ANNOTATIONS, COMPLETION_INDEX_LABEL))
        completions = as_int(value_at(job, ("spec", "completions")))
        if not index.isascii() or not index.isdigit() or not int(index[:10]) < completions:
            return False
        tail = f"-{index}-"
    longest = MAX_GENERATED_STEM - len(tail)
    stems = (f"{name}{tail}" for name in (get_name(job), get_name(job)[:longest]))
    return any(is_generated(pod, stem) for stem in stems)


def mutate(job: JsonObject, context: RuleContext) -> JsonObject:
    """Hold the pods of an elastic Job."""
    gate = {"name": context.names.elastic_gate}
    gates = as_list(value_at(job, (*TEMPLATE, "spec", "schedulingGates")))
    is_elastic = value_at(job, (*ANNOTATIONS, context.names.elastic_job)) == "true"
    if not is_elastic or not context.gates.is_enabled(Gate.ELASTIC_JOBS) or gate in gates:
        return job
    if not isinstance(value_at(job, TEMPLATE), Mapping):
        return job
    return with_value(job, (*TEMPLATE, "spec", "schedulingGates"), [*gates, gate])


def validate_create(job: JsonObject, context: RuleContext) -> list[FieldError]:
    """Check the two annotations of partial admission."""
    return partial_admission.find_annotation_errors(job, context.names)


def validate_update(old: JsonObject, new: JsonObject, context: RuleContext) -> list[FieldError]:
    """Check the annotations of a suspended Job; while running, that it keeps its partial admission."""
    if value_at(new, SUSPEND) is True:
        return validate_create(new, context)
    was_running = value_at(old, SUSPEND) is not True
    return partial_admission.find_running_job_errors(old, new, context.names, was_running=was_running)


JOB = Integration(
    framework="batch/job",
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=is_active,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(
        platform_labels=PLATFORM_LABELS,
        own_labels=frozenset({JOB_NAME_LABEL}),
    ),
    lifecycle=JobLifecycle(
        suspend_path=SUSPEND,
        ends_after_pods=True,
        is_stop_in_progress=is_stop_in_progress,
        plan_stop=plan_stop,
        patches_status=True,
    ),
    scaling=Scaling(
        with_pod_counts=with_pod_counts,
        count_reclaimable_pods=count_reclaimable_pods,
        can_be_elastic=True,
    ),
    ownership=KindOwnership(
        created_kinds=frozenset({("", "Pod")}),
        compare_child=compare_child,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller=OWN_CONTROLLER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        mutate=mutate,
        validate_create=validate_create,
        validate_update=validate_update,
    ),
)
