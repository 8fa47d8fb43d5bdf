"""The objects of a load shape, and the status patches with which the harness plays the jobs."""

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

from admitq.runtime.kinds import kinds_of
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import Reason
from admitq_api.labels import Names
from benchmarks.throughput_shapes import LoadShape, PlannedWorkload, cohort_name, queue_name

NAMESPACE: Final = "bench"
"""The namespace of all LocalQueues and Workloads."""

_FLAVOR: Final = "default"


def flavor(names: Names) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of the only flavor."""
    return kinds_of(names).resource_flavors.path(), _object(names, "ResourceFlavor", _FLAVOR, {})


def cluster_queues(shape: LoadShape, names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of each ClusterQueue."""
    quota = {
        "name": "cpu",
        "nominalQuota": str(shape.nominal_cpu),
        "borrowingLimit": str(shape.borrowing_limit_cpu),
    }
    group = {"coveredResources": ["cpu"], "flavors": [{"name": _FLAVOR, "resources": [quota]}]}
    for number in range(shape.queues):
        spec = {
            "cohortName": cohort_name(shape, number),
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {
                "reclaimWithinCohort": shape.reclaim_within_cohort,
                "withinClusterQueue": shape.within_cluster_queue,
            },
        }
        path = kinds_of(names).cluster_queues.path()
        yield path, _object(names, "ClusterQueue", queue_name(number), spec)


def local_queues(shape: LoadShape, names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the body of each LocalQueue."""
    path = kinds_of(names).local_queues.path(NAMESPACE)
    for number in range(shape.queues):
        name = queue_name(number)
        yield path, _object(names, "LocalQueue", name, {"clusterQueue": name})


def workload(planned: PlannedWorkload, names: Names) -> dict[str, Any]:
    """Return a Workload with one pod of one container."""
    container = {
        "name": "work",
        "image": "example.com/work:1",
        "resources": {"requests": {"cpu": str(planned.kind.cpu)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "queueName": queue_name(planned.queue),
        "priority": planned.kind.priority,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    return _object(names, "Workload", planned.name, spec)


def finish_operations() -> list[dict[str, Any]]:
    """Return the JSON patch of a job that succeeds.

    It appends one condition. So it needs neither the other conditions nor a resourceVersion, and the harness
    never has to repeat it because of a write by another program.
    """
    condition = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "The job succeeded",
        "lastTransitionTime": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return [{"op": "add", "path": "/status/conditions/-", "value": condition}]


def release_patch(evicted: dict[str, Any], now_ns: int) -> dict[str, Any] | None:
    """Return the merge patch by which the job of an evicted Workload releases its quota.

    Args:
        evicted: the Workload. Its job no longer runs.
        now_ns: the time, in nanoseconds.
    """
    transition = StatusTransition(evicted, now_ns)
    transition.requeue(Reason.PENDING_EVALUATION)
    return transition.patch()


def _object(names: Names, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
