"""The sample manifests, for one API group."""

import re
from pathlib import Path
from typing import Any

import yaml

from admitq_api.labels import DEFAULT_GROUP
from localcluster.api import Api, ApiFailure
from localcluster.folders import REPOSITORY

FOLDER = REPOSITORY / "hack" / "samples"
# The group as a whole word, not as a part of another name.
_GROUP = re.compile(rf"(?<![\w.-]){re.escape(DEFAULT_GROUP)}(?=/)")

# The path of each kind in the API. The samples use no other kinds.
_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Job": "jobs",
    "LocalQueue": "localqueues",
    "Namespace": "namespaces",
    "ResourceFlavor": "resourceflavors",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}


def write(group: str, target: Path) -> dict[str, Path]:
    """Write the samples for an API group into a folder.

    Returns:
        Their paths by file name.
    """
    target.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for source in sorted(FOLDER.glob("*.yaml")):
        path = target / source.name
        path.write_text(_GROUP.sub(group, source.read_text()))
        written[source.name] = path
    return written


def objects(manifest: Path) -> list[dict[str, Any]]:
    """Return the objects of a manifest, in their order."""
    return list(yaml.safe_load_all(manifest.read_text()))


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
