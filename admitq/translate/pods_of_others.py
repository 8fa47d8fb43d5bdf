"""Pods on nodes that no topology assigned there (semantics, Topology-aware scheduling).

The domains of a topology have less room by what such pods request: pods of the system, of users without a
queue, and of workloads in flavors without a topology. The pods of a workload with assigned domains are not
counted one by one, because its whole assignment is counted from its admission on.

Such pods have the annotation that names their Workload, and an annotation with what was requested of the
topology. Without an explicit request, admitq adds one of these when it starts a job.
"""

from typing import Any, Final

from admitq.core.requests import requests_on_node
from admitq.core.topology.topologies import PodOnNode
from admitq.integrations.families import pods
from admitq.translate.pod_sets import read_pod_spec
from admitq_api.json_objects import JsonObject, object_at, select_fields, text_at
from admitq_api.labels import Names
from admitq_api.stored_fields import require_object

_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")
_READ_OF_SPEC: Final = ("nodeName", "overhead", "resources")
_READ_OF_CONTAINER: Final = ("resources", "restartPolicy")

PODS_ON_NODES: Final = f"spec.nodeName!=,{pods.NOT_ENDED}"
"""The field selector of pods on nodes that may still use something there."""


def is_placed_by_topology(pod: JsonObject, names: Names) -> bool:
    """Whether the pod belongs to a workload with assigned domains."""
    annotations = object_at(pod, ("metadata", "annotations"))
    return names.workload in annotations and any(
        key in annotations
        for key in (
            names.podset_required_topology,
            names.podset_preferred_topology,
            names.podset_unconstrained_topology,
            names.podset_slice_required_topology,
            names.podset_slice_required_topology_constraints,
        )
    )


def trim_pod(pod: JsonObject, names: Names) -> dict[str, Any]:
    """Return the part of a pod that `read_pod_of_others` reads; only metadata if that returns None."""
    metadata = select_fields(pod["metadata"], _IDENTITY)
    if is_placed_by_topology(pod, names):
        return {"metadata": metadata}
    spec = object_at(pod, ("spec",))
    containers = {
        field: [select_fields(container, _READ_OF_CONTAINER) for container in spec[field]]
        for field in ("containers", "initContainers")
        if spec.get(field)
    }
    return {
        "metadata": metadata,
        "spec": {**select_fields(spec, _READ_OF_SPEC), **containers},
        "status": select_fields(object_at(pod, ("status",)), ("phase",)),
    }


def read_pod_of_others(pod: JsonObject, names: Names) -> PodOnNode | None:
    """Read what a pod takes from its node; None if it is on no node, has ended, or has a place in a topology.

    A pod that is being deleted still takes it.

    Raises:
        MalformedField: the structure of the pod is not readable.
    """
    node = text_at(pod, ("spec", "nodeName"))
    if not node or pods.has_ended(pod) or is_placed_by_topology(pod, names):
        return None
    return PodOnNode(node, requests_on_node(read_pod_spec(require_object(pod.get("spec"), "spec"))))
