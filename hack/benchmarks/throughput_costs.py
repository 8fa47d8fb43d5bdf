"""What the processes of a cluster use, and which calls they send, between two instants."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import api_calls
from benchmarks.api_calls import ApiCallKey, ApiServerCounts
from benchmarks.clusters import HARNESS
from benchmarks.measures import usage_by_process
from benchmarks.throughput_managers import MANAGER, MeasuredManager
from localcluster import processes
from localcluster.cluster import LocalCluster
from localcluster.processes import Usage

COMPONENTS: Final = ("etcd", "kube-apiserver")
"""The components that loads of Workloads need. Caches of others would compete with the manager for CPU."""
WITHOUT_AUDIT: Final = ("--audit-policy-file=", "--audit-log-path=")
"""Arguments of the API server. Metrics count the calls. The audit log would cost CPU time for each call."""
API_SERVER: Final = "api_server"
"""The name of the API server in results."""

_OTHERS: Final = "others"
_KEYS_OF_COMPONENTS: Final = {
    "etcd": "etcd",
    "kube-apiserver": API_SERVER,
    "kube-controller-manager": api_calls.CONTROLLER_MANAGER,
    "kube-scheduler": api_calls.SCHEDULER,
    "kwok": api_calls.KWOK,
}


@dataclass(frozen=True)
class LoadCosts:
    """The costs of a load.

    Attributes:
        used: CPU seconds (`cpu_s`) and peak memory (`rss_mb`) of each process.
        counted: what the API server counted.
        writers: the calls of each caller.
    """

    used: Mapping[str, dict[str, Any]]
    counted: ApiServerCounts
    writers: Mapping[str, Counter[ApiCallKey]]

    def figures(self, key: str) -> dict[str, Any]:
        """Return one figure of all processes."""
        return {name: figures[key] for name, figures in self.used.items()}

    def writes(self) -> dict[str, int]:
        """Return the number of calls of each caller that change objects."""
        return {
            name: sum(count for key, count in calls.items() if key.is_write)
            for name, calls in self.writers.items()
        }


class CostsSince:
    """Measures the costs from the creation of this object on.

    Args:
        cluster: the cluster.
        manager: the queue manager.
    """

    def __init__(self, cluster: LocalCluster, manager: MeasuredManager) -> None:
        self._cluster = cluster
        self._manager = manager
        self._counted, self._called = _read_api_server(cluster), manager.calls()
        self._used = {name: usage for name, usage in _usages(cluster, manager) if usage is not None}

    def until_now(self, harness: Counter[ApiCallKey]) -> LoadCosts:
        """Return the costs so far; `harness` has the calls of this process."""
        used = usage_by_process(self._used, _usages(self._cluster, self._manager))
        counted = api_calls.since(self._counted, _read_api_server(self._cluster))
        called = {name: counts - self._called[name] for name, counts in self._manager.calls().items()}
        return LoadCosts(used, counted, self._writers(counted, called, harness))

    def _writers(
        self,
        counted: ApiServerCounts,
        called: Mapping[str, Counter[ApiCallKey]],
        harness: Counter[ApiCallKey],
    ) -> dict[str, Counter[ApiCallKey]]:
        """Return the calls of each caller.

        The calls of a manager that does not count them are those that neither the harness nor the API server
        itself has sent.
        """
        known = {**called, HARNESS: harness}
        if self._manager.counts_calls:
            writers = api_calls.by_writer(counted.calls, known, _OTHERS)
            return {**writers, _OTHERS: Counter(), **api_calls.by_component(writers[_OTHERS], _OTHERS)}
        by_clients = api_calls.without_own_calls(counted.calls, counted.own_calls)
        return api_calls.by_writer(by_clients, known, MANAGER)


def _read_api_server(cluster: LocalCluster) -> ApiServerCounts:
    with cluster.api() as api:
        return api_calls.read_api_server(api.text("/metrics"))


def _usages(cluster: LocalCluster, manager: MeasuredManager) -> Iterable[tuple[str, Usage | None]]:
    yield from manager.usages().items()
    for status in cluster.status():
        if status.name in _KEYS_OF_COMPONENTS:
            yield _KEYS_OF_COMPONENTS[status.name], status.usage
    yield HARNESS, processes.current().usage()
