"""The parts of pods that the manager keeps in memory. Pods are the most numerous objects."""

from collections.abc import Mapping
from typing import Final

from admitq.integrations.families.pods import get_mapping, has_gate
from admitq.integrations.pod_shape import get_spec_shape
from admitq_api.json_objects import JsonObject, select_fields
from admitq_api.labels import Names

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_METADATA_FIELDS: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)
_RUNNING_POD_FIELDS: Final = (
    *get_spec_shape({}),
    "resources",
    "nodeName",
    "priorityClassName",
    "schedulingGates",
)
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "ports", "restartPolicy")


def trim_pod(pod: JsonObject, names: Names) -> JsonObject:
    """Return the fields of a pod that rules need. The spec of a held pod stays whole, for its Workload."""
    metadata = select_fields(pod["metadata"], _METADATA_FIELDS)
    annotations = get_mapping(metadata, "annotations")
    if _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: text for key, text in annotations.items() if key != _LAST_APPLIED}
    spec = dict(get_mapping(pod, "spec"))
    if not has_gate(pod, names.admission_gate):
        spec = select_fields(spec, _RUNNING_POD_FIELDS)
        for field in ("containers", "initContainers"):
            if isinstance(value := spec.get(field), list):
                spec[field] = [
                    select_fields(container, _CONTAINER_FIELDS)
                    for container in value
                    if isinstance(container, Mapping)
                ]
    status = select_fields(get_mapping(pod, "status"), ("phase", "message", "conditions"))
    return {
        **select_fields(pod, ("apiVersion", "kind")),
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
