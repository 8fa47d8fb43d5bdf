"""``ray.io/v1`` RayService: a RayCluster that serves, and is replaced when it changes.

A service whose cluster keeps its state in Redis needs its quota until that is cleaned up, even while it is
being deleted.
"""

from typing import Final

from admitq.integrations.base import (
    KNOWN_DISPATCHER,
    Delegation,
    Difference,
    Elastic,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    Reference,
    Rules,
    Scaling,
    never,
)
from admitq.integrations.children import name_of
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.job_fields import is_condition_true
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

SPEC: Final = ("spec", "rayClusterConfig")
SERVES: Final = ("status", "activeServiceStatus", "rayClusterName")
IS_TO_SERVE: Final = ("status", "pendingServiceStatus", "rayClusterName")


def pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """The head and each group of workers."""
    return ray_clusters.pod_sets(job, SPEC)


def references(job: JsonObject) -> tuple[Reference, ...]:
    """The cluster that serves, if Ray scales it, and the one that is to take over, while there are both."""
    return ray_clusters.made_for(job, SPEC, [value_at(job, SERVES), value_at(job, IS_TO_SERVE)])


def differs(job: JsonObject, cluster: JsonObject, is_elastic: Elastic) -> Difference | None:
    """In what a RayCluster differs from those that the operator creates for the service.

    A cluster that has been replaced goes on for a while, and the status does not name it any more. So other
    names are accepted, too.
    """
    is_known = name_of(cluster) in {value_at(job, path) for path in (SERVES, IS_TO_SERVE)}
    if not is_known and not ray_clusters.is_named_after(cluster, job):
        return Difference.IDENTITY
    return ray_clusters.differing_cluster(ray_clusters.pod_sets(job, SPEC), job, cluster, is_elastic)


def is_ready(job: JsonObject) -> bool:
    """When the service takes requests."""
    return is_condition_true(job, "Ready")


def is_cleaning_up(job: JsonObject) -> bool:
    """While the service is deleted: its state in Redis is the last to go."""
    return ray_clusters.is_fault_tolerant(job, SPEC)


def mutate(job: JsonObject, rules: Rules) -> JsonObject:
    """Hold the pods of an elastic service."""
    return ray_clusters.with_elastic_gates(job, SPEC, rules)


def _errors(job: JsonObject, rules: Rules) -> list[FieldError]:
    return ray_clusters.errors(job, SPEC, rules)


RAY_SERVICE = Integration(
    framework="ray.io/rayservice",
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayService",
    plural="rayservices",
    pod_sets=pod_sets,
    finished=never,
    is_active=is_ready,
    pods_ready=is_ready,
    templates=PodTemplates(
        pod_sets_field=".".join(SPEC),
        with_template=ray_clusters.with_template,
        references=references,
        follows=(ray_clusters.CLUSTERS,),
        resolved=ray_clusters.with_made,
    ),
    lifecycle=JobLifecycle(
        suspend_path=(*SPEC, "suspend"),
        is_cleaning_up=is_cleaning_up,
    ),
    scaling=Scaling(
        can_be_elastic=True,
        slice_version=ray_clusters.slice_version,
    ),
    ownership=KindOwnership(
        creates=frozenset({(ray_clusters.GROUP, "RayCluster")}),
        differs=differs,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller=ray_clusters.OPERATOR,
        dispatched_as=KNOWN_DISPATCHER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        mutate=mutate,
        validate_create=managed_job_rules.on_create(_errors),
        is_update_validated=managed_job_rules.is_update_validated,
        validate_update=managed_job_rules.on_update(_errors),
    ),
)
