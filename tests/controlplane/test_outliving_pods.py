"""Pods that outlive their Job keep its quota: no other Job starts in their place until they have ended."""

import asyncio

import pytest

from admitq.runtime.client import Propagation
from admitq.runtime.resources import JOBS, PODS
from tests.controlplane.stage import Object, Stage, condition_of, until_next_second

HOLD = "example.com/hold"


async def run_first_job(stage: Stage) -> Object:
    """Fill the queue with one Job, and let another one wait for its quota."""
    await stage.queues(cpu=1)
    await stage.job("first")
    await stage.until_running("first")
    pod = (await stage.some_pods("first"))[0]

    async def runs() -> bool:
        return (await stage.get(PODS, pod["metadata"]["name"]))["status"].get("phase") == "Running"

    await stage.until(runs, what="the pod to run")
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    return await stage.workload("first")


async def until_outlived(stage: Stage, workload: Object) -> None:
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


async def test_t5_quota_is_kept_while_a_finalizer_holds_a_job_whose_pods_run(stage: Stage) -> None:
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
        await stage.until_told("Pod", f"first-more-{number}", "ExcessPodDeleted", "Excess pod deleted")

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
