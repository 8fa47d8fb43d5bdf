"""Measure the start of a manager on a cluster with very many Workloads at rest.

Most Workloads wait, or have finished. While no manager runs, one running Workload finishes, so one that waits
fits. The figures are the time until its reservation is stored, the memory of the manager, and its writes. All
writes but this reservation and its consequences are unneeded.

A manager writes the statuses of a few Workloads. Copies of these are then written into etcd directly.
"""

import asyncio
import datetime as dt
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import CONFIG_MAPS
from admitq_api.conditions import Reason, find_condition, is_true
from admitq_api.labels import Names, names_for
from benchmarks import stored_workloads
from benchmarks.clusters import fresh_cluster
from benchmarks.etcd_gateway import EtcdGateway, storage_key
from benchmarks.manager_calls import ManagerWrites, list_bytes, unneeded_writes
from benchmarks.stored_workloads import Queue, StoredSample
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.components import LOOPBACK
from localcluster.installation import Installation
from localcluster.processes import Process, Usage
from localcluster.waiting import eventually

SHAPE: Final = "restart"
"""The name of this load among those of ``hack/bench throughput``."""
PENDING: Final = 50_000
FINISHED: Final = 100_000

FIRST_DECISION_S: Final = 15.0
"""The seconds within which the first reservation must be stored."""
RSS_MB: Final = 600
"""The memory that the manager may use at most."""

_QUIET_S: Final = 10.0
"""The manager is at rest after this time without a write and nearly without CPU time."""
_IDLE_SHARE: Final = 0.1
"""The share of a CPU that a manager at rest may use."""
_LOOK_EVERY_S: Final = 0.5
_LOOK_CPU_S: Final = 0.1
_SMALL_BYTES: Final = 100_000
_PATIENCE_S: Final = 600.0
_UNUSED_COMPONENTS: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Components without work in this load. Their caches would compete with the manager for CPU."""
_API_SERVER_MEMORY: Final = {"GOMEMLIMIT": "off", "GOGC": "40"}
"""The API server caches all Workloads, which are more than tests have."""


class RestartFailed(Exception):
    """The load could not be prepared, or the manager did not reach rest."""


@dataclass(frozen=True)
class RestartLoad:
    """The objects on the cluster.

    Attributes:
        pending: Workloads that wait.
        finished: Workloads that have finished.
        queues: ClusterQueues, each with one running Workload.
    """

    pending: int = PENDING
    finished: int = FINISHED
    queues: int = 20


async def run(load: RestartLoad) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on its own cluster.

    Returns:
        The result, and whether it meets the bounds.

    Raises:
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
        EtcdFailed: the Workloads cannot be stored.
        RestartFailed: the manager did not reach rest.
    """
    to_stderr("starting a cluster")
    with fresh_cluster() as cluster:
        installation = Installation(cluster)
        installation.install()
        installation.start()
        async with Client(
            load_credentials(cluster.kubeconfig), user_agent="admitq-bench", qps=-1, timeout=60.0
        ) as client:
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
        await self._create_queues()
        await self._create_samples()
        await self._until_rest(ManagerWrites(self._cluster))
        self._installation.stop(("manager",))
        began = time.monotonic()
        self._store_copies()
        to_stderr(f"stored the Workloads in {time.monotonic() - began:.0f} s, restarting the API server")
        began = time.monotonic()
        await self._restart_api_server()
        to_stderr(f"the API server has read them after {time.monotonic() - began:.0f} s")

    async def finish_running(self, queue: Queue) -> None:
        """Finish the running Workload of a queue, so that another one fits."""
        await self._finish(queue, "running")

    # --- preparation ------------------------------------------------------------------------------

    async def _create_queues(self) -> None:
        await self._client.create(self._kinds.resource_flavors, stored_workloads.flavor(self._names))
        for queue in self._queues:
            for resource, obj in stored_workloads.objects_of(queue, self._names):
                await eventually(lambda resource=resource, obj=obj: self._client.create(resource, obj))

    async def _create_samples(self) -> None:
        """Create Workloads of each queue: one that finished, one that runs, and two that wait.

        The first that waits is evaluated. The second waits behind an equal one, as all copies but one do.
        """
        await self._in_all_queues(self._create_finished)
        await self._in_all_queues(self._create_running)
        await self._in_all_queues(self._create_waiting)

    async def _in_all_queues(self, create: Callable[[Queue], Awaitable[None]]) -> None:
        """Run a step in all queues, so that no queue borrows what another one needs in the same step."""
        await asyncio.gather(*map(create, self._queues))

    async def _create_finished(self, queue: Queue) -> None:
        await self._create(queue, "finished")
        await eventually(lambda: self._is(queue, "finished", "Admitted"))
        await self._finish(queue, "finished")

    async def _create_running(self, queue: Queue) -> None:
        await self._create(queue, "running")
        await eventually(lambda: self._is(queue, "running", "Admitted"))
        await self._add_condition(queue, "running", "PodsReady", "Started")

    async def _create_waiting(self, queue: Queue) -> None:
        for name in ("head", "waiting"):
            await self._create(queue, name)
        for name in ("head", "waiting"):
            await eventually(lambda name=name: self._has_reason(queue, name))

    async def _create(self, queue: Queue, name: str) -> None:
        owner = await self._client.get(CONFIG_MAPS, stored_workloads.OWNER, queue.namespace)
        obj = stored_workloads.workload(queue, _sample(name), owner["metadata"]["uid"], self._names)
        await self._client.create(self._kinds.workloads, obj, field_manager="admitq-job")

    async def _conditions(self, queue: Queue, name: str) -> list[Any]:
        obj = await self._client.get(self._kinds.workloads, _sample(name), queue.namespace)
        return obj.get("status", {}).get("conditions", [])

    async def _is(self, queue: Queue, name: str, condition: str) -> bool:
        return is_true(await self._conditions(queue, name), condition)

    async def _has_reason(self, queue: Queue, name: str) -> bool:
        reserved = find_condition(await self._conditions(queue, name), "QuotaReserved")
        return reserved is not None and reserved.get("reason") == Reason.WAITING_FOR_QUOTA

    async def _finish(self, queue: Queue, name: str) -> None:
        """Finish a Workload as a job controller does after the end of its job."""
        await self._add_condition(queue, name, "Finished", "Succeeded")
        free = {"metadata": {"finalizers": None}}
        await self._client.merge_patch(self._kinds.workloads, _sample(name), free, queue.namespace)

    async def _add_condition(self, queue: Queue, name: str, condition: str, reason: str) -> None:
        """Set a condition of a Workload to True."""

        async def add() -> bool:
            obj = await self._client.get(self._kinds.workloads, _sample(name), queue.namespace)
            now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            added = {"type": condition, "status": "True", "reason": reason, "message": reason}
            others = [entry for entry in obj["status"]["conditions"] if entry["type"] != condition]
            patch = {
                "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
                "status": {"conditions": [*others, {**added, "lastTransitionTime": now}]},
            }
            workloads, manager = self._kinds.workloads, "admitq-job"
            await self._client.merge_patch(
                workloads, _sample(name), patch, queue.namespace, "status", field_manager=manager
            )
            return True

        await eventually(add)

    def _store_copies(self) -> None:
        """Write the copies into etcd, without the API server."""
        for component in (*_UNUSED_COMPONENTS, "kube-apiserver"):
            self._cluster.terminate(component)
        with EtcdGateway(LOOPBACK, self._cluster.port("etcd")) as etcd:
            for kind, count in (("waiting", self._load.pending), ("finished", self._load.finished)):
                samples = {
                    queue: StoredSample(
                        etcd.get(storage_key(self._kinds.workloads, queue.namespace, _sample(kind)))
                    )
                    for queue in self._queues
                }
                etcd.put_all(
                    (storage_key(self._kinds.workloads, queue.namespace, name), value)
                    for queue, name, value in stored_workloads.copies(samples, kind, count)
                )

    async def _restart_api_server(self) -> None:
        self._cluster.revive("kube-apiserver", environment=_API_SERVER_MEMORY)

        # The API server lists from its cache, once that is complete.
        async def count() -> int:
            return sum([len(page.items) async for page in self._client.pages(self._kinds.workloads)])

        stored = await eventually(count, timeout=_PATIENCE_S)
        if stored < self._load.pending + self._load.finished:
            raise RestartFailed(f"the API server has only {stored} Workloads")

    # --- measurement ------------------------------------------------------------------------------

    async def measure(self, *, decides: bool) -> dict[str, Any]:
        """Start a manager, stop it when it is at rest, and return the figures.

        ``decides`` tells whether a Workload fits.
        """
        writes = ManagerWrites(self._cluster)
        listed = await list_bytes(self._client)
        server_before = self._usage("kube-apiserver")
        first = await self._client.request_json("GET", self._kinds.workloads.path(), query={"limit": "1"})
        version = first["metadata"]["resourceVersion"]
        decision = asyncio.create_task(self._first_reservation(version))
        await asyncio.to_thread(self._installation.start, ("manager",), patience_s=_PATIENCE_S)
        process = self._manager()
        ready_s, cpu_ready_s = process.age(), _usage_of(process).cpu_seconds
        self.decided = None
        first_decision_s: float | None = None
        if decides:
            self.decided, at = await asyncio.wait_for(decision, _PATIENCE_S)
            first_decision_s = process.age() - (time.monotonic() - at)
        else:
            decision.cancel()
        rest_s = await self._until_rest(writes)
        usage, server = _usage_of(process), self._usage("kube-apiserver")
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
        raise RestartFailed("the watch of Workloads ended before a reservation")

    async def _until_rest(self, writes: ManagerWrites) -> float:
        """Wait until the manager is at rest; return since when, in seconds since its start.

        Raises:
            RestartFailed: it is not at rest in time, or has ended.
        """
        process = self._manager()
        deadline = time.monotonic() + _PATIENCE_S
        quiet_since, cpu_then, count_then = process.age(), _usage_of(process).cpu_seconds, 0
        while process.age() - quiet_since < _QUIET_S:
            if time.monotonic() > deadline:
                raise RestartFailed(f"the manager was not at rest within {_PATIENCE_S:.0f} s")
            await asyncio.sleep(_LOOK_EVERY_S)
            cpu, count = _usage_of(process).cpu_seconds, len(writes.all())
            idle_cpu = _LOOK_CPU_S + _IDLE_SHARE * (process.age() - quiet_since)
            if count > count_then or cpu - cpu_then > idle_cpu:
                quiet_since, cpu_then, count_then = process.age(), cpu, count
        return quiet_since

    def _manager(self) -> Process:
        process = self._installation.process("manager")
        if process is None:
            raise RestartFailed("no manager was started")
        return process

    def _usage(self, component: str) -> Usage:
        return _usage_of(self._cluster.processes.all()[component])


def _usage_of(process: Process) -> Usage:
    usage = process.usage()
    if usage is None:
        raise RestartFailed("a process has ended")
    return usage


def _sample(name: str) -> str:
    return f"sample-{name}"
