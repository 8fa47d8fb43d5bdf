"""Series appear under their exact names, and go when their object goes."""

import pytest

from admitq.metrics.registry import Metrics
from admitq.metrics.table import ATTEMPT_BUCKETS, TABLE, WAIT_BUCKETS, SeriesType


def lines(metrics: Metrics) -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")]


def test_every_series_of_the_table_can_be_written_and_read_back() -> None:
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
def test_names_start_with_the_prefix_of_the_api_group(prefix: str) -> None:
    assert all(line.startswith(f"{prefix}_") for line in lines(Metrics(prefix)))


def test_wait_buckets_are_one_second_then_doubled() -> None:
    assert WAIT_BUCKETS[:4] == (1.0, 2.5, 5.0, 10.0)
    assert len(WAIT_BUCKETS) == 14


def test_series_of_a_deleted_cluster_queue_disappear_and_others_stay() -> None:
    metrics = Metrics()
    for name in ("gone", "kept"):
        metrics.set("pending_workloads", 3, cluster_queue=name, status="active")
        metrics.increment("admitted_workloads_total", cluster_queue=name, priority_class="")
    metrics.forget_cluster_queue("gone")
    assert not any('"gone"' in line for line in lines(metrics))
    assert sum('"kept"' in line for line in lines(metrics)) == 2


def test_local_queues_of_equal_name_are_distinguished_by_namespace() -> None:
    metrics = Metrics()
    for namespace in ("team-a", "team-b"):
        metrics.set("local_queue_pending_workloads", 1, name="main", namespace=namespace, status="active")
    metrics.forget_local_queue("team-a", "main")
    remaining = [line for line in lines(metrics) if "local_queue_pending" in line]
    assert len(remaining) == 1
    assert 'namespace="team-b"' in remaining[0]


def test_a_promoted_replica_drops_what_it_reported_as_follower() -> None:
    metrics = Metrics(role="follower")
    metrics.set("pending_workloads", 3, cluster_queue="a", status="active")
    metrics.change_role("leader")
    assert not any('"follower"' in line for line in lines(metrics))
    metrics.set("pending_workloads", 4, cluster_queue="a", status="active")
    assert any('replica_role="leader"' in line and line.endswith(" 4.0") for line in lines(metrics))


def test_d19_gauges_of_a_follower_are_those_of_the_leader_after_promotion() -> None:
    metrics = Metrics(role="follower")
    metrics.set("finished_workloads", 3, cluster_queue="a")
    metrics.increment("api_requests_total", verb="GET", resource="pods", code="200")
    metrics.change_role("leader")
    found = {line for line in lines(metrics) if "_bucket" not in line}
    assert 'admitq_finished_workloads{cluster_queue="a",replica_role="leader"} 3.0' in found
    assert any("build_info" in line and 'role="leader"' in line for line in found)
    assert any("api_requests_total" in line and 'role="follower"' in line for line in found)
    assert not any("api_requests_total" not in line and 'role="follower"' in line for line in found)


def test_d19_attempts_have_the_buckets_of_the_reference_client_library() -> None:
    assert ATTEMPT_BUCKETS == (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def test_d19_rendering_for_another_thread_counts_nothing() -> None:
    metrics, counted = Metrics(), list[str]()
    metrics.update_on_scrape(lambda: counted.append("counted"))
    assert metrics.render() == metrics.exposition()
    assert counted == ["counted"]


def test_a_clock_that_went_backwards_counts_as_no_time() -> None:
    metrics = Metrics()
    metrics.observe("admission_wait_time_seconds", -5, cluster_queue="a", priority_class="")
    assert any("admission_wait_time_seconds_sum" in line and line.endswith(" 0.0") for line in lines(metrics))
