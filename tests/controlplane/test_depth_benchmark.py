"""`hack/bench throughput --shape depth` beside few Workloads."""

from collections.abc import Callable

import pytest

from admitq.runtime.kinds import kinds_of
from admitq_api.conditions import find_condition, is_true
from admitq_api.labels import ApiGroup, names_for
from benchmarks import depth
from benchmarks.depth import DepthLoad
from benchmarks.depth_figures import MOST_RATIO
from localcluster.cluster import LocalCluster

NEWCOMERS = 8
QUEUES = 2
DEPTHS = (3, 12)
WARM_UP = 2 * QUEUES


@pytest.mark.slow
def test_newcomers_are_admitted_and_measured_beside_each_number_of_workloads(
    private_cluster: Callable[..., LocalCluster], api_group: ApiGroup
):
    cluster = private_cluster((), component_names=("etcd", "kube-apiserver"))
    load = DepthLoad(DEPTHS, NEWCOMERS, queues=QUEUES, shapes=3, quiet_s=1.0, api_group=api_group)
    result, passed = depth.measure(cluster, load)
    assert (result["benchmark"], result["shape"], result["manager"]) == ("throughput", "depth", "admitq")
    assert [one["depth"] for one in result["depths"]] == list(DEPTHS)
    for one in result["depths"]:
        assert one["admitted"] == NEWCOMERS
        assert one["admit_s"]["count"] == NEWCOMERS
        assert 0 <= one["admit_s"]["p50"] <= one["admit_s"]["p99"] == one["admit_s"]["max"]
        processes = {"manager", "webhook", "api_server", "etcd", "harness"}
        assert set(one["cpu_ms_per_newcomer"]) == set(one["rss_mb"]) == processes
        assert one["cpu_ms_per_newcomer"]["api_server"] > 0
        # The creation and the end; the reservation.
        assert one["writes_per_newcomer"]["harness"] == 2
        assert one["writes_per_newcomer"]["manager"] >= 1
        assert one["start_cpu_s"] > 0
    first, last = (one["admit_s"]["p99"] for one in result["depths"])
    assert passed == (result["ratio"] <= MOST_RATIO)
    assert abs(result["ratio"] * first - last) <= 0.01 * result["ratio"] + 0.001
    check_workloads(cluster, api_group)


def check_workloads(cluster: LocalCluster, api_group: ApiGroup) -> None:
    """The last depth was measured beside exactly its Workloads, which a manager has reported on."""
    path = kinds_of(names_for(api_group)).workloads.path()
    with cluster.api() as api:
        items = api.request("GET", path)["items"]
    conditions = {item["metadata"]["name"]: item["status"]["conditions"] for item in items}
    newcomers = [found for name, found in conditions.items() if name.startswith("newcomer-")]
    assert len(newcomers) == NEWCOMERS + WARM_UP
    assert all(is_true(found, "Finished") for found in newcomers)
    waiting = [found for name, found in conditions.items() if name.startswith("pending-")]
    assert len(waiting) == DEPTHS[-1]
    for found in waiting:
        reserved = find_condition(found, "QuotaReserved")
        assert reserved is not None
        assert (reserved["status"], reserved["reason"]) == ("False", "WaitingForQuota")
    assert len(items) == len(newcomers) + len(waiting) + QUEUES
