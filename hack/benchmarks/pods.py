"""Measure how fast Jobs start all of their pods, with and without a queue manager.

The control plane is complete: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and KWOK, which
plays the kubelets. There is room for all pods at once, so a queue manager only adds work.
"""

from dataclasses import dataclass
from typing import Any, Final

import uvloop

from admitq_api.labels import ApiGroup, names_for
from benchmarks import job_objects
from benchmarks.clusters import HARNESS, USER_AGENT, fresh_cluster, harness_client
from benchmarks.pods_forms import FORMS, NODE_CPU, POD, PodsForm
from benchmarks.pods_harness import CREATORS, PodsHarness
from benchmarks.throughput import api_figures
from benchmarks.throughput_connection import LoadConnection
from benchmarks.throughput_costs import API_SERVER, WITHOUT_AUDIT, CostsSince
from benchmarks.throughput_managers import AdmitqManager, NoManager
from localcluster.cluster import LocalCluster, to_stderr

SHAPE: Final = "pods"
"""The name of this load among those of `hack/bench throughput`."""
QUEUE: Final = "queue"
"""The name of a run with admitq in results."""
NO_QUEUE: Final = "no_queue"
"""The name of a run without a queue manager in results."""
RATE_RATIO: Final = 0.9
"""The share of the rate without a queue manager that the rate with admitq must reach."""

_LOCAL_QUEUE: Final = "bench"


@dataclass(frozen=True)
class PodsPlan:
    """The parameters of a run.

    Attributes:
        forms: keys of `FORMS`.
        variants: what each form runs with, in this order: `QUEUE`, `NO_QUEUE` or both.
        scale: the share of the pods.
        timeout_s: the seconds after which a form stops.
        api_group: the API group of queues.
        checks: whether a ratio of rates below `RATE_RATIO` fails the benchmark.
    """

    forms: tuple[str, ...]
    variants: tuple[str, ...]
    scale: float
    timeout_s: float
    api_group: ApiGroup
    checks: bool = False


def run(plan: PodsPlan) -> tuple[dict[str, Any], bool]:
    """Run each form and variant on its own cluster.

    Returns:
        The result, and whether all pods ran, and the ratios of rates are sufficient if they are checked.

    Raises:
        ClusterError: a cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
        ThroughputFailed: the API server refused a call, or admitq ended.
    """
    results: dict[str, dict[str, Any]] = {}
    passed = True
    for name in plan.forms:
        form = FORMS[name].scaled(plan.scale)
        results[name] = {}
        for variant in plan.variants:
            to_stderr(f"{name}, {variant}: starting a cluster of {form.nodes} nodes")
            pool = job_objects.node_pool(form.nodes, NODE_CPU, POD)
            with fresh_cluster((pool,), api_server_arguments=WITHOUT_AUDIT) as cluster:
                results[name][variant] = figures = measure(cluster, form, plan, variant)
            passed = passed and figures["running"] == form.pods
        ratio = rate_ratio(results[name])
        if ratio is not None:
            results[name]["rate_ratio"] = round(ratio, 3)
            passed = passed and (not plan.checks or ratio >= RATE_RATIO)
    result = {
        "benchmark": "throughput",
        "shape": SHAPE,
        "scale": plan.scale,
        "api_group": plan.api_group,
        "forms": results,
    }
    return result, passed


def rate_ratio(variants: dict[str, dict[str, Any]]) -> float | None:
    """Return the rate of pods with admitq ÷ that without it, or None unless both were measured."""
    if not (QUEUE in variants and NO_QUEUE in variants and variants[NO_QUEUE]["pods_per_s"]):
        return None
    return variants[QUEUE]["pods_per_s"] / variants[NO_QUEUE]["pods_per_s"]


def measure(cluster: LocalCluster, form: PodsForm, plan: PodsPlan, variant: str) -> dict[str, Any]:
    """Return the figures of one form on a running cluster that nothing else uses; see `run`."""
    manager = NoManager() if variant == NO_QUEUE else AdmitqManager(cluster, plan.api_group)
    try:
        manager.install()
        manager.start()
        return uvloop.run(_measure(cluster, form, plan, manager))
    finally:
        manager.stop()


async def _measure(
    cluster: LocalCluster, form: PodsForm, plan: PodsPlan, manager: AdmitqManager | NoManager
) -> dict[str, Any]:
    names = names_for(plan.api_group)
    quotas = {} if isinstance(manager, NoManager) else {_LOCAL_QUEUE: form.nodes * NODE_CPU}
    async with harness_client(cluster.kubeconfig) as client:
        await job_objects.prepare(client, quotas, names)
    async with LoadConnection(cluster, user_agent=USER_AGENT, connections=CREATORS + 1) as connection:
        queue = _LOCAL_QUEUE if quotas else None
        harness = PodsHarness(form, queue, names, connection, manager.failure)
        admitted_before, costs_since = manager.admissions(), CostsSince(cluster, manager)
        await harness.run(plan.timeout_s)
        costs = costs_since.until_now(harness.calls)
        admitted = manager.admissions() - admitted_before
    return {
        **harness.result(),
        "admissions": admitted,
        "admissions_per_s": round(admitted / harness.wall_s, 2),
        "cpu_s": costs.figures("cpu_s"),
        "rss_mb": costs.figures("rss_mb"),
        **api_figures(costs.writers, costs.counted, names, form.jobs, costs.used[API_SERVER]["cpu_s"]),
        "harness": {
            **harness.harness_result(),
            "cpu_share": round((costs.used[HARNESS]["cpu_s"] or 0.0) / harness.wall_s, 2),
        },
    }
