"""`hack/bench throughput` on a small load."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from admitq_api.labels import ApiGroup, names_for
from benchmarks import throughput
from benchmarks.throughput import ThroughputPlan
from benchmarks.throughput_connection import ThroughputFailed
from localcluster.cluster import LocalCluster

SCALE = 0.02
WORKLOADS = 30 * (7 + 2 + 1)


@pytest.fixture
def small_cluster(private_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return private_cluster((), component_names=("etcd", "kube-apiserver"))


def plan(
    api_group: ApiGroup, command: str | None = None, shape: str = "baseline", scale: float = SCALE
) -> ThroughputPlan:
    return ThroughputPlan(shape, scale, timeout_s=240.0, api_group=api_group, command=command)


def test_small_load_finishes_and_is_measured(small_cluster: LocalCluster, api_group: ApiGroup):
    result, passed = throughput.measure(small_cluster, plan(api_group))
    assert passed
    assert (result["benchmark"], result["shape"], result["manager"]) == ("throughput", "baseline", "admitq")
    assert result["workloads"] == result["created"] == result["finished"] == WORKLOADS
    # 7 x 1 CPU x 0.2 s + 2 x 5 CPU x 0.5 s + 20 CPU x 1 s, on 20 CPU; the watch shows changes later.
    assert result["bound_s"] == pytest.approx(1.3, abs=0.05)
    assert result["wall_s"] >= 1.2
    assert result["ratio"] == pytest.approx(result["wall_s"] / 1.32, rel=0.05)
    assert result["admissions_per_s"] * result["wall_s"] >= 0.95 * WORKLOADS
    assert 0 < result["use"] <= 1
    for figure in ("admit_mean_s", "admit_p99_s"):
        assert set(result[figure]) == {"small", "medium", "large"}
        assert all(0 <= seconds < result["wall_s"] for seconds in result[figure].values())
    processes = {"manager", "webhook", "api_server", "etcd", "harness"}
    assert set(result["cpu_s"]) == set(result["rss_mb"]) == processes
    assert all(seconds > 0 for name, seconds in result["cpu_s"].items() if name != "webhook")
    assert all(megabytes > 10 for megabytes in result["rss_mb"].values())
    check_calls(result, api_group)
    assert result["api_cpu_ms_per_write"] > 0
    assert result["watch_bytes"] > 1000 * WORKLOADS
    harness = result["harness"]
    assert harness["create_late_s"]["count"] == WORKLOADS
    assert harness["job_write_wait_s"]["count"] >= WORKLOADS
    assert 0 < harness["cpu_share"] < 2


def test_small_load_in_a_topology_is_placed_on_nodes(small_cluster: LocalCluster, api_group: ApiGroup):
    result, passed = throughput.measure(small_cluster, plan(api_group, shape="topology", scale=0.001))
    assert passed
    assert result["finished"] == result["workloads"] == 30 * 9
    with small_cluster.api() as api:
        path = f"/apis/{names_for(api_group).api_version}/namespaces/bench/workloads"
        for workload in api.request("GET", path)["items"]:
            [part] = workload["status"]["admission"]["podSetAssignments"]
            assert part["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]


def status_writes(calls: dict[str, int], api_group: str) -> int:
    """The number of successful writes to the status of Workloads."""
    resource = f"workloads.{api_group}/status"
    return sum(
        count
        for key, count in calls.items()
        if key in {f"{verb} {resource} 200" for verb in ("apply", "patch")}
    )


def check_calls(result: dict[str, object], api_group: str) -> None:
    """The parts of the calls fit together."""
    calls = result["api_calls"]
    assert isinstance(calls, dict)
    assert set(calls) == {"manager", "webhook", "harness", "others"}
    create, status = f"create workloads.{api_group} 201", f"patch workloads.{api_group}/status 200"
    assert calls["harness"][create] == WORKLOADS
    assert calls["harness"][status] >= WORKLOADS
    # The manager writes at least the reservation of each workload.
    assert status_writes(calls["manager"], api_group) >= WORKLOADS
    assert create not in calls["others"]
    assert status_writes(calls["others"], api_group) == 0
    writes = sum(
        count
        for counts in calls.values()
        for key, count in counts.items()
        if key.split()[0] in {"create", "update", "patch", "apply", "delete"}
    )
    assert result["api_writes"] == pytest.approx(writes, rel=0.02)


def test_command_is_measured_in_place_of_admitq_and_must_not_end(
    small_cluster: LocalCluster, api_group: ApiGroup
):
    with pytest.raises(ThroughputFailed, match="no such queue manager"):
        throughput.measure(small_cluster, plan(api_group, "echo no such queue manager; exit 1"))
    result, passed = throughput.measure(small_cluster, plan(api_group, command(small_cluster, api_group)))
    assert passed
    assert result["finished"] == WORKLOADS
    assert set(result["cpu_s"]) == {"manager", "api_server", "etcd", "harness"}
    # Python and its modules use more memory than the shell that starts them.
    assert result["rss_mb"]["manager"] > 40
    assert set(result["api_calls"]) == {"manager", "harness"}
    assert status_writes(result["api_calls"]["manager"], api_group) >= WORKLOADS
    assert result["status_writes_per_workload"] >= 1


def command(cluster: LocalCluster, api_group: str) -> str:
    """A shell command that runs admitq's manager with the credentials in KUBECONFIG."""
    program = Path(sys.executable).with_name("admitq")
    config = cluster.folder / "manager.yaml"
    config.write_text(
        f"apiVersion: config.{api_group}/v1beta2\nkind: Configuration\n"
        "leaderElection: {leaderElect: false}\n"
        "health: {healthProbeBindAddress: '127.0.0.1:0'}\nmetrics: {bindAddress: '127.0.0.1:0'}\n"
    )
    return f"echo starting; {program} manager --config={config} --kubeconfig=$KUBECONFIG"
