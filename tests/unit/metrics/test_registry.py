"""The registry exposes series under their exact names, and removes them with their object."""

import pytest

from admitq.metrics.registry import Metrics
from admitq.metrics.table import ATTEMPT_BUCKETS, TABLE, WAIT_BUCKETS, SeriesType


def lines(metrics: Metrics) -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")]


def test_every_series_of_table_is_exposed_after_a_write() -> None:
    metrics = Metrics()
    for series in TABLE:
        labels = dict.fromkeys(series.labels, "x")
        match series.type:
            case SeriesType.COUNTER:
                metrics.increment(series.name, **labels)
            case SeriesType.GAUGE:
                metrics.set(series.name, 1, **labels)
            case SeriesType.HISTOGRAM:
                metrics.observe(series.name, 1, **labels)
        suffix = "_bucket" if series.type is SeriesType.HISTOGRAM else ""
        assert any(line.startswith(f"admitq_{series.name}{suffix}{{") for line in lines(metrics)), series.name


@pytest.mark.parametrize("prefix", ["admitq", "kueue"])
def test_series_names_start_with_prefix_of_api_group(prefix: str) -> None:
    assert all(line.startswith(f"{prefix}_") for line in lines(Metrics(prefix)))


def test_wait_buckets_have_prescribed_bounds() -> None:
    assert WAIT_BUCKETS[:4] == (1.0, 2.5, 5.0, 10.0)
    assert len(WAIT_BUCKETS) == 14


def test_series_of_deleted_cluster_queue_are_removed_and_others_stay() -> None:
    metrics = Metrics()
    for name in ("deleted", "kept"):
        metrics.set("pending_workloads", 3, cluster_queue=name, status="active")
        metrics.increment("admitted_workloads_total", cluster_queue=name, priority_class="")
    metrics.forget_cluster_queue("deleted")
    assert not any('"deleted"' in line for line in lines(metrics))
    assert sum('"kept"' in line for line in lines(metrics)) == 2


def test_series_that_return_after_their_removal_start_again() -> None:
    metrics = Metrics()
    for drop in (
        lambda: metrics.forget_cluster_queue("again"),
        lambda: metrics.clear("admitted_workloads_total"),
        lambda: None,
    ):
        metrics.increment("admitted_workloads_total", 2, cluster_queue="again", priority_class="")
        [line] = [line for line in lines(metrics) if '"again"' in line]
        assert line.endswith(" 2.0")
        drop()


def test_series_of_deleted_local_queue_are_removed_only_in_its_namespace() -> None:
    metrics = Metrics()
    for namespace in ("team-a", "team-b"):
        metrics.set("local_queue_pending_workloads", 1, name="main", namespace=namespace, status="active")
    metrics.forget_local_queue("team-a", "main")
    remaining = [line for line in lines(metrics) if "local_queue_pending" in line]
    assert len(remaining) == 1
    assert 'namespace="team-b"' in remaining[0]


def test_promoted_replica_removes_its_follower_series() -> None:
    metrics = Metrics(role="follower")
    metrics.set("pending_workloads", 3, cluster_queue="a", status="active")
    metrics.change_role("leader")
    assert not any('"follower"' in line for line in lines(metrics))
    metrics.set("pending_workloads", 4, cluster_queue="a", status="active")
    assert any('replica_role="leader"' in line and line.endswith(" 4.0") for line in lines(metrics))


def test_d19_gauges_of_follower_continue_as_leader_series_after_promotion() -> None:
    metrics = Metrics(role="follower")
    metrics.set("finished_workloads", 3, cluster_queue="a")
    metrics.increment("api_requests_total", verb="GET", resource="pods", code="200")
    metrics.change_role("leader")
    exposed = {line for line in lines(metrics) if "_bucket" not in line}
    assert 'admitq_finished_workloads{cluster_queue="a",replica_role="leader"} 3.0' in exposed
    assert any("build_info" in line and 'role="leader"' in line for line in exposed)
    assert any("api_requests_total" in line and 'role="follower"' in line for line in exposed)
    assert not any("api_requests_total" not in line and 'role="follower"' in line for line in exposed)


def test_d19_attempt_buckets_are_the_defaults_of_the_client_library() -> None:
    assert ATTEMPT_BUCKETS == (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def test_d19_render_does_not_run_scrape_updates() -> None:
    metrics, updates = Metrics(), list[str]()
    metrics.update_on_scrape(lambda: updates.append("updated"))
    assert metrics.render() == metrics.exposition()
    assert updates == ["updated"]


def test_negative_wait_time_is_observed_as_zero() -> None:
    metrics = Metrics()
    metrics.observe("admission_wait_time_seconds", -5, cluster_queue="a", priority_class="")
    assert any("admission_wait_time_seconds_sum" in line and line.endswith(" 0.0") for line in lines(metrics))
