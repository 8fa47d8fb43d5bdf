"""Create a Job in a queue and wait until it is admitted. Needs: pip install kubernetes-asyncio."""

import asyncio
import sys
from typing import Any

from kubernetes_asyncio import client, config, watch

GROUP, VERSION = "admitq.dev", "v1beta2"


def manifest(queue: str) -> dict[str, Any]:
    """Return a Job of two pods."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "60"],
        "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "python-", "labels": {f"{GROUP}/queue-name": queue}},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def condition(workload: dict[str, Any], type_: str) -> dict[str, str]:
    """Return a condition of a Workload; empty if it is missing."""
    conditions = workload.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == type_), {})


async def submit(namespace: str, queue: str) -> None:
    """Create the Job, print why it waits, and return when it is admitted."""
    await config.load_kube_config()
    async with client.ApiClient() as api, watch.Watch() as watcher:
        job = await client.BatchV1Api(api).create_namespaced_job(namespace, manifest(queue))
        print(f"created {job.metadata.name}")
        workloads = client.CustomObjectsApi(api).list_namespaced_custom_object
        selector = f"{GROUP}/job-uid={job.metadata.uid}"
        async for event in watcher.stream(
            workloads, GROUP, VERSION, namespace, "workloads", label_selector=selector
        ):
            workload = event["object"]
            if condition(workload, "Admitted").get("status") == "True":
                print(f"admitted {workload['metadata']['name']}")
                return
            print(condition(workload, "QuotaReserved").get("message", "not evaluated yet"))


if __name__ == "__main__":
    asyncio.run(submit(*sys.argv[1:]))
