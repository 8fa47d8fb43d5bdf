"""Objects of the samples in the API."""

from typing import Any

from localcluster.api import Api, ApiFailure

# The path of each kind in the API. The samples use no other kinds.
_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Job": "jobs",
    "LocalQueue": "localqueues",
    "Namespace": "namespaces",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}


def apply(api: Api, obj: dict[str, Any]) -> None:
    """Apply an object by server-side apply.

    Raises:
        ApiFailure: the API server refuses it.
    """
    api.request(
        "PATCH",
        f"{path_of(obj)}?fieldManager=admitq-samples&force=true",
        obj,
        content_type="application/apply-patch+yaml",
    )


def delete(api: Api, obj: dict[str, Any]) -> None:
    """Delete an object and the objects that it owns, if it exists."""
    try:
        api.request("DELETE", f"{path_of(obj)}?propagationPolicy=Background")
    except ApiFailure as failure:
        if failure.status != 404:
            raise


def path_of(obj: dict[str, Any]) -> str:
    """Return the path of an object in the API."""
    version, metadata = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{place}/{_PLURALS[obj['kind']]}/{metadata['name']}"
