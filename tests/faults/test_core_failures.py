"""A defect of the core beside a real API server: the culprit is quarantined, and other queues admit."""

import asyncio
from collections.abc import AsyncGenerator
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
from admitq.core.waiting.pending import PendingEntry
from admitq.metrics.registry import Metrics
from admitq.runtime.credentials import load_credentials
from admitq.runtime.resources import EVENTS, JOBS, Resource
from admitq_api.json_objects import value_at
from admitq_api.labels import names_for
from localcluster.installation import Installation
from tests.controlplane.stage import Stage, condition_of
from tests.unit.manager.failing_core import fail, fail_to_handle

QUOTA = 8
"""CPUs of the cohort; each of its two ClusterQueues has half of them."""

BORROWING = 5
"""CPUs that the ClusterQueue of the job ``bad`` uses: more than its own quota."""


@dataclass(frozen=True)
class Fault:
    """A function of the core that raises for the job ``bad``, or for its ClusterQueue.

    The job requests ``cpu`` CPUs. If ``after`` is set, the function raises after its work.
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
                heads = cast("list[tuple[ClusterQueueEntry, PendingEntry]]", one)
                return any(queue.spec.name == stage.own("cq") for queue, _ in heads)
            if self.is_queue and (queue := getattr(one, "cluster_queue", None)) is not None:
                # The core still observes quota and cohort of a quarantined ClusterQueue.
                return queue.name == stage.own("cq") and not queue.quarantined
            if (workload := getattr(one, "workload", None)) is not None:
                # The core observes no podsets of a quarantined Workload.
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
    """Run a manager in this process. It must not end before the block ends."""
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


class QuotaSampler:
    """Samples the CPUs that are reserved for Workloads, and keeps the maximum."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.most = 0
        self.samples = 0

    async def run(self) -> None:
        while True:
            found, _ = await self._stage.client.list(self._stage.kinds.workloads, self._stage.namespace)
            self.most = max(self.most, sum(map(reserved_cpus, found)))
            self.samples += 1
            await asyncio.sleep(0.1)


def reserved_cpus(workload: dict[str, Any]) -> int:
    """The CPUs that are reserved for a Workload; none for a finished one."""
    if (condition_of(workload, "Finished") or ("",))[0] == "True":
        return 0
    parts = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return sum(int(part["resourceUsage"]["cpu"]) for part in parts)


def count(metrics: Metrics, series: str, **labels: str) -> float:
    """The sum of a metric over the series with some labels."""
    lines = metrics.exposition().decode().splitlines()
    matchers = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if f"_{series}{{" in line and all(one in line for one in matchers)
    )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_culprit_of_core_failure_is_quarantined_and_other_queues_admit(
    monkeypatch: pytest.MonkeyPatch,
    without_manager: Installation,
    stage: Stage,
    settings: ProcessSettings,
    fault: Fault,
) -> None:
    defect = install_defect(monkeypatch, stage, fault)
    defect.clear()
    async with managing(without_manager, settings) as metrics:
        sampler = QuotaSampler(stage)
        sampling = asyncio.create_task(sampler.run())
        await create_queues_and_fill_half(stage)

        # With the defect, its culprit is quarantined, keeps its quota, and other queues admit.
        defect.append(True)
        await trigger_failure(stage, fault, metrics)
        await stage.job("good", queue="other", cpu=2)
        await stage.until_running("good")
        await until_quarantined(stage, fault, metrics)
        failures = count(metrics, "core_failures_total")
        await check_that_culprit_keeps_its_quota(stage)

        # Without the defect, a change of the culprit ends the quarantine.
        defect.clear()
        for name in ("before", "good", "another", "wide", "beyond"):
            await stage.client.delete(JOBS, name, stage.namespace, propagation="Background")
        await change_culprit(stage, fault)
        await stage.until_running("bad")
        assert count(metrics, "malformed_objects") == 0
        assert count(metrics, "core_failures_total") == failures
        sampling.cancel()
        assert sampler.samples > 0
        assert sampler.most == QUOTA


def install_defect(monkeypatch: pytest.MonkeyPatch, stage: Stage, fault: Fault) -> list[bool]:
    """Let a function of the core fail for its culprit while the returned list is not empty."""
    concerns = partial(fault.concerns_call, stage)
    if fault.owner is HANDLERS:
        return fail_to_handle(monkeypatch, fault.function, concerns, after=fault.after)
    return fail(monkeypatch, fault.owner, fault.function, concerns, after=fault.after)


async def create_queues_and_fill_half(stage: Stage) -> None:
    """Create two ClusterQueues of a cohort, and a job that borrows from the second."""
    await stage.queues(cpu=QUOTA // 2, cohortName=stage.own("all"))
    await stage.cluster_queue("other", cpu=QUOTA // 2, cohortName=stage.own("all"))
    await stage.local_queue("other", cluster_queue="other")
    await stage.job("before", cpu=BORROWING)
    await stage.until_running("before")


async def trigger_failure(stage: Stage, fault: Fault, metrics: Metrics) -> None:
    """Create the job ``bad`` and wait until the core has failed."""
    if fault.is_queue:
        await change_queue(stage, "Any")
    await stage.job("bad", cpu=fault.cpu)
    await stage.until(lambda: has_failed(metrics, fault), what="the core to fail")


async def check_that_culprit_keeps_its_quota(stage: Stage) -> None:
    """Jobs of the other queue get the rest of the cohort's quota and no more."""
    await stage.job("wide", queue="other", cpu=QUOTA - BORROWING)
    await stage.until(lambda: is_refused(stage, "wide"), what="wide to be refused")
    await stage.job("another", queue="other", cpu=1)
    await stage.until_running("another")
    await stage.job("beyond", queue="other", cpu=1)
    await stage.until(lambda: is_refused(stage, "beyond"), what="beyond to be refused")
    assert reserved_cpus(await stage.workload("bad")) == 0


async def change_culprit(stage: Stage, fault: Fault) -> None:
    """Change the quarantined object, so that the core observes it again."""
    if fault.is_queue:
        await change_queue(stage, "LowerPriority")
        return
    workload = await stage.workload("bad")
    await stage.change(stage.kinds.workloads, workload["metadata"]["name"], {"spec": {"priority": 1}})


async def change_queue(stage: Stage, reclaims: str) -> None:
    """Change something of the ClusterQueue of the job ``bad`` that the core observes."""
    spec = {"preemption": {"reclaimWithinCohort": reclaims}}
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": spec})


async def until_quarantined(stage: Stage, fault: Fault, metrics: Metrics) -> None:
    """Wait for the event, the condition and the metric about the culprit."""
    if fault.is_queue:
        await quarantined(stage, stage.kinds.cluster_queues, stage.own("cq"), ("Active", "Unknown"), metrics)
    else:
        await stage.until_workload_exists("bad")
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

    await stage.until(reported, what=f"{name} to be reported as quarantined")


async def has_failed(metrics: Metrics, fault: Fault) -> bool:
    return count(metrics, "core_failures_total", during=fault.during) > 0


async def is_refused(stage: Stage, job: str) -> bool:
    found = condition_of(await stage.workload(job), "QuotaReserved")
    return found is not None and found[0] == "False"
