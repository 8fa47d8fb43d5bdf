"""Measure how long a Workload that fits waits for its admission, beside few and very many that do not fit.

The Workloads that wait have few scheduling keys, are older than the newcomers, and are in the same
BestEffortFIFO queues. A manager writes the statuses of a few of them. Copies are then written into etcd
directly. The manager is restarted for each number of them.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import Resource
from admitq_api.labels import DEFAULT_GROUP, ApiGroup, Names, names_for
from benchmarks import stored_workloads
from benchmarks.api_calls import ApiCallKey
from benchmarks.clusters import USER_AGENT, WITHOUT_CONSISTENCY_CHECK, fresh_cluster, harness_client
from benchmarks.depth_figures import DepthFigures, ManagerStart, result_of
from benchmarks.depth_newcomers import NAME_PREFIX, Newcomers, NewcomerTimes
from benchmarks.rest import QUIET_S, until_rest
from benchmarks.sample_workloads import SampleWorkloads
from benchmarks.stored_cluster import latest_version, stopped_api_server, stored_workloads_of
from benchmarks.stored_workloads import Queue, StoredSample, WorkloadSize
from benchmarks.throughput_connection import LoadConnection, ThroughputFailed
from benchmarks.throughput_costs import COMPONENTS, WITHOUT_AUDIT, CostsSince, LoadCosts
from benchmarks.throughput_managers import MANAGER, MeasuredManager, manager_of
from localcluster.cluster import LocalCluster, to_stderr

SHAPE: Final = "depth"
"""The name of this load among those of ``hack/bench throughput``."""
DEPTHS: Final = (100, 1_000, 10_000, 100_000)

QUOTA_CPU: Final = 20
"""The nominal quota of a queue."""
RUNNING: Final = WorkloadSize(pods=8, pod_cpu=2, priority=1_000)
"""The Workload that runs in each queue. Its priority protects it from preemption."""
PREEMPTION: Final = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
"""The preemption policies, as in the published loads."""

_PRIORITIES: Final = (0, 50, 100)
_SAMPLE: Final = "sample-"
_PENDING: Final = "pending"
_WARM_UP_ROUNDS: Final = 2
"""Newcomers of each queue that come before the measurement."""


@dataclass(frozen=True)
class DepthLoad:
    """The parameters of a run.

    Attributes:
        depths: the numbers of Workloads that wait, from the shallowest to the deepest queues.
        newcomers: the number of newcomers at each depth.
        queues: ClusterQueues of one cohort, each with one LocalQueue and one Workload that runs.
        shapes: the number of different requests of Workloads that wait.
        quiet_s: the seconds without work after which the manager is at rest.
        api_group: the API group of all kinds.
        command: the shell command of the queue manager; None is admitq.
    """

    depths: tuple[int, ...] = DEPTHS
    newcomers: int = 300
    queues: int = 5
    shapes: int = 20
    quiet_s: float = QUIET_S
    api_group: ApiGroup = DEFAULT_GROUP
    command: str | None = None


def pending_sizes(load: DepthLoad) -> list[WorkloadSize]:
    """Return what the Workloads that wait request.

    Each needs quota of Workloads that run: it requests more than all queues have unused, and less than their
    quota.
    """
    unused = load.queues * (QUOTA_CPU - RUNNING.cpu)
    first = unused // RUNNING.pod_cpu + 1
    return [
        WorkloadSize(first + number, RUNNING.pod_cpu, _PRIORITIES[number % len(_PRIORITIES)])
        for number in range(load.shapes)
    ]


def scaled_depths(share: float) -> tuple[int, ...]:
    """Return this share of the published depths."""
    return tuple(max(1, round(depth * share)) for depth in DEPTHS)


def run(load: DepthLoad) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on its own cluster.

    Returns:
        The result, and whether it meets the bound and all newcomers were admitted.

    Raises:
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
        DefinitionsError: the CRDs are not served.
        EtcdFailed: the Workloads cannot be stored.
        ThroughputFailed: the API server refused a call, or the manager ended or did not reach rest.
    """
    to_stderr("starting etcd and kube-apiserver")
    arguments = (*WITHOUT_AUDIT, *WITHOUT_CONSISTENCY_CHECK)
    with fresh_cluster(component_names=COMPONENTS, api_server_arguments=arguments) as cluster:
        return measure(cluster, load)


def measure(cluster: LocalCluster, load: DepthLoad) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on a running cluster that nothing else uses; see `run`."""
    manager = manager_of(cluster, load.api_group, load.command)
    try:
        manager.install()
        return uvloop.run(_measure(cluster, load, manager))
    finally:
        manager.stop()


async def _measure(
    cluster: LocalCluster, load: DepthLoad, manager: MeasuredManager
) -> tuple[dict[str, Any], bool]:
    async with harness_client(cluster.kubeconfig) as client:
        benchmark = DepthBenchmark(load, cluster, client, manager)
        await benchmark.prepare()
        figures = [await benchmark.measure(depth) for depth in load.depths]
    result, passed = result_of(figures, load.newcomers)
    described = {
        "benchmark": "throughput",
        "shape": SHAPE,
        "api_group": load.api_group,
        "manager": load.command or "admitq",
        "queues": load.queues,
        "shapes": load.shapes,
    }
    return described | result, passed


class DepthBenchmark:
    """Prepares the samples, and measures newcomers beside copies of these.

    Args:
        load: the parameters.
        cluster: a cluster on which the manager is installed, and does not run.
        client: a client of its API server.
        manager: the queue manager.
    """

    def __init__(
        self, load: DepthLoad, cluster: LocalCluster, client: Client, manager: MeasuredManager
    ) -> None:
        self._load = load
        self._cluster = cluster
        self._client = client
        self._manager = manager
        self._names: Names = names_for(load.api_group)
        self._workloads: Resource = kinds_of(self._names).workloads
        self._queues: list[Queue] = stored_workloads.queues(load.queues)
        self._samples: list[tuple[Queue, StoredSample]] = []
        self._owners: dict[Queue, str] = {}

    async def prepare(self) -> None:
        """Create the queues, what runs in them, and a sample of each request and queue."""
        to_stderr("creating queues and samples")
        self._manager.start()
        samples = SampleWorkloads(self._client, self._names)
        await samples.create_queues(self._queues, QUOTA_CPU, PREEMPTION)
        await asyncio.gather(*(samples.create_running(queue, RUNNING) for queue in self._queues))
        names = {f"{_SAMPLE}{number}": size for number, size in enumerate(pending_sizes(self._load))}
        await asyncio.gather(
            *(
                samples.create_waiting(queue, name, size)
                for name, size in names.items()
                for queue in self._queues
            )
        )
        self._owners = {queue: await samples.owner_uid(queue) for queue in self._queues}
        await self._until_rest()
        self._manager.stop()
        with stored_workloads_of(self._cluster, self._workloads) as stored:
            self._samples = [(queue, stored.sample(queue, name)) for name in names for queue in self._queues]

    async def measure(self, depth: int) -> DepthFigures:
        """Measure newcomers beside a number of Workloads that wait."""
        to_stderr(f"storing {depth} Workloads that wait")
        async with stopped_api_server(self._cluster, self._client, self._workloads) as stored:
            for queue in self._queues:
                for prefix in (_SAMPLE, _PENDING, NAME_PREFIX):
                    stored.delete_all(queue, prefix)
            stored.put_all(stored_workloads.copies(self._samples, _PENDING, depth))
        began = time.monotonic()
        self._manager.start()
        resting_since = await self._until_rest()
        start = ManagerStart(resting_since - began, self._cpu_seconds(), self._manager_calls())
        to_stderr(f"the manager was at rest after {start.rest_s:.0f} s")
        times, costs = await self._play()
        self._manager.stop()
        figures = DepthFigures(depth, times, costs, start)
        to_stderr(json.dumps(figures.as_json()))
        return figures

    async def _play(self) -> tuple[list[NewcomerTimes], LoadCosts]:
        """Create the newcomers. The first one that is not admitted is the last."""
        # One connection is for the watch.
        async with LoadConnection(self._cluster, user_agent=USER_AGENT, connections=2) as connection:
            newcomers = Newcomers(connection, self._names, self._owners)
            watch = asyncio.create_task(newcomers.watch(await latest_version(self._client, self._workloads)))
            try:
                await self._play_some(newcomers, watch, _WARM_UP_ROUNDS * len(self._queues))
                costs_since, calls_before = CostsSince(self._cluster, self._manager), +connection.calls
                times = await self._play_some(newcomers, watch, self._load.newcomers)
                return times, costs_since.until_now(connection.calls - calls_before)
            finally:
                watch.cancel()

    async def _play_some(
        self, newcomers: Newcomers, watch: asyncio.Task[None], count: int
    ) -> list[NewcomerTimes]:
        all_times: list[NewcomerTimes] = []
        for _ in range(count):
            times = await newcomers.next()
            if watch.done():
                watch.result()
            if reason := self._manager.failure():
                raise ThroughputFailed(reason)
            if times is None:
                break
            all_times.append(times)
        return all_times

    async def _until_rest(self) -> float:
        """Wait until the manager is at rest; see `rest.until_rest`."""
        return await until_rest(
            self._cpu_seconds,
            lambda: sum(count for key, count in self._manager_calls().items() if key.is_write),
            quiet_s=self._load.quiet_s,
        )

    def _manager_calls(self) -> Counter[ApiCallKey]:
        """Return the calls that the manager counted, without those of Leases. A command counts none."""
        calls = self._manager.calls().get(MANAGER, Counter())
        return Counter({key: count for key, count in calls.items() if not key.resource.startswith("leases.")})

    def _cpu_seconds(self) -> float:
        usage = self._manager.usages()[MANAGER]
        if usage is None:
            raise ThroughputFailed(self._manager.failure() or "the manager has ended")
        return usage.cpu_seconds
