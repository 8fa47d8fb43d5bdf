"""Measure how fast a queue manager takes a published load through a real API server.

Workload objects are created directly, without jobs and pods. The harness plays the jobs. The control plane
has only etcd and kube-apiserver. Shapes with a topology have Node objects, which nothing runs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from admitq.runtime.kinds import kinds_of
from admitq_api.labels import ApiGroup, Names, names_for
from benchmarks import throughput_objects
from benchmarks.api_calls import ApiCallKey, ApiServerCounts
from benchmarks.clusters import HARNESS, USER_AGENT, fresh_cluster, is_active
from benchmarks.throughput_connection import (
    JSON,
    MERGE_PATCH,
    LoadConnection,
    ThroughputFailed,
    list_all,
    until_answered,
)
from benchmarks.throughput_costs import API_SERVER, COMPONENTS, WITHOUT_AUDIT, CostsSince
from benchmarks.throughput_harness import ThroughputHarness, creators_of
from benchmarks.throughput_jobs import JOB_WRITES
from benchmarks.throughput_managers import MANAGER, MeasuredManager, manager_of
from benchmarks.throughput_shapes import SHAPES, LoadShape
from localcluster.cluster import LocalCluster, to_stderr

# Other calls in progress while the queues are created.
_SETUP_CALLS: Final = 16
_ACTIVE_WITHIN_S: Final = 300.0
_POLL_EVERY_S: Final = 1.0


@dataclass(frozen=True)
class ThroughputPlan:
    """The parameters of a run.

    Attributes:
        shape: a key of `SHAPES`.
        scale: the share of the workloads of each class.
        timeout_s: the seconds after which the load stops.
        api_group: the API group of all kinds.
        command: the shell command of the queue manager; None is admitq.
    """

    shape: str
    scale: float
    timeout_s: float
    api_group: ApiGroup
    command: str | None = None

    @property
    def load(self) -> LoadShape:
        """The load of the run."""
        return SHAPES[self.shape].scaled(self.scale)


def run(plan: ThroughputPlan) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on its own cluster.

    Returns:
        The result, and whether all workloads have finished.

    Raises:
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
        DefinitionsError: the CRDs are not served.
        ThroughputFailed: the API server refused a call, or the queue manager ended.
    """
    to_stderr("starting etcd and kube-apiserver")
    with fresh_cluster(component_names=COMPONENTS, api_server_arguments=WITHOUT_AUDIT) as cluster:
        return measure(cluster, plan)


def measure(cluster: LocalCluster, plan: ThroughputPlan) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on a running cluster that nothing else uses; see `run`."""
    manager = manager_of(cluster, plan.api_group, plan.command)
    try:
        manager.install()
        manager.start()
        return uvloop.run(_measure(cluster, plan, manager))
    finally:
        manager.stop()


async def _measure(
    cluster: LocalCluster, plan: ThroughputPlan, manager: MeasuredManager
) -> tuple[dict[str, Any], bool]:
    names, shape = names_for(plan.api_group), plan.load
    async with LoadConnection(cluster, user_agent=USER_AGENT, connections=_SETUP_CALLS) as setup:
        to_stderr(f"creating {shape.queues} queues")
        await _create_queues(setup, shape, names)
        await _until_active(setup, shape, names, manager)
    async with (
        LoadConnection(cluster, user_agent=USER_AGENT, connections=creators_of(shape)) as creating,
        # One more connection is for the watch.
        LoadConnection(cluster, user_agent=USER_AGENT, connections=JOB_WRITES + 1) as playing,
    ):
        harness = ThroughputHarness(shape, names, creating, playing, manager.failure)
        costs_since = CostsSince(cluster, manager)
        await harness.run(plan.timeout_s)
        costs = costs_since.until_now(creating.calls + playing.calls)
    result = {
        "benchmark": "throughput",
        "shape": plan.shape,
        "scale": plan.scale,
        "api_group": plan.api_group,
        "manager": plan.command or "admitq",
        **harness.result(),
        "cpu_s": costs.figures("cpu_s"),
        "rss_mb": costs.figures("rss_mb"),
        **api_figures(costs.writers, costs.counted, names, shape.workloads, costs.used[API_SERVER]["cpu_s"]),
        "harness": {
            **harness.harness_result(),
            "cpu_share": round((costs.used[HARNESS]["cpu_s"] or 0.0) / harness.wall_s, 2),
        },
    }
    return result, result["finished"] == shape.workloads


def api_figures(
    writers: Mapping[str, Counter[ApiCallKey]],
    counted: ApiServerCounts,
    names: Names,
    workloads: int,
    api_server_cpu_s: float | None,
) -> dict[str, Any]:
    """Return the figures of API calls.

    Args:
        writers: the calls of each caller.
        counted: what the API server counted.
        names: the names of the API group.
        workloads: the number of workloads.
        api_server_cpu_s: the CPU seconds of the API server; None if it died.
    """
    status = f"{kinds_of(names).workloads}/status"
    status_writes = sum(
        count
        for key, count in writers.get(MANAGER, Counter[ApiCallKey]()).items()
        if key.resource == status and key.is_write
    )
    writes = sum(count for key, count in counted.calls.items() if key.is_write)
    per_write = None if api_server_cpu_s is None or not writes else api_server_cpu_s * 1000 / writes
    return {
        "api_calls": {
            writer: {str(key): count for key, count in sorted(counts.items())}
            for writer, counts in writers.items()
        },
        "api_writes": writes,
        "status_writes_per_workload": round(status_writes / workloads, 2),
        "api_cpu_ms_per_write": None if per_write is None else round(per_write, 2),
        "watch_bytes": int(counted.watch_bytes),
        "webhook_reviews": {" ".join(key): count for key, count in sorted(counted.reviews.items())},
    }


async def _create_queues(connection: LoadConnection, shape: LoadShape, names: Names) -> None:
    """Create the nodes, queues and all that these need."""
    kinds = kinds_of(names)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": throughput_objects.NAMESPACE}}
    if shape.nodes is not None:
        await _send(connection, "create", "nodes", throughput_objects.nodes(shape.nodes))
        await _send(connection, "patch", "nodes", throughput_objects.untaint(shape.nodes))
    steps = (
        ("namespaces", [("/api/v1/namespaces", namespace)]),
        (str(kinds.topologies), throughput_objects.topologies(shape, names)),
        (str(kinds.resource_flavors), [throughput_objects.flavor(shape, names)]),
        (str(kinds.cluster_queues), throughput_objects.cluster_queues(shape, names)),
        (str(kinds.local_queues), throughput_objects.local_queues(shape, names)),
    )
    for resource, objects in steps:
        await _send(connection, "create", resource, objects)


async def _send(
    connection: LoadConnection, verb: str, resource: str, bodies: Iterable[tuple[str, dict[str, Any]]]
) -> None:
    """Create objects, or patch them, several at once."""
    content_type = MERGE_PATCH if verb == "patch" else JSON
    remaining = iter(bodies)

    async def send() -> None:
        for path, body in remaining:
            await until_answered(connection, verb, resource, path, body, content_type)

    await asyncio.gather(*(send() for _ in range(_SETUP_CALLS)))


async def _until_active(
    connection: LoadConnection, shape: LoadShape, names: Names, manager: MeasuredManager
) -> None:
    """Wait until all queues are active.

    Raises:
        ThroughputFailed: they are not active in time, or the queue manager ended.
    """
    kinds = kinds_of(names)
    deadline = time.monotonic() + _ACTIVE_WITHIN_S
    for resource in (kinds.cluster_queues, kinds.local_queues):
        while True:
            queues, _ = await list_all(connection, str(resource), resource.path())
            active = sum(map(is_active, queues))
            if active >= shape.queues:
                break
            if reason := manager.failure():
                raise ThroughputFailed(reason)
            if time.monotonic() > deadline:
                raise ThroughputFailed(
                    f"{active} of {shape.queues} {resource} were active after {_ACTIVE_WITHIN_S:.0f} s"
                )
            await asyncio.sleep(_POLL_EVERY_S)
