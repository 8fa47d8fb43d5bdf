"""Stories of RayJobs with a cluster that its autoscaler scales."""

from tests.controlplane.stage import Stage
from tests.operators.conftest import OperatedCluster
from tests.operators.operator_case import OperatorCase, submit
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
from tests.operators.test_stories import open_queue, stories_of, until_running

pytestmark = stories_of("rayjob")

COUNTS = {"head": 1, "submitter": 1}


async def test_job_follows_the_cluster_that_its_autoscaler_scales(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    """The head has 1 CPU, its autoscaler and the submitter have 500m each, and a worker has 200m."""
    two, three = {"cpu": "2400m", "memory": "10Gi"}, {"cpu": "2600m", "memory": "10Gi"}
    await open_queue(stage, case, quota=two)
    changes = {
        f"metadata.annotations[{stage.names.elastic_job}]": "true",
        "spec.rayClusterSpec.enableInTreeAutoscaling": True,
    }
    async with record_pods(stage) as record:
        job = await submit(stage, case, changes=changes)
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
            await set_quota(stage, three)
            workers = await until_workers(job, running=3)
            assert (await until_charged_for_its_pods(job))["cpu"] == amounts(three)["cpu"]

            await stage.job("other", cpu="400m")
            await ray.scale_down(1, workers[1:])
            await until_workers(job, running=1)
            await stage.until_running("other")
            await until_slices(job, ({**COUNTS, "small-group": 1}, True))
    assert record.peak["cpu"] == amounts(three)["cpu"]
    assert {one["metadata"]["uid"] for one in await job.pods(HEAD)} == {head["metadata"]["uid"]}
    await job.end_pods("Succeeded", case.succeeded)
    await until_finished(job)
