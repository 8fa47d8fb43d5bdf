"""Clusters of benchmarks: start a fresh one, repeat calls until they succeed, and read resource usage."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from localcluster import processes
from localcluster.cluster import LocalCluster, reclaim_orphans
from localcluster.cluster_processes import COMPONENTS
from localcluster.nodes import NodePool
from localcluster.processes import Usage

HARNESS: Final = "harness"
"""The name of this process in results."""

USER_AGENT: Final = "admitq-bench"
"""The User-Agent of harnesses."""

WITHOUT_CONSISTENCY_CHECK: Final = ("--feature-gates=DetectCacheInconsistency=false",)
"""Arguments of the API server. Every 5 to 7.5 minutes, it otherwise reads all objects from etcd, and compares
them with its cache. Beside very many Workloads, this takes minutes, and only some measurements would contain
it."""

_NAME: Final = "bench"
_RETRY_AFTER_S: Final = 0.5


def harness_client(kubeconfig: Path, *, field_validation: Literal["Ignore", "Warn"] = "Ignore") -> Client:
    """Return a client for a harness. It sends each call at once: no limits of rate and of concurrent writes.

    The limits of admitq's own clients follow the load of the API server. With them, a harness would reduce
    the load that it is to create.
    """
    return Client(
        load_credentials(kubeconfig),
        user_agent=USER_AGENT,
        qps=-1,
        timeout=60.0,
        field_validation=field_validation,
        write_bounds={},
    )


@contextmanager
def fresh_cluster(
    pools: Sequence[NodePool] = (),
    *,
    name: str = _NAME,
    component_names: Sequence[str] = COMPONENTS,
    api_server_arguments: Sequence[str] = (),
) -> Generator[LocalCluster]:
    """Start a new cluster for the block, and stop it afterwards.

    Args:
        pools: the simulated nodes.
        name: the name of the cluster.
        component_names: the components of the control plane.
        api_server_arguments: more command line arguments of kube-apiserver.

    Raises:
        ClusterError: the cluster cannot be started.
    """
    reclaim_orphans()
    cluster = LocalCluster(name)
    # Leftovers of an earlier run would falsify the figures.
    cluster.stop()
    cluster.start(
        pools,
        component_names=component_names,
        api_server_arguments=api_server_arguments,
        environment=garbage_collection(),
        owner=processes.current(),
    )
    try:
        yield cluster
    finally:
        cluster.stop()


def garbage_collection() -> dict[str, str]:
    """Return the environment variables that give components the defaults of Go, as in users' clusters.

    Clusters of tests collect less, and have a limit of memory, near which the API server spends most of its
    time on collections. Variables of this process take precedence.
    """
    return {name: os.environ.get(name, value) for name, value in (("GOGC", "100"), ("GOMEMLIMIT", "off"))}


async def until_done(call: Callable[[], Awaitable[Any]]) -> None:
    """Repeat a call while it fails with temporary errors.

    Raises:
        ApiError: it fails for another reason.
    """
    while True:
        try:
            await call()
        except ApiError as error:
            # If the answer is missing, the call may have taken effect.
            if error.is_already_exists or error.is_not_found:
                return
            if not error.is_transient:
                raise
            await asyncio.sleep(_RETRY_AFTER_S)
        else:
            return


async def is_queue_active(client: Client, resource: Resource, obj: dict[str, Any]) -> bool:
    """Whether a ClusterQueue or a LocalQueue has the condition Active."""
    stored = await client.get(resource, obj["metadata"]["name"], obj["metadata"].get("namespace"))
    return is_active(stored)


def is_active(queue: dict[str, Any]) -> bool:
    """Whether a stored queue has the condition Active."""
    conditions = (queue.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Active" and entry["status"] == "True" for entry in conditions)


def usages(cluster: LocalCluster) -> dict[str, Usage]:
    """Return the resource usage of each running process of a cluster, and of this process."""
    found = {status.name: status.usage for status in cluster.status()}
    found[HARNESS] = processes.current().usage()
    return {name: usage for name, usage in found.items() if usage is not None}
