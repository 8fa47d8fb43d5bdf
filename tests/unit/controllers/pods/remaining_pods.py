"""Pods that outlive their job, and the Workloads with their quota."""

from collections.abc import Callable
from typing import Any

from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    admitted,
    condition_of,
    timestamp,
    workload,
)
from tests.unit.controllers.world import World

JOB_KEY = Key("ns", "j")

WORKLOAD_KEY = Key("ns", "job-j-1")

ORPHANED = {"labels": {NAMES.job_uid: "uid-j"}}

LIST = "list pods"


def pod(name: str = "p", *, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    labels = {NAMES.podset: "main", "batch.kubernetes.io/controller-uid": "uid-j"}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels, **metadata},
        "spec": spec or {},
        "status": status or {"phase": "Running"},
    }


def add_pods(world: World, *pods: dict[str, Any]) -> World:
    for pod_ in pods:
        world.client.api["pods", pod_["metadata"]["name"]] = pod_
    return world


def end_of_workload(world: World) -> tuple[str | None, str | None]:
    """Return the reasons of the conditions PodsOutliveJob and Finished."""
    stored = world.get(KINDS.workloads, "job-j-1")
    outlived, finished = (condition_of(stored, type_) for type_ in ("PodsOutliveJob", "Finished"))
    return outlived and outlived[1], finished and finished[1]


FIVE_PODS = {"podSets": [{"name": "main", "count": 5, "template": TEMPLATE}]}

SLICE = {"annotations": {NAMES.workload_slice_name: "job-j-0"}}


def aged_pod(name: str, second: int, **metadata: Any) -> dict[str, Any]:
    return pod(name, uid=f"uid-{name}", creationTimestamp=timestamp(second), **metadata)


def slice_of(
    make: Callable[..., dict[str, Any]], name: str, replaces: str = "", **parts: Any
) -> dict[str, Any]:
    annotations = dict(SLICE["annotations"])
    if replaces:
        annotations[NAMES.workload_slice_replacement_for] = f"ns/{replaces}"
    return make(metadata={"name": name, "uid": f"uid-{name}", "annotations": annotations}, **parts)


HELD_SLICE = slice_of(admitted, "held")

LARGER_SLICE = slice_of(workload, "larger", "held", spec=FIVE_PODS)


def orphaned_workload(number: int) -> dict[str, Any]:
    """Return the Workload of a deleted job; each number is another job."""
    metadata = {"name": f"job-{number}", "uid": f"uid-w{number}"}
    return admitted(owner={**OWNER, "uid": f"uid-{number}"}, metadata=metadata)
