"""Pods that are resized in place while they run."""

from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import Stage


async def resize(stage: Stage, pod: dict[str, Any], cpu: Any) -> None:
    """Change the CPU request of a pod with one container."""
    [container] = pod["spec"]["containers"]
    resources = {**container["resources"], "requests": {"cpu": cpu}}
    patch = {"spec": {"containers": [{**container, "resources": resources}]}}
    await stage.change(PODS, pod["metadata"]["name"], patch, "resize")


async def enable_resize(stage: Stage, pod: dict[str, Any]) -> None:
    """Write the resources of the running container to its status, as kubelets do that support resizes."""
    name = pod["metadata"]["name"]
    await stage.until(lambda: _phase(stage, name), "Running", what=f"{name} to run")
    [status] = (await stage.get(PODS, name))["status"]["containerStatuses"]
    resources = pod["spec"]["containers"][0]["resources"]
    patch = {"status": {"containerStatuses": [{**status, "resources": resources}]}}
    await stage.change(PODS, name, patch, "status")


async def _phase(stage: Stage, name: str) -> str:
    return str((await stage.get(PODS, name))["status"]["phase"])


async def requested(stage: Stage, pod: dict[str, Any]) -> str:
    """The stored CPU request of a pod."""
    found = await stage.get(PODS, pod["metadata"]["name"])
    return str(found["spec"]["containers"][0]["resources"]["requests"]["cpu"])


async def test_pod_of_a_job_is_resized_only_within_its_admission(stage: Stage) -> None:
    await stage.queues(cpu=4)
    await stage.job(cpu=2)
    await stage.until_running("j")
    [pod] = await until_pods_exist(stage, "j")
    await enable_resize(stage, pod)
    message = "the pod would request more cpu than was admitted"
    with pytest.raises(ApiError, match=message):
        await resize(stage, pod, 3)
    await resize(stage, pod, 1)
    assert await requested(stage, pod) == "1"
    with pytest.raises(ApiError, match=message):
        await resize(stage, pod, "2001m")
    await resize(stage, pod, 2)
    assert await requested(stage, pod) == "2"
    await stage.until_running("j")


async def test_unmanaged_pod_is_resized_freely(stage: Stage) -> None:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    pod = await stage.create(PODS, "free", {"spec": {"containers": [container]}})
    await enable_resize(stage, pod)
    await resize(stage, pod, 3)
    assert await requested(stage, pod) == "3"
