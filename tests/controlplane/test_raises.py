"""Jobs that run more than was admitted: elastic jobs without gates, and running jobs that are scaled up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from admitq.runtime.resources import JOBS, PODS
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from tests.controlplane.recording import sum_of_series
from tests.controlplane.stage import Stage, condition_of, until_next_second

REACTION_SECONDS: Final = 2.0
"""Longest time that pods may run beyond what is reserved for them."""


async def elastic_job(stage: Stage, pods: int, **spec: Any) -> None:
    """Create an elastic Job."""
    annotations = {stage.names.elastic_job: "true"}
    await stage.job(pods=pods, completions=50, metadata={"annotations": annotations}, **spec)


def is_gated(stage: Stage, pod: dict[str, Any]) -> bool:
    """Whether the gate of elastic jobs holds a pod."""
    return {"name": stage.names.elastic_gate} in value_at(pod, ("spec", "schedulingGates"), [])


async def running_pods(stage: Stage) -> list[str]:
    """Names of the Job's pods that no gate holds and that are not being deleted."""
    return sorted(
        one["metadata"]["name"]
        for one in await stage.pods()
        if not is_gated(stage, one) and "deletionTimestamp" not in one["metadata"]
    )


async def gated_pods(stage: Stage, number: int) -> list[str]:
    """Wait until a number of the Job's pods are gated, and return their names."""

    async def gated() -> int:
        return sum(is_gated(stage, one) for one in await stage.pods())

    await stage.until(gated, number, what=f"{number} gated pods")
    return sorted(one["metadata"]["name"] for one in await stage.pods() if is_gated(stage, one))


async def strip_gates(stage: Stage, names: list[str]) -> None:
    """Remove all gates of pods."""
    operations = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await asyncio.gather(
        *(stage.client.json_patch(PODS, name, operations, stage.namespace) for name in names)
    )


async def within_reaction(is_reached: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: after the time of one reaction.
    """
    began = time.monotonic()
    while not await is_reached():
        assert time.monotonic() - began < REACTION_SECONDS, what
        await asyncio.sleep(0.02)


async def excess(admitq: Installation, stage: Stage) -> float:
    """The excess pods of Jobs that the metric counts for the ClusterQueue of this story."""
    labels = {"cluster_queue": stage.own("cq"), "job_kind": "Job.batch"}
    return await sum_of_series(admitq, "excess_pods_total", **labels)


@pytest.mark.core
async def test_t8_elastic_job_pods_with_stripped_gates_are_deleted_down_to_the_admitted_count(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.queues(cpu=1)
    await elastic_job(stage, 1)
    await stage.until(lambda: _count(running_pods(stage)), 1)
    [first] = await running_pods(stage)
    # Creation times have whole seconds, and the newest pods are deleted.
    await until_next_second()
    await stage.change(JOBS, "j", {"spec": {"parallelism": 5}})
    stripped = await gated_pods(stage, 4)
    await strip_gates(stage, stripped)

    async def only_admitted_pod_runs() -> bool:
        return await running_pods(stage) == [first]

    await within_reaction(only_admitted_pod_runs, "more pods run than admitted")
    for name in stripped:
        await stage.until_event("Pod", name, "ExcessPodDeleted", "Excess pod deleted")

    async def excess_pods() -> float:
        return await excess(admitq_running, stage)

    await stage.until(excess_pods, 4.0)
    assert await running_pods(stage) == [first]
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is not True


async def test_elastic_job_that_runs_without_quota_is_stopped(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await stage.job("other")
    await stage.until_running("other")
    await elastic_job(stage, 2)
    await stage.until_workload_exists()
    await until_next_second()
    await until_next_second()
    await until_next_second()
    await stage.change(JOBS, "j", {"spec": {"suspend": False}})

    async def is_stopped() -> bool:
        job = await stage.get(JOBS, "j")
        return value_at(job, ("spec", "suspend")) is True and not await running_pods(stage)

    await within_reaction(is_stopped, "an elastic job runs without quota")
    assert condition_of(await stage.workload(), "QuotaReserved") != ("True", "QuotaReserved", "")


@pytest.mark.core
async def test_t10_running_job_that_raises_its_parallelism_is_stopped_and_requeued(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.queues(cpu=1)
    await stage.job(pods=1, completions=50)
    await stage.until_running()
    await stage.until(lambda: _count(running_pods(stage)), 1)
    await stage.change(JOBS, "j", {"spec": {"parallelism": 50}})

    async def is_stopped() -> bool:
        return value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is True

    await within_reaction(is_stopped, "the scaled-up job runs")

    async def has_no_pods() -> bool:
        return not await running_pods(stage)

    await stage.until(has_no_pods)
    note = "podset main requests 50 pods, 1 admitted"
    await stage.until_event("Job", "j", "ExceedsAdmission", note)

    async def excess_pods() -> float:
        return await excess(admitq_running, stage)

    await stage.until(excess_pods, 49.0)

    async def requested_pods() -> int:
        return value_at(await stage.workload(), ("spec", "podSets"))[0]["count"]

    await stage.until(requested_pods, 50, what="the Workload asks for all pods")


async def _count(names: Awaitable[list[str]]) -> int:
    return len(await names)
