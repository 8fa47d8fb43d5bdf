"""``batch/v1`` Job: one podset, suspended by the API itself, stopped in three steps.

The API server lets the template of a Job change only while the Job is suspended, has no pods and, for older
servers, was never started. So a stop suspends it, waits for its pods to end, takes back the start time, and
only then restores the template. An annotation marks the time between, so that a stop cut short is resumed by
whoever sees the Job next.
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
"""Whether the Job succeeded, by the condition that ends it."""

PLATFORM_LABELS = frozenset({"batch.kubernetes.io/controller-uid", "controller-uid", "job-name"})
"""Written by the API server into each Job's template, besides ``JOB_NAME``."""

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""As stable as the Job's name, so that it stays in the Workload."""


def _count_pods(job: JsonObject) -> int:
    return count_parallel_pods(object_at(job, ("spec",)))


def list_pod_sets(job: JsonObject, names: Names) -> list[PodSetTemplate]:
    """One podset of all pods that run at a time."""
    fewest = partial_admission.get_min_count(job, names)
    return [
        PodSetTemplate(
            MAIN, _count_pods(job), TEMPLATE, fewest, index_labels=PodIndexLabels(COMPLETION_INDEX_LABEL)
        )
    ]


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """As the Job's conditions say."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """While pods are pending or running, or are being deleted and are not gone."""
    status = object_at(job, ("status",))
    return as_int(status.get("active")) != 0 or as_int(status.get("terminating")) != 0


def are_pods_ready(job: JsonObject) -> bool:
    """When every pod that is to run at a time is ready or has succeeded."""
    status = object_at(job, ("status",))
    uncounted = value_at(status, ("uncountedTerminatedPods", "succeeded"))
    succeeded = as_int(status.get("succeeded")) + (len(uncounted) if isinstance(uncounted, list) else 0)
    return succeeded + as_int(status.get("ready")) >= _count_pods(job)


def count_reclaimable_pods(job: JsonObject) -> Mapping[str, int] | None:
    """Pods that ended while fewer completions are left than pods may run at a time.

    A Job without completions starts no pod once one has succeeded. After a scale-down more of its pods may
    run than the difference of its size and its successes.
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
    """Between the first and the last step of a stop."""
    return value_at(job, (*ANNOTATIONS, names.stopping)) == "true"


def plan_stop(job: JsonObject, stopped: JsonObject, names: Names) -> tuple[PatchStep, ...]:
    """Suspend and mark; without pods, take back the start time, then restore and unmark.

    While pods start, the Job controller counts them in the status several times a second. The stop of a Job
    that runs does not depend on their numbers.
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
    """The Job with as many pods as were admitted."""
    return partial_admission.with_pod_count(job, counts[MAIN], names) if MAIN in counts else job


def compare_child(job: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck) -> ChildDifference | None:
    """In what a pod differs from those that the Job controller creates.

    That controller counts all pods that have its selector and name it as their controller. It deletes those
    beyond the Job's parallelism, and one of two with the same index.
    """
    if not is_selected(job, pod) or not _has_generated_name(job, pod):
        return ChildDifference.IDENTITY
    return None if is_pod_within(pod, object_at(job, TEMPLATE)) else ChildDifference.REQUESTS


def _has_generated_name(job: JsonObject, pod: JsonObject) -> bool:
    if value_at(job, ("spec", "managedBy")) not in (None, OWN_CONTROLLER):
        # Another controller names pods as it likes.
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


def mutate(job: JsonObject, rules: RuleContext) -> JsonObject:
    """Hold the pods of an elastic Job."""
    gate = {"name": rules.names.elastic_gate}
    gates = as_list(value_at(job, (*TEMPLATE, "spec", "schedulingGates")))
    is_elastic = value_at(job, (*ANNOTATIONS, rules.names.elastic_job)) == "true"
    if not is_elastic or not rules.gates.is_enabled(Gate.ELASTIC_JOBS) or gate in gates:
        return job
    if not isinstance(value_at(job, TEMPLATE), Mapping):
        return job
    return with_value(job, (*TEMPLATE, "spec", "schedulingGates"), [*gates, gate])


def validate_create(job: JsonObject, rules: RuleContext) -> list[FieldError]:
    """Check the two annotations of partial admission."""
    return partial_admission.find_annotation_errors(job, rules.names)


def validate_update(old: JsonObject, new: JsonObject, rules: RuleContext) -> list[FieldError]:
    """Check the annotations while suspended; while running, that nothing undoes a partial admission."""
    if value_at(new, SUSPEND) is True:
        return validate_create(new, rules)
    was_running = value_at(old, SUSPEND) is not True
    return partial_admission.find_running_job_errors(old, new, rules.names, was_running=was_running)


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
