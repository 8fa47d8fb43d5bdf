"""The shape of a pod: the fields that decide where it can run and what it requests. Also a hash of it.

Pods of the same shape are interchangeable in a queue. The shape distinguishes the roles of a pod group. While
a job holds quota, the shape of its pods must not change (semantics, Per kind: Pod).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from admitq_api.json_objects import JsonObject

_HASH_LENGTH: Final = 8

_COMPARED_FIELDS: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)

_HTML_ESCAPES: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""The characters that Kubernetes components escape in JSON, although JSON does not require it."""


def _get_requests(owner: Any) -> Any:
    resources = owner.get("resources") if isinstance(owner, Mapping) else None
    return (resources.get("requests") or None) if isinstance(resources, Mapping) else None


def _get_container_shapes(containers: Any) -> list[dict[str, Any]] | None:
    """Return the requests and ports of each container; None for an empty or absent list."""
    if not isinstance(containers, list) or not containers:
        return None
    return [
        {
            "ports": (container.get("ports") or None) if isinstance(container, Mapping) else None,
            "resources": {"requests": _get_requests(container)},
        }
        for container in containers
    ]


def get_spec_shape(spec: JsonObject) -> dict[str, Any]:
    """Return the shape of a pod's spec."""
    shape = {field: _none_if_empty(spec.get(field)) for field in _COMPARED_FIELDS}
    shape["containers"] = _get_container_shapes(spec.get("containers"))
    shape["initContainers"] = _get_container_shapes(spec.get("initContainers"))
    if (requests := _get_requests(spec)) is not None:
        shape["resources"] = {"requests": requests}
    return dict(sorted(shape.items()))


def _none_if_empty(value: Any) -> Any:
    return None if value in ({}, [], "") else value


def compute_role_hash(spec: JsonObject) -> str:
    """Return a hash of the shape, of eight hexadecimal digits.

    Keys of objects in lists stay in the order of the API server, so that other programs compute the same
    hash.
    """
    text = json.dumps({"spec": get_spec_shape(spec)}, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.translate(_HTML_ESCAPES).encode("utf-8", "surrogatepass")).hexdigest()[
        :_HASH_LENGTH
    ]
