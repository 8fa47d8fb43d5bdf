"""``ray.io/v1`` RayJob: a RayCluster for one job, and what submits the job to it.

How the job is submitted decides who asks for quota: by a pod of its own, by a container in the head, or by
the operator itself. A job that selects a cluster which is there makes no pods and is none of ours.
"""

from typing import Any, Final

from admitq.integrations.base import (
    KNOWN_DISPATCHER,
    Delegation,
    Difference,
    Elastic,
    Finished,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    Reference,
    Rules,
    Scaling,
)
from admitq.integrations.children import Pods, differing_pods, name_of
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.families.batch_jobs import pods_at_a_time
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, as_text, object_at, value_at, without_value
from admitq_api.labels import Names

SPEC: Final = ("spec", "rayClusterSpec")
SELECTOR: Final = ("spec", "clusterSelector")
SUBMITTER_TEMPLATE: Final = ("spec", "submitterPodTemplate")
SHUTDOWN: Final = ("spec", "shutdownAfterJobFinishes")
SUBMITTER: Final = "submitter"

_BY_POD: Final = "K8sJobMode"
_BY_SIDECAR: Final = "SidecarMode"

_SUBMITTER_RESOURCES: Final[dict[str, Any]] = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
"""What the operator gives a submitter that nobody described."""

_WITHOUT_PODS: Final = frozenset({"", "Suspended"})


def _mode(job: JsonObject) -> str:
    return as_text(value_at(job, ("spec", "submissionMode"))) or _BY_POD


def _deployment(job: JsonObject) -> str:
    return as_text(value_at(job, ("status", "jobDeploymentStatus")))


def _submitter(job: JsonObject) -> JsonObject:
    """The container that the operator submits the job from."""
    name, image = "ray-job-submitter", ray_clusters.head_image(job, SPEC)
    return {"name": name, **image, "resources": _SUBMITTER_RESOURCES}


def _submitter_spec(job: JsonObject) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [_submitter(job)]}


def pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """The head, each group of workers, and the submitter where it is a pod."""
    return _pod_sets(job)


def _pod_sets(job: JsonObject) -> list[PodSetTemplate]:
    sidecars = [_submitter(job)] if _mode(job) == _BY_SIDECAR else []
    listed = ray_clusters.pod_sets(job, SPEC, sidecars)
    if listed and _mode(job) == _BY_POD:
        own = object_at(value_at(job, SUBMITTER_TEMPLATE))
        default = None if own else {"spec": _submitter_spec(job)}
        listed.append(PodSetTemplate(SUBMITTER, 1, SUBMITTER_TEMPLATE, template=default))
    return listed


def differs(job: JsonObject, child: JsonObject, is_elastic: Elastic) -> Difference | None:
    """In what a RayCluster or Job differs from the cluster and the submitter that the operator creates.

    The operator writes the name of the cluster into the status before it creates it. The submitter has the
    name of the RayJob.
    """
    pods = list(_pod_sets(job))
    if child.get("kind") == "Job":
        granted = next((Pods(one.template_in(job), one.count) for one in pods if one.name == SUBMITTER), None)
        if granted is None or name_of(child) != name_of(job):
            return Difference.IDENTITY
        template, spec = object_at(child, ("spec", "template")), object_at(child, ("spec",))
        return differing_pods(Pods(template, pods_at_a_time(spec)), granted)
    named = as_text(value_at(job, ("status", "rayClusterName")))
    if not (name_of(child) == named if named else ray_clusters.is_named_after(child, job)):
        return Difference.IDENTITY
    return ray_clusters.differing_cluster(pods, job, child, is_elastic)


def references(job: JsonObject) -> tuple[Reference, ...]:
    """The cluster that was made for the job, if Ray scales it."""
    return ray_clusters.made_for(job, SPEC, [value_at(job, ("status", "rayClusterName"))])


def with_template(job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, names: Names) -> JsonObject:
    """The job with another template for a podset; a submitter as the operator makes it stands nowhere."""
    is_submitter = pod_set.template_path == SUBMITTER_TEMPLATE
    said = {field: value for field, value in object_at(template.get("spec")).items() if value}
    if (
        is_submitter
        and said == _submitter_spec(job)
        and not any(object_at(template.get("metadata")).values())
    ):
        return without_value(job, SUBMITTER_TEMPLATE)
    return ray_clusters.with_template(job, pod_set, template, names)


def finished(job: JsonObject) -> Finished | None:
    """When the operator has ended the job; only Ray itself tells whether it succeeded."""
    if _deployment(job) not in {"Complete", "Failed"}:
        return None
    success = value_at(job, ("status", "jobStatus")) == "SUCCEEDED"
    return Finished(success, as_text(value_at(job, ("status", "message"))))


def is_active(job: JsonObject) -> bool:
    """From the first step of the operator until everything is deleted again."""
    return _deployment(job) not in _WITHOUT_PODS


def pods_ready(job: JsonObject) -> bool:
    """When the job's cluster is ready."""
    return value_at(job, ("status", "rayClusterStatus", "state")) == "ready"


def is_on_hold(job: JsonObject) -> bool:
    """When the operator refuses the job: it will never make pods of it."""
    return _deployment(job) == "ValidationFailed"


def is_skipped(job: JsonObject) -> bool:
    """A job for a cluster that is there."""
    return bool(object_at(value_at(job, SELECTOR)))


def _errors(job: JsonObject, rules: Rules) -> list[FieldError]:
    has_cluster = bool(object_at(value_at(job, SPEC)))
    if is_skipped(job):
        selector = dict(object_at(value_at(job, SELECTOR)))
        detail = "a job that is queued makes its own cluster and cannot select another one"
        error = FieldError.invalid("spec.clusterSelector", selector, detail, "take one of the two out")
        return [error] if has_cluster else []
    if not has_cluster:
        return [FieldError.required("spec.rayClusterSpec", "a job that is queued makes its own cluster")]
    errors: list[FieldError] = []
    if value_at(job, SHUTDOWN) is not True:
        detail = "a job that is queued must delete its cluster when it has finished"
        path = "spec.shutdownAfterJobFinishes"
        errors.append(FieldError.invalid(path, value_at(job, SHUTDOWN, False), detail, "set it to true"))
    reserved = (ray_clusters.HEAD, SUBMITTER) if _mode(job) == _BY_POD else (ray_clusters.HEAD,)
    return [*errors, *ray_clusters.errors(job, SPEC, rules, reserved)]


RAY_JOB = Integration(
    framework="ray.io/rayjob",
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayJob",
    plural="rayjobs",
    pod_sets=pod_sets,
    finished=finished,
    is_active=is_active,
    pods_ready=pods_ready,
    templates=PodTemplates(
        pod_sets_field=".".join(SPEC),
        with_template=with_template,
        references=references,
        follows=(ray_clusters.CLUSTERS,),
        resolved=ray_clusters.with_made,
    ),
    lifecycle=JobLifecycle(
        is_on_hold=is_on_hold,
        is_skipped=is_skipped,
    ),
    scaling=Scaling(
        can_be_elastic=True,
        slice_version=ray_clusters.slice_version,
    ),
    ownership=KindOwnership(
        creates=frozenset({(ray_clusters.GROUP, "RayCluster"), ("batch", "Job")}),
        differs=differs,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller=ray_clusters.OPERATOR,
        dispatched_as=KNOWN_DISPATCHER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        validate_create=managed_job_rules.on_create(_errors),
        is_update_validated=managed_job_rules.is_update_validated,
        validate_update=managed_job_rules.on_update(_errors),
    ),
)
