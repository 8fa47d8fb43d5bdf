"""``ray.io/v1`` RayJob: a RayCluster for one job, and a submitter.

The submission mode decides which pods need quota. The submitter is a separate pod, a container of the head,
or the operator itself. admitq ignores a job that selects an existing cluster, because it creates no pods.
"""

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
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    Scaling,
)
from admitq.integrations.children import PodsOfTemplate, compare_pods, get_name
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.families.batch_jobs import count_parallel_pods
from admitq.integrations.references import ObjectReference
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, as_text, object_at, value_at, without_value
from admitq_api.labels import Names

SPEC: Final = ("spec", "rayClusterSpec")
SELECTOR: Final = ("spec", "clusterSelector")
SUBMITTER_TEMPLATE: Final = ("spec", "submitterPodTemplate")
SHUTDOWN: Final = ("spec", "shutdownAfterJobFinishes")
SUBMITTER: Final = "submitter"

_POD_MODE: Final = "K8sJobMode"
_SIDECAR_MODE: Final = "SidecarMode"

_SUBMITTER_RESOURCES: Final[dict[str, Any]] = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
"""The resources of a submitter without a template."""

_STATUSES_WITHOUT_PODS: Final = frozenset({"", "Suspended"})


def _get_submission_mode(job: JsonObject) -> str:
    return as_text(value_at(job, ("spec", "submissionMode"))) or _POD_MODE


def _get_deployment_status(job: JsonObject) -> str:
    return as_text(value_at(job, ("status", "jobDeploymentStatus")))


def _create_submitter(job: JsonObject) -> JsonObject:
    """Return the container from which the operator submits the job."""
    name, image = "ray-job-submitter", ray_clusters.get_head_image(job, SPEC)
    return {"name": name, **image, "resources": _SUBMITTER_RESOURCES}


def _create_submitter_spec(job: JsonObject) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [_create_submitter(job)]}


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of the head, of each worker group, and of the submitter, if it is a pod."""
    return _list_pod_sets(job)


def _list_pod_sets(job: JsonObject) -> list[PodSetTemplate]:
    sidecars = [_create_submitter(job)] if _get_submission_mode(job) == _SIDECAR_MODE else []
    listed = ray_clusters.list_pod_sets(job, SPEC, sidecars)
    if listed and _get_submission_mode(job) == _POD_MODE:
        own = object_at(value_at(job, SUBMITTER_TEMPLATE))
        default = None if own else {"spec": _create_submitter_spec(job)}
        listed.append(PodSetTemplate(SUBMITTER, 1, SUBMITTER_TEMPLATE, template=default))
    return listed


def compare_child(job: JsonObject, child: JsonObject, is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how a RayCluster or Job differs from the cluster and the submitter that the operator creates.

    The operator writes the name of the cluster to the status before it creates the cluster. The submitter has
    the name of the RayJob.
    """
    pods = list(_list_pod_sets(job))
    if child.get("kind") == "Job":
        granted = next(
            (
                PodsOfTemplate(pod_set.get_template(job), pod_set.count)
                for pod_set in pods
                if pod_set.name == SUBMITTER
            ),
            None,
        )
        if granted is None or get_name(child) != get_name(job):
            return ChildDifference.IDENTITY
        template, spec = object_at(child, ("spec", "template")), object_at(child, ("spec",))
        return compare_pods(PodsOfTemplate(template, count_parallel_pods(spec)), granted)
    named = as_text(value_at(job, ("status", "rayClusterName")))
    if not (get_name(child) == named if named else ray_clusters.has_generated_name(child, job)):
        return ChildDifference.IDENTITY
    return ray_clusters.compare_cluster(pods, job, child, is_elastic)


def list_references(job: JsonObject) -> tuple[ObjectReference, ...]:
    """Return a reference to the cluster of the job."""
    return ray_clusters.list_cluster_references(job, SPEC, [value_at(job, ("status", "rayClusterName"))])


def with_template(job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, names: Names) -> JsonObject:
    """Return the job with another template for a podset, but without a default template of the submitter."""
    is_submitter = pod_set.template_path == SUBMITTER_TEMPLATE
    spec = {field: value for field, value in object_at(template.get("spec")).items() if value}
    if (
        is_submitter
        and spec == _create_submitter_spec(job)
        and not any(object_at(template.get("metadata")).values())
    ):
        return without_value(job, SUBMITTER_TEMPLATE)
    return ray_clusters.with_template(job, pod_set, template, names)


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome when the operator has ended the job. Ray's status states whether it succeeded."""
    if _get_deployment_status(job) not in {"Complete", "Failed"}:
        return None
    success = value_at(job, ("status", "jobStatus")) == "SUCCEEDED"
    return JobOutcome(success, as_text(value_at(job, ("status", "message"))))


def is_active(job: JsonObject) -> bool:
    """Whether the operator has begun to create pods and has not deleted all of them."""
    return _get_deployment_status(job) not in _STATUSES_WITHOUT_PODS


def are_pods_ready(job: JsonObject) -> bool:
    """Whether the job's cluster is ready."""
    return value_at(job, ("status", "rayClusterStatus", "state")) == "ready"


def is_on_hold(job: JsonObject) -> bool:
    """Whether the operator has rejected the job, so that it will not create pods."""
    return _get_deployment_status(job) == "ValidationFailed"


def is_ignored(job: JsonObject) -> bool:
    """Whether the job selects an existing cluster."""
    return bool(object_at(value_at(job, SELECTOR)))


def _find_errors(job: JsonObject, context: RuleContext) -> list[FieldError]:
    has_cluster = bool(object_at(value_at(job, SPEC)))
    if is_ignored(job):
        selector = dict(object_at(value_at(job, SELECTOR)))
        detail = "a job that is queued creates its own cluster and cannot select another one"
        error = FieldError.invalid("spec.clusterSelector", selector, detail, "take one of the two out")
        return [error] if has_cluster else []
    if not has_cluster:
        return [FieldError.required("spec.rayClusterSpec", "a job that is queued creates its own cluster")]
    errors: list[FieldError] = []
    if value_at(job, SHUTDOWN) is not True:
        detail = "a job that is queued must delete its cluster when it has finished"
        path = "spec.shutdownAfterJobFinishes"
        errors.append(FieldError.invalid(path, value_at(job, SHUTDOWN, False), detail, "set it to true"))
    reserved = (
        (ray_clusters.HEAD, SUBMITTER) if _get_submission_mode(job) == _POD_MODE else (ray_clusters.HEAD,)
    )
    return [*errors, *ray_clusters.find_errors(job, SPEC, context, reserved)]


RAY_JOB = Integration(
    framework="ray.io/rayjob",
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayJob",
    plural="rayjobs",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=is_active,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(
        pod_sets_field=".".join(SPEC),
        with_template=with_template,
        list_references=list_references,
        referenced_kinds=(ray_clusters.CLUSTER_KIND,),
        resolve=ray_clusters.with_clusters,
    ),
    lifecycle=JobLifecycle(
        is_on_hold=is_on_hold,
        is_ignored=is_ignored,
    ),
    scaling=Scaling(
        can_be_elastic=True,
        get_slice_version=ray_clusters.get_slice_version,
    ),
    ownership=KindOwnership(
        created_kinds=frozenset({(ray_clusters.GROUP, "RayCluster"), ("batch", "Job")}),
        compare_child=compare_child,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller=ray_clusters.OPERATOR,
        dispatch_controller=KUEUE_MULTIKUEUE_CONTROLLER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        validate_create=managed_job_rules.check_new_jobs(_find_errors),
        checks_templates_only_if_managed=True,
        should_validate_update=managed_job_rules.should_validate_update,
        validate_update=managed_job_rules.check_updated_jobs(_find_errors),
    ),
)
