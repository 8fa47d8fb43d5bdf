"""What happens to the pods of a Job: their nodes and kubelets are played by the story."""

import time
from typing import Any

from admitq.runtime.resources import JOBS, PODS
from admitq_api.conditions import format_time
from localcluster.waiting import eventually
from tests.controlplane.stage import RUN_SECONDS, Stage


async def some_pods(stage: Stage, job: str = "j") -> list[dict[str, Any]]:
    """The Pods of a Job, once there are any."""

    async def found() -> list[dict[str, Any]]:
        return await stage.pods(job)

    return await eventually(found, what=f"pods of {job}")


async def play_pods(stage: Stage, job: str = "j", *, phase: str = "Running", ready: bool = False) -> None:
    """Set the status of a Job's pods as their nodes would, once there are as many as the Job wants."""
    wanted = (await stage.get(JOBS, job))["spec"]["parallelism"]

    async def played() -> bool:
        pods = [one for one in await stage.pods(job) if "deletionTimestamp" not in one["metadata"]]
        assert len(pods) == wanted, f"{len(pods)} pods of {job}"
        condition = {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": format_time(time.time_ns()),
        }
        for pod in pods:
            status = {"status": {"phase": phase, "conditions": [condition]}}
            await stage.change(PODS, pod["metadata"]["name"], status, "status")
        return True

    await eventually(played, what=f"pods of {job}")


async def end_pods(stage: Stage, job: str = "j", *, count: int | None = None) -> None:
    """Let pods of a Job succeed, all or ``count`` of them, once there are as many as the Job wants."""
    wanted = (await stage.get(JOBS, job))["spec"]["parallelism"]

    async def there() -> list[dict[str, Any]]:
        pods = [one for one in await stage.pods(job) if "deletionTimestamp" not in one["metadata"]]
        assert len(pods) == wanted, f"{len(pods)} pods of {job}"
        return pods

    pods: list[dict[str, Any]] = await eventually(there, what=f"pods of {job}")
    for pod in pods[:count]:
        over = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        await stage.change(PODS, pod["metadata"]["name"], over)
