"""A defect of the core beside a real API server: its culprit is left out, and other queues go on."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from admitq.app.manager import ManagerPart
from admitq.app.settings import ProcessSettings, load_settings
from admitq.core import cycle
from admitq.core.entries import ClusterQueueEntry
from admitq.core.events import ClusterQueueChanged, WorkloadChanged
from admitq.core.handlers import HANDLERS, cycles
from admitq.core.waiting.pending import Pending
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.resources import EVENTS, JOBS, Resource
from admitq_api.json_objects import value_at
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.stage import Stage, condition_of
from tests.unit.manager.test_recovery import fail, fail_to_handle

QUOTA = 8
"""CPUs of the cohort, of which each of its two ClusterQueues has half."""

BORROWING = 5
"""CPUs that the ClusterQueue of the job ``bad`` uses: more than its own."""


@dataclass(frozen=True)
class Fault:
    """A function of the core that raises for the job ``bad``, or for its ClusterQueue.

    ``cpu`` is what the job asks for. The function raises after its work if ``after`` is set.
    """

    owner: Any
    function: Any
    after: bool
    cpu: int = 1
    is_queue: bool = False
    during: str = "cycle"

    def concerns_call(self, stage: Stage, *arguments: Any) -> bool:
        """Whether a call of the function is about the job or its queue."""
        for one in arguments:
            if self.is_queue and isinstance(one, list):
                heads = cast("list[tuple[ClusterQueueEntry, Pending]]", one)
                return any(queue.spec.name == stage.own("cq") for queue, _ in heads)
            if self.is_queue and (queue := getattr(one, "cluster_queue", None)) is not None:
                # Of a ClusterQueue that is quarantined, the core observes quota and cohort.
                return queue.name == stage.own("cq") and not queue.quarantined
            if (workload := getattr(one, "workload", None)) is not None:
                # Of a Workload that is left out, the core observes no podsets.
                name = f"{stage.namespace}/job-bad-"
                return str(workload.key).startswith(name) and bool(workload.pod_sets)
        return False


FAULTS = {
    "observation of a workload": Fault(HANDLERS, WorkloadChanged, after=True, during="WorkloadChanged"),
    "observation of a ClusterQueue": Fault(
        HANDLERS, ClusterQueueChanged, after=True, is_queue=True, during="ClusterQueueChanged"
    ),
    "nomination": Fault(cycle, "nominate", after=False),
    "processing": Fault(cycle, "reserve", after=True),
    "requeue": Fault(cycle, "requeue", after=True, cpu=QUOTA - 1),
    "end of a cycle": Fault(cycles, "run_cycle", after=True, is_queue=True),
}


@pytest.fixture(scope="module")
def without_manager(installation_of_file: Callable[..., Installation]) -> Installation:
    made = installation_of_file("core-failures", {})
    made.stop(("manager",))
    return made


@pytest.fixture
async def stage(
    without_manager: Installation, connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str
) -> AsyncGenerator[Stage]:
    """A namespace beside webhooks and no manager."""
    client = await connect(without_manager.cluster)
    async with fresh_namespace(client) as namespace:
        yield Stage(client, names_for(api_group), namespace)


@pytest.fixture
def settings(api_group: str, tmp_path: Path) -> ProcessSettings:
    """The settings of a manager without a lease."""
    config = {
        "apiVersion": names_for(api_group).config_api_version,
        "kind": "Configuration",
        "apiGroup": api_group,
        "leaderElection": {"leaderElect": False},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    return load_settings(file)


@asynccontextmanager
async def managing(installation: Installation, settings: ProcessSettings) -> AsyncGenerator[Metrics]:
    """A manager in this process, which must not end before the block does."""
    metrics = Metrics(settings.names.metric_prefix)
    credentials = load_credentials(installation.kubeconfig("manager"))
    part = ManagerPart(settings, credentials, metrics, "admitq-tests", lambda _: None)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            await part.start(tasks)

    task = asyncio.create_task(run())
    try:
        yield metrics
        assert not task.done(), "the manager ended"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await part.stop()


class Watched:
    """The most CPUs that Workloads held at the same time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.most = 0
        self.looks = 0

    async def run(self) -> None:
        while True:
            found, _ = await self._stage.client.list(self._stage.kinds.workloads, self._stage.namespace)
            self.most = max(self.most, sum(map(held, found)))
            self.looks += 1
            await asyncio.sleep(0.1)


def held(workload: dict[str, Any]) -> int:
    """The CPUs that are reserved for a Workload. One that is finished has released them."""
    if (condition_of(workload, "Finished") or ("",))[0] == "True":
        return 0
    parts = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return sum(int(part["resourceUsage"]["cpu"]) for part in parts)


def count(metrics: Metrics, series: str, **labels: str) -> float:
    """The sum of a metric over the series with some labels."""
    lines = metrics.exposition().decode().splitlines()
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if f"_{series}{{" in line and all(one in line for one in wanted)
    )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_culprit_of_core_failure_is_quarantined_and_other_queues_admit(
    monkeypatch: pytest.MonkeyPatch,
    without_manager: Installation,
    stage: Stage,
    settings: ProcessSettings,
    fault: Fault,
) -> None:
    concerns = partial(fault.concerns_call, stage)
    if fault.owner is HANDLERS:
        exists = fail_to_handle(monkeypatch, fault.function, concerns, after=fault.after)
    else:
        exists = fail(monkeypatch, fault.owner, fault.function, concerns, after=fault.after)
    exists.clear()
    async with managing(without_manager, settings) as metrics:
        watched = Watched(stage)
        watching = asyncio.create_task(watched.run())
        await stage.queues(cpu=QUOTA // 2, cohortName=stage.own("all"))
        await stage.cluster_queue("other", cpu=QUOTA // 2, cohortName=stage.own("all"))
        await stage.local_queue("other", cluster_queue="other")
        await stage.job("before", cpu=BORROWING)
        await stage.until_running("before")

        exists.append(True)
        if fault.is_queue:
            await change_queue(stage, "Any")
        await stage.job("bad", cpu=fault.cpu)
        await stage.until(lambda: has_failed(metrics, fault), what="the core to fail")
        await stage.job("good", queue="other", cpu=2)
        await stage.until_running("good")
        await until_quarantined(stage, fault, metrics)
        failures = count(metrics, "core_failures_total")
        await stage.job("wide", queue="other", cpu=QUOTA - BORROWING)
        await stage.until(lambda: is_refused(stage, "wide"), what="wide to be refused")
        await stage.job("another", queue="other", cpu=1)
        await stage.until_running("another")
        await stage.job("beyond", queue="other", cpu=1)
        await stage.until(lambda: is_refused(stage, "beyond"), what="beyond to be refused")
        assert held(await stage.workload("bad")) == 0

        exists.clear()
        for name in ("before", "good", "another", "wide", "beyond"):
            await stage.client.delete(JOBS, name, stage.namespace, propagation="Background")
        if fault.is_queue:
            await change_queue(stage, "LowerPriority")
        else:
            workload = await stage.workload("bad")
            await stage.change(stage.kinds.workloads, workload["metadata"]["name"], {"spec": {"priority": 1}})
        await stage.until_running("bad")
        assert count(metrics, "malformed_objects") == 0
        assert count(metrics, "core_failures_total") == failures
        watching.cancel()
        assert watched.looks > 0
        assert watched.most == QUOTA


async def change_queue(stage: Stage, reclaims: str) -> None:
    """Change something of the ClusterQueue of the job ``bad`` that the core observes."""
    spec = {"preemption": {"reclaimWithinCohort": reclaims}}
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": spec})


async def until_quarantined(stage: Stage, fault: Fault, metrics: Metrics) -> None:
    """Wait for the event, the condition and the metric about the culprit."""
    if fault.is_queue:
        await quarantined(stage, stage.kinds.cluster_queues, stage.own("cq"), ("Active", "Unknown"), metrics)
    else:
        await stage.workload_exists("bad")
        name = (await stage.workload("bad"))["metadata"]["name"]
        condition = ("QuotaReserved", "Misconfigured")
        await quarantined(stage, stage.kinds.workloads, name, condition, metrics)


async def quarantined(
    stage: Stage, resource: Resource, name: str, condition: tuple[str, str], metrics: Metrics
) -> None:
    type_, reason = condition

    async def reported() -> bool:
        found = condition_of(await stage.get(resource, name), type_)
        assert found is not None
        assert found[:2] == ("False", reason), found
        assert "internal error" in found[2]
        events, _ = await stage.client.list(EVENTS, stage.namespace if resource.namespaced else "default")
        reasons = {one["reason"] for one in events if one["regarding"]["name"] == name}
        assert "InternalError" in reasons, reasons
        assert count(metrics, "malformed_objects", resource=resource.plural) == 1
        return True

    await stage.until(reported, what=f"{name} to be reported as left out")


async def has_failed(metrics: Metrics, fault: Fault) -> bool:
    return count(metrics, "core_failures_total", during=fault.during) > 0


async def is_refused(stage: Stage, job: str) -> bool:
    found = condition_of(await stage.workload(job), "QuotaReserved")
    return found is not None and found[0] == "False"
