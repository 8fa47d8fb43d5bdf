"""Submit a TrainJob with Kubeflow's SDK, show it, and wait until it is complete, as programs of users do.

Usage: trainer_client.py submit NAMESPACE NAME QUEUE_LABEL QUEUE
       trainer_client.py show NAMESPACE NAME
       trainer_client.py wait NAMESPACE NAME

``show`` and ``wait`` print what the SDK reports as JSON.
"""

import json
import sys
from typing import Any

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient
from kubeflow.trainer.options import Labels, Name


def train() -> None:
    print("training")


def submit(client: TrainerClient, name: str, label: str, queue: str) -> None:
    client.train(
        runtime="torch-distributed",
        trainer=CustomTrainer(func=train, num_nodes=3, resources_per_node={"cpu": 1, "memory": "1Gi"}),
        options=[Name(name), Labels({label: queue})],
    )


def show(client: TrainerClient, name: str) -> dict[str, Any]:
    job = client.get_job(name)
    return {
        "jobs": [one.name for one in client.list_jobs()],
        "status": job.status,
        "steps": {one.name: one.status for one in job.steps},
        "log": list(client.get_job_logs(name)),
    }


def main(action: str, namespace: str, name: str, *queue: str) -> None:
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
    match action:
        case "submit":
            submit(client, name, *queue)
        case "show":
            print(json.dumps(show(client, name)))
        case _:
            client.wait_for_job_status(name, polling_interval=1, timeout=120)
            print(json.dumps(show(client, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
