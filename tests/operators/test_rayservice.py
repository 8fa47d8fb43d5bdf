"""Stories of RayServices that change, for which their operator creates a second cluster."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, condition_of
from tests.operators.conftest import OperatedCluster
from tests.operators.operator_case import OperatedJob, OperatorCase, submit, uids_of
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
from tests.operators.test_stories import check_kept_admission, open_queue, stories_of, tells, until_running

pytestmark = stories_of("rayservice")

ONE: Final = {"head": 1, "small-group": 1}
BOTH: Final = {"head": 2, "small-group": 2}
UPGRADE: Final = {"spec.rayClusterConfig.rayVersion": "2.53.0"}
"""A change for which the operator replaces the cluster, with the same pods."""
IMAGE: Final = "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0].image"
WORKERS: Final = "spec.rayClusterConfig.workerGroupSpecs[0].replicas"
ACTIVE: Final = "status.activeServiceStatus.rayClusterName"


async def test_upgrade_of_an_elastic_service_waits_for_quota_for_both_clusters(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    async with record_pods(stage) as record:
        service = await _serve(stage, case, elastic=True)
        old, before = await _active(service), await service.pods()
        await service.change(UPGRADE)
        new = await _until_pending(service)
        await until_slices(service, (ONE, True), (BOTH, False))
        waiting = await _until_pods_of(service, new)
        assert [pod["spec"].get("nodeName") for pod in waiting] == [None, None]
        # The first cluster serves on.
        assert await _active(service) == old
        assert (condition_of(await service.get(), "Ready") or ("",))[0] == "True"
        assert record.peak == amounts(case.quota)

        await set_quota(stage, {"cpu": "5", "memory": "8Gi"})
        await service.until({ACTIVE: new, "status.pendingServiceStatus.rayClusterName": None})
        await until_slices(service, (ONE, True))
        after = await service.until_pods_run(case.pods)
        assert await until_charged_for_its_pods(service) == amounts(case.quota)
    assert {_cluster_of(pod) for pod in after} == {new}
    assert {_cluster_of(pod) for pod in before} == {old}
    assert record.peak == amounts({"cpu": "5", "memory": "8Gi"})


async def test_upgrade_of_a_service_keeps_the_quota_of_one_cluster(stage: Stage, case: OperatorCase) -> None:
    """Both clusters run at the same time, as the operator starts the second one without asking."""
    await open_queue(stage, case)
    service = await _serve(stage, case)
    workload = await service.workload()
    await service.change(UPGRADE)
    new = await _until_pending(service)
    await service.until({ACTIVE: new})
    after = await service.until_pods_run(case.pods)
    assert {_cluster_of(pod) for pod in after} == {new}
    check_kept_admission(await service.workload(), workload)
    assert await until_charged_for_its_pods(service) == amounts(case.quota)


@pytest.mark.parametrize("elastic", [True, False], ids=["elastic", "normal"])
async def test_service_with_a_changed_container_is_stopped_and_queued_again(
    stage: Stage, case: OperatorCase, elastic: bool
) -> None:
    await open_queue(stage, case)
    async with record_pods(stage) as record:
        service = await _serve(stage, case, elastic=elastic)
        old = await _active(service)
        await service.change({IMAGE: "rayproject/ray:2.53.0"})
        await service.until_no_pods(f"ray.io/cluster={old}")
        after = await until_running(case, service)
        await service.until_condition("PodsReady", "True")
        assert await until_charged_for_its_pods(service) == amounts(case.quota)
    (head,) = [pod for pod in after if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
    assert head["spec"]["containers"][0]["image"] == "rayproject/ray:2.53.0"
    assert record.peak == amounts(case.quota)


async def test_service_with_another_number_of_workers_is_stopped_and_queued_again(
    stage: Stage, case: OperatorCase
) -> None:
    two = {"cpu": "3", "memory": "6Gi"}
    await open_queue(stage, case, quota=two)
    async with record_pods(stage) as record:
        service = await _serve(stage, case)
        old = await _active(service)
        await service.change({WORKERS: 2})
        await service.until_no_pods(f"ray.io/cluster={old}")
        await until_running(case, service, 3)
        assert await until_charged_for_its_pods(service) == amounts(two)
    assert record.peak == amounts(two)


async def test_elastic_service_with_another_number_of_workers_keeps_the_quota_of_its_cluster(
    stage: Stage, case: OperatorCase
) -> None:
    """The operator does not change the cluster. Its next cluster has the new number of workers."""
    three = {"cpu": "5500m", "memory": "10Gi"}
    await open_queue(stage, case, quota=three)
    async with record_pods(stage) as record:
        service = await _serve(stage, case, elastic=True)
        await service.change({WORKERS: 2})
        generation = (await service.get())["metadata"]["generation"]
        await service.until({"status.observedGeneration": generation})
        assert await until_charged_for_its_pods(service) == amounts(case.quota)
        await service.change(UPGRADE)
        new = await _until_pending(service)
        await until_slices(service, ({"head": 2, "small-group": 3}, True))
        await service.until({ACTIVE: new})
        await until_slices(service, ({**ONE, "small-group": 2}, True))
        await service.until_pods_run(3)
        await until_charged_for_its_pods(service)
    assert record.peak == amounts(three)


async def test_resumed_service_is_not_ready_before_its_new_pods(stage: Stage, case: OperatorCase) -> None:
    """The operator does not take the condition Ready back while the service is stopped."""
    await open_queue(stage, case)
    service = await _serve(stage, case)
    before = uids_of(await service.pods())
    await service.change_workload({"spec": {"active": False}})
    await service.until_condition("QuotaReserved", "False", "Deactivated")
    await service.change_workload({"spec": {"active": True}})
    await service.until_condition("PodsReady", "True", "Started")
    now = await service.pods()
    assert {pod["status"]["phase"] for pod in now} == {"Running"}
    assert len(now) == case.pods
    assert not before & uids_of(now)


@tells("scale")
async def test_service_follows_the_cluster_that_its_autoscaler_scales(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    """The autoscaler adds 500m and 512Mi to the head; a worker has 500m and 2Gi."""
    one, two = {"cpu": "3", "memory": "4608Mi"}, {"cpu": "3500m", "memory": "6656Mi"}
    await open_queue(stage, case, quota=one)
    async with record_pods(stage) as record:
        scaled = {"spec.rayClusterConfig.enableInTreeAutoscaling": True}
        service = await _serve(stage, case, elastic=True, changes=scaled)
        assert await until_charged_for_its_pods(service) == amounts(one)
        (head,) = await service.pods(HEAD)
        async with autoscaler(stage, operated.cluster, head) as ray:
            await ray.scale_up(2)
            await until_workers(service, running=1, gated=1)
            await until_slices(service, (ONE, True), ({**ONE, "small-group": 2}, False))
            await set_quota(stage, two)
            workers = await until_workers(service, running=2)
            assert await until_charged_for_its_pods(service) == amounts(two)
            await ray.scale_down(1, workers[1:])
            await until_slices(service, (ONE, True))
    assert record.peak == amounts(two)
    assert uids_of(await service.pods(HEAD)) == uids_of([head])


async def _serve(
    stage: Stage, case: OperatorCase, *, elastic: bool = False, changes: Mapping[str, Any] | None = None
) -> OperatedJob:
    """Create a service that deletes replaced clusters at once, and wait until it serves."""
    given: dict[str, Any] = {"spec.rayClusterDeletionDelaySeconds": 0, **(changes or {})}
    if elastic:
        given[f"metadata.annotations[{stage.names.elastic_job}]"] = "true"
    service = await submit(stage, case, changes=given)
    await until_running(case, service)
    await service.until_condition("PodsReady", "True")
    return service


async def _active(service: OperatedJob) -> str:
    return (await service.get())["status"]["activeServiceStatus"]["rayClusterName"]


async def _until_pending(service: OperatedJob) -> str:
    """Wait until the operator has named a second cluster, and return its name."""
    return await eventually(lambda: _pending(service), what=f"a second cluster of {service.name}")


async def _pending(service: OperatedJob) -> str:
    return value_at(await service.get(), ("status", "pendingServiceStatus", "rayClusterName"), "")


async def _until_pods_of(service: OperatedJob, cluster: str) -> list[dict[str, Any]]:
    """Wait until a cluster of a service has its two pods, and return them."""

    async def found() -> list[dict[str, Any]]:
        pods = await service.pods(f"ray.io/cluster={cluster}")
        assert len(pods) == 2
        return pods

    return await eventually(found, what=f"two pods of {cluster}")


def _cluster_of(pod: dict[str, Any]) -> str:
    return pod["metadata"]["labels"]["ray.io/cluster"]
