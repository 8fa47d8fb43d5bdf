"""Changes of a Job's pods: the story plays their nodes and kubelets."""

import time
from typing import Any

from admitq.runtime.resources import JOBS, PODS
from admitq_api.conditions import format_time
from localcluster.waiting import eventually
from tests.controlplane.stage import RUN_SECONDS, Stage

HOLD = "example.com/hold"


async def until_pods_exist(stage: Stage, job: str = "j") -> list[dict[str, Any]]:
    """Wait until a Job has pods, and return them."""

    async def found() -> list[dict[str, Any]]:
        return await stage.pods(job)

    return await eventually(found, what=f"pods of {job}")


async def set_pod_status(
    stage: Stage, job: str = "j", *, phase: str = "Running", ready: bool = False
) -> None:
    """Wait until a Job has all its pods, and set their status as their nodes would."""
    wanted = (await stage.get(JOBS, job))["spec"]["parallelism"]

    async def is_written() -> bool:
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

    await eventually(is_written, what=f"pods of {job}")


async def succeed_pods(stage: Stage, job: str = "j", *, count: int | None = None) -> None:
    """Wait until a Job has all its pods, and let all or ``count`` of them succeed."""
    wanted = (await stage.get(JOBS, job))["spec"]["parallelism"]

    async def all_pods() -> list[dict[str, Any]]:
        pods = [one for one in await stage.pods(job) if "deletionTimestamp" not in one["metadata"]]
        assert len(pods) == wanted, f"{len(pods)} pods of {job}"
        return pods

    pods: list[dict[str, Any]] = await eventually(all_pods, what=f"pods of {job}")
    for pod in pods[:count]:
        over = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        await stage.change(PODS, pod["metadata"]["name"], over)


async def hold_pods(stage: Stage, job: str = "j", *, held: bool) -> None:
    """Add a finalizer to the pods of a Job, so that they stay after their deletion, or remove it."""
    for one in await stage.pods(job):
        others = [name for name in one["metadata"].get("finalizers", ()) if name != HOLD]
        finalizers = [*others, HOLD] if held else others
        await stage.change(PODS, one["metadata"]["name"], {"metadata": {"finalizers": finalizers}})
