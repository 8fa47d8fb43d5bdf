"""What of a pod decides where it can run and what it uses, and a short hash of that.

Two pods of one shape are interchangeable for a queue. Roles of pod groups are told apart by it, and what
must not change while quota is held is compared by it (semantics, Per kind: Pod).
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
"""What the JSON of Kubernetes' own components escapes although JSON need not."""


def _get_requests(owner: Any) -> Any:
    resources = owner.get("resources") if isinstance(owner, Mapping) else None
    return (resources.get("requests") or None) if isinstance(resources, Mapping) else None


def _get_container_shapes(containers: Any) -> list[dict[str, Any]] | None:
    """Requests and ports of each; null where there are none, as absent lists are written."""
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
    """The shape of a pod's spec, whatever else stands in it."""
    shape = {field: _none_if_empty(spec.get(field)) for field in _COMPARED_FIELDS}
    shape["containers"] = _get_container_shapes(spec.get("containers"))
    shape["initContainers"] = _get_container_shapes(spec.get("initContainers"))
    if (requests := _get_requests(spec)) is not None:
        shape["resources"] = {"requests": requests}
    return dict(sorted(shape.items()))


def _none_if_empty(value: Any) -> Any:
    return None if value in ({}, [], "") else value


def compute_role_hash(spec: JsonObject) -> str:
    """Eight hexadecimal digits that pods of one shape have in common.

    Keys inside of lists stay in the order in which the API server writes them, so that the hash is that of
    other programs that follow the same rule.
    """
    text = json.dumps({"spec": get_spec_shape(spec)}, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.translate(_HTML_ESCAPES).encode("utf-8", "surrogatepass")).hexdigest()[
        :_HASH_LENGTH
    ]
