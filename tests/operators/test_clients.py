"""Clients of Kubeflow submit jobs to a queue, wait for them, and read their state and logs."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from localcluster.cluster import LocalCluster
from tests.controlplane.stage import Stage
from tests.controlplane.user_programs import CONTAINER_LOG, python_program
from tests.operators.conftest import OperatedCluster
from tests.operators.operator_case import QUEUE, End, OperatedJob, OperatorCase
from tests.operators.test_stories import open_queue, release, until_ended, until_running, with_cases

pytestmark = pytest.mark.operators

PROGRAMS: Final = Path(__file__).parent / "clients"


@dataclass(frozen=True)
class ClientProgram:
    """A program that submits, shows and awaits the job of a story with a client."""

    file: str
    cluster: LocalCluster
    job: OperatedJob

    async def submit(self) -> None:
        await self._run("submit", self.job.stage.names.queue_name, QUEUE)

    async def show(self) -> dict[str, Any]:
        return json.loads(await self._run("show"))

    async def wait(self) -> dict[str, Any]:
        return json.loads(await self._run("wait"))

    async def _run(self, action: str, *arguments: str) -> str:
        given = (action, self.job.stage.namespace, self.job.name, *arguments)
        return await python_program(self.cluster, PROGRAMS / self.file, *given)


async def reports_of(
    stage: Stage, case: OperatorCase, operated: OperatedCluster, file: str, pods: int
) -> list[dict[str, Any]]:
    """Return what a client reports of a job that it submitted: while the job waits, runs, and at its end."""
    await open_queue(stage, case, stopPolicy="Hold")
    job = OperatedJob(stage, case.kind, "j")
    program = ClientProgram(file, operated.cluster, job)
    await program.submit()
    await stage.until_workload_exists(job.name)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    waiting = await program.show()
    end = asyncio.create_task(program.wait())
    await release(stage)
    await until_running(case, job, pods)
    await job.until_condition("PodsReady", "True")
    running = await program.show()
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", case.succeeded.message or case.kind.messages["succeeded"])
    return [waiting, running, await end]


@with_cases("trainjob")
async def test_kubeflow_sdk_reports_its_queued_job(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    jobs, log = ["j"], [CONTAINER_LOG]
    steps = {f"node-{index}" for index in range(3)}
    assert await reports_of(stage, case, operated, "trainer_client.py", 3) == [
        {"jobs": jobs, "status": "Created", "steps": {}, "log": []},
        # The SDK finds that a job runs only if the job has no conditions. A job that waited has one.
        {"jobs": jobs, "status": "Created", "steps": dict.fromkeys(steps, "Running"), "log": log},
        {"jobs": jobs, "status": "Complete", "steps": dict.fromkeys(steps, "Succeeded"), "log": log},
    ]


@with_cases("pytorchjob")
async def test_training_sdk_reports_its_queued_job(
    stage: Stage, case: OperatorCase, operated: OperatedCluster
) -> None:
    logs = {f"j-{role}-0": f"{CONTAINER_LOG}\n" for role in ("master", "worker")}
    assert await reports_of(stage, case, operated, "training_client.py", 2) == [
        {"jobs": ["j"], "is running": False, "has succeeded": False, "logs": {}},
        {"jobs": ["j"], "is running": True, "has succeeded": False, "logs": logs},
        {"jobs": ["j"], "is running": False, "has succeeded": True, "logs": logs},
    ]
