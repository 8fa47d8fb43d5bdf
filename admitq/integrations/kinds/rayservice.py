"""``ray.io/v1`` RayService: a RayCluster that serves, and that the operator replaces when it changes.

If the cluster keeps its state in Redis, a service that is being deleted needs its quota until that state is
cleaned up.
"""

from typing import Final

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    Scaling,
    return_none,
)
from admitq.integrations.children import get_name
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.job_fields import is_condition_true
from admitq.integrations.references import ObjectReference
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

SPEC: Final = ("spec", "rayClusterConfig")
ACTIVE_CLUSTER: Final = ("status", "activeServiceStatus", "rayClusterName")
PENDING_CLUSTER: Final = ("status", "pendingServiceStatus", "rayClusterName")


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of the head and of each worker group."""
    return ray_clusters.list_pod_sets(job, SPEC)


def list_references(job: JsonObject) -> tuple[ObjectReference, ...]:
    """Return references to the active cluster and to a pending cluster."""
    return ray_clusters.list_cluster_references(
        job, SPEC, [value_at(job, ACTIVE_CLUSTER), value_at(job, PENDING_CLUSTER)]
    )


def compare_child(
    job: JsonObject, cluster: JsonObject, is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a RayCluster differs from those that the operator creates for the service.

    A replaced cluster runs for a while, and the status no longer names it. So all generated names are
    accepted.
    """
    is_known = get_name(cluster) in {value_at(job, path) for path in (ACTIVE_CLUSTER, PENDING_CLUSTER)}
    if not is_known and not ray_clusters.has_generated_name(cluster, job):
        return ChildDifference.IDENTITY
    return ray_clusters.compare_cluster(ray_clusters.list_pod_sets(job, SPEC), job, cluster, is_elastic)


def is_ready(job: JsonObject) -> bool:
    """Whether the condition says that the service is ready for requests.

    The operator leaves it at true when the active cluster is deleted, until it has a new one.
    """
    return is_condition_true(job, "Ready")


def is_active(job: JsonObject) -> bool:
    """Whether the service runs. The operator does not update the condition of a suspended service.

    So a suspended service counts as stopped. Its quota is kept until its pods are gone.
    """
    return is_ready(job) and not value_at(job, (*SPEC, "suspend"), False)


def is_cleaning_up(job: JsonObject) -> bool:
    """Whether the deletion of the service includes the cleanup of its state in Redis."""
    return ray_clusters.is_fault_tolerant(job, SPEC)


def mutate(job: JsonObject, context: RuleContext) -> JsonObject:
    """Add gates to the pods of an elastic service."""
    return ray_clusters.with_elastic_gates(job, SPEC, context)


def _find_errors(job: JsonObject, context: RuleContext) -> list[FieldError]:
    return ray_clusters.find_errors(job, SPEC, context)


RAY_SERVICE = Integration(
    framework="ray.io/rayservice",
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayService",
    plural="rayservices",
    list_pod_sets=list_pod_sets,
    find_outcome=return_none,
    is_active=is_active,
    are_pods_ready=is_ready,
    templates=PodTemplates(
        pod_sets_field=".".join(SPEC),
        with_template=ray_clusters.with_template,
        list_references=list_references,
        referenced_kinds=(ray_clusters.CLUSTER_KIND,),
        resolve=ray_clusters.with_clusters,
        active_object=ACTIVE_CLUSTER,
    ),
    lifecycle=JobLifecycle(
        suspend_path=(*SPEC, "suspend"),
        is_cleaning_up=is_cleaning_up,
    ),
    scaling=Scaling(
        can_be_elastic=True,
        get_slice_version=ray_clusters.get_slice_version,
    ),
    ownership=KindOwnership(
        created_kinds=frozenset({(ray_clusters.GROUP, "RayCluster")}),
        compare_child=compare_child,
        # For a changed service, the operator creates a second cluster. It reports an error, and does nothing,
        # as long as one of its clusters has no head.
        keeps_children=True,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller=ray_clusters.OPERATOR,
        dispatch_controller=KUEUE_MULTIKUEUE_CONTROLLER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        mutate=mutate,
        validate_create=managed_job_rules.check_new_jobs(_find_errors),
        checks_templates_only_if_managed=True,
        should_validate_update=managed_job_rules.should_validate_update,
        validate_update=managed_job_rules.check_updated_jobs(_find_errors),
    ),
)
