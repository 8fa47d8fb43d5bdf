"""What is kept in memory of pods, of which there are more than of anything else."""

from collections.abc import Mapping
from typing import Final

from admitq.integrations.families.pods import has_gate, mapping_at
from admitq.integrations.pod_shape import spec_shape
from admitq_api.json_objects import JsonObject, select_fields
from admitq_api.labels import Names

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_METADATA: Final = (
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
_OF_RUNNING: Final = (*spec_shape({}), "resources", "nodeName", "priorityClassName", "schedulingGates")
_OF_CONTAINERS: Final = ("name", "image", "resources", "ports", "restartPolicy")


def slim_pod(pod: JsonObject, names: Names) -> JsonObject:
    """What rules ask of a pod. A held one stays whole, for its Workload; others keep their shape."""
    metadata = select_fields(pod["metadata"], _METADATA)
    annotations = mapping_at(metadata, "annotations")
    if _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: text for key, text in annotations.items() if key != _LAST_APPLIED}
    spec = dict(mapping_at(pod, "spec"))
    if not has_gate(pod, names.admission_gate):
        spec = select_fields(spec, _OF_RUNNING)
        for field in ("containers", "initContainers"):
            if isinstance(found := spec.get(field), list):
                spec[field] = [
                    select_fields(one, _OF_CONTAINERS) for one in found if isinstance(one, Mapping)
                ]
    status = select_fields(mapping_at(pod, "status"), ("phase", "message", "conditions"))
    return {
        **select_fields(pod, ("apiVersion", "kind")),
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
