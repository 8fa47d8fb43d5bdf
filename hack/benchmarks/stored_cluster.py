"""Change the stored Workloads of a cluster while its API server is stopped."""

import time
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from admitq.runtime.client import Client
from admitq.runtime.resources import Resource
from benchmarks.api_calls import samples
from benchmarks.clusters import garbage_collection
from benchmarks.etcd_gateway import EtcdGateway, storage_key
from benchmarks.stored_workloads import Queue, StoredSample
from benchmarks.throughput_connection import ThroughputFailed
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.components import LOOPBACK
from localcluster.waiting import eventually

API_SERVER: Final = "kube-apiserver"

_PATIENCE_S: Final = 600.0
_LOOK_EVERY_S: Final = 1.0
_CACHES: Final = "apiserver_watch_cache_initializations_total"


class StoredWorkloads:
    """The Workloads in etcd, by queue and name.

    Args:
        etcd: a connection to etcd.
        workloads: the resource of Workloads.
    """

    def __init__(self, etcd: EtcdGateway, workloads: Resource) -> None:
        self._etcd = etcd
        self._workloads = workloads
        self.added = 0
        """How many Workloads were stored."""

    def sample(self, queue: Queue, name: str) -> StoredSample:
        """Return a Workload, of which copies can be stored.

        Raises:
            EtcdFailed: it is not stored.
        """
        return StoredSample(self._etcd.get(self._key(queue, name)))

    def put_all(self, copies: Iterable[tuple[Queue, str, bytes]]) -> None:
        """Store Workloads."""
        self.added += self._etcd.put_all((self._key(queue, name), value) for queue, name, value in copies)

    def delete_all(self, queue: Queue, prefix: str) -> None:
        """Delete all Workloads with names that begin with a prefix."""
        self._etcd.delete_all(self._key(queue, prefix))

    def _key(self, queue: Queue, name: str) -> str:
        return storage_key(self._workloads, queue.namespace, name)


@contextmanager
def stored_workloads_of(cluster: LocalCluster, workloads: Resource) -> Generator[StoredWorkloads]:
    """Open a connection to the etcd of a cluster for the block."""
    with EtcdGateway(LOOPBACK, cluster.port("etcd")) as etcd:
        yield StoredWorkloads(etcd, workloads)


@asynccontextmanager
async def stopped_api_server(
    cluster: LocalCluster, client: Client, workloads: Resource
) -> AsyncGenerator[StoredWorkloads]:
    """Stop the API server for the block. Afterwards, start it and wait until its cache has all Workloads.

    No manager may run.

    Args:
        cluster: the cluster.
        client: a client of its API server.
        workloads: the resource of Workloads.

    Raises:
        ClusterError: the API server does not become ready.
        EtcdFailed: etcd refused a call.
        ThroughputFailed: the API server does not find all that was stored.
    """
    began = time.monotonic()
    cluster.terminate(API_SERVER)
    with stored_workloads_of(cluster, workloads) as stored:
        yield stored
    to_stderr(f"changed the stored Workloads in {time.monotonic() - began:.0f} s, starting the API server")
    began = time.monotonic()
    cluster.revive(API_SERVER, environment=garbage_collection())

    listed = await eventually(
        lambda: _count_cached(client, workloads), timeout=_PATIENCE_S, interval=_LOOK_EVERY_S
    )
    if listed < stored.added:
        raise ThroughputFailed(f"the API server has only {listed} Workloads, and {stored.added} were stored")
    to_stderr(f"the API server has read {listed} Workloads after {time.monotonic() - began:.0f} s")


async def _count_cached(client: Client, workloads: Resource) -> int:
    """Return the number of Workloads, or 0 while the API server reads them into its cache."""
    # The API server creates its cache of a custom resource for the first request.
    first = await client.request_json("GET", workloads.path(), query={"limit": "1"})
    if not has_cache(await client.request_text("/metrics"), workloads):
        return 0
    return len(first["items"]) + (first["metadata"].get("remainingItemCount") or 0)


def has_cache(metrics: str, resource: Resource) -> bool:
    """Whether the cache of a resource is complete, by the metrics of an API server."""
    return any(
        (sample.labels["group"], sample.labels["resource"]) == (resource.group, resource.plural)
        and sample.value > 0
        for sample in samples(metrics, (_CACHES,))
    )


async def latest_version(client: Client, workloads: Resource) -> str:
    """Return a resourceVersion at which a watch can begin that shows only later changes."""
    first = await client.request_json("GET", workloads.path(), query={"limit": "1"})
    return str(first["metadata"]["resourceVersion"])
