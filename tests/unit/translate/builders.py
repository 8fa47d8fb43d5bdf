"""Stored objects for the tests of their translation."""

from typing import Any

from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)

HEAD = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"

CREATED = "2026-03-01T10:00:00Z"


def workload(*, pod: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": "w", "namespace": "team", "uid": "u-1", "creationTimestamp": CREATED},
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 2, "template": {"spec": pod or container(cpu="500m")}}],
            **spec,
        },
        "status": status or {},
    }


def container(limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": requests}
    if limits is not None:
        resources["limits"] = limits
    return {"containers": [{"name": "c", "resources": resources}]}


def condition(type_: str, status: str = "True", reason: str = "R", at: str = CREATED) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def cluster_queue(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cq", "uid": "u"}, "spec": spec}


def group(**quota: str) -> list[dict[str, Any]]:
    return [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", **quota}]}],
        }
    ]


LATER = "2026-03-01T11:00:00Z"
