"""``ray.io/v1`` RayCluster: a head and groups of workers, for as long as somebody wants them.

The operator deletes all pods of a suspended cluster. A cluster that a RayJob or RayService made follows that
one and is not queued itself.
"""

from typing import Final

from admitq.integrations import ray_cluster, while_managed
from admitq.integrations.base import KNOWN_DISPATCHER, Integration, PodSetTemplate, Rules, never
from admitq.integrations.paths import Object, value_at
from admitq.integrations.reading import holds
from admitq_api.field_errors import FieldError
from admitq_api.labels import Names

SPEC: Final = ("spec",)
MANAGED_BY: Final = ("spec", "managedBy")


def pod_sets(job: Object, _names: Names) -> list[PodSetTemplate]:
    """The head and each group of workers."""
    return ray_cluster.pod_sets(job, SPEC)


def pods_ready(job: Object) -> bool:
    """When the operator calls the cluster ready."""
    return value_at(job, ("status", "state")) == "ready"


def is_active(job: Object) -> bool:
    """While the cluster is ready, or its pods are being deleted."""
    return pods_ready(job) or holds(job, "RayClusterSuspending")


def mutate(job: Object, rules: Rules) -> Object:
    """Hold the pods of an elastic cluster, be it queued itself or made by a RayJob that is."""
    return ray_cluster.with_elastic_gates(job, SPEC, rules)


def _errors(job: Object, rules: Rules) -> list[FieldError]:
    errors = ray_cluster.errors(job, SPEC, rules)
    scales = ray_cluster.is_elastic(job, rules) and ray_cluster.is_autoscaling(job, SPEC)
    if scales and value_at(job, MANAGED_BY) == KNOWN_DISPATCHER:
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
    group=ray_cluster.GROUP,
    version=ray_cluster.VERSION,
    kind="RayCluster",
    plural="rayclusters",
    pod_sets=pod_sets,
    with_template=ray_cluster.with_template,
    finished=never,
    is_active=is_active,
    pods_ready=pods_ready,
    managed_by_path=MANAGED_BY,
    own_controller=ray_cluster.OPERATOR,
    dispatched_as=KNOWN_DISPATCHER,
    creates=frozenset({("", "Pod"), ("batch", "Job")}),
    adopts_prebuilt_workload=True,
    can_be_elastic=True,
    slice_version=ray_cluster.slice_version,
    mutate=mutate,
    mutate_child=mutate,
    validate_create=while_managed.on_create(_errors),
    is_update_validated=while_managed.is_update_validated,
    validate_update=while_managed.on_update(_errors),
)
