"""``ray.io/v1`` RayCluster: a head and worker groups, which run until the cluster is deleted.

The operator deletes all pods of a suspended cluster. A cluster of a RayJob or RayService is queued with its
owner and not separately.
"""

from typing import Final

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    Scaling,
    return_none,
)
from admitq.integrations.children import PodsOfTemplate, compare_pods, get_name, is_pod_within
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.families.batch_jobs import count_parallel_pods
from admitq.integrations.job_fields import is_condition_true
from admitq.integrations.workload_names import MAX_LABEL_LENGTH
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, as_text, object_at, text_at, value_at
from admitq_api.labels import Names

SPEC: Final = ("spec",)
MANAGED_BY: Final = ("spec", "managedBy")

_LABELS: Final = ("metadata", "labels")
_CLUSTER_LABEL: Final = "ray.io/cluster"
_NODE_TYPE_LABEL: Final = "ray.io/node-type"
_GROUP_LABEL: Final = "ray.io/group"
_WORKER: Final = "worker"
_MAX_UNCUT_NAMES: Final = 36
"""The operator shortens the names of pods if the names of cluster and group have more characters together."""


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of the head and of each worker group."""
    return ray_clusters.list_pod_sets(job, SPEC)


def are_pods_ready(job: JsonObject) -> bool:
    """Whether the state of the cluster is ready."""
    return value_at(job, ("status", "state")) == "ready"


def is_active(job: JsonObject) -> bool:
    """Whether the cluster is ready, or its pods are being deleted."""
    return are_pods_ready(job) or is_condition_true(job, "RayClusterSuspending")


def compare_child(
    cluster: JsonObject, child: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a pod, or the Job that cleans up Redis, differs from those that the operator creates.

    The operator counts pods by their labels, and deletes excess pods of a group.
    """
    if child.get("kind") == "Job":
        return _compare_cleanup_job(cluster, child)
    name, role = get_name(cluster), text_at(child, (*_LABELS, _NODE_TYPE_LABEL))
    group = (
        ray_clusters.HEAD if role == ray_clusters.HEAD else text_at(child, (*_LABELS, _GROUP_LABEL)).lower()
    )
    granted = next(
        (pod_set for pod_set in ray_clusters.list_pod_sets(cluster, SPEC) if pod_set.name == group), None
    )
    named = get_name(child) or as_text(value_at(child, ("metadata", "generateName")))
    # Depending on its version, the operator shortens long names at the start or at the end.
    is_named = named.startswith(f"{name}-") or len(name) + len(group) > _MAX_UNCUT_NAMES
    if (
        granted is None
        or role not in (ray_clusters.HEAD, _WORKER)
        or text_at(child, (*_LABELS, _CLUSTER_LABEL)) != name
        or not is_named
        or f"-{role}" not in named
        or (role == ray_clusters.HEAD and _is_second_head(cluster, child))
    ):
        return ChildDifference.IDENTITY
    return None if is_pod_within(child, granted.get_template(cluster)) else ChildDifference.REQUESTS


def _is_second_head(cluster: JsonObject, pod: JsonObject) -> bool:
    """Whether the name of a head differs from the one in the status.

    Older operators generate a new name for each head. Not all operators delete a second head.
    """
    known = text_at(cluster, ("status", "head", "podName"))
    return known.endswith(f"-{ray_clusters.HEAD}") and get_name(pod) != known


def _compare_cleanup_job(cluster: JsonObject, job: JsonObject) -> ChildDifference | None:
    """Compare the Job that the operator creates after the cluster's deletion, with one pod like the head."""
    full = f"{get_name(cluster)}-redis-cleanup"
    is_named = get_name(job) == full or (
        len(full) > MAX_LABEL_LENGTH and get_name(job).endswith("-redis-cleanup")
    )
    if not is_named or not ray_clusters.is_fault_tolerant(cluster, SPEC):
        return ChildDifference.IDENTITY
    heads = (
        pod_set for pod_set in ray_clusters.list_pod_sets(cluster, SPEC) if pod_set.name == ray_clusters.HEAD
    )
    head = next((PodsOfTemplate(pod_set.get_template(cluster), pod_set.count) for pod_set in heads), None)
    child = PodsOfTemplate(
        object_at(job, ("spec", "template")), count_parallel_pods(object_at(job, ("spec",)))
    )
    return compare_pods(child, head)


def mutate(job: JsonObject, context: RuleContext) -> JsonObject:
    """Add gates to the pods of an elastic cluster, which is queued separately or with its RayJob."""
    return ray_clusters.with_elastic_gates(job, SPEC, context)


def _find_errors(job: JsonObject, context: RuleContext) -> list[FieldError]:
    errors = ray_clusters.find_errors(job, SPEC, context)
    scales = ray_clusters.is_elastic(job, context) and ray_clusters.is_autoscaling(job, SPEC)
    if scales and value_at(job, MANAGED_BY) == KUEUE_MULTIKUEUE_CONTROLLER:
        errors.append(
            FieldError.invalid(
                "spec.managedBy",
                value_at(job, MANAGED_BY),
                "an elastic cluster with autoscaling cannot be dispatched to other clusters",
                "switch autoscaling off, or leave managedBy empty",
            )
        )
    return errors


RAY_CLUSTER = Integration(
    framework="ray.io/raycluster",
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayCluster",
    plural="rayclusters",
    list_pod_sets=list_pod_sets,
    find_outcome=return_none,
    is_active=is_active,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(with_template=ray_clusters.with_template),
    scaling=Scaling(
        can_be_elastic=True,
        get_slice_version=ray_clusters.get_slice_version,
    ),
    ownership=KindOwnership(
        created_kinds=frozenset({("", "Pod"), ("batch", "Job")}),
        compare_child=compare_child,
    ),
    delegation=Delegation(
        managed_by_path=MANAGED_BY,
        own_controller=ray_clusters.OPERATOR,
        dispatch_controller=KUEUE_MULTIKUEUE_CONTROLLER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutate_child=mutate,
        validate_create=managed_job_rules.check_new_jobs(_find_errors),
        checks_templates_only_if_managed=True,
        should_validate_update=managed_job_rules.should_validate_update,
        validate_update=managed_job_rules.check_updated_jobs(_find_errors),
    ),
)
