"""Measure the start of a manager on a cluster with very many Workloads at rest.

Most Workloads wait, or have finished. While no manager runs, one running Workload finishes, so one that waits
fits. The figures are the time until its reservation is stored, the memory of the manager, and its writes. All
writes but this reservation and its consequences are unneeded.

A manager writes the statuses of a few Workloads. Copies of these are then written into etcd directly.
"""

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.kinds import Kinds, kinds_of
from admitq_api.conditions import is_true
from admitq_api.labels import Names, names_for
from benchmarks import stored_workloads
from benchmarks.clusters import WITHOUT_CONSISTENCY_CHECK, fresh_cluster, harness_client
from benchmarks.manager_calls import ManagerWrites, list_bytes, unneeded_writes
from benchmarks.rest import QUIET_S, until_rest
from benchmarks.sample_workloads import SampleWorkloads
from benchmarks.stored_cluster import API_SERVER, latest_version, stopped_api_server
from benchmarks.stored_workloads import USUAL_SIZE, Queue
from benchmarks.throughput_connection import ThroughputFailed
from benchmarks.throughput_costs import COMPONENTS
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.installation import Installation
from localcluster.processes import Process, Usage

SHAPE: Final = "restart"
"""The name of this load among those of ``hack/bench throughput``."""
PENDING: Final = 50_000
FINISHED: Final = 100_000

FIRST_DECISION_S: Final = 15.0
"""The seconds within which the first reservation must be stored."""
RSS_MB: Final = 600
"""The memory that the manager may use at most."""

_WAITING: Final = "sample-waiting"
_FINISHED: Final = "sample-finished"
_SMALL_BYTES: Final = 100_000
_PATIENCE_S: Final = 600.0


@dataclass(frozen=True)
class RestartLoad:
    """The objects on the cluster.

    Attributes:
        pending: Workloads that wait.
        finished: Workloads that have finished.
        queues: ClusterQueues, each with one running Workload.
        quiet_s: the seconds without work after which the manager is at rest.
    """

    pending: int = PENDING
    finished: int = FINISHED
    queues: int = 20
    quiet_s: float = QUIET_S


async def run(load: RestartLoad) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on its own cluster.

    Returns:
        The result, and whether it meets the bounds.

    Raises:
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
        EtcdFailed: the Workloads cannot be stored.
        ThroughputFailed: the manager did not reach rest.
    """
    to_stderr("starting a cluster")
    with fresh_cluster(component_names=COMPONENTS, api_server_arguments=WITHOUT_CONSISTENCY_CHECK) as cluster:
        return await measure(cluster, load)


async def measure(cluster: LocalCluster, load: RestartLoad) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on a running cluster that nothing else uses; see `run`."""
    installation = Installation(cluster)
    installation.install()
    installation.start()
    async with harness_client(cluster.kubeconfig) as client:
        return await Restart(load, cluster, installation, client).run()


class Restart:
    """Prepares the load, brings it to rest, and measures restarts."""

    def __init__(
        self, load: RestartLoad, cluster: LocalCluster, installation: Installation, client: Client
    ) -> None:
        self._load = load
        self._cluster = cluster
        self._installation = installation
        self._client = client
        self._names: Names = names_for()
        self._kinds: Kinds = kinds_of(self._names)
        self._queues: list[Queue] = stored_workloads.queues(load.queues)
        self._samples = SampleWorkloads(client, self._names)
        self.decided: tuple[str, str] | None = None
        """Namespace and name of the Workload that got quota in the last measurement."""

    async def run(self) -> tuple[dict[str, Any], bool]:
        """Return the result, and whether it meets the bounds."""
        await self.prepare()
        settling = await self.measure(decides=False)
        await self.finish_running(self._queues[0])
        result = await self.measure(decides=True)
        figures = {
            "benchmark": "throughput",
            "shape": SHAPE,
            "pending": self._load.pending,
            "finished": self._load.finished,
        }
        figures |= result | {"settling_writes": settling["writes"]}
        decided = result["first_decision_s"]
        return figures, (
            decided is not None
            and decided <= FIRST_DECISION_S
            and result["rss_peak_mb"] <= RSS_MB
            and not result["unneeded_writes"]
        )

    async def prepare(self) -> None:
        """Store the load, and restart the API server so that its cache has it. No manager runs afterwards."""
        to_stderr("creating queues and samples")
        await self._samples.create_queues(self._queues, USUAL_SIZE.cpu)
        await self._create_samples()
        await self._until_rest(ManagerWrites(self._cluster))
        # The watches of the webhook would delay the end of the API server.
        self._installation.stop()
        async with stopped_api_server(self._cluster, self._client, self._kinds.workloads) as stored:
            for kind, name, count in (
                ("waiting", _WAITING, self._load.pending),
                ("finished", _FINISHED, self._load.finished),
            ):
                samples = [(queue, stored.sample(queue, name)) for queue in self._queues]
                stored.put_all(stored_workloads.copies(samples, kind, count))
        self._installation.start(("webhook",))

    async def finish_running(self, queue: Queue) -> None:
        """Finish the running Workload of a queue, so that another one fits."""
        await self._samples.finish(queue, stored_workloads.RUNNING)

    async def _create_samples(self) -> None:
        """Create Workloads of each queue: one that finished, one that runs, and two that wait.

        In each step all queues take part, so that no queue borrows what another one needs in the same step.
        """
        samples = self._samples
        await asyncio.gather(*(samples.create_finished(queue, _FINISHED) for queue in self._queues))
        await asyncio.gather(*map(samples.create_running, self._queues))
        await asyncio.gather(*(samples.create_waiting(queue, _WAITING) for queue in self._queues))

    # --- measurement ------------------------------------------------------------------------------

    async def measure(self, *, decides: bool) -> dict[str, Any]:
        """Start a manager, stop it when it is at rest, and return the figures.

        ``decides`` tells whether a Workload fits.
        """
        writes = ManagerWrites(self._cluster)
        listed = await list_bytes(self._client)
        server_before = self._usage(API_SERVER)
        version = await latest_version(self._client, self._kinds.workloads)
        decision = asyncio.create_task(self._first_reservation(version))
        await asyncio.to_thread(self._installation.start, ("manager",), patience_s=_PATIENCE_S)
        process = self._manager()
        ready_s, cpu_ready_s = process.age(), _usage_of(process).cpu_seconds
        self.decided = None
        first_decision_s: float | None = None
        if decides:
            try:
                self.decided, at = await asyncio.wait_for(decision, _PATIENCE_S)
            except TimeoutError:
                raise ThroughputFailed(f"no Workload got quota within {_PATIENCE_S:.0f} s") from None
            first_decision_s = process.age() - (time.monotonic() - at)
        else:
            decision.cancel()
        rest_s = await self._until_rest(writes)
        usage, server = _usage_of(process), self._usage(API_SERVER)
        result = {
            "ready_s": round(ready_s, 2),
            "first_decision_s": None if first_decision_s is None else round(first_decision_s, 2),
            "rest_s": round(rest_s, 2),
            "cpu_ready_s": round(cpu_ready_s, 2),
            "cpu_rest_s": round(usage.cpu_seconds, 2),
            "rss_rest_mb": round(usage.rss_mib * 1.048576),
            "rss_peak_mb": round(usage.peak_rss_mib * 1.048576),
            "api_server_cpu_s": round(server.cpu_seconds - server_before.cpu_seconds, 2),
            "api_server_rss_mb": round(server.peak_rss_mib * 1.048576),
            "list_mb": {
                name: round(value / 1e6, 1)
                for name, value in (await list_bytes(self._client) - listed).items()
                if value > _SMALL_BYTES
            },
            "writes": writes.counts(),
            "unneeded_writes": unneeded_writes(writes.all(), self.decided and self.decided[0]),
        }
        to_stderr(json.dumps(result))
        self._installation.stop(("manager",))
        return result

    async def _first_reservation(self, version: str) -> tuple[tuple[str, str], float]:
        """Return namespace and name of the first Workload that gets quota, and when it was seen."""
        events = self._client.watch(self._kinds.workloads, version, inactivity=_PATIENCE_S)
        async with aclosing(events):
            async for event in events:
                conditions = event.object.get("status", {}).get("conditions", [])
                if is_true(conditions, "QuotaReserved") and not is_true(conditions, "Finished"):
                    metadata = event.object["metadata"]
                    return (metadata["namespace"], metadata["name"]), time.monotonic()
        raise ThroughputFailed("the watch of Workloads ended before a reservation")

    async def _until_rest(self, writes: ManagerWrites) -> float:
        """Wait until the manager is at rest; return since when, in seconds since its start.

        Raises:
            ThroughputFailed: it is not at rest in time, or has ended.
        """
        process = self._manager()
        since = await until_rest(
            lambda: _usage_of(process).cpu_seconds, lambda: len(writes.all()), quiet_s=self._load.quiet_s
        )
        return process.age() - (time.monotonic() - since)

    def _manager(self) -> Process:
        process = self._installation.process("manager")
        if process is None:
            raise ThroughputFailed("no manager was started")
        return process

    def _usage(self, component: str) -> Usage:
        return _usage_of(self._cluster.processes.all()[component])


def _usage_of(process: Process) -> Usage:
    usage = process.usage()
    if usage is None:
        raise ThroughputFailed("a process has ended")
    return usage
