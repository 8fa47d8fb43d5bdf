"""Objects of Ray for tests."""

from typing import Any

from admitq.integrations.kinds.rayservice import RAY_SERVICE
from tests.unit.controllers.builders import timestamp


def ray_object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return an object of Ray in the namespace ``ns``, or in that of ``metadata``."""
    return {
        "apiVersion": RAY_SERVICE.api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": timestamp(0),
            **metadata,
        },
        "spec": spec,
    }
