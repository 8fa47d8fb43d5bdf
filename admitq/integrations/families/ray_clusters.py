"""The RayCluster of all kinds of Ray: its head, its worker groups, and the rules for it.

The operator adds containers to the head that the template does not contain: an autoscaler and a submitter.
They need quota, so the Workload contains them. Patches of the job contain only its own template.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    MAX_POD_SETS,
    ChildDifference,
    ElasticityCheck,
    PodSetTemplate,
    RuleContext,
    get_generation,
)
from admitq.integrations.children import PodsOfTemplate, compare_pods, find_first_difference, get_name
from admitq.integrations.references import ObjectReference, OwnerKind, ReferencedKind
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import (
    FieldPath,
    JsonObject,
    as_int,
    as_list,
    as_text,
    object_at,
    select_fields,
    value_at,
    with_value,
)
from admitq_api.labels import Names
from admitq_api.quantity import QuantityError, parse_quantity

GROUP: Final = "ray.io"
VERSION: Final = "v1"
OPERATOR: Final = "ray.io/kuberay-operator"
"""The value of ``managedBy`` for the operator of Ray itself."""

HEAD: Final = "head"

FAULT_TOLERANCE_ANNOTATION: Final = "ray.io/ft-enabled"
"""The older annotation that enables fault tolerance."""

_AUTOSCALER_REQUESTS: Final = {"cpu": "500m", "memory": "512Mi"}
_CLEANUP_REQUESTS: Final = {"cpu": "200m", "memory": "256Mi"}
"""The requests of the pod that replaces the head of a deleted cluster, to clean up its state in Redis."""

_HEAD_TEMPLATE: Final[FieldPath] = ("headGroupSpec", "template")
_CONTAINERS: Final[FieldPath] = ("spec", "containers")
_GROUPS: Final[FieldPath] = ("spec", "workerGroupSpecs")

_CLUSTERS_KEY: Final = "madeClusters"
"""The key of a resolved job with the clusters that the operator created for it."""
_GROUP_FIELDS: Final = ("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "suspend")
_METADATA_FIELDS: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "ownerReferences")


# --- podsets --------------------------------------------------------------------------------------


def list_pod_sets(
    job: JsonObject, at: FieldPath, sidecars: Sequence[JsonObject] = ()
) -> list[PodSetTemplate]:
    """Return the podsets of the cluster at a path: the head and each worker group.

    Args:
        job: the object.
        at: the path of its RayClusterSpec.
        sidecars: containers that the operator adds to the head for this kind.
    """
    if not object_at(value_at(job, at)):
        return []
    pod_sets = _get_clusters(job)
    workers = Counter[str]()
    for cluster in pod_sets:
        workers.update(
            {_get_pod_set_name(group): _count_pods(group) for group in as_list(value_at(cluster, _GROUPS))}
        )
    head = PodSetTemplate(
        HEAD, len(pod_sets) or 1, (*at, *_HEAD_TEMPLATE), template=_add_operator_containers(job, at, sidecars)
    )
    groups = enumerate(as_list(value_at(job, (*at, "workerGroupSpecs"))))
    return [
        head,
        *(
            PodSetTemplate(
                _get_pod_set_name(group),
                workers[_get_pod_set_name(group)] if pod_sets else _count_pods(group),
                (*at, "workerGroupSpecs", index, "template"),
            )
            for index, group in groups
        ),
    ]


def _get_pod_set_name(group: Any) -> str:
    return as_text(value_at(group, ("groupName",))).lower()


def _count_pods(group: Any) -> int:
    """Return the number of pods of a worker group: replicas within their bounds, times hosts per replica."""
    if value_at(group, ("suspend",)) is True:
        return 0
    desired, least = as_int(value_at(group, ("replicas",)), 1), as_int(value_at(group, ("minReplicas",)))
    replicas = max(0, least, min(desired, as_int(value_at(group, ("maxReplicas",)), desired)))
    return replicas * max(as_int(value_at(group, ("numOfHosts",)), 1), 1)


def _add_operator_containers(
    job: JsonObject, at: FieldPath, sidecars: Sequence[JsonObject]
) -> JsonObject | None:
    """Return the head's template with the containers of the operator; None if there are no changes."""
    template = object_at(value_at(job, (*at, *_HEAD_TEMPLATE)))
    containers = as_list(value_at(template, _CONTAINERS))
    if not containers or not isinstance(containers[0], Mapping):
        return None
    charged: list[Any] = list(containers)
    if is_fault_tolerant(job, at):
        charged[0] = _with_minimum_requests(charged[0], _CLEANUP_REQUESTS)
    if is_autoscaling(job, at):
        charged.append(_create_autoscaler(job, at))
    charged.extend(sidecars)
    return None if charged == containers else with_value(template, _CONTAINERS, charged)


def get_head_image(job: JsonObject, at: FieldPath) -> dict[str, str]:
    """Return the image of the head's Ray container as the field of a container; empty if it has no image."""
    image = as_text(value_at(job, (*at, *_HEAD_TEMPLATE, *_CONTAINERS, 0, "image")))
    return {"image": image} if image else {}


def _create_autoscaler(job: JsonObject, at: FieldPath) -> JsonObject:
    amounts = {"requests": _AUTOSCALER_REQUESTS, "limits": _AUTOSCALER_REQUESTS}
    options = (*at, "autoscalerOptions")
    own = value_at(job, (*options, "resources"))
    image = as_text(value_at(job, (*options, "image")))
    return {
        "name": "autoscaler",
        **({"image": image} if image else get_head_image(job, at)),
        "resources": own if isinstance(own, Mapping) else amounts,
    }


def _with_minimum_requests(container: JsonObject, amounts: Mapping[str, str]) -> JsonObject:
    """Return the container with requests of at least these amounts, and with sufficient limits."""
    result = container
    for resource, least in amounts.items():
        limit = value_at(result, ("resources", "limits", resource))
        if _is_less(value_at(result, ("resources", "requests", resource), limit), least):
            result = with_value(result, ("resources", "requests", resource), least)
            if limit is not None and _is_less(limit, least):
                result = with_value(result, ("resources", "limits", resource), least)
    return result


def _is_less(quantity: Any, least: str) -> bool:
    if quantity is None:
        return True
    try:
        return parse_quantity(quantity) < parse_quantity(least)
    except (QuantityError, TypeError):
        return False


def with_template(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """Return the job with another template for a podset, without the containers of the operator."""
    own = value_at(job, pod_set.template_path)
    if pod_set.template is not None and isinstance(own, Mapping):
        template = with_value(template, _CONTAINERS, value_at(own, _CONTAINERS))
    return with_value(job, pod_set.template_path, template)


# --- the clusters of a job ------------------------------------------------------------------------


def list_cluster_references(
    job: JsonObject, at: FieldPath, names: Iterable[Any]
) -> tuple[ObjectReference, ...]:
    """Return references to the clusters in the status of a running job, which determine its number of pods.

    The autoscaler and users scale the cluster and not the job, and the operator does not change the number of
    workers of a cluster. The clusters of a suspended job are ignored: the operator will create new ones.
    """
    if value_at(job, ("spec", "suspend")) is True or value_at(job, (*at, "suspend")) is True:
        return ()
    named = sorted({as_text(name) for name in names} - {""})
    namespace = as_text(value_at(job, ("metadata", "namespace")))
    return tuple(ObjectReference(CLUSTER_KIND.kind, namespace, name) for name in named)


def with_clusters(job: JsonObject, objects: Mapping[ObjectReference, JsonObject]) -> JsonObject:
    """Return the job with its clusters."""
    return (
        with_value(job, (_CLUSTERS_KEY,), [objects[reference] for reference in sorted(objects)])
        if objects
        else job
    )


def _get_clusters(job: JsonObject) -> list[Any]:
    return as_list(value_at(job, (_CLUSTERS_KEY,)))


def _trim_cluster(cluster: JsonObject) -> JsonObject:
    """Return the fields of a cluster that identify it and state its number of workers."""
    metadata, groups = object_at(value_at(cluster, ("metadata",))), as_list(value_at(cluster, _GROUPS))
    trimmed = [select_fields(object_at(group), _GROUP_FIELDS) for group in groups]
    return {"metadata": select_fields(metadata, _METADATA_FIELDS), "spec": {"workerGroupSpecs": trimmed}}


CLUSTER_KIND: Final = ReferencedKind(
    OwnerKind(GROUP, VERSION, "RayCluster"),
    "rayclusters",
    namespaced=True,
    is_required=False,
    trim_for_cache=_trim_cluster,
)


# --- properties of a cluster ----------------------------------------------------------------------


def is_autoscaling(job: JsonObject, at: FieldPath) -> bool:
    """Whether Ray itself adds and removes workers."""
    return value_at(job, (*at, "enableInTreeAutoscaling")) is True


def is_fault_tolerant(job: JsonObject, at: FieldPath) -> bool:
    """Whether the cluster keeps its state in Redis. That state is deleted after the cluster."""
    annotated = (
        as_text(value_at(job, ("metadata", "annotations", FAULT_TOLERANCE_ANNOTATION))).lower() == "true"
    )
    return annotated or value_at(job, (*at, "gcsFaultToleranceOptions")) is not None


def has_generated_name(cluster: JsonObject, job: JsonObject) -> bool:
    """Whether the name of a cluster is one that the operator generates from the name of the job."""
    return bool(re.fullmatch(rf"{re.escape(get_name(job))}(-raycluster)?-[a-z0-9]{{5}}", get_name(cluster)))


def compare_cluster(
    granted: Sequence[PodSetTemplate], job: JsonObject, cluster: JsonObject, is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how the pods of a RayCluster exceed those that a job was charged for; None if they do not.

    If both job and cluster are elastic, the number of pods is not compared: Ray changes it, and each pod is
    held until there is quota for it.
    """
    counted = not (is_elastic(job) and is_elastic(cluster))
    known = {pod_set.name: PodsOfTemplate(pod_set.get_template(job), pod_set.count) for pod_set in granted}
    return find_first_difference(
        compare_pods(
            PodsOfTemplate(pod_set.get_template(cluster), pod_set.count),
            known.pop(pod_set.name, None),
            counted=counted,
        )
        for pod_set in list_pod_sets(cluster, ("spec",))
    )


def get_slice_version(job: JsonObject, names: Names) -> str:
    """Return the generations of the job and of its cluster, which the job's annotation may state."""
    annotated = as_text(value_at(job, ("metadata", "annotations", names.ray_cluster_generation)))
    of_clusters = (
        [annotated]
        if annotated
        else [str(as_int(value_at(cluster, ("metadata", "generation")))) for cluster in _get_clusters(job)]
    )
    return "_".join([get_generation(job, names), *of_clusters])


def is_elastic(job: JsonObject, context: RuleContext) -> bool:
    """Whether the job can be scaled while it runs."""
    annotation = value_at(job, ("metadata", "annotations", context.names.elastic_job))
    return annotation == "true" and context.gates.is_enabled(Gate.ELASTIC_JOBS)


def with_elastic_gates(job: JsonObject, at: FieldPath, context: RuleContext) -> JsonObject:
    """Return an elastic job with the gate that holds each pod until a Workload is admitted for it."""
    if not is_elastic(job, context):
        return job
    gate = {"name": context.names.elastic_gate}
    result = job
    for pod_set in list_pod_sets(job, at):
        path = (*pod_set.template_path, "spec", "schedulingGates")
        gates = as_list(value_at(job, path))
        if gate not in gates and isinstance(value_at(job, pod_set.template_path[:-1]), Mapping):
            result = with_value(result, path, [*gates, gate])
    return result


# --- rules ----------------------------------------------------------------------------------------


def find_errors(
    job: JsonObject, at: FieldPath, context: RuleContext, reserved: Sequence[str] = (HEAD,)
) -> list[FieldError]:
    """Return the errors of the cluster of a managed job (semantics, Per kind).

    ``reserved`` has the names of all other podsets, which worker groups must not have.
    """
    where = ErrorPath().at(*at)
    errors: list[FieldError] = []
    if is_autoscaling(job, at) and not is_elastic(job, context):
        errors.append(
            FieldError.invalid(
                where.at("enableInTreeAutoscaling"),
                True,
                "autoscaling is for elastic jobs only",
                f'set the annotation {context.names.elastic_job} to "true", or switch autoscaling off',
            )
        )
    groups = as_list(value_at(job, (*at, "workerGroupSpecs")))
    if len(groups) + len(reserved) > MAX_POD_SETS:
        most = MAX_POD_SETS - len(reserved)
        errors.append(FieldError.too_many(where.at("workerGroupSpecs"), len(groups), most))
    for index, group in enumerate(groups):
        name = as_text(value_at(group, ("groupName",)))
        if name.lower() in reserved:
            errors.append(
                FieldError.forbidden(
                    where.at("workerGroupSpecs", index, "groupName"),
                    f'"{name}" is reserved for another group of pods of the job',
                    "choose another name",
                )
            )
    return errors
