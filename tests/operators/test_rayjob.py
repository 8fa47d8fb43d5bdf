"""Stories of RayJobs with a cluster that its autoscaler scales."""

from typing import Any, Final

import pytest

from tests.controlplane.stage import Stage
from tests.operators.conftest import OperatedCluster
from tests.operators.operator_case import OperatedJob, OperatorCase, submit
from tests.operators.ray_clusters import (
    HEAD,
    amounts,
    autoscaler,
    record_pods,
    set_quota,
    until_charged_for_its_pods,
    until_finished,
    until_slices,
    until_workers,
)
from tests.operators.test_stories import open_queue, stories_of, tells, until_running

pytestmark = stories_of("rayjob")

COUNTS: Final = {"head": 1, "submitter": 1}
TWO: Final = {"cpu": "2400m", "memory": "10Gi"}
THREE: Final = {"cpu": "2600m", "memory": "10Gi"}
"""Quota for two or three workers of 200m. The head has 1 CPU, its autoscaler and the submitter have 500m."""


def autoscaled(stage: Stage) -> dict[str, Any]:
    """The fields of a job with a cluster that scales itself."""
    return {
        f"metadata.annotations[{stage.names.elastic_job}]": "true",
        "spec.rayClusterSpec.enableInTreeAutoscaling": True,
    }


@tells("scale")
async def test_job_follows_the_cluster_that_its_autoscaler_scales(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    await open_queue(stage, case, quota=TWO)
    async with record_pods(stage) as record:
        job = await submit(stage, case, changes=autoscaled(stage))
        await until_running(case, job)
        await job.until_condition("PodsReady", "True")
        (head,) = await job.pods(HEAD)
        assert head["metadata"]["labels"]["ray.io/cluster"] == (await job.get())["status"]["rayClusterName"]
        assert (await until_charged_for_its_pods(job))["cpu"] == amounts({"cpu": "2200m"})["cpu"]

        async with autoscaler(stage, operated.cluster, head) as ray:
            await ray.scale_up(3)
            await until_workers(job, running=1, gated=2)
            await until_slices(
                job, ({**COUNTS, "small-group": 1}, True), ({**COUNTS, "small-group": 3}, False)
            )
            assert record.peak["cpu"] == amounts({"cpu": "2200m"})["cpu"]
            await set_quota(stage, THREE)
            workers = await until_workers(job, running=3)
            assert (await until_charged_for_its_pods(job))["cpu"] == amounts(THREE)["cpu"]

            await stage.job("other", cpu="400m")
            await ray.scale_down(1, workers[1:])
            await until_workers(job, running=1)
            await stage.until_running("other")
            await until_slices(job, ({**COUNTS, "small-group": 1}, True))
    assert record.peak["cpu"] == amounts(THREE)["cpu"]
    assert {one["metadata"]["uid"] for one in await job.pods(HEAD)} == {head["metadata"]["uid"]}
    await job.end_pods("Succeeded", case.succeeded)
    await until_finished(job)


async def test_retried_job_starts_with_the_workers_that_it_states(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    assert case.restart is not None
    await open_queue(stage, case, quota=THREE)
    async with record_pods(stage) as record:
        job = await submit(stage, case, changes={**autoscaled(stage), **case.restart.given})
        before = await _scale_to_three(stage, case, operated, job)
        await job.end_pods("Failed", case.restart)
        await job.until(case.restart.until)
        (worker,) = await until_workers(job, running=1)
        assert worker["metadata"]["labels"]["ray.io/cluster"] != before
        await until_slices(job, ({**COUNTS, "small-group": 1}, True))
        assert (await until_charged_for_its_pods(job))["cpu"] == amounts({"cpu": "2200m"})["cpu"]
    assert record.peak["cpu"] == amounts(THREE)["cpu"]


async def test_preempted_job_waits_for_and_starts_with_the_workers_that_it_states(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    await open_queue(stage, case, quota=THREE, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 1000})
    async with record_pods(stage) as record:
        job = await submit(stage, case, changes=autoscaled(stage))
        await _scale_to_three(stage, case, operated, job)
        # It leaves exactly the quota that the job needs with one worker.
        await stage.job("first", cpu="400m", labels={stage.names.priority_class: stage.own("high")})
        await stage.until_running("first")
        await until_workers(job, running=1)
        await until_slices(job, ({**COUNTS, "small-group": 1}, True))
    assert record.peak["cpu"] == amounts(THREE)["cpu"]


@pytest.mark.parametrize("is_elastic", [False, True], ids=["normal", "autoscaled"])
@pytest.mark.parametrize(("mode", "pods"), [("K8sJobMode", 3), ("HTTPMode", 2), ("SidecarMode", 2)])
async def test_quota_is_what_the_pods_of_each_submission_mode_request(
    stage: Stage, case: OperatorCase, mode: str, pods: int, is_elastic: bool
) -> None:
    await open_queue(stage, case, quota=THREE)
    changes = {"spec.submissionMode": mode, **(autoscaled(stage) if is_elastic else {})}
    job = await submit(stage, case, changes=changes)
    await until_running(case, job, pods)
    await until_charged_for_its_pods(job)


async def _scale_to_three(
    stage: Stage, case: OperatorCase, operated: OperatedCluster, job: OperatedJob
) -> str:
    """Wait until a job runs, and scale its cluster up to three workers; return the name of the cluster."""
    await until_running(case, job)
    await job.until_condition("PodsReady", "True")
    (head,) = await job.pods(HEAD)
    async with autoscaler(stage, operated.cluster, head) as ray:
        await ray.scale_up(3)
        await until_workers(job, running=3)
        await until_slices(job, ({**COUNTS, "small-group": 3}, True))
    return head["metadata"]["labels"]["ray.io/cluster"]
