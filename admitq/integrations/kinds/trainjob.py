"""``trainer.kubeflow.org/v1alpha1`` TrainJob: a training runtime with the settings of a job.

The runtime contains a JobSet template with the pods. admitq writes the additions of an admission as its own
runtime patch. The trainer accepts changes of patches only while the job is suspended and has no pods. So a
start writes the patch before it resumes the job. A stop suspends the job, waits for its pods to end, and then
removes the patch. An annotation marks a stop in progress.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    JobOutcome,
    KindOwnership,
    KindWebhook,
    PatchStep,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    Scaling,
)
from admitq.integrations.children import get_name
from admitq.integrations.families import replicated_jobs, runtime_patches
from admitq.integrations.job_fields import find_end
from admitq.integrations.references import ObjectReference, OwnerKind, ReferencedKind
from admitq_api.json_objects import (
    JsonObject,
    as_int,
    as_list,
    as_text,
    create_merge_patch,
    object_at,
    objects_at,
    value_at,
    with_value,
)
from admitq_api.labels import Names

GROUP: Final = "trainer.kubeflow.org"
VERSION: Final = "v1alpha1"
CLUSTER_RUNTIME: Final = OwnerKind(GROUP, VERSION, "ClusterTrainingRuntime")
NAMESPACED_RUNTIME: Final = OwnerKind(GROUP, VERSION, "TrainingRuntime")

SUSPEND: Final = ("spec", "suspend")
PATCHES: Final = ("spec", "runtimePatches")
MAX_PATCHES: Final = 16
"""The maximum number of patches that the CRD allows."""
STATUSES: Final = ("status", "jobsStatus")
FINISHING_CONDITIONS: Final = {"Complete": True, "Failed": False}

_RUNTIME_KEY: Final = "resolvedRuntime"
"""The key of a resolved job with its runtime."""
_JOBSET_SPEC: Final = (_RUNTIME_KEY, "spec", "template", "spec")
_STEP_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a replicated job's template that names the part of the TrainJob with its settings."""
_TRAINER: Final = "trainer"
_NODE: Final = "node"
_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}


# --- the runtime ----------------------------------------------------------------------------------


def list_references(job: JsonObject) -> tuple[ObjectReference, ...]:
    """Return a reference to the runtime that the job names."""
    reference = value_at(job, ("spec", "runtimeRef"))
    kind = as_text(value_at(reference, ("kind",))) or CLUSTER_RUNTIME.kind
    group = as_text(value_at(reference, ("apiGroup",))) or GROUP
    namespace = as_text(value_at(job, ("metadata", "namespace")))
    is_namespaced = kind == NAMESPACED_RUNTIME.kind
    owner = OwnerKind(group, VERSION, kind)
    return (
        ObjectReference(owner, namespace if is_namespaced else "", as_text(value_at(reference, ("name",)))),
    )


def resolve(job: JsonObject, objects: Mapping[ObjectReference, JsonObject]) -> JsonObject:
    """Return the job with its runtime, if the runtime exists."""
    runtime = next((objects[reference] for reference in list_references(job) if reference in objects), None)
    return job if runtime is None else with_value(job, (_RUNTIME_KEY,), runtime)


def _list_replicated_jobs(job: JsonObject, *, without: str = "") -> list[JsonObject]:
    """Return the replicated jobs of the JobSet that the trainer creates, without one manager's patches."""
    spec = value_at(job, (_RUNTIME_KEY, "spec"))
    patches = value_at(job, PATCHES)
    return [
        _fill_in(
            job,
            spec,
            entry,
            runtime_patches.apply_patches(entry.get("template"), patches, name, without=without),
        )
        for entry in objects_at(spec, ("template", "spec", "replicatedJobs"))
        if (name := as_text(entry.get("name")))
    ]


def _fill_in(job: JsonObject, runtime: Any, entry: JsonObject, template: Any) -> JsonObject:
    step = as_text(value_at(template, ("metadata", "labels", _STEP_LABEL)))
    count = _count_nodes(job, runtime, as_text(entry.get("name")), step, template)
    for field in ("parallelism", "completions"):
        template = with_value(template, ("spec", field), count)
    path = ("spec", "template", "spec", "containers")
    containers = [
        _fill_in_container(job, runtime, entry, step, container)
        for container in as_list(value_at(template, path))
    ]
    if containers:
        template = with_value(template, path, containers)
    # The trainer omits 0, so that the JobSet has the default of 1.
    replicas = 1 if step in {_TRAINER, *_INITIALIZERS} else max(1, replicated_jobs.count_replicas(entry))
    return {**entry, "replicas": replicas, "template": template}


def _count_nodes(job: JsonObject, runtime: Any, name: str, step: str, template: Any) -> int:
    """Return the number of pods of a replicated job, which is both its parallelism and its completions."""
    policy = object_at(value_at(runtime, ("mlPolicy",)))
    count = as_int(value_at(template, ("spec", "parallelism")), 1)
    if step == _TRAINER and policy:
        count = as_int(policy.get("numNodes"), 1)
    nodes = as_int(value_at(job, ("spec", "trainer", "numNodes")), -1)
    if nodes < 0:
        return count
    if isinstance(policy.get("mpi"), Mapping):
        if name != _NODE:
            return count
        return max(nodes - 1, 1) if _runs_launcher_as_node(runtime) else nodes
    return nodes if step == _TRAINER else count


def _runs_launcher_as_node(runtime: Any) -> bool:
    return value_at(runtime, ("mlPolicy", "mpi", "runLauncherAsNode")) is True


def _fill_in_container(job: JsonObject, runtime: Any, entry: JsonObject, step: str, container: Any) -> Any:
    """Return a container with the settings of the job for it."""
    name = value_at(container, ("name",))
    part = _INITIALIZERS.get(step)
    if part is not None and name == step:
        initializer = value_at(job, ("spec", "initializer", part))
        uri = as_text(value_at(initializer, ("storageUri",)))
        own = [{"name": "STORAGE_URI", "value": uri}] if uri else []
        return _with_env(container, [*own, *as_list(value_at(initializer, ("env",)))])
    trainer = object_at(value_at(job, ("spec", "trainer")))
    if name != _NODE or not trainer:
        return container
    if step == _TRAINER:
        overrides = {field: trainer[field] for field in ("image", "command", "args") if trainer.get(field)}
        container = {**container, **overrides}
    elif not (_runs_launcher_as_node(runtime) and entry.get("name") == _NODE):
        return container
    resources = object_at(trainer.get("resourcesPerNode"))
    if resources.get("limits") or resources.get("requests"):
        fields = {field: resources[field] for field in ("limits", "requests") if resources.get(field)}
        container = {**container, "resources": fields}
    return _with_env(container, as_list(trainer.get("env")))


def _with_env(container: JsonObject, env: Sequence[Any]) -> JsonObject:
    return runtime_patches.merge(container, {"env": list(env)}) if env else container


# --- podsets --------------------------------------------------------------------------------------


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of the JobSet that the trainer creates; none while the runtime is unknown."""
    replicated = _list_replicated_jobs(job)
    return [
        PodSetTemplate(
            pod_set.name,
            pod_set.count,
            ("spec", "runtimeRef", pod_set.name, "template"),
            template=object_at(value_at(replicated, pod_set.template_path)),
            index_labels=pod_set.index_labels,
        )
        for pod_set in replicated_jobs.list_pod_sets(replicated, ())
    ]


def with_template(job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, names: Names) -> JsonObject:
    """Return the job with admitq's patch of the podset, which contains the additions to its template."""
    manager = names.trainjob_manager
    bare = next(
        (
            entry
            for entry in _list_replicated_jobs(job, without=manager)
            if as_text(entry.get("name")).lower() == pod_set.name
        ),
        dict[str, Any](),
    )
    patch = runtime_patches.create_patch(
        object_at(value_at(bare, ("template", "spec", "template"))), template
    )
    return with_value(
        job,
        PATCHES,
        runtime_patches.with_patch(
            value_at(job, PATCHES), manager, as_text(bare.get("name")) or pod_set.name, patch
        ),
    )


def compare_child(
    job: JsonObject, jobset: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a JobSet differs from the one that the trainer creates, which has the name of the job.

    Its pods are known only if the runtime exists. Otherwise only the names are compared.
    """
    if get_name(jobset) != get_name(job):
        return ChildDifference.IDENTITY
    if not value_at(job, (_RUNTIME_KEY,)):
        return None
    jobs = value_at(jobset, ("spec", "replicatedJobs"))
    return replicated_jobs.compare_entries(jobs, _list_replicated_jobs(job))


# --- status ---------------------------------------------------------------------------------------


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome from the job's conditions; None while it has not ended."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """Whether a job of its JobSet has pods that are pending or running."""
    return replicated_jobs.is_active(objects_at(job, STATUSES))


def are_pods_ready(job: JsonObject) -> bool:
    """Whether all jobs of its JobSet (without a runtime: all jobs in its status) are ready or succeeded."""
    statuses = objects_at(job, STATUSES)
    known = _list_replicated_jobs(job) or [{"name": status.get("name")} for status in statuses]
    return bool(known) and replicated_jobs.are_pods_ready(known, statuses)


def count_reclaimable_pods(job: JsonObject) -> Mapping[str, int] | None:
    """Return the numbers of pods of succeeded jobs, unless the JobSet of the runtime can restart."""
    counts = replicated_jobs.count_reclaimable_pods(
        value_at(job, _JOBSET_SPEC), _list_replicated_jobs(job), objects_at(job, STATUSES)
    )
    return counts or None


# --- start and stop -------------------------------------------------------------------------------


def is_stop_in_progress(job: JsonObject, names: Names) -> bool:
    """Whether a stop has begun and not ended."""
    return value_at(job, ("metadata", "annotations", names.stopping)) == "true"


def plan_start(job: JsonObject, started: JsonObject, _names: Names) -> tuple[PatchStep, ...]:
    """Write the patch while the job is suspended, then resume the job."""
    patched = with_value(started, SUSPEND, True)
    steps = (PatchStep(create_merge_patch(job, patched)), PatchStep(create_merge_patch(patched, started)))
    return tuple(step for step in steps if step.patch)


def plan_stop(job: JsonObject, _stopped: JsonObject, names: Names) -> tuple[PatchStep, ...]:
    """Suspend and mark the job. Without pods, empty admitq's patch and remove the mark."""
    mark = ("metadata", "annotations", names.stopping)
    suspended = with_value(with_value(job, SUSPEND, True), mark, "true")
    steps = [PatchStep(create_merge_patch(job, suspended))]
    if not is_active(job):
        bare = runtime_patches.without_patch(value_at(job, PATCHES), names.trainjob_manager)
        restored = with_value(suspended, PATCHES, bare) if bare else suspended
        steps.append(PatchStep(create_merge_patch(suspended, with_value(restored, mark, None))))
    return tuple(step for step in steps if step.patch)


def mutate_every_object(job: JsonObject, context: RuleContext) -> JsonObject:
    """Return a new job with an empty patch of admitq, so that admitq's place among the patches is reserved.

    A trainer without support for patches drops it. A job that is not queued and already has the maximum
    number of patches is left unchanged, so that it is not rejected.
    """
    manager, patches = context.names.trainjob_manager, as_list(value_at(job, PATCHES))
    if any(patch.get("manager") == manager for patch in objects_at(job, PATCHES)):
        return job
    if not context.is_managed and len(patches) >= MAX_PATCHES:
        return job
    return with_value(job, PATCHES, [*patches, {"manager": manager}])


TRAIN_JOB = Integration(
    framework="trainer.kubeflow.org/trainjob",
    group=GROUP,
    version=VERSION,
    kind="TrainJob",
    plural="trainjobs",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=is_active,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(
        pod_sets_field="spec.runtimeRef",
        with_template=with_template,
        list_references=list_references,
        referenced_kinds=(
            ReferencedKind(CLUSTER_RUNTIME, "clustertrainingruntimes", namespaced=False),
            ReferencedKind(NAMESPACED_RUNTIME, "trainingruntimes", namespaced=True),
        ),
        resolve=resolve,
    ),
    lifecycle=JobLifecycle(
        suspend_path=SUSPEND,
        is_stop_in_progress=is_stop_in_progress,
        plan_start=plan_start,
        plan_stop=plan_stop,
    ),
    scaling=Scaling(count_reclaimable_pods=count_reclaimable_pods),
    ownership=KindOwnership(
        created_kinds=frozenset({("jobset.x-k8s.io", "JobSet")}),
        compare_child=compare_child,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller="trainer.kubeflow.org/trainjob-controller",
        dispatch_controller=KUEUE_MULTIKUEUE_CONTROLLER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(mutate_every_object=mutate_every_object),
)
