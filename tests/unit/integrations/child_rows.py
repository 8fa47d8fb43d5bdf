"""Builders of jobs and their children, and the table row of a kind."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from admitq.integrations.base import ChildDifference, ElasticityCheck, Integration, is_never_elastic

NAME, PODS, REQUESTS = ChildDifference.IDENTITY, ChildDifference.PODS, ChildDifference.REQUESTS
KIND = "kind"
"""The difference of a child of a kind that the controller does not create."""


def container(name: str = "c", **requests: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {"cpu": "1"}}}


def pods(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers) or [container()], **spec}}


def changed(obj: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a copy with these values; ``__`` separates the steps of a path."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *outer, last = (int(step) if step.isdigit() else step for step in path.split("__"))
        parent: Any = result
        for step in outer:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
        parent[last] = value
    return result


def an_object(
    api_version: str, kind: str, name: str, spec: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": spec,
    }


def a_pod(name: str, *containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return an_object("v1", "Pod", name, pods(*containers)["spec"], **metadata)


def a_job(name: str, template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return an_object("batch/v1", "Job", name, {"template": template or pods(), **spec})


@dataclass(frozen=True)
class Row:
    """A kind, an owner of this kind, valid children by name, and forged children with their difference."""

    kind: Integration
    owner: dict[str, Any]
    children: Mapping[str, dict[str, Any]]
    forgeries: Mapping[str, tuple[str | ChildDifference, dict[str, Any]]]
    is_elastic: ElasticityCheck = field(default=is_never_elastic)


BIG = container(cpu="9")


def cluster_spec(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    group = {"groupName": "small", "replicas": replicas, "maxReplicas": 9, "template": pods()}
    return {"headGroupSpec": {"template": pods()}, "workerGroupSpecs": [group], **spec}


def a_cluster(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return an_object("ray.io/v1", "RayCluster", name, spec or cluster_spec(), **metadata)
