"""Stories of PyTorchJobs with their operator: what counts as ready, and pods that run on after the end."""

from tests.controlplane.stage import Stage
from tests.operators.operator_case import End, OperatorCase, submit
from tests.operators.test_stories import open_queue, stories_of, until_ended, until_running

pytestmark = stories_of("pytorchjob")

MASTER, WORKER = ("training.kubeflow.org/replica-type=" + role for role in ("master", "worker"))


async def test_workers_that_run_on_after_the_master_has_ended_keep_the_quota(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    await job.end_pods("Succeeded", End(pods=MASTER))
    await job.until_condition("PodsOutliveJob", "True", "PodsRunning")
    waiting = await submit(stage, case, "waiting")
    await waiting.until_condition("QuotaReserved", "False", "WaitingForQuota")
    await job.end_pods("Succeeded", End(pods=WORKER))
    await until_ended(job, "Succeeded", case.succeeded.message)
    await waiting.until_condition("Admitted", "True")


async def test_job_is_ready_when_its_master_runs_though_a_worker_is_pending(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    no_node = {"spec.pytorchReplicaSpecs[Worker].template.spec.nodeSelector": {"example.com/none": "true"}}
    job = await submit(stage, case, changes=no_node)
    await job.until_condition("PodsReady", "True", "Started")
    assert [one["status"]["phase"] for one in await job.pods(MASTER)] == ["Running"]
    assert [one["status"]["phase"] for one in await job.pods(WORKER)] == ["Pending"]
