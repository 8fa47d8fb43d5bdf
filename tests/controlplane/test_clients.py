"""Clients that users have, with Jobs that wait for quota: kubectl, and Python's official client."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from localcluster.installation import Installation
from tests.controlplane.stage import RUN_SECONDS, Stage
from tests.controlplane.user_programs import CONTAINER_LOG, kubectl, python_program

PROGRAM = Path(__file__).parent / "programs" / "official_client.py"

Kubectl = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture
def run_kubectl(stage: Stage, admitq_running: Installation) -> Kubectl:
    """Run kubectl in the namespace of the story; waits of kubectl have a deadline."""

    def run(*arguments: str, given: str = "") -> Coroutine[Any, Any, str]:
        return kubectl(admitq_running.cluster, f"--namespace={stage.namespace}", *arguments, given=given)

    return run


async def stopped_queue(stage: Stage) -> None:
    await stage.flavor()
    await stage.cluster_queue(stopPolicy="Hold")
    await stage.local_queue()


async def release(stage: Stage) -> None:
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"stopPolicy": "None"}})


def manifest(stage: Stage, name: str, **annotations: str) -> str:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {stage.names.queue_name: "lq"}},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": pod}},
    }
    return json.dumps(job)


async def until_waiting(stage: Stage, name: str) -> None:
    await stage.until_workload_exists(name)
    await stage.until_condition("QuotaReserved", "Suspended", name)


async def test_kubectl_waits_for_a_queued_job_until_it_is_admitted_and_until_it_is_complete(
    stage: Stage, run_kubectl: Kubectl
) -> None:
    await stopped_queue(stage)
    wait = ("wait", "--timeout=60s")
    created = asyncio.create_task(run_kubectl(*wait, "--for=create", "job/hello"))
    await run_kubectl("apply", "--filename=-", given=manifest(stage, "hello", **{RUN_SECONDS: "0"}))
    assert await created == "job.batch/hello condition met\n"
    uid = await run_kubectl("get", "job/hello", "--output=jsonpath={.metadata.uid}")
    of_job = f"--selector={stage.names.job_uid}={uid}"
    workload = await run_kubectl(*wait, "--for=create", "workload", of_job, "--output=name")
    await until_waiting(stage, "hello")
    waits = [
        asyncio.create_task(run_kubectl(*wait, f"--for={condition}", *target, "--output=name"))
        for condition, *target in (
            ("condition=Admitted", workload.strip()),
            ("condition=Admitted", "workload", of_job),
            ("jsonpath={.spec.suspend}=false", "job/hello"),
            ("condition=complete", "job/hello"),
        )
    ]
    await release(stage)
    assert await asyncio.gather(*waits) == [workload, workload, "job.batch/hello\n", "job.batch/hello\n"]


async def test_kubectl_prints_the_logs_of_a_queued_job_when_it_is_admitted(
    stage: Stage, run_kubectl: Kubectl
) -> None:
    await stopped_queue(stage)
    await run_kubectl("create", "--filename=-", given=manifest(stage, "hello"))
    await until_waiting(stage, "hello")
    command = ("logs", "job/hello", "--prefix", "--pod-running-timeout=60s")
    logs = asyncio.create_task(run_kubectl(*command))
    await release(stage)
    printed_at_once = await logs

    async def phases_of_pods() -> list[str]:
        return [pod["status"]["phase"] for pod in await stage.pods("hello")]

    await stage.until(phases_of_pods, ["Running"])
    (pod,) = await stage.pods("hello")
    expected = f"[pod/{pod['metadata']['name']}/c] {CONTAINER_LOG}\n"
    # kubectl waits only until the pod exists, and the API server has an empty log for a pod without a node.
    assert printed_at_once in ("", expected)
    assert await run_kubectl(*command) == expected


async def test_official_python_client_watches_its_queued_job_until_it_is_complete(
    stage: Stage, admitq_running: Installation
) -> None:
    await stopped_queue(stage)
    arguments = (stage.namespace, "hello", stage.names.queue_name, "lq")
    running: Awaitable[str] = asyncio.create_task(python_program(admitq_running.cluster, PROGRAM, *arguments))
    await until_waiting(stage, "hello")
    await release(stage)
    assert (await running).split() == ["Suspended", "Started", "Complete"]
