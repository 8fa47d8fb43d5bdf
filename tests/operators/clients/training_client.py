"""Submit a PyTorchJob with the SDK of Kubeflow's Training Operator, show it, and wait until it succeeds.

Usage: training_client.py submit NAMESPACE NAME QUEUE_LABEL QUEUE
       training_client.py show NAMESPACE NAME
       training_client.py wait NAMESPACE NAME

``show`` and ``wait`` print what the SDK reports as JSON.
"""

import json
import sys
from typing import Any

from kubeflow.training.api.training_client import TrainingClient


def submit(client: TrainingClient, name: str, label: str, queue: str) -> None:
    client.create_job(
        name=name,
        base_image="example.com/train:1",
        num_workers=2,
        resources_per_worker={"cpu": "375m", "memory": "384Mi"},
        labels={label: queue},
    )


def show(client: TrainingClient, name: str) -> dict[str, Any]:
    jobs: list[Any] = client.list_jobs()
    logs, _ = client.get_job_logs(name, is_master=False)
    return {
        "jobs": [one.metadata.name for one in jobs],
        "is running": client.is_job_running(name),
        "has succeeded": client.is_job_succeeded(name),
        "logs": logs,
    }


def main(action: str, namespace: str, name: str, *queue: str) -> None:
    client = TrainingClient(namespace=namespace, job_kind="PyTorchJob")
    match action:
        case "submit":
            submit(client, name, *queue)
        case "show":
            print(json.dumps(show(client, name)))
        case _:
            client.wait_for_job_conditions(name, polling_interval=1, wait_timeout=120)
            print(json.dumps(show(client, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
