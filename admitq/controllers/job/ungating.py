"""Pods of elastic jobs: each is held by a scheduling gate until a slice with quota has room for it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from admitq.controllers.job.slices import chain_of
from admitq.integrations.paths import Object, value_at
from admitq.transitions import holds
from admitq_api.conditions import ConditionType
from admitq_api.labels import Names

_OVER = ("Succeeded", "Failed")


def granted(workload: Object) -> Mapping[str, int]:
    """The pods that an admission lets run, by podset; none while the slice is not admitted, or leaves."""
    leaves = holds(workload, ConditionType.EVICTED) or holds(workload, ConditionType.FINISHED)
    if leaves or not holds(workload, ConditionType.ADMITTED):
        return {}
    listed = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return {one.get("name", "main"): one.get("count", 0) for one in listed}


def pods_of(pods: Iterable[Object], workload: Object, names: Names) -> list[Object]:
    """The pods of a slice's whole chain that have not ended, oldest first."""
    chain = chain_of(workload, names.workload_slice_name)
    key = ("metadata", "annotations", names.workload_slice_name)
    mine = [
        pod for pod in pods if value_at(pod, key) == chain and value_at(pod, ("status", "phase")) not in _OVER
    ]
    return sorted(
        mine, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"])
    )


def is_gated(pod: Object, names: Names) -> bool:
    """Whether the gate still holds the pod."""
    return {"name": names.elastic_gate} in value_at(pod, ("spec", "schedulingGates"), [])


def to_ungate(pods: Sequence[Object], room: Mapping[str, int], names: Names) -> list[Object]:
    """The pods to let go: of each podset as many as have room beside those that were let go before."""
    label = ("metadata", "labels", names.podset)
    free = Counter(room)
    free.subtract(value_at(pod, label, "") for pod in pods if not is_gated(pod, names))
    found: list[Object] = []
    for pod in pods:
        name = value_at(pod, label, "")
        if is_gated(pod, names) and "deletionTimestamp" not in pod["metadata"] and free[name] > 0:
            free[name] -= 1
            found.append(pod)
    return found


def ungating(pod: Object, names: Names) -> Sequence[Mapping[str, Any]]:
    """The JSON patch that takes the gate off this very pod."""
    gate = {"name": names.elastic_gate}
    path = f"/spec/schedulingGates/{pod['spec']['schedulingGates'].index(gate)}"
    return (
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "test", "path": path, "value": gate},
        {"op": "remove", "path": path},
    )
