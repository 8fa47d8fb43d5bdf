"""A manager decides as soon as the objects that decide are listed, whatever happens to other lists."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.app.manager import ManagerPart
from admitq.app.settings import load_settings
from admitq.metrics.registry import Metrics
from admitq.runtime.credentials import load_credentials
from admitq.runtime.errors import ApiError
from admitq_api.conditions import ConditionType
from admitq_api.labels import names_for
from localcluster.installation import Installation
from tests.controlplane.stage import Stage, condition_of
from tests.faults import proxy as p
from tests.faults.proxy import Action, Exchange, Proxy, SeenRequest

Start = Callable[[Proxy], AbstractAsyncContextManager[ManagerPart]]


@pytest.fixture
def manager(api_group: str, tmp_path: Path) -> Start:
    """Run a manager of this process, without leader election, that uses a proxy."""
    file = tmp_path / "config.yaml"
    config = {"apiGroup": api_group, "leaderElection": {"leaderElect": False}}
    version = {"apiVersion": names_for(api_group).config_api_version, "kind": "Configuration"}
    file.write_text(yaml.safe_dump({**version, **config}))
    settings = load_settings(file)

    @asynccontextmanager
    async def start(proxy: Proxy) -> AsyncGenerator[ManagerPart]:
        metrics = Metrics(settings.names.metric_prefix)
        part = ManagerPart(settings, proxy.credentials, metrics, "admitq-tests", lambda _: None)

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                await part.start(tasks)

        task = asyncio.create_task(run())
        try:
            yield part
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await part.stop()

    return start


@pytest.fixture
async def proxy(without_manager: Installation) -> AsyncGenerator[Proxy]:
    """A proxy with the permissions of the manager."""
    async with Proxy(load_credentials(without_manager.kubeconfig("manager"))) as started:
        yield started


def reads_jobs(request: SeenRequest) -> bool:
    return request.method == "GET" and request.path == "/apis/batch/v1/jobs"


def creates_workload(request: SeenRequest) -> bool:
    return request.method == "POST" and request.path.endswith("/workloads")


def pass_after(event: asyncio.Event) -> Action:
    """Forward a request once the event is set."""

    async def act(exchange: Exchange) -> None:
        await event.wait()
        await p.pass_through(exchange)

    return act


async def create_workload(stage: Stage, name: str, **metadata: Any) -> None:
    """Create a Workload without job that requests a CPU."""
    template = {
        "spec": {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}]}
    }
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
    await stage.create(stage.kinds.workloads, name, {"metadata": metadata, "spec": spec})


async def until_reserved(stage: Stage, name: str, *, reserved: bool = True) -> None:
    """Wait until the manager has reserved quota for a Workload, or has reported that it waits."""

    async def status() -> str:
        return (condition_of(await stage.get(stage.kinds.workloads, name), "QuotaReserved") or ("",))[0]

    await stage.until(status, str(reserved), what=f"QuotaReserved={reserved} of {name}")


async def until_ready(stage: Stage, part: ManagerPart) -> None:
    """Wait until all objects are listed."""

    async def problems() -> list[str]:
        return [problem for check in part.checks.values() if (problem := await check()) is not None]

    await stage.until(problems, [], what="the manager to be ready")


def labels_of(workload: dict[str, Any]) -> dict[str, str]:
    return workload["metadata"].get("labels", {})


async def finish_unstarted_job(stage: Stage) -> None:
    """Create a suspended Job that needs no Workload any more: its only one has finished and was released."""
    await stage.job("ended", cpu=100)
    await stage.until_workload_exists("ended")
    name = (await stage.workload("ended"))["metadata"]["name"]
    await stage.apply_transition(name, lambda change: change.finish("FailedToStart", "m"))
    await stage.until_finished("ended")


async def test_quota_is_reserved_while_jobs_cannot_be_listed(
    proxy: Proxy, stage: Stage, manager: Start
) -> None:
    await stage.queues(cpu=1)
    await create_workload(stage, "w")
    jobs = proxy.fault(p.never_answer, reads_jobs, times=1_000_000)
    async with manager(proxy) as part:
        await until_reserved(stage, "w")
        await stage.until(lambda: _has_hits(jobs), what="jobs to be listed")
        assert await part.checks["kinds"]() is not None


async def _has_hits(fault: p.Fault) -> bool:
    return fault.hits > 0


async def test_quota_is_reserved_while_finished_workloads_are_listed_and_controllers_wait(
    proxy: Proxy, stage: Stage, manager: Start
) -> None:
    """Controllers would create another Workload for a job with a finished Workload that they do not know."""
    await stage.queues(cpu=2)
    async with manager(proxy):
        await finish_unstarted_job(stage)
    [ended] = await stage.workloads("ended")
    assert labels_of(ended)[stage.names.finished] == "true"

    await create_workload(stage, "before")
    listed = asyncio.Event()
    second_part = proxy.fault(
        pass_after(listed), lambda request: request.query.get("labelSelector") == stage.names.finished
    )
    proxy.seen.clear()
    async with manager(proxy) as part:
        await until_reserved(stage, "before")
        # Changes are observed meanwhile.
        await create_workload(stage, "meanwhile")
        await until_reserved(stage, "meanwhile")
        assert second_part.hits == 1
        assert "workloads" in (await part.checks["caches"]() or "")
        assert proxy.count(reads_jobs) == 0
        listed.set()
        await until_ready(stage, part)
        # The queues of the job controller are in order, so it has reconciled the first job, too.
        await stage.job("later")
        await stage.until_workload_exists("later")
        assert proxy.count(creates_workload) == 1
    assert [one["metadata"]["uid"] for one in await stage.workloads("ended")] == [ended["metadata"]["uid"]]


async def test_unfinished_workload_does_not_get_label_of_finished_ones(stage: Stage) -> None:
    labels = {stage.names.finished: "true"}
    await create_workload(stage, "w", labels=labels)
    assert labels_of(await stage.get(stage.kinds.workloads, "w")) == {}
    with pytest.raises(ApiError, match="the workload has not finished"):
        await stage.change(stage.kinds.workloads, "w", {"metadata": {"labels": labels}})


async def test_quota_of_workload_with_false_label_counts_after_start(
    proxy: Proxy, stage: Stage, manager: Start
) -> None:
    """Another program labels a finished Workload, and then removes its condition Finished."""
    await stage.queues(cpu=1)
    workloads = stage.kinds.workloads
    await create_workload(stage, "holder")
    async with manager(proxy):
        await until_reserved(stage, "holder")
    await stage.apply_transition("holder", lambda change: change.finish("Succeeded", "m"))
    await stage.change(workloads, "holder", {"metadata": {"labels": {stage.names.finished: "true"}}})
    await stage.apply_transition("holder", lambda change: change.remove_condition(ConditionType.FINISHED))
    async with manager(proxy) as part:
        await until_ready(stage, part)

        async def has_label() -> bool:
            return stage.names.finished in labels_of(await stage.get(workloads, "holder"))

        await stage.until(has_label, False, what="the label to be removed")
        note = f"Removed the label {stage.names.finished}, because the workload has not finished"
        await stage.until_event("Workload", "holder", "RemovedFinishedLabel", note)
        await create_workload(stage, "w")
        await until_reserved(stage, "w", reserved=False)
