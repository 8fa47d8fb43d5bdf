"""A manager decides as soon as the objects that decide are listed, whatever happens to other lists."""

import asyncio
from contextlib import suppress
from pathlib import Path

import yaml

from admitq.app.manager import ManagerPart
from admitq.app.settings import load_settings
from admitq.metrics.registry import Metrics
from admitq.runtime.credentials import load_credentials
from admitq_api.labels import names_for
from localcluster.installation import Installation
from tests.controlplane.stage import Stage
from tests.faults import proxy as p
from tests.faults.proxy import Proxy, SeenRequest


def reads_jobs(request: SeenRequest) -> bool:
    return request.method == "GET" and request.path == "/apis/batch/v1/jobs"


async def test_quota_is_reserved_while_jobs_cannot_be_listed(
    without_manager: Installation, stage: Stage, api_group: str, tmp_path: Path
) -> None:
    await stage.flavor()
    await stage.cluster_queue(cpu=1)
    await stage.local_queue()
    template = {
        "spec": {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}]}
    }
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
    await stage.create(stage.kinds.workloads, "w", {"spec": spec})
    file = tmp_path / "config.yaml"
    config = {"apiGroup": api_group, "leaderElection": {"leaderElect": False}}
    version = {"apiVersion": names_for(api_group).config_api_version, "kind": "Configuration"}
    file.write_text(yaml.safe_dump({**version, **config}))
    settings = load_settings(file)
    async with Proxy(load_credentials(without_manager.kubeconfig("manager"))) as proxy:
        jobs = proxy.fault(p.never_answer, reads_jobs, times=1_000_000)
        metrics = Metrics(settings.names.metric_prefix)
        part = ManagerPart(settings, proxy.credentials, metrics, "admitq-tests", lambda _: None)

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                await part.start(tasks)

        task = asyncio.create_task(run())
        try:
            await stage.until(lambda: is_reserved(stage), what="quota to be reserved")
            assert jobs.hits
            assert await part.checks["kinds"]() is not None
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await part.stop()


async def is_reserved(stage: Stage) -> bool:
    workload = await stage.get(stage.kinds.workloads, "w")
    found = workload.get("status", {}).get("conditions", [])
    return any(entry["type"] == "QuotaReserved" and entry["status"] == "True" for entry in found)
