"""Generate the schema of pod templates in Workloads from the OpenAPI document of the API server.

The schemas of the API server have references, and keywords that a CustomResourceDefinition must not have.
This module converts them.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localcluster import LocalCluster
from localcluster.processes import current

SCHEMA_FILE = Path("api/admitq_api/pod_template_schema.json")

_DOCUMENT = "/openapi/v3/apis/batch/v1"
_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
_INT_OR_STRING = frozenset(
    {"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
)
_DROPPED = frozenset(
    {
        "description",
        "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy",
        "x-kubernetes-unions",
        "x-kubernetes-group-version-kind",
    }
)
_KEPT_METADATA = ("annotations", "labels")


def outputs() -> dict[Path, str]:
    """Return the schema. This starts a control plane and reads its OpenAPI document."""
    cluster = LocalCluster(f"generate-{os.getpid()}")
    try:
        cluster.start((), owner=current())
        with cluster.api() as api:
            document: dict[str, Any] = api.request("GET", _DOCUMENT)
    finally:
        cluster.stop()
    schema = pod_template_schema(document)
    return {SCHEMA_FILE: json.dumps(schema, indent=1, sort_keys=True) + "\n"}


def pod_template_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Return the structural schema of a pod template.

    Unknown fields of a newer API server are kept below `spec`. Of the metadata, only labels and annotations
    are kept, because only these have a meaning in a template.

    Args:
        document: the OpenAPI v3 document of group batch, version v1.
    """
    types: Mapping[str, dict[str, Any]] = document["components"]["schemas"]
    properties: dict[str, Any] = types[_TEMPLATE]["properties"]
    metadata = _resolved(properties["metadata"], types)["properties"]
    return {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {name: metadata[name] for name in _KEPT_METADATA}},
            "spec": _open(_resolved(properties["spec"], types)),
        },
    }


def _resolved(schema: dict[str, Any], types: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a schema without references, reduced to the keywords that a CRD can have."""
    for reference in _references(schema):
        name = reference.rpartition("/")[2]
        return (
            {"x-kubernetes-int-or-string": True} if name in _INT_OR_STRING else _resolved(types[name], types)
        )
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _DROPPED or keyword == "default":
            continue
        if keyword == "properties":
            result[keyword] = {name: _resolved(inner, types) for name, inner in value.items()}
        elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
            result[keyword] = _resolved(value, types)
        else:
            result[keyword] = value
    keys = result.get("x-kubernetes-list-map-keys", ())
    if keys:
        _keep_defaults(result["items"], keys, _item_properties(schema["items"], types))
    return result


def _references(schema: dict[str, Any]) -> list[str]:
    """Return the reference of a schema: its own, or that of its only `allOf` entry, beside a description."""
    return [part["$ref"] for part in (schema, *schema.get("allOf", ())) if "$ref" in part]


def _item_properties(items: dict[str, Any], types: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    names = [reference.rpartition("/")[2] for reference in _references(items)]
    return (types[names[0]] if names else items)["properties"]


def _keep_defaults(items: dict[str, Any], keys: list[str], published: dict[str, Any]) -> None:
    """Require the keys of list items, unless they have a default: a list distinguishes its items by them."""
    for key in keys:
        if key not in items.get("required", ()):
            items["properties"][key] = {**items["properties"][key], "default": published[key]["default"]}


def _open(schema: Any) -> Any:
    """Return a schema for objects that keep unknown fields."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {keyword: _open(value) for keyword, value in schema.items()}
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        result["x-kubernetes-preserve-unknown-fields"] = True
    return result
