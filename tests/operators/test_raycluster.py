"""Stories of RayClusters that their autoscaler scales."""

from typing import Final

from tests.controlplane.stage import Stage
from tests.operators.conftest import OperatedCluster
from tests.operators.operator_case import OperatorCase, submit, with_sample
from tests.operators.ray_clusters import (
    HEAD,
    amounts,
    autoscaler,
    record_pods,
    set_quota,
    until_charged_for_its_pods,
    until_slices,
    until_workers,
)
from tests.operators.test_stories import open_queue, stories_of, until_running

pytestmark = stories_of("raycluster")

AUTOSCALED: Final = "config/samples/ray-cluster.autoscaler.yaml"
"""A head with 1 CPU and 2Gi, and its autoscaler with 500m and 512Mi; workers have 1 CPU and 1Gi."""


async def test_autoscaled_cluster_runs_as_many_workers_as_it_has_quota_for(
    stage: Stage, case: OperatorCase, operated: OperatedCluster, api_group: str
) -> None:
    scaled = with_sample(case, "kuberay", AUTOSCALED, api_group)
    one, three = {"cpu": "2500m", "memory": "3584Mi"}, {"cpu": "4500m", "memory": "5632Mi"}
    await open_queue(stage, scaled, quota=one)
    async with record_pods(stage) as record:
        job = await submit(
            stage, scaled, changes={f"metadata.annotations[{stage.names.elastic_job}]": "true"}
        )
        (head,) = await until_running(scaled, job, 1)
        assert [container["name"] for container in head["spec"]["containers"]] == ["ray-head", "autoscaler"]
        assert await until_charged_for_its_pods(job) == amounts({"cpu": "1500m", "memory": "2560Mi"})
        await job.until_condition("PodsReady", "True")

        async with autoscaler(stage, operated.cluster, head) as ray:
            await ray.scale_up(1)
            await until_workers(job, running=1)
            assert await until_charged_for_its_pods(job) == amounts(one)

            await ray.scale_up(3)
            await until_workers(job, running=1, gated=2)
            await until_slices(
                job, ({"head": 1, "small-group": 1}, True), ({"head": 1, "small-group": 3}, False)
            )
            assert record.peak == amounts(one)
            await set_quota(stage, three)
            workers = await until_workers(job, running=3)
            assert await until_charged_for_its_pods(job) == amounts(three)

            await stage.job("other", cpu="2")
            await ray.scale_down(1, workers[:2])
            await until_workers(job, running=1)
            await until_slices(job, ({"head": 1, "small-group": 1}, True))
            await stage.until_running("other")
            await ray.scale_down(0, workers[2:])
            await until_slices(job, ({"head": 1, "small-group": 0}, True))
    (still,) = await job.pods(HEAD)
    assert still["metadata"]["uid"] == head["metadata"]["uid"]
    assert record.peak == amounts(three)


async def test_workers_that_the_autoscaler_gives_up_while_they_wait_leave_nothing(
    stage: Stage, case: OperatorCase, operated: OperatedCluster, api_group: str
) -> None:
    scaled = with_sample(case, "kuberay", AUTOSCALED, api_group)
    await open_queue(stage, scaled, quota={"cpu": "2500m", "memory": "3584Mi"})
    job = await submit(stage, scaled, changes={f"metadata.annotations[{stage.names.elastic_job}]": "true"})
    (head,) = await until_running(scaled, job, 1)
    async with autoscaler(stage, operated.cluster, head) as ray:
        await ray.scale_up(2)
        workers = await until_workers(job, running=0, gated=2)
        await ray.scale_down(1, workers[:1])
        await until_workers(job, running=1)
        await until_slices(job, ({"head": 1, "small-group": 1}, True))
        await until_charged_for_its_pods(job)
