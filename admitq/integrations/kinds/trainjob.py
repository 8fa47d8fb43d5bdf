"""``trainer.kubeflow.org/v1alpha1`` TrainJob: a runtime of the platform, filled in by who trains with it.

The pods stand in the runtime, a JobSet to be filled in. What an admission gives them is a patch of our own
among the patches of that runtime, which the trainer lets change only while the job is suspended and has no
pods. So a start patches before it lifts the suspension, and a stop suspends, waits, and then takes the patch
back; an annotation marks the time between.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    KNOWN_DISPATCHER,
    Delegation,
    Difference,
    Elastic,
    Finished,
    FollowedKind,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    OwnerKind,
    PodSetTemplate,
    PodTemplates,
    Reference,
    Rules,
    Scaling,
    Step,
)
from admitq.integrations.children import name_of
from admitq.integrations.families import replicated_jobs, runtime_patches
from admitq.integrations.job_fields import find_end
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
MOST_PATCHES: Final = 16
"""As many as the definition of the kind allows."""
STATUSES: Final = ("status", "jobsStatus")
FINISHING_CONDITIONS: Final = {"Complete": True, "Failed": False}

_RUNTIME: Final = "resolvedRuntime"
"""The key under which a resolved job has its runtime."""
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a replicated job's template that tells which part of the TrainJob fills it in."""
_TRAINER: Final = "trainer"
_NODE: Final = "node"
_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}


# --- the runtime ----------------------------------------------------------------------------------


def references(job: JsonObject) -> tuple[Reference, ...]:
    """The runtime that the job names."""
    reference = value_at(job, ("spec", "runtimeRef"))
    kind = as_text(value_at(reference, ("kind",))) or CLUSTER_RUNTIME.kind
    group = as_text(value_at(reference, ("apiGroup",))) or GROUP
    namespace = as_text(value_at(job, ("metadata", "namespace")))
    is_namespaced = kind == NAMESPACED_RUNTIME.kind
    owner = OwnerKind(group, VERSION, kind)
    return (Reference(owner, namespace if is_namespaced else "", as_text(value_at(reference, ("name",)))),)


def resolved(job: JsonObject, found: Mapping[Reference, JsonObject]) -> JsonObject:
    """The job with its runtime, as far as that is there."""
    runtime = next((found[one] for one in references(job) if one in found), None)
    return job if runtime is None else with_value(job, (_RUNTIME,), runtime)


def _replicated(job: JsonObject, *, without: str = "") -> list[JsonObject]:
    """The replicated jobs of the JobSet that the trainer makes, but for the patches of one manager."""
    spec = value_at(job, (_RUNTIME, "spec"))
    patches = value_at(job, PATCHES)
    return [
        _filled_in(
            job, spec, one, runtime_patches.applied(one.get("template"), patches, name, without=without)
        )
        for one in objects_at(spec, ("template", "spec", "replicatedJobs"))
        if (name := as_text(one.get("name")))
    ]


def _filled_in(job: JsonObject, runtime: Any, entry: JsonObject, template: Any) -> JsonObject:
    step = as_text(value_at(template, ("metadata", "labels", _STEP)))
    count = _nodes(job, runtime, as_text(entry.get("name")), step, template)
    for field in ("parallelism", "completions"):
        template = with_value(template, ("spec", field), count)
    path = ("spec", "template", "spec", "containers")
    containers = [_container(job, runtime, entry, step, one) for one in as_list(value_at(template, path))]
    if containers:
        template = with_value(template, path, containers)
    # The trainer omits a number of 0, and the JobSet has its default of 1.
    replicas = 1 if step in {_TRAINER, *_INITIALIZERS} else max(1, replicated_jobs.replicas_of(entry))
    return {**entry, "replicas": replicas, "template": template}


def _nodes(job: JsonObject, runtime: Any, name: str, step: str, template: Any) -> int:
    """Pods of a replicated job; the trainer makes as many of them parallel as there are to complete."""
    policy = object_at(value_at(runtime, ("mlPolicy",)))
    count = as_int(value_at(template, ("spec", "parallelism")), 1)
    if step == _TRAINER and policy:
        count = as_int(policy.get("numNodes"), 1)
    wanted = as_int(value_at(job, ("spec", "trainer", "numNodes")), -1)
    if wanted < 0:
        return count
    if isinstance(policy.get("mpi"), Mapping):
        if name != _NODE:
            return count
        return max(wanted - 1, 1) if _launcher_is_node(runtime) else wanted
    return wanted if step == _TRAINER else count


def _launcher_is_node(runtime: Any) -> bool:
    return value_at(runtime, ("mlPolicy", "mpi", "runLauncherAsNode")) is True


def _container(job: JsonObject, runtime: Any, entry: JsonObject, step: str, container: Any) -> Any:
    """A container with what the job says about the part it has in it."""
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
        said = {field: trainer[field] for field in ("image", "command", "args") if trainer.get(field)}
        container = {**container, **said}
    elif not (_launcher_is_node(runtime) and entry.get("name") == _NODE):
        return container
    resources = object_at(trainer.get("resourcesPerNode"))
    if resources.get("limits") or resources.get("requests"):
        kept = {field: resources[field] for field in ("limits", "requests") if resources.get(field)}
        container = {**container, "resources": kept}
    return _with_env(container, as_list(trainer.get("env")))


def _with_env(container: JsonObject, env: Sequence[Any]) -> JsonObject:
    return runtime_patches.merged(container, {"env": list(env)}) if env else container


# --- podsets --------------------------------------------------------------------------------------


def pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """The podsets of the JobSet that the trainer makes; none while the runtime is not known."""
    replicated = _replicated(job)
    return [
        PodSetTemplate(
            pod_set.name,
            pod_set.count,
            ("spec", "runtimeRef", pod_set.name, "template"),
            template=object_at(value_at(replicated, pod_set.template_path)),
            indexes=pod_set.indexes,
        )
        for pod_set in replicated_jobs.pod_sets(replicated, ())
    ]


def with_template(job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, names: Names) -> JsonObject:
    """The job with our patch of the podset: all that the template has beyond what it would have without."""
    manager = names.trainjob_manager
    bare = next(
        (
            one
            for one in _replicated(job, without=manager)
            if as_text(one.get("name")).lower() == pod_set.name
        ),
        dict[str, Any](),
    )
    patch = runtime_patches.difference(object_at(value_at(bare, ("template", "spec", "template"))), template)
    return with_value(
        job,
        PATCHES,
        runtime_patches.with_patch(
            value_at(job, PATCHES), manager, as_text(bare.get("name")) or pod_set.name, patch
        ),
    )


def differs(job: JsonObject, jobset: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a JobSet differs from the one that the trainer creates: it has the name of the job.

    What its pods are is known from the runtime only. While that is not there, names alone are compared.
    """
    if name_of(jobset) != name_of(job):
        return Difference.IDENTITY
    if not value_at(job, (_RUNTIME,)):
        return None
    jobs = value_at(jobset, ("spec", "replicatedJobs"))
    return replicated_jobs.differing_entries(jobs, _replicated(job))


# --- status ---------------------------------------------------------------------------------------


def finished(job: JsonObject) -> Finished | None:
    """As the job's conditions say."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """While a job of its JobSet has pods that are pending or running."""
    return replicated_jobs.is_active(objects_at(job, STATUSES))


def pods_ready(job: JsonObject) -> bool:
    """When all jobs of its JobSet are ready or have succeeded; without a runtime, all that are told of."""
    statuses = objects_at(job, STATUSES)
    known = _replicated(job) or [{"name": status.get("name")} for status in statuses]
    return bool(known) and replicated_jobs.pods_ready(known, statuses)


def reclaimable(job: JsonObject) -> Mapping[str, int] | None:
    """The pods of jobs that succeeded."""
    return replicated_jobs.reclaimable(_replicated(job), objects_at(job, STATUSES)) or None


# --- start and stop -------------------------------------------------------------------------------


def is_half_stopped(job: JsonObject, names: Names) -> bool:
    """Between the suspension and the end of a stop."""
    return value_at(job, ("metadata", "annotations", names.stopping)) == "true"


def start(job: JsonObject, started: JsonObject, _names: Names) -> tuple[Step, ...]:
    """Patch while suspended, then lift the suspension."""
    patched = with_value(started, SUSPEND, True)
    steps = (Step(create_merge_patch(job, patched)), Step(create_merge_patch(patched, started)))
    return tuple(step for step in steps if step.patch)


def stop(job: JsonObject, _stopped: JsonObject, names: Names) -> tuple[Step, ...]:
    """Suspend and mark; without pods, take our patch back whatever it says, and unmark."""
    mark = ("metadata", "annotations", names.stopping)
    suspended = with_value(with_value(job, SUSPEND, True), mark, "true")
    steps = [Step(create_merge_patch(job, suspended))]
    if not is_active(job):
        bare = runtime_patches.without_patch(value_at(job, PATCHES), names.trainjob_manager)
        restored = with_value(suspended, PATCHES, bare) if bare else suspended
        steps.append(Step(create_merge_patch(suspended, with_value(restored, mark, None))))
    return tuple(step for step in steps if step.patch)


def mutate_any(job: JsonObject, rules: Rules) -> JsonObject:
    """Have a patch of our own from the start, empty, so that nobody else takes its place.

    A trainer that knows no patches yet drops it. A job that is not queued, and leaves no room for it, is not
    to be refused for our sake.
    """
    manager, patches = rules.names.trainjob_manager, as_list(value_at(job, PATCHES))
    if any(one.get("manager") == manager for one in objects_at(job, PATCHES)):
        return job
    if not rules.is_managed and len(patches) >= MOST_PATCHES:
        return job
    return with_value(job, PATCHES, [*patches, {"manager": manager}])


TRAIN_JOB = Integration(
    framework="trainer.kubeflow.org/trainjob",
    group=GROUP,
    version=VERSION,
    kind="TrainJob",
    plural="trainjobs",
    pod_sets=pod_sets,
    finished=finished,
    is_active=is_active,
    pods_ready=pods_ready,
    templates=PodTemplates(
        pod_sets_field="spec.runtimeRef",
        with_template=with_template,
        references=references,
        follows=(
            FollowedKind(CLUSTER_RUNTIME, "clustertrainingruntimes", namespaced=False),
            FollowedKind(NAMESPACED_RUNTIME, "trainingruntimes", namespaced=True),
        ),
        resolved=resolved,
    ),
    lifecycle=JobLifecycle(
        suspend_path=SUSPEND,
        is_half_stopped=is_half_stopped,
        start=start,
        stop=stop,
    ),
    scaling=Scaling(reclaimable=reclaimable),
    ownership=KindOwnership(
        creates=frozenset({("jobset.x-k8s.io", "JobSet")}),
        differs=differs,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller="trainer.kubeflow.org/trainjob-controller",
        dispatched_as=KNOWN_DISPATCHER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(mutate_any=mutate_any),
)
