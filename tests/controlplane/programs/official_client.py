"""Submit a Job with Python's official client, and watch it until it ends, as a user's program does.

It prints each new state of the Job.

Usage: official_client.py NAMESPACE NAME QUEUE_LABEL QUEUE
"""

import sys
from typing import Any

from kubernetes import client, config, watch


def job_in_queue(name: str, label: str, queue: str) -> client.V1Job:
    container = client.V1Container(
        name="c",
        image="example.com/c:1",
        resources=client.V1ResourceRequirements(requests={"cpu": "1"}),
    )
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(annotations={"kwok.admitq.dev/run-seconds": "0"}),
        spec=client.V1PodSpec(restart_policy="Never", containers=[container]),
    )
    return client.V1Job(
        metadata=client.V1ObjectMeta(name=name, labels={label: queue}),
        spec=client.V1JobSpec(template=template),
    )


def state_of(job: Any) -> str:
    conditions = {one.type for one in job.status.conditions or [] if one.status == "True"}
    for ended in ("Complete", "Failed"):
        if ended in conditions:
            return ended
    return "Suspended" if job.spec.suspend else "Started"


def main(namespace: str, name: str, label: str, queue: str) -> int:
    config.load_kube_config()
    batch = client.BatchV1Api()
    job: Any = batch.create_namespaced_job(namespace, job_in_queue(name, label, queue))
    state = state_of(job)
    print(state)
    # The watch starts after the creation, so that it misses no change.
    events: Any = watch.Watch().stream(
        batch.list_namespaced_job,
        namespace,
        field_selector=f"metadata.name={name}",
        resource_version=job.metadata.resource_version,
        timeout_seconds=120,
    )
    for event in events:
        if (now := state_of(event["object"])) != state:
            state = now
            print(state)
        if state in {"Complete", "Failed"}:
            break
    return 0 if state == "Complete" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
