"""Stories of XGBoostJobs with their operator: which exit codes of a worker end the job."""

from tests.controlplane.stage import Stage
from tests.operators.operator_case import End, OperatorCase, submit
from tests.operators.test_stories import open_queue, stories_of, until_ended, until_running

pytestmark = stories_of("xgboostjob")


async def test_worker_with_an_exit_code_that_is_not_retried_ends_the_job(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={"spec.runPolicy.cleanPodPolicy": "Running"})
    await until_running(case, job)
    await job.end_pods("Failed", End(pods="training.kubeflow.org/replica-type=worker", exitCode=1))
    await until_ended(job, "Failed", 'job "j" is failing because "Worker" replica(s) failed.')
