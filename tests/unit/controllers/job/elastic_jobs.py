"""Slices of elastic jobs."""

from typing import Any

from admitq.controllers.pods.elastic_pods import STARTED_PODS, ElasticPodsController
from admitq.runtime.store import Store
from tests.unit.controllers.builders import NAMES, TEMPLATE, admitted, condition, job, timestamp, workload
from tests.unit.controllers.job.decisions import RUNNING
from tests.unit.controllers.world import World

ELASTIC = {NAMES.elastic_job: "true"}

EVICTED = condition("Evicted", True, "Preempted", "Preempted", since=5)


def running_job(pods: int, **parts: Any) -> dict[str, Any]:
    return job({**RUNNING, "parallelism": pods, "completions": 50}, annotations=ELASTIC, **parts)


def waiting_job(pods: int) -> dict[str, Any]:
    return job({"parallelism": pods, "completions": 50}, annotations=ELASTIC)


def slice_(
    name: str, pods: int, of: Any = admitted, *conditions: dict[str, Any], **parts: Any
) -> dict[str, Any]:
    """Return a slice of so many pods; ``replaces`` names another slice, ``at`` is its creation in seconds."""
    replaces, at = parts.pop("replaces", None), parts.pop("at", 0)
    annotations = {**ELASTIC, NAMES.workload_slice_name: "first"}
    if replaces:
        annotations[NAMES.workload_slice_replacement_for] = f"ns/{replaces}"
    if of is not workload:
        assignment = {
            "name": "main",
            "count": pods,
            "flavors": {"cpu": "f"},
            "resourceUsage": {"cpu": str(pods)},
        }
        parts["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    return of(
        *conditions,
        name=name,
        metadata={"annotations": annotations, "creationTimestamp": timestamp(at)},
        spec={"podSets": [{"name": "main", "count": pods, "template": TEMPLATE}]},
        **parts,
    )


def watch_started_pods(world: World) -> Store:
    """Add the store of the pods of elastic jobs, before its first list."""
    served = ElasticPodsController(world.ctx).when_served()
    store = Store(STARTED_PODS, transform=served.transform, indexes=served.indexes)
    world.stores.stores[STARTED_PODS] = store
    return store
