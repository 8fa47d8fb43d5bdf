"""Fixtures: fresh namespaces beside a running admitq, which are cleaned up afterwards."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from admitq.integrations.base import Integration
from admitq.integrations.kinds.jobset import JOBSET
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import NODES, RUNTIME_CLASSES
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import PATIENT_LEASE, Installation
from localcluster.locks import exclusive
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.example_check import ChooseState, ExampleCheck
from tests.controlplane.hosts import two_racks
from tests.controlplane.kind_cases import KindCase, load
from tests.controlplane.stage import Stage
from tests.controlplane.user_programs import kubectl
from tests.controlplane.visibility_api import VISIBILITY, VisibilityApi, until_available


@pytest.fixture
async def stage(admitq_client: Client, admitq_namespace: str, api_group: str) -> AsyncGenerator[Stage]:
    """A fresh namespace beside a running admitq."""
    made = Stage(admitq_client, names_for(api_group), admitq_namespace)
    yield made
    await _clear(made)


@pytest.fixture
async def other_stage(admitq_client: Client, api_group: str) -> AsyncGenerator[Stage]:
    """A second namespace, for stories about isolation."""
    async with _fresh_stage(admitq_client, api_group) as made:
        yield made


@pytest.fixture
async def hosts(stage: Stage, admitq_running: Installation) -> AsyncGenerator[list[str]]:
    """Four nodes in two racks of a block, which only pods of this story tolerate."""
    async with two_racks(stage, admitq_running) as names:
        yield names


FreshStage = Callable[[], AbstractAsyncContextManager[Stage]]


@pytest.fixture
def fresh_stage(admitq_client: Client, api_group: str) -> FreshStage:
    """A function that opens further namespaces, for stories that run concurrently."""
    return lambda: _fresh_stage(admitq_client, api_group)


StagesBeside = Callable[[Installation], Awaitable[FreshStage]]


@pytest.fixture
def stages_beside(connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str) -> StagesBeside:
    """A function that returns a ``FreshStage`` for another installation."""

    async def opened(installation: Installation) -> FreshStage:
        client = await connect(installation.cluster)
        return lambda: _fresh_stage(client, api_group)

    return opened


StartCheckController = Callable[[ChooseState], ExampleCheck]


@pytest.fixture
async def start_controller(stage: Stage) -> AsyncGenerator[StartCheckController]:
    """A function that starts the example check controller for this story, which calls the given function."""
    tasks: list[asyncio.Task[None]] = []

    def started(choose_state: ChooseState) -> ExampleCheck:
        made = ExampleCheck(stage.client, stage.names, controller_of(stage), choose_state)
        tasks.append(asyncio.create_task(made.run()))
        return made

    yield started
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def controller_of(stage: Stage) -> str:
    return f"example.com/{stage.namespace}"


FAIR: Final = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    "leaderElection": PATIENT_LEASE,
    # Usage hardly decays within a story. A new admission counts at once with three tenths of its usage.
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "30m"},
    "resources": {
        "excludeResourcePrefixes": ["internal.example.com/"],
        "transformations": [
            {"input": "example.com/slice", "strategy": "Replace", "outputs": {"cpu": "2"}},
            {"input": "example.com/card", "multiplyBy": "cpu", "outputs": {"example.com/credit": "10"}},
        ],
    },
    "featureGates": {
        "CustomMetricLabels": True,
        "ElasticJobsViaWorkloadSlicesWithTAS": True,
        "PrioritizePreemptorWorkloads": True,
        "PriorityBoost": True,
    },
    "metrics": {
        "customLabels": [
            {"name": "tier"},
            {"name": "squad", "sourceKind": "LocalQueue"},
            {"name": "size", "sourceKind": "Workload", "trackedValues": ["large"]},
        ],
        "localQueueMetrics": {
            "enable": True,
            "localQueueSelector": {
                "matchExpressions": [{"key": "series", "operator": "NotIn", "values": ["off"]}]
            },
        },
    },
}


@pytest.fixture(scope="session")
def admitq_fair(installation_with: Callable[..., Installation]) -> Installation:
    """A control plane with an admitq that is configured for fair sharing; all its stories share it."""
    return installation_with("fair", FAIR)


@pytest.fixture
async def fair_stage(
    admitq_fair: Installation, connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str
) -> AsyncGenerator[Stage]:
    """A fresh namespace beside the admitq with fair sharing."""
    async with _fresh_stage(await connect(admitq_fair.cluster), api_group) as made:
        yield made


ALONE: Final = {
    "integrations": {
        "frameworks": ["batch/job", JOBSET.framework],
        "externalFrameworks": ["Robot.v1.example.com"],
    },
    "leaderElection": {"retryPeriod": "300ms"},
}


@pytest.fixture
def admitq_alone(installation_with: Callable[..., Installation]) -> Generator[Installation]:
    """An admitq and a cluster that only one test at a time uses.

    The configuration enables JobSets, but their CRD is not installed at first.
    """
    made = installation_with("alone", ALONE)
    with exclusive(made.cluster.folder / "alone.lock"):
        yield made


@pytest.fixture
async def stage_alone(
    admitq_alone: Installation, connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str
) -> AsyncGenerator[Stage]:
    """A fresh namespace beside ``admitq_alone``."""
    client = await connect(admitq_alone.cluster)
    async with fresh_namespace(client) as namespace:
        yield Stage(client, names_for(api_group), namespace)


@pytest.fixture(scope="module")
def api(default_installation: Installation, api_group: str) -> VisibilityApi:
    """The default installation with manager and visibility API, which test files use in turn."""
    if default_installation.process("visibility") is None:
        default_installation.install(api_group=api_group, values=VISIBILITY)
        default_installation.start(("visibility",))
    return VisibilityApi(default_installation, names_for(api_group))


@pytest.fixture
async def admin(api: VisibilityApi, connect: Callable[[LocalCluster], Awaitable[Client]]) -> Client:
    """A client as administrator, once the API server has found the visibility API."""
    client = await connect(api.installation.cluster)
    await until_available(client, api)
    return client


@asynccontextmanager
async def _fresh_stage(client: Client, api_group: str) -> AsyncGenerator[Stage]:
    async with fresh_namespace(client) as namespace:
        made = Stage(client, names_for(api_group), namespace)
        try:
            yield made
        finally:
            await _clear(made)


async def _clear(stage: Stage) -> None:
    """Delete the cluster-scoped objects of the story; each is removed when nothing references it any more."""
    kinds = stage.kinds
    for resource in (
        kinds.cluster_queues,
        kinds.cohorts,
        kinds.resource_flavors,
        kinds.workload_priority_classes,
        kinds.admission_checks,
        kinds.topologies,
        NODES,
        RUNTIME_CLASSES,
    ):
        items, _ = await stage.client.list(resource)
        for item in items:
            if item["metadata"]["name"].endswith(stage.namespace):
                try:
                    await stage.client.delete(resource, item["metadata"]["name"])
                except ApiError as error:
                    if not error.is_not_found:
                        raise


@pytest.fixture
def case(kind: Integration, api_group: str, definitions: Callable[[Iterable[str]], None]) -> KindCase:
    """The cases of the kind under test. Its CRD is installed."""
    found = load(kind, api_group)
    definitions(found.definitions)
    return found


Plugin = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture
def plugin(stage: Stage, admitq_running: Installation, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    """A function that lets kubectl run a command of its plugin in the namespace of the story."""
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")

    def run(*arguments: str) -> Coroutine[Any, Any, str]:
        return kubectl(admitq_running.cluster, "admitq", *arguments, f"--namespace={stage.namespace}")

    return run
