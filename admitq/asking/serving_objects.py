"""Hypothetical objects that serve without end, such as Deployments: what becomes of them in queues.

The pods of a StatefulSet or of each replica of a LeaderWorkerSet are a group with one Workload. Each pod of a
Deployment has its own Workload (semantics, StatefulSet and LeaderWorkerSet; Per kind).
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from admitq.integrations.base import Integration
from admitq.integrations.families.pods import get_annotation, get_mapping
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names

MOST_WORKLOADS: Final = 1000
"""The most Workloads of one object. More take too long to decide about."""

POD: Final = next(kind for kind in BUILT_IN_KINDS if kind.kind == "Pod")

_TEMPLATE: Final = ("spec", "template")


class Group(NamedTuple):
    """A group of pods: its index, and the object under the name of the group, for its Workload."""

    group_index: str
    view: JsonObject


def has_groups(integration: Integration) -> bool:
    """Whether the pods of an object form groups. Otherwise each pod is queued alone."""
    return integration.serving is not None and integration.serving.list_groups is not None


def list_groups(integration: Integration, job: JsonObject) -> list[Group]:
    """Return the groups of an object; none while it is scaled to zero."""
    serving = integration.serving
    if serving is None or serving.list_groups is None or integration.lifecycle.is_on_hold(job):
        return []
    return [
        Group(group.group_index, with_value(job, ("metadata", "name"), group.name))
        for group in serving.list_groups(job, ())
    ]


def get_group_index(workload: JsonObject, names: Names) -> str:
    """Return the index of the group of a Workload."""
    return get_annotation(workload, names.component_workload_index)


def list_pods(job: JsonObject, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return pods of an object with numbers in their names, as the controllers of Kubernetes create them."""
    template, metadata = get_mapping(job, *_TEMPLATE), job["metadata"]
    return [
        {
            "apiVersion": POD.api_version,
            "kind": POD.kind,
            "metadata": {
                **get_mapping(template, "metadata"),
                "name": f"{metadata['name']}-{number}",
                "namespace": metadata["namespace"],
            },
            "spec": get_mapping(template, "spec"),
        }
        for number in numbers
    ]


def is_pod_of(workload: JsonObject, deployment: str) -> bool:
    """Whether a Workload is that of a pod of a Deployment, by the name of the pod."""
    name = re.compile(rf"{re.escape(deployment)}-[a-z0-9]+-[a-z0-9]{{5}}")
    owners = value_at(workload, ("metadata", "ownerReferences"), [])
    return any(
        owner.get("kind") == POD.kind and name.fullmatch(str(owner.get("name", ""))) for owner in owners
    )
