"""Pods that outlive their job keep its quota: no other job starts in their place until they have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.base import Integration
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.runtime.client import Propagation
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS, Resource
from admitq.workloads.transitions import is_reserved
from admitq_api.json_objects import value_at
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import Stage, condition_of, controlled_by, until_next_second

HOLD = "example.com/hold"


async def run_first_job(stage: Stage) -> dict[str, Any]:
    """Fill the queue with one Job, and let another one wait for its quota."""
    await stage.queues(cpu=1)
    await stage.job("first")
    await stage.until_running("first")
    pod = (await until_pods_exist(stage, "first"))[0]

    async def runs() -> bool:
        return (await stage.get(PODS, pod["metadata"]["name"]))["status"].get("phase") == "Running"

    await stage.until(runs, what="the pod to run")
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    return await stage.workload("first")


async def until_outlived(stage: Stage, workload: dict[str, Any]) -> None:
    """Wait until the Workload reports the pods that remain, and check that they keep its quota."""

    async def reported() -> bool:
        stored = await stage.get(stage.kinds.workloads, workload["metadata"]["name"])
        outlived = condition_of(stored, "PodsOutliveJob")
        assert condition_of(stored, "Finished") is None
        return outlived is not None and outlived[:2] == ("True", "PodsRunning")

    await stage.until(reported, what="condition PodsOutliveJob")
    reserved = await stage.condition("QuotaReserved", "second")
    assert reserved is not None
    assert reserved[:2] == ("False", "WaitingForQuota")
    assert await stage.pods("second") == []


async def delete_pods(stage: Stage) -> None:
    for pod in await stage.pods("first"):
        await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace)


async def test_t4_quota_is_kept_while_orphaned_pods_of_a_deleted_job_run(stage: Stage) -> None:
    workload = await run_first_job(stage)
    await stage.until_garbage_is_collected()
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Orphan")
    await stage.until_gone(JOBS, "first")
    await until_outlived(stage, workload)
    await delete_pods(stage)
    await stage.until_running("second")


async def test_t5_quota_is_held_while_a_finalizer_holds_a_job_with_running_pods(stage: Stage) -> None:
    workload = await run_first_job(stage)
    await stage.change(JOBS, "first", {"metadata": {"finalizers": [HOLD]}})
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    await until_outlived(stage, workload)
    await delete_pods(stage)
    await stage.until_running("second")
    await stage.change(JOBS, "first", {"metadata": {"finalizers": []}})


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_quota_is_kept_while_a_finalizer_holds_pods_of_a_deleted_job(
    stage: Stage, propagation: Propagation
) -> None:
    workload = await run_first_job(stage)
    (pod,) = await stage.pods("first")
    held = [*pod["metadata"].get("finalizers", ()), HOLD]
    await stage.change(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": held}})
    await stage.client.delete(JOBS, "first", stage.namespace, propagation=propagation)
    await until_outlived(stage, workload)
    await stage.change(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": []}})
    await stage.until_running("second")


async def test_t5_quota_is_kept_when_a_job_is_suspended_before_it_is_deleted(stage: Stage) -> None:
    workload = await run_first_job(stage)
    (pod,) = await stage.pods("first")
    held = [*pod["metadata"].get("finalizers", ()), HOLD]
    await stage.change(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": held}})
    await stage.change(JOBS, "first", {"spec": {"suspend": True}})
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    await until_outlived(stage, workload)
    for one in await stage.pods("first"):
        await stage.change(PODS, one["metadata"]["name"], {"metadata": {"finalizers": []}})
    await stage.until_running("second")


async def test_quota_is_kept_when_pods_of_a_held_job_lose_their_labels(
    stage: Stage,
) -> None:
    workload = await run_first_job(stage)
    (pod,) = await stage.pods("first")
    await stage.change(JOBS, "first", {"metadata": {"finalizers": [HOLD]}})
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    await until_outlived(stage, workload)
    removed = dict.fromkeys(label for label in pod["metadata"]["labels"] if label != "job-name")
    await stage.change(PODS, pod["metadata"]["name"], {"metadata": {"labels": removed}})
    await until_outlived(stage, workload)
    await asyncio.sleep(3)
    await until_outlived(stage, workload)
    await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace)
    await stage.until_running("second")
    await stage.change(JOBS, "first", {"metadata": {"finalizers": []}})


async def test_pods_of_a_raised_job_that_is_orphaned_are_deleted_down_to_its_grant(stage: Stage) -> None:
    workload = await run_first_job(stage)
    await stage.until_garbage_is_collected()
    [pod] = await stage.pods("first")
    granted = pod["metadata"]["name"]
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Orphan")
    await stage.until_gone(JOBS, "first")
    await until_outlived(stage, workload)
    # As if Kubernetes had created them for a raise just before the deletion.
    await until_next_second()
    marks = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    container = {"name": "c", "image": "example.com/c:1"}
    spec = {"restartPolicy": "Never", "containers": [container]}
    for number in range(2):
        await stage.create(PODS, f"first-more-{number}", {"metadata": marks, "spec": spec})
        await stage.until_event("Pod", f"first-more-{number}", "ExcessPodDeleted", "Excess pod deleted")

    async def remaining() -> list[str]:
        return [one["metadata"]["name"] for one in await stage.pods("first")]

    await stage.until(remaining, [granted])
    await stage.client.delete(PODS, granted, stage.namespace)
    await stage.until_running("second")


async def test_pods_of_an_orphaned_job_that_was_never_admitted_are_deleted(stage: Stage) -> None:
    await run_first_job(stage)
    await stage.until_garbage_is_collected()
    await stage.change(JOBS, "second", {"spec": {"suspend": False}})
    await stage.client.delete(JOBS, "second", stage.namespace, propagation="Orphan")
    await stage.until_gone(JOBS, "second")

    async def remaining() -> list[str]:
        return [one["metadata"]["name"] for one in await stage.pods("second")]

    await stage.until(remaining, [])


# --- other kinds ----------------------------------------------------------------------------------

CONTAINER: dict[str, Any] = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
TEMPLATE: dict[str, Any] = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [CONTAINER]}}


async def create_pod_of(
    stage: Stage, name: str, template: dict[str, Any], labels: dict[str, Any], owner: dict[str, Any]
) -> None:
    metadata = template.get("metadata") or {}
    marks = {**metadata, "labels": {**metadata.get("labels", {}), **labels}, **owner}
    await stage.create(PODS, name, {"metadata": marks, "spec": template["spec"]})


async def run_job_set(stage: Stage, created: dict[str, Any]) -> None:
    """Create the Job of a JobSet; the Job controller creates its pod."""
    metadata, [replicated] = created["metadata"], created["spec"]["replicatedJobs"]
    prefix = "jobset.sigs.k8s.io/"
    labels = {
        f"{prefix}jobset-name": metadata["name"],
        f"{prefix}jobset-uid": metadata["uid"],
        f"{prefix}replicatedjob-name": replicated["name"],
        f"{prefix}job-index": "0",
    }
    spec = replicated["template"]["spec"]
    inside = spec["template"].get("metadata") or {}
    marked = {**inside, "labels": {**inside.get("labels", {}), **labels}}
    job = {
        "metadata": {"labels": labels, **controlled_by(created)},
        "spec": {**spec, "template": {**spec["template"], "metadata": marked}},
    }
    await stage.create(JOBS, f"{metadata['name']}-{replicated['name']}-0", job)


async def run_ray_cluster(stage: Stage, created: dict[str, Any]) -> None:
    """Create the head of a RayCluster."""
    name = created["metadata"]["name"]
    labels = {"ray.io/cluster": name, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    template = created["spec"]["headGroupSpec"]["template"]
    await create_pod_of(stage, f"{name}-head-x7k2p", template, labels, controlled_by(created))


async def run_leader_worker_set(stage: Stage, created: dict[str, Any]) -> None:
    """Create the leader of the one group of a LeaderWorkerSet."""
    prefix, name = "leaderworkerset.sigs.k8s.io/", created["metadata"]["name"]
    labels = {f"{prefix}name": name, f"{prefix}group-index": "0", f"{prefix}worker-index": "0"}
    template = created["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    await create_pod_of(stage, f"{name}-0", template, labels, {})


@dataclass(frozen=True)
class Kind:
    """A kind of job with a controller that the test plays: one pod that requests one CPU."""

    integration: Integration
    spec: dict[str, Any]
    run: Callable[[Stage, dict[str, Any]], Awaitable[None]]

    @property
    def resource(self) -> Resource:
        return resource_of(self.integration)


OF_JOB_SET: dict[str, Any] = {
    "parallelism": 1,
    "completions": 1,
    "template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}},
}
KINDS = (
    Kind(
        JOBSET,
        {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": OF_JOB_SET}}]},
        run_job_set,
    ),
    Kind(RAY_CLUSTER, {"headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE}}, run_ray_cluster),
    Kind(
        LEADER_WORKER_SET,
        {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}},
        run_leader_worker_set,
    ),
)


async def pods_of_first(stage: Stage) -> list[dict[str, Any]]:
    listed, _ = await stage.client.list(PODS, stage.namespace)
    return [one for one in listed if one["metadata"]["name"].startswith("first-")]


async def run_first_of(stage: Stage, kind: Kind) -> dict[str, Any]:
    """Fill the queue with one job of a kind, and let a Job wait for its quota; returns its Workload."""
    await stage.queues(cpu=1)
    metadata = {"labels": {stage.names.queue_name: "lq"}}
    await stage.create(kind.resource, "first", {"metadata": metadata, "spec": kind.spec})
    workloads = stage.kinds.workloads

    async def is_admitted() -> bool:
        [found] = (await stage.client.list(workloads, stage.namespace))[0]
        job = await stage.get(kind.resource, "first")
        return is_reserved(found) and value_at(job, kind.integration.lifecycle.suspend_path) is not True

    await stage.until(is_admitted, what=f"{kind.integration.kind} to be admitted")
    await kind.run(stage, await stage.get(kind.resource, "first"))

    async def runs() -> list[str | None]:
        return [one["status"].get("phase") for one in await pods_of_first(stage)]

    await stage.until(runs, ["Running"], what="the pod to run")
    [workload] = (await stage.client.list(workloads, stage.namespace))[0]
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    return workload


async def orphan(stage: Stage, kind: Kind, workload: dict[str, Any]) -> None:
    """Delete a job and leave its dependents, as ``kubectl delete --cascade=orphan`` does.

    The garbage collector discovers new kinds only every 30 seconds. Until then the test removes the owner
    references in its place. The Workload comes first, because the pods must run on while children of the job
    still refer to the job.
    """
    uid = (await stage.get(kind.resource, "first"))["metadata"]["uid"]
    await stage.client.delete(kind.resource, "first", stage.namespace, propagation="Orphan")
    owned = [(stage.kinds.workloads, workload)]
    owned += [(PODS, pod) for pod in await pods_of_first(stage)]
    if kind.integration is JOBSET:
        owned.append((JOBS, await stage.get(JOBS, "first-w-0")))
    for resource, one in owned:
        current = await stage.get(resource, one["metadata"]["name"])
        kept = [ref for ref in current["metadata"].get("ownerReferences", ()) if ref["uid"] != uid]
        await stage.change(resource, one["metadata"]["name"], {"metadata": {"ownerReferences": kept}})
    with suppress(ApiError):
        await stage.change(kind.resource, "first", {"metadata": {"finalizers": []}})
    await stage.until_gone(kind.resource, "first")


@pytest.mark.parametrize("is_orphaned", [True, False], ids=["orphaned", "held by a finalizer"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.integration.kind)
async def test_quota_is_kept_while_pods_of_a_deleted_job_of_another_kind_run(
    stage: Stage, definitions: Callable[[Iterable[str]], None], kind: Kind, is_orphaned: bool
) -> None:
    definitions([f"{kind.resource.plural}.{kind.resource.group}"])
    workload = await run_first_of(stage, kind)
    # What serves keeps its Workloads as they are for as long as it exists.
    is_kept = not is_orphaned and kind.integration.serving is not None
    if is_orphaned:
        await orphan(stage, kind, workload)
    else:
        await stage.change(kind.resource, "first", {"metadata": {"finalizers": [HOLD]}})
        await stage.client.delete(kind.resource, "first", stage.namespace, propagation="Background")
    if not is_kept:
        await until_outlived(stage, workload)
    if kind.integration is JOBSET:
        await stage.client.delete(JOBS, "first-w-0", stage.namespace, propagation="Background")
    else:
        for pod in await pods_of_first(stage):
            await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace)
    if is_kept:
        assert await stage.pods("second") == []
        await stage.change(kind.resource, "first", {"metadata": {"finalizers": []}})
    await stage.until_running("second")
    if not is_orphaned and not is_kept:
        await stage.change(kind.resource, "first", {"metadata": {"finalizers": []}})
