"""Objects of fault tests: one namespace, one queue, and jobs of two pods."""

from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import JOBS, NAMESPACES
from admitq_api.labels import names_for
from localcluster.waiting import eventually

PODS_OF_A_JOB = 2
QUOTA_CPU = 24
NAMESPACE = "team"


def job(number: int, queue_label: str, seconds: float | None) -> dict[str, Any]:
    """A Job of two pods with a CPU each; without ``seconds`` they run until they are deleted."""
    annotations = {} if seconds is None else {"kwok.admitq.dev/run-seconds": f"{seconds:.1f}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number:03}",
            "namespace": NAMESPACE,
            "labels": {queue_label: "main"},
        },
        "spec": {
            "parallelism": PODS_OF_A_JOB,
            "completions": PODS_OF_A_JOB,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "work", "resources": {"requests": {"cpu": "1"}}}
                    ],
                },
            },
        },
    }


async def create(client: Client, obj: dict[str, Any]) -> None:
    """Create a job, and retry as a user would while the API server or the webhook is down."""

    async def created() -> bool:
        try:
            await client.create(JOBS, obj)
        except ApiError as error:
            if not error.is_already_exists:
                raise
        return True

    await eventually(created, timeout=90, interval=0.3, what=f"{obj['metadata']['name']} is created")


async def set_up_queues(client: Client, api_group: str) -> None:
    """Create a namespace with a LocalQueue ``main``; its ClusterQueue has a quota of ``QUOTA_CPU`` CPUs."""
    names = names_for(api_group)
    kinds = kinds_of(names)
    quota = {"name": "cpu", "nominalQuota": str(QUOTA_CPU)}
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "default", "resources": [quota]}],
    }
    objects: list[tuple[Any, dict[str, Any]]] = [
        (NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        (kinds.resource_flavors, {"metadata": {"name": "default"}, "spec": {}}),
        (
            kinds.cluster_queues,
            {"metadata": {"name": "all"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
        ),
        (
            kinds.local_queues,
            {"metadata": {"name": "main", "namespace": NAMESPACE}, "spec": {"clusterQueue": "all"}},
        ),
    ]
    for resource, obj in objects:
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        await client.create(resource, whole)


def conditions_of(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The conditions of an object."""
    return (obj.get("status") or {}).get("conditions") or []
