"""Stories of MPIJobs with their operator: what becomes of a job with a worker that has failed."""

from typing import Any

from admitq.runtime.resources import PODS
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import End, OperatorCase, submit
from tests.operators.test_stories import open_queue, stories_of, until_ended, until_running

pytestmark = stories_of("mpijob")

LAUNCHER = "training.kubeflow.org/job-role=launcher"
WORKER = "training.kubeflow.org/job-role=worker,training.kubeflow.org/replica-index=1"


async def test_worker_that_failed_does_not_end_the_job(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    await job.end_pods("Failed", End(pods=WORKER))
    await job.until({"status.replicaStatuses[Worker].failed": 1})
    await job.end_pods("Succeeded", End(pods=LAUNCHER))
    await until_ended(job, "Succeeded", case.succeeded.message)


async def test_evicted_worker_ends_the_job_which_keeps_its_quota_until_its_launcher_has_ended(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    evicted: dict[str, Any] = {"status": {"phase": "Failed", "reason": "Evicted"}}
    (worker,) = await job.pods(WORKER)
    await stage.change(PODS, worker["metadata"]["name"], evicted, "status")
    await job.until_condition("PodsOutliveJob", "True", "PodsRunning")
    assert condition_of(await job.workload(), "Finished") is None
    await job.end_pods("Failed", End())
    await until_ended(job, "Failed", "1/2 workers are evicted")
