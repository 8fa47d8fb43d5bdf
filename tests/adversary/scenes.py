"""Scenes: objects for rows of the table, each in its own queue.

A scene is prepared once, and its rows are tried one after the other. After a row with an unexpected end, the
scene is prepared again, because its objects may have changed.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from admitq.integrations.base import Integration
from admitq.integrations.registry import load_integrations
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS
from admitq_api.json_objects import value_at
from admitq_api.labels import DEFAULT_GROUP
from localcluster.waiting import eventually
from tests.adversary.arena import Arena
from tests.adversary.calls import Target
from tests.controlplane.kind_cases import load
from tests.controlplane.played_jobs import PlayedJob, create_other, submit

Targets = Mapping[str, Target]
Scene = Callable[[Arena, str], Awaitable[Targets]]


async def running_pod(arena: Arena, queue: str) -> Targets:
    """A pod that runs, charged to a queue that it fills."""
    await arena.queue(queue)
    pod = await arena.pod(queue)
    await arena.until_runs(f"{queue}-")
    return {"pod": pod}


async def waiting_pod(arena: Arena, queue: str) -> Targets:
    """A pod that asks for more than the queue has, and waits at its gate."""
    await arena.queue(queue)
    pod = await arena.pod(queue, cpu=2)
    await arena.until_waits(queue)
    return {"pod": pod}


async def running_group(arena: Arena, queue: str) -> Targets:
    """A group of two pods that run and fill their queue."""
    await arena.queue(queue, cpu=2)
    for number in range(2):
        await arena.pod(queue, f"p{number}", group=f"{queue}-g", total=2)
    await arena.until_runs(f"{queue}-", 2)
    return {"pod": Target(PODS, f"{queue}-p0", arena.admin.namespace)}


async def running_deployment(arena: Arena, queue: str) -> Targets:
    """The pod of a Deployment, which runs and fills its queue."""
    return await _running_replica(arena, queue, "deployment", arena.deployment)


async def running_stateful_set(arena: Arena, queue: str) -> Targets:
    """The pod of a StatefulSet, which runs and fills its queue."""
    return await _running_replica(arena, queue, "statefulset", arena.stateful_set)


async def _running_replica(
    arena: Arena, queue: str, kind: str, create: Callable[[str], Awaitable[Target]]
) -> Targets:
    await arena.queue(queue)
    serving = await create(queue)
    [name] = await arena.until_runs(f"{queue}-")
    await _until_ready(arena, serving)
    return {"pod": Target(PODS, name, arena.admin.namespace), kind: serving}


async def running_leader_worker_set(arena: Arena, queue: str) -> Targets:
    """A leader and a worker, which run and fill their queue. Their controller does not run."""
    await arena.queue(queue, cpu=2)
    lws = await arena.leader_worker_set(queue)
    await arena.until_runs(f"{queue}-", 2)
    worker = Target(PODS, f"{lws.name}-0-1", arena.admin.namespace)
    return {"pod": worker, "leaderworkerset": lws}


async def _until_ready(arena: Arena, target: Target) -> None:
    async def is_ready() -> bool:
        found = await arena.admin.get(target.resource, target.name)
        return value_at(found, ("status", "readyReplicas"), 0) == 1

    await eventually(is_ready, what=f"{target.name} to be ready")


async def running_job(arena: Arena, queue: str) -> Targets:
    """A Job that is admitted and fills its queue, its pod, its Workload, and the queues."""
    await arena.queue(queue)
    job = await arena.job(queue)
    [name] = await arena.until_runs(f"{queue}-")
    [workload] = await arena.workloads(queue)
    kinds, namespace = arena.admin.kinds, arena.admin.namespace
    return {
        "job": job,
        "pod": Target(PODS, name, namespace),
        "workload": Target(kinds.workloads, workload["metadata"]["name"], namespace),
        "localqueue": Target(kinds.local_queues, queue, namespace),
        "clusterqueue": Target(kinds.cluster_queues, arena.admin.own(queue), None),
        "resourceflavor": Target(kinds.resource_flavors, arena.admin.own("f"), None),
    }


async def stopping_job(arena: Arena, queue: str) -> Targets:
    """A Job that is being stopped: its Workload was deactivated, and its pod takes long to end."""
    names, kinds = arena.admin.names, arena.admin.kinds
    await arena.queue(queue)
    job = await arena.job(queue, template=arena.pod_manifest(None, termination=60))
    await arena.until_runs(f"{queue}-")
    [workload] = await arena.workloads(queue)
    await arena.admin.change(kinds.workloads, workload["metadata"]["name"], {"spec": {"active": False}})

    async def is_stopping() -> bool:
        found = await arena.admin.get(JOBS, job.name)
        return value_at(found, ("metadata", "annotations", names.stopping)) == "true"

    await eventually(is_stopping, what=f"the stop of {job.name} to begin")
    return {"job": job}


async def elastic_job(arena: Arena, queue: str) -> Targets:
    """An elastic Job that fills its queue and has grown, and a pod of it that waits at its gate."""
    names = arena.admin.names
    await arena.queue(queue)
    labels, annotations = {names.queue_name: queue}, {names.elastic_job: "true"}
    metadata = {"labels": labels, "annotations": annotations}
    job = await arena.job(queue, completions=9, metadata=metadata)
    await arena.until_runs(f"{queue}-")
    await arena.tenant.change(JOBS, job.name, {"spec": {"parallelism": 2}})

    async def gated() -> list[str]:
        pods = await arena.pods(queue)
        return [one["metadata"]["name"] for one in pods if one["spec"].get("schedulingGates")]

    [name] = await eventually(gated, what="a gated pod")
    return {"job": job, "waiting": Target(PODS, name, arena.admin.namespace)}


async def waiting_job(arena: Arena, queue: str) -> Targets:
    """A Job that asks for more than the queue has, and its Workload."""
    await arena.queue(queue)
    job = await arena.job(queue, pods=2)
    [workload] = await arena.until_waits(queue)
    name = workload["metadata"]["name"]
    return {"job": job, "workload": Target(arena.admin.kinds.workloads, name, arena.admin.namespace)}


async def foreign_job(arena: Arena, queue: str) -> Targets:
    """A Job of another namespace, in which the tenant has no rights."""
    other = arena.other
    await other.job(queue, queue="none")
    return {"job": Target(JOBS, queue, other.namespace)}


def waiting(kind: Integration) -> Scene:
    """A job of another project's kind in a queue without quota. No controller of the kind runs."""

    async def scene(arena: Arena, queue: str) -> Targets:
        job = await _job_of_kind(arena, queue, kind, cpu=0)
        await arena.until_waits(queue)
        return {"job": Target(job.case.resource, job.name, arena.admin.namespace)}

    return scene


def running(kind: Integration) -> Scene:
    """A job of another project's kind that is admitted."""

    async def scene(arena: Arena, queue: str) -> Targets:
        job = await _job_of_kind(arena, queue, kind, cpu=1000)
        await job.until_started()
        return {"job": Target(job.case.resource, job.name, arena.admin.namespace)}

    return scene


async def _job_of_kind(arena: Arena, queue: str, kind: Integration, *, cpu: int) -> PlayedJob:
    case, flavor = load(kind, arena.admin.names.group), arena.admin.own("f")
    amounts = [
        {"name": one, "nominalQuota": cpu if one == "cpu" else "1000Gi"} for one in ("cpu", *case.resources)
    ]
    covered = {one["name"]: one for one in amounts}
    resources = {"name": flavor, "resources": list(covered.values())}
    await arena.queue(queue, resourceGroups=[{"coveredResources": list(covered), "flavors": [resources]}])
    for one in case.objects:
        with suppress(ApiError):
            # The other scene of the kind may have created it.
            await create_other(arena.admin, one)
    job, _ = await submit(arena.tenant, case, f"{queue}-x", queue=queue)
    return replace(job, stage=arena.admin)


_ALIKE: Final = {"TFJob", "XGBoostJob", "PaddleJob", "JAXJob"}
"""Kinds of Kubeflow for which the rows of PyTorchJobs are sufficient."""
OF_OTHER_PROJECTS: Final = tuple(
    one
    for one in load_integrations()
    if one.group not in {"", "apps", "batch"}
    and one.kind not in _ALIKE
    and load(one, DEFAULT_GROUP).suspended
)
"""Kinds that are suspended as a whole, without a running controller in the tests."""

SCENES: Final[Mapping[str, Scene]] = {
    "running-pod": running_pod,
    "waiting-pod": waiting_pod,
    "running-group": running_group,
    "running-deployment": running_deployment,
    "running-statefulset": running_stateful_set,
    "running-leaderworkerset": running_leader_worker_set,
    "running-job": running_job,
    "waiting-job": waiting_job,
    "stopping-job": stopping_job,
    "elastic-job": elastic_job,
    "foreign-job": foreign_job,
    **{f"waiting-{one.kind.lower()}": waiting(one) for one in OF_OTHER_PROJECTS},
    **{f"running-{one.kind.lower()}": running(one) for one in OF_OTHER_PROJECTS},
}
