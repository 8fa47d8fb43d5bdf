"""Workloads at rest for the benchmark of restarts: samples, and copies of them in the form of etcd.

A manager writes the statuses of the samples. So the copies have exactly the content that the manager would
write, and a restarted manager has nothing to add.
"""

import datetime as dt
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import CONFIG_MAPS, NAMESPACES, Resource
from admitq_api.labels import Names

FLAVOR: Final = "nodes"
COHORT: Final = "all"
OWNER: Final = "pipeline"
"""The ConfigMap that owns the Workloads of a namespace. The garbage collector would delete Workloads without
their owner."""
RUNNING: Final = "running"
"""The name of the Workload of each queue that runs as long as the load."""
_SAMPLE_NAME: Final = "@name@"
_SAMPLE_UID: Final = "@uid@"
_SAMPLE_TIME: Final = "@created@"
_APART_S: Final = 2
"""Seconds between the creations of two Workloads of a queue."""


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue, and its LocalQueue in a namespace of the same name."""

    name: str

    @property
    def namespace(self) -> str:
        """The namespace of the LocalQueue and its Workloads."""
        return self.name


@dataclass(frozen=True)
class WorkloadSize:
    """What a Workload requests.

    Attributes:
        pods: the number of its pods.
        pod_cpu: the CPUs and the Gi of memory of each pod.
        priority: its priority.
    """

    pods: int = 8
    pod_cpu: int = 2
    priority: int = 0

    @property
    def cpu(self) -> int:
        """The CPUs, and the Gi of memory, of all pods."""
        return self.pods * self.pod_cpu


USUAL_SIZE: Final = WorkloadSize()


def queues(count: int) -> list[Queue]:
    """Return the queues of a load."""
    return [Queue(f"team-{number}") for number in range(count)]


def objects_of(
    queue: Queue, names: Names, quota: int, preemption: Mapping[str, str] | None = None
) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield the namespace, the owner, and the queues.

    Args:
        queue: the queue.
        names: the names of the API group.
        quota: the nominal quota of CPU, and of memory in Gi.
        preemption: the preemption policies; None: no preemption.
    """
    kinds = kinds_of(names)
    yield NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": queue.namespace}}
    metadata = {"name": OWNER, "namespace": queue.namespace}
    yield CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    quotas = [
        {"name": "cpu", "nominalQuota": str(quota)},
        {"name": "memory", "nominalQuota": f"{quota}Gi"},
    ]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": FLAVOR, "resources": quotas}]}
    yield (
        kinds.cluster_queues,
        {
            "apiVersion": names.api_version,
            "kind": "ClusterQueue",
            "metadata": {"name": queue.name},
            "spec": {
                "cohortName": COHORT,
                "namespaceSelector": {},
                "resourceGroups": [group],
                **({} if preemption is None else {"preemption": dict(preemption)}),
            },
        },
    )
    yield (
        kinds.local_queues,
        {
            "apiVersion": names.api_version,
            "kind": "LocalQueue",
            "metadata": {"name": queue.name, "namespace": queue.namespace},
            "spec": {"clusterQueue": queue.name},
        },
    )


def flavor(names: Names) -> dict[str, Any]:
    """Return the flavor of all quotas."""
    return {"apiVersion": names.api_version, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}


def workload(
    queue: Queue, name: str, owner_uid: str, names: Names, size: WorkloadSize = USUAL_SIZE
) -> dict[str, Any]:
    """Return a Workload as a job controller would create it."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner_uid, "controller": True}
    return {
        "apiVersion": names.api_version,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": queue.namespace,
            "labels": {names.job_uid: str(uuid.uuid4()), "team": queue.name, "experiment": f"of-{name}"},
            "finalizers": [names.finalizer],
            "ownerReferences": [owner],
        },
        "spec": {
            "queueName": queue.name,
            "priority": size.priority,
            "podSets": [{"name": "main", "count": size.pods, "template": _template(name, size.pod_cpu)}],
        },
    }


def _template(name: str, cpu: int) -> dict[str, Any]:
    """Return a pod template like those of training jobs. Its name makes it differ from all others."""
    amounts = {"cpu": str(cpu), "memory": f"{cpu}Gi"}
    variables = {
        "RUN_ID": name,
        "LOG_LEVEL": "info",
        "OUTPUT": f"s3://results/{name}/output",
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "2",
        "PYTHONUNBUFFERED": "1",
    }
    work = {
        "name": "work",
        "image": "registry.example.com/research/training:2026.11.3",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "training.run"],
        "args": [f"--run={name}", "--config=/etc/training/config.yaml", "--epochs=30", "--batch-size=256"],
        "env": [
            *({"name": variable, "value": value} for variable, value in variables.items()),
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "credentials", "key": "token"}},
            },
        ],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/training", "readOnly": True},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }
    return {
        "metadata": {"labels": {"app": "training", "run": name}, "annotations": {"team/contact": "research"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "training",
            "containers": [work],
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [
                {"name": "config", "configMap": {"name": "training"}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}},
            ],
            "terminationGracePeriodSeconds": 60,
        },
    }


class StoredSample:
    """A stored Workload. Its copies have another name, uid and creation time.

    Args:
        stored: the value in etcd.
    """

    def __init__(self, stored: bytes) -> None:
        sample: dict[str, Any] = json.loads(stored)
        metadata = sample["metadata"]
        self._created = dt.datetime.fromisoformat(metadata["creationTimestamp"])
        name = metadata["name"]
        metadata["uid"], metadata["creationTimestamp"] = _SAMPLE_UID, _SAMPLE_TIME
        text = json.dumps(sample, separators=(",", ":"))
        self._text = text.replace(name, _SAMPLE_NAME)

    def copy(self, name: str, number: int) -> bytes:
        """Return the value in etcd of a copy that was created some time before the sample."""
        created = self._created - dt.timedelta(seconds=_APART_S * (number + 1))
        text = self._text.replace(_SAMPLE_NAME, name).replace(_SAMPLE_UID, str(uuid.uuid4()))
        return text.replace(_SAMPLE_TIME, created.strftime("%Y-%m-%dT%H:%M:%SZ")).encode() + b"\n"


def copies(
    samples: Sequence[tuple[Queue, StoredSample]], kind: str, count: int
) -> Iterator[tuple[Queue, str, bytes]]:
    """Yield copies of the samples in turn: the queue, the name, and the value in etcd."""
    for number in range(count):
        queue, sample = samples[number % len(samples)]
        # Names of Workloads end in a hash, so their order is not that of their creation.
        name = f"{kind}-run-{number}-{uuid.uuid5(uuid.NAMESPACE_OID, f'{kind}{number}').hex[:5]}"
        yield queue, name, sample.copy(name, number // len(samples))
