"""``ray.io/v1`` RayCluster: a head and groups of workers, for as long as somebody wants them.

The operator deletes all pods of a suspended cluster. A cluster that a RayJob or RayService made follows that
one and is not queued itself.
"""

from typing import Final

from admitq.integrations.base import (
    KNOWN_DISPATCHER,
    Delegation,
    Difference,
    Elastic,
    Integration,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    Rules,
    Scaling,
    never,
)
from admitq.integrations.children import Pods, differing_pods, is_pod_within, name_of
from admitq.integrations.families import managed_job_rules, ray_clusters
from admitq.integrations.families.batch_jobs import pods_at_a_time
from admitq.integrations.job_fields import is_condition_true
from admitq.integrations.workload_names import LONGEST_LABEL
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, as_text, object_at, text_at, value_at
from admitq_api.labels import Names

SPEC: Final = ("spec",)
MANAGED_BY: Final = ("spec", "managedBy")

_LABELS: Final = ("metadata", "labels")
_CLUSTER: Final = "ray.io/cluster"
_ROLE: Final = "ray.io/node-type"
_GROUP: Final = "ray.io/group"
_WORKER: Final = "worker"
_LONGEST_PARTS: Final = 36
"""Up to how many characters of a cluster's and a group's name the operator keeps names of pods whole."""


def pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """The head and each group of workers."""
    return ray_clusters.pod_sets(job, SPEC)


def pods_ready(job: JsonObject) -> bool:
    """When the operator calls the cluster ready."""
    return value_at(job, ("status", "state")) == "ready"


def is_active(job: JsonObject) -> bool:
    """While the cluster is ready, or its pods are being deleted."""
    return pods_ready(job) or is_condition_true(job, "RayClusterSuspending")


def differs(cluster: JsonObject, child: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a pod, or the Job that cleans up Redis, differs from those that the operator creates.

    The operator counts pods by their labels, and deletes those of a group that are too many.
    """
    if child.get("kind") == "Job":
        return _differing_cleanup(cluster, child)
    name, role = name_of(cluster), text_at(child, (*_LABELS, _ROLE))
    group = ray_clusters.HEAD if role == ray_clusters.HEAD else text_at(child, (*_LABELS, _GROUP)).lower()
    granted = next((one for one in ray_clusters.pod_sets(cluster, SPEC) if one.name == group), None)
    named = name_of(child) or as_text(value_at(child, ("metadata", "generateName")))
    # Long names are cut at either end, by versions of the operator.
    is_named = named.startswith(f"{name}-") or len(name) + len(group) > _LONGEST_PARTS
    if (
        granted is None
        or role not in (ray_clusters.HEAD, _WORKER)
        or text_at(child, (*_LABELS, _CLUSTER)) != name
        or not is_named
        or f"-{role}" not in named
        or (role == ray_clusters.HEAD and _is_second_head(cluster, child))
    ):
        return Difference.IDENTITY
    return None if is_pod_within(child, granted.template_in(cluster)) else Difference.REQUESTS


def _is_second_head(cluster: JsonObject, pod: JsonObject) -> bool:
    """Whether a head has not the one name that the operator gives heads, as the status shows.

    Older operators generate a name for each. Not all operators delete a second head.
    """
    known = text_at(cluster, ("status", "head", "podName"))
    return known.endswith(f"-{ray_clusters.HEAD}") and name_of(pod) != known


def _differing_cleanup(cluster: JsonObject, job: JsonObject) -> Difference | None:
    """The Job is created when the cluster goes, and runs one pod like that of the head."""
    full = f"{name_of(cluster)}-redis-cleanup"
    is_named = name_of(job) == full or (len(full) > LONGEST_LABEL and name_of(job).endswith("-redis-cleanup"))
    if not is_named or not ray_clusters.is_fault_tolerant(cluster, SPEC):
        return Difference.IDENTITY
    heads = (one for one in ray_clusters.pod_sets(cluster, SPEC) if one.name == ray_clusters.HEAD)
    head = next((Pods(one.template_in(cluster), one.count) for one in heads), None)
    child = Pods(object_at(job, ("spec", "template")), pods_at_a_time(object_at(job, ("spec",))))
    return differing_pods(child, head)


def mutate(job: JsonObject, rules: Rules) -> JsonObject:
    """Hold the pods of an elastic cluster, be it queued itself or made by a RayJob that is."""
    return ray_clusters.with_elastic_gates(job, SPEC, rules)


def _errors(job: JsonObject, rules: Rules) -> list[FieldError]:
    errors = ray_clusters.errors(job, SPEC, rules)
    scales = ray_clusters.is_elastic(job, rules) and ray_clusters.is_autoscaling(job, SPEC)
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
    group=ray_clusters.GROUP,
    version=ray_clusters.VERSION,
    kind="RayCluster",
    plural="rayclusters",
    pod_sets=pod_sets,
    finished=never,
    is_active=is_active,
    pods_ready=pods_ready,
    templates=PodTemplates(with_template=ray_clusters.with_template),
    scaling=Scaling(
        can_be_elastic=True,
        slice_version=ray_clusters.slice_version,
    ),
    ownership=KindOwnership(
        creates=frozenset({("", "Pod"), ("batch", "Job")}),
        differs=differs,
    ),
    delegation=Delegation(
        managed_by_path=MANAGED_BY,
        own_controller=ray_clusters.OPERATOR,
        dispatched_as=KNOWN_DISPATCHER,
        adopts_prebuilt_workload=True,
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutate_child=mutate,
        validate_create=managed_job_rules.on_create(_errors),
        is_update_validated=managed_job_rules.is_update_validated,
        validate_update=managed_job_rules.on_update(_errors),
    ),
)
