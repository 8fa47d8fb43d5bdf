"""`hack/bench throughput --shape pods` on a small load."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admitq_api.labels import ApiGroup
from benchmarks import job_objects, pods
from benchmarks.api_calls import CALLS_OF_COMPONENTS
from benchmarks.pods import NO_QUEUE, QUEUE, PodsPlan
from benchmarks.pods_forms import FORMS, NODE_CPU, POD
from localcluster.cluster import LocalCluster

FORM = FORMS["500x20"].scaled(0.008)
COMPONENTS = {"etcd", "api_server", "controller_manager", "scheduler", "kwok", "harness"}
ADMITQ = "system:serviceaccount:admitq-system:"
CONTROLLERS = "system:serviceaccount:kube-system:"
USERS = {
    "system:kube-controller-manager": "controller_manager",
    "system:kube-scheduler": "scheduler",
    "kwok": "kwok",
}
AUDIT_ALL = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""


def test_all_pods_run_with_and_without_admitq(
    private_cluster: Callable[..., LocalCluster], api_group: ApiGroup, tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(AUDIT_ALL)
    audit = f"--audit-policy-file={policy}"
    plan = PodsPlan(("500x20",), (QUEUE, NO_QUEUE), 0.008, timeout_s=120.0, api_group=api_group)
    pool = job_objects.node_pool(FORM.nodes, NODE_CPU, POD)
    results: dict[str, dict[str, Any]] = {}
    for variant in plan.variants:
        cluster = private_cluster((pool,), api_server_arguments=(audit,))
        results[variant] = pods.measure(cluster, FORM, plan, variant)
        check_pods(results[variant])
        check_writers(cluster)
    with_admitq, without = results[QUEUE], results[NO_QUEUE]
    assert with_admitq["admissions"] == FORM.jobs
    assert set(with_admitq["cpu_s"]) == set(with_admitq["rss_mb"]) == {"manager", "webhook", *COMPONENTS}
    workloads = f"workloads.{api_group}"
    assert with_admitq["api_calls"]["manager"][f"create {workloads} 201"] == FORM.jobs
    assert with_admitq["status_writes_per_workload"] >= 1
    # The only review of a Job suspends it.
    assert with_admitq["webhook_reviews"] == {f"mjob.{api_group} create": FORM.jobs}
    assert without["webhook_reviews"] == {}
    assert without["admissions"] == 0
    assert set(without["cpu_s"]) == set(without["rss_mb"]) == COMPONENTS
    assert set(without["api_calls"]) == {"harness", "others", "controller_manager", "scheduler", "kwok"}
    assert pods.rate_ratio(results) == pytest.approx(without["wall_s"] / with_admitq["wall_s"], rel=0.1)


def check_pods(figures: dict[str, Any]) -> None:
    """All pods run, and the parts of the figures fit together."""
    assert figures["running"] == FORM.pods == 80
    assert figures["pods_per_s"] * figures["wall_s"] == pytest.approx(FORM.pods, rel=0.1)
    assert 0 < figures["start_p50_s"] <= figures["start_p99_s"] <= figures["wall_s"] + 0.1
    assert 0 <= figures["idle_share"] < 1
    calls = figures["api_calls"]
    assert calls["harness"]["create jobs.batch 201"] == FORM.jobs
    assert calls["controller_manager"]["create pods 201"] == FORM.pods
    assert calls["scheduler"]["create pods/binding 201"] == FORM.pods
    assert calls["kwok"]["patch pods/status 200"] >= FORM.pods
    assert figures["api_cpu_ms_per_write"] > 0
    # Each pod is sent to several watches.
    assert figures["watch_bytes"] > 4000 * FORM.pods
    assert figures["harness"]["create_all_s"] <= figures["wall_s"]


def check_writers(cluster: LocalCluster) -> None:
    """The calls that count as those of a component are sent by this component, or by admitq."""
    calls = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    begin = next(number for number, call in enumerate(calls) if resource_of(call) == "jobs.batch")
    senders: set[tuple[str, str]] = set()
    for call in calls[begin:]:
        component = CALLS_OF_COMPONENTS.get((call["verb"], resource_of(call)))
        user: str = call["user"]["username"]
        # admitq counts its calls, so they are not in the rest that the components share.
        if component is not None and not user.startswith(ADMITQ):
            is_controller = user.startswith(CONTROLLERS)
            senders.add((component, "controller_manager" if is_controller else USERS.get(user, user)))
    assert senders == {(name, name) for name in CALLS_OF_COMPONENTS.values()}


def resource_of(call: dict[str, Any]) -> str:
    """The resource of a call in the audit log, as in the result."""
    about = call.get("objectRef") or {}
    full = ".".join(filter(None, (about.get("resource", ""), about.get("apiGroup", ""))))
    return "/".join(filter(None, (full, about.get("subresource", ""))))
