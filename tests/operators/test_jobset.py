"""Stories of JobSets with their operator: roles that start one after another, and policies for their end."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.runtime.resources import PODS
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import End, OperatedJob, OperatorCase, submit
from tests.operators.test_stories import open_queue, stories_of, until_ended, until_running

pytestmark = stories_of("jobset")

DRIVER, WORKERS = "spec.replicatedJobs[0]", "spec.replicatedJobs[1]"
PODS_OF_DRIVER = End(pods="jobset.sigs.k8s.io/replicatedjob-name=driver")
PODS_OF_WORKERS = End(pods="jobset.sigs.k8s.io/replicatedjob-name=workers")
NOT_READY = {f"{DRIVER}.template.spec.template.metadata.annotations[kwok.admitq.dev/ready]": "false"}


async def until_driver_runs(job: OperatedJob) -> dict[str, Any]:
    """Wait until only the driver has a pod, and return it."""
    (driver,) = await job.until_pods_run(1)
    assert driver["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "driver"
    return driver


async def until_workers_are_gone(job: OperatedJob) -> None:
    """Wait until the workers of an ended JobSet are deleted. It keeps pods that have ended."""
    await job.until_no_pods("jobset.sigs.k8s.io/replicatedjob-name=workers")


def ready(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of a running pod when it has become ready."""
    status = pod["status"]
    return {
        "conditions": [{**one, "status": "True"} for one in status["conditions"]],
        "containerStatuses": [{**one, "ready": True} for one in status["containerStatuses"]],
    }


@pytest.mark.parametrize(
    "order",
    [
        pytest.param({"spec.startupPolicy": {"startupPolicyOrder": "InOrder"}}, id="startup-policy"),
        pytest.param({f"{WORKERS}.dependsOn": [{"name": "driver", "status": "Ready"}]}, id="depends-on"),
    ],
)
async def test_workers_start_when_the_driver_is_ready(
    stage: Stage, case: OperatorCase, order: Mapping[str, Any]
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={**order, **NOT_READY})
    driver = await until_driver_runs(job)
    await job.until_condition("PodsReady", "False")
    await stage.change(PODS, driver["metadata"]["name"], {"status": ready(driver)}, "status")
    await until_running(case, job)
    await job.until_condition("PodsReady", "True", "Started")


async def test_workers_that_depend_on_the_end_of_the_driver_run_with_the_quota_of_the_workers(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    order = {f"{WORKERS}.dependsOn": [{"name": "driver", "status": "Complete"}]}
    job = await submit(stage, case, changes=order)
    await until_driver_runs(job)
    await job.end_pods("Succeeded", PODS_OF_DRIVER)
    await until_running(case, job, 6)
    await job.until_reclaimable(driver=1)
    await job.until_condition("PodsReady", "True", "Started")
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", case.kind.messages["succeeded"])


async def test_success_policy_ends_the_jobset_with_its_driver(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    policy = {"spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver"]}}
    job = await submit(stage, case, changes=policy)
    await until_running(case, job)
    await job.end_pods("Succeeded", PODS_OF_DRIVER)
    await until_ended(job, "Succeeded", case.kind.messages["succeeded"])
    await until_workers_are_gone(job)


@pytest.mark.parametrize(
    ("action", "restarts"),
    [("FailJobSet", None), ("RestartJobSetAndIgnoreMaxRestarts", 1)],
    ids=["fail", "restart"],
)
async def test_failure_policy_decides_on_a_failed_driver(
    stage: Stage, case: OperatorCase, action: str, restarts: int | None
) -> None:
    await open_queue(stage, case)
    rules = [{"name": "driver", "action": action, "targetReplicatedJobs": ["driver"]}]
    policy = {
        "spec.failurePolicy": {"maxRestarts": 0, "rules": rules},
        f"{DRIVER}.template.spec.backoffLimit": 0,
    }
    job = await submit(stage, case, changes=policy)
    await until_running(case, job)
    await job.end_pods("Failed", PODS_OF_DRIVER)
    if restarts is None:
        message = "applying FailJobSet failure policy action (first failed job: j-driver-0)"
        await until_ended(job, "Failed", message)
        await until_workers_are_gone(job)
    else:
        await job.until({"status.restarts": restarts})
        await until_running(case, job)
        assert condition_of(await job.workload(), "Evicted") is None


async def test_restart_runs_succeeded_jobs_again_with_the_quota_that_was_kept(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    policy = {
        "spec.failurePolicy": {"maxRestarts": 1},
        f"{WORKERS}.template.spec.backoffLimit": 0,
    }
    job = await submit(stage, case, changes=policy)
    await until_running(case, job)
    await job.end_pods("Succeeded", PODS_OF_DRIVER)
    await until_running(case, job, 6)
    await job.end_pods("Failed", PODS_OF_WORKERS)
    await job.until({"status.restarts": 1})
    await until_running(case, job)
    # Reclaimable pods are never taken back while quota is reserved, so their absence proves the past, too.
    await job.until_reclaimable()
