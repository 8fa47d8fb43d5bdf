from collections import Counter

import pytest

from admitq_api.labels import names_for
from benchmarks.api_calls import (
    ApiCallKey,
    ApiServerCounts,
    by_component,
    by_writer,
    read_api_server,
    read_program,
    since,
    without_own_calls,
)
from benchmarks.throughput import api_figures

METRICS = """\
# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="admitq.dev",resource="workloads",\
scope="resource",subresource="",verb="POST",version="v1beta2"} 30
apiserver_request_total{code="200",component="apiserver",dry_run="",group="admitq.dev",resource="workloads",\
scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 70
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",\
scope="cluster",subresource="",verb="LIST",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",\
scope="namespace",subresource="",verb="LIST",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",\
resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",\
verb="GET",version=""} 4
apiserver_request_total_other{verb="GET"} 1
apiserver_selfrequest_total{group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 8
apiserver_watch_events_sizes_bucket{group="admitq.dev",resource="workloads",version="v1beta2",le="1024"} 5
apiserver_watch_events_sizes_sum{group="admitq.dev",resource="workloads",version="v1beta2"} 1.5e+06
apiserver_watch_events_sizes_sum{group="",resource="pods",version="v1"} 24
apiserver_admission_webhook_admission_duration_seconds_bucket{name="vjob.admitq.dev",operation="CREATE",\
rejected="false",type="validating",le="0.005"} 1
apiserver_admission_webhook_admission_duration_seconds_count{name="vjob.admitq.dev",operation="CREATE",\
rejected="false",type="validating"} 4
apiserver_admission_webhook_admission_duration_seconds_count{name="vjob.admitq.dev",operation="CREATE",\
rejected="true",type="validating"} 1
"""

CREATE = ApiCallKey("create", "workloads.admitq.dev", "201")
STATUS = ApiCallKey("patch", "workloads.admitq.dev/status", "200")
PODS = ApiCallKey("list", "pods", "200")
LEASE = ApiCallKey("update", "leases.coordination.k8s.io", "200")
JOB_REVIEW = ("vjob.admitq.dev", "create")
READY = ApiCallKey("get", "-", "200")


def test_api_server_metrics_are_summed_by_verb_resource_and_code():
    counts = read_api_server(METRICS)
    assert counts.calls == {CREATE: 30, STATUS: 70, PODS: 5, LEASE: 9, READY: 4}
    assert counts.own_calls == {("update", "leases.coordination.k8s.io"): 8}
    assert counts.watch_bytes == 1_500_024
    assert counts.reviews == {JOB_REVIEW: 5}


def test_program_metrics_have_the_keys_of_the_api_server():
    status, metric = "workloads.admitq.dev/status", "admitq_api_requests_total"
    text = f"""\
{metric}{{code="200",replica_role="leader",resource="{status}",verb="patch"}} 60.0
{metric}{{code="200",replica_role="follower",resource="{status}",verb="patch"}} 1.0
{metric}{{code="200",replica_role="leader",resource="",verb="get"}} 4.0
admitq_watch_restarts_total{{reason="Gone",replica_role="leader",resource="pods"}} 4.0
"""
    assert read_program(text, metric) == {STATUS: 61, READY: 4}


def test_counts_since_a_reading_leave_out_earlier_calls():
    earlier = ApiServerCounts(Counter({CREATE: 10, PODS: 5}), Counter(), 1_000_000, Counter({JOB_REVIEW: 3}))
    counts = since(earlier, read_api_server(METRICS))
    assert counts.calls == {CREATE: 20, STATUS: 70, LEASE: 9, READY: 4}
    assert counts.watch_bytes == 500_024
    assert counts.reviews == {JOB_REVIEW: 2}


def test_own_calls_of_the_api_server_are_taken_from_successful_calls_first():
    conflict = LEASE._replace(code="409")
    own = Counter({(LEASE.verb, LEASE.resource): 10})
    assert without_own_calls(Counter({LEASE: 9, conflict: 3, CREATE: 1}), own) == {conflict: 2, CREATE: 1}


def test_calls_that_no_known_caller_counted_belong_to_the_rest():
    total = Counter({CREATE: 30, STATUS: 70, LEASE: 9})
    known = {"harness": Counter({CREATE: 30, STATUS: 10}), "manager": Counter({STATUS: 60, LEASE: 10})}
    assert by_writer(total, known, "others") == {**known, "others": Counter()}
    assert by_writer(total, {"harness": known["harness"]}, "manager") == {
        "harness": known["harness"],
        "manager": Counter({STATUS: 60, LEASE: 9}),
    }


def test_calls_of_components_are_those_that_only_they_send():
    bind, event = ApiCallKey("create", "pods/binding", "201"), ApiCallKey("create", "events", "201")
    conflict = ApiCallKey("update", "jobs.batch/status", "409")
    calls = Counter({bind: 10, event: 4, conflict: 1, LEASE: 2, PODS: 5})
    assert by_component(calls, "others") == {
        "scheduler": {bind: 10},
        "controller_manager": {event: 4, conflict: 1},
        "others": {LEASE: 2, PODS: 5},
    }


def test_api_figures_divide_by_workloads_and_by_writes():
    counts = read_api_server(METRICS)
    writers = by_writer(counts.calls, {"harness": Counter({CREATE: 30, STATUS: 30})}, "manager")
    figures = api_figures(writers, counts, names_for("admitq.dev"), workloads=20, api_server_cpu_s=0.5)
    assert figures["api_writes"] == 30 + 70 + 9
    assert figures["status_writes_per_workload"] == 2.0
    assert figures["api_cpu_ms_per_write"] == pytest.approx(500 / 109, abs=0.01)
    assert figures["watch_bytes"] == 1_500_024
    assert figures["webhook_reviews"] == {"vjob.admitq.dev create": 5}
    assert figures["api_calls"]["harness"] == {
        "create workloads.admitq.dev 201": 30,
        "patch workloads.admitq.dev/status 200": 30,
    }
    assert figures["api_calls"]["manager"]["patch workloads.admitq.dev/status 200"] == 40
