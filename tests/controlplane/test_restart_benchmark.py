"""`hack/bench throughput --shape restart` beside few Workloads."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq_api.conditions import is_true
from admitq_api.labels import names_for
from benchmarks import restart
from benchmarks.restart import RestartLoad
from localcluster.cluster import LocalCluster

NAMES = names_for()
LOAD = RestartLoad(pending=9, finished=5, queues=2, quiet_s=1.0)


@pytest.mark.slow
async def test_started_manager_admits_the_workload_that_fits_and_writes_nothing_else(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Any]
):
    cluster = private_cluster((), component_names=("etcd", "kube-apiserver"))
    result, _ = await restart.measure(cluster, LOAD)
    assert (result["benchmark"], result["shape"]) == ("throughput", "restart")
    assert (result["pending"], result["finished"]) == (9, 5)
    assert 0 < result["first_decision_s"] <= result["rest_s"]
    assert 0 < result["cpu_ready_s"] <= result["cpu_rest_s"]
    assert result["writes"]["patch workloads/status 200"] == 2
    assert result["unneeded_writes"] == {}
    # The oldest copy of each queue became the first of its queue.
    assert result["settling_writes"]["patch workloads/status 200"] == LOAD.queues
    client: Client = await connect(cluster)
    items, _ = await client.list(kinds_of(NAMES).workloads)
    conditions = {item["metadata"]["name"]: item["status"]["conditions"] for item in items}
    copies = [found for name, found in conditions.items() if "-run-" in name]
    assert len(copies) == LOAD.pending + LOAD.finished
    assert sum(is_true(found, "Finished") for found in copies) == LOAD.finished
    assert sum(is_true(found, "Admitted") and not is_true(found, "Finished") for found in copies) == 1
    # A manager leaves finished Workloads like this: released and labelled by one write.
    for item in items:
        if is_true(item["status"]["conditions"], "Finished"):
            metadata = item["metadata"]
            assert (metadata["labels"][NAMES.finished], metadata.get("finalizers")) == ("true", None)
            assert NAMES.field_manager("finalizer") in {one["manager"] for one in metadata["managedFields"]}
