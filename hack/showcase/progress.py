"""The state of the sample Jobs and their queues in the API, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from admitq_api.labels import Names
from localcluster.api import Api


class JobStage(StrEnum):
    """The stage of a Job."""

    HELD = "held"
    ADMITTED = "admitted"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether the Job is in its last stage."""
        return self in {JobStage.FINISHED, JobStage.FAILED}


@dataclass(frozen=True)
class JobProgress:
    """The progress of one Job.

    Attributes:
        name: namespace and name.
        stage: its stage.
        ready: number of its ready pods.
        pods: number of pods that it runs at once.
        flavors: the flavors of its Workload, each once.
        reason: why it waits: the message of its Workload.
    """

    name: str
    stage: JobStage
    ready: int
    pods: int
    flavors: tuple[str, ...]
    reason: str

    @property
    def is_decided(self) -> bool:
        """Whether admitq has decided: it started the Job, or states why it does not."""
        return self.stage is not JobStage.HELD or bool(self.reason)

    @property
    def is_settled(self) -> bool:
        """Whether admitq has decided, and all pods of a running Job are ready."""
        return self.is_decided and (self.stage is not JobStage.RUNNING or self.ready == self.pods)


@dataclass(frozen=True)
class FlavorUse:
    """CPU of one flavor in a ClusterQueue: usage, borrowed part, and nominal quota."""

    flavor: str
    used: str
    borrowed: str
    nominal: str


@dataclass(frozen=True)
class QueueProgress:
    """The progress of one ClusterQueue."""

    name: str
    pending: int
    admitted: int
    flavors: tuple[FlavorUse, ...]

    @property
    def idle(self) -> bool:
        """Whether no Workload waits or runs in it."""
        return self.pending == self.admitted == 0


def read_jobs(api: Api, names: Names, jobs: Sequence[tuple[str, str]]) -> list[JobProgress]:
    """Return the progress of the given Jobs (namespace, name) that exist, in the same order."""
    result: list[JobProgress] = []
    for namespace in dict.fromkeys(namespace for namespace, _ in jobs):
        listed = _items(api, f"/apis/batch/v1/namespaces/{namespace}/jobs")
        workloads = _items(api, f"/apis/{names.api_version}/namespaces/{namespace}/workloads")
        by_owner = {
            owner["uid"]: workload
            for workload in workloads
            for owner in workload["metadata"].get("ownerReferences", [])
        }
        result += [_job(job, by_owner.get(job["metadata"]["uid"])) for job in listed]
    place = {f"{namespace}/{name}": number for number, (namespace, name) in enumerate(jobs)}
    return sorted((job for job in result if job.name in place), key=lambda job: place[job.name])


def read_queues(api: Api, names: Names) -> list[QueueProgress]:
    """Return the progress of the ClusterQueues."""
    return [_queue(queue) for queue in _items(api, f"/apis/{names.api_version}/clusterqueues")]


def _job(job: dict[str, Any], workload: dict[str, Any] | None) -> JobProgress:
    status = job.get("status", {})
    true = {entry["type"] for entry in status.get("conditions", []) if entry["status"] == "True"}
    own = (workload or {}).get("status", {})
    assignments = own.get("admission", {}).get("podSetAssignments", [])
    flavors = dict.fromkeys(flavor for entry in assignments for flavor in entry.get("flavors", {}).values())
    if "Complete" in true:
        stage = JobStage.FINISHED
    elif "Failed" in true:
        stage = JobStage.FAILED
    elif job["spec"].get("suspend"):
        stage = JobStage.HELD
    else:
        stage = JobStage.RUNNING if status.get("ready") or status.get("succeeded") else JobStage.ADMITTED
    return JobProgress(
        name=f"{job['metadata']['namespace']}/{job['metadata']['name']}",
        stage=stage,
        ready=status.get("ready") or 0,
        pods=job["spec"].get("parallelism", 1),
        flavors=tuple(flavors),
        reason=_why_held(own) if stage is JobStage.HELD else "",
    )


def _why_held(status: dict[str, Any]) -> str:
    for condition in status.get("conditions", []):
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def _queue(queue: dict[str, Any]) -> QueueProgress:
    status = queue.get("status", {})
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsUsage", [])
        for resource in flavor["resources"]
    }
    flavors = [
        FlavorUse(
            flavor=flavor["name"],
            used=str(used.get((flavor["name"], resource["name"]), {}).get("total", 0)),
            borrowed=str(used.get((flavor["name"], resource["name"]), {}).get("borrowed", 0)),
            nominal=str(resource["nominalQuota"]),
        )
        for group in queue["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "cpu"
    ]
    return QueueProgress(
        name=queue["metadata"]["name"],
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("admittedWorkloads", 0),
        flavors=tuple(flavors),
    )


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    return list(api.request("GET", path)["items"])
