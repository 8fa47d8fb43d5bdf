"""Answers about a dump by kubectl are those about the running cluster."""

from functools import partial
from pathlib import Path

from admitq.asking.branches import branch_of
from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.object_files import read_object_files
from admitq.asking.sources import AskedCluster, observe_files, observe_objects
from admitq.core.asking.cheapest_changes import find_cheapest_changes
from admitq.core.asking.explain import explain
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.runtime.kinds import list_core_resources
from admitq.runtime.resources import NODES, PODS
from admitq.translate.explanations import explanation_lines
from localcluster.installation import Installation
from tests.controlplane.stage import Stage
from tests.controlplane.user_programs import kubectl


async def test_dump_by_kubectl_has_the_explanation_of_the_running_cluster(
    stage: Stage, admitq_running: Installation, tmp_path: Path
) -> None:
    await stage.active_queues()
    await stage.job("first", cpu=3)
    await stage.until_running("first")
    await stage.job("second", cpu=2)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    wanted = ",".join(map(str, (*list_core_resources(stage.kinds), NODES, PODS)))
    key = ObjectKey(stage.namespace, (await stage.workload("second"))["metadata"]["name"])
    for output in ("yaml", "json"):
        dump = await kubectl(admitq_running.cluster, "get", wanted, "-A", "-o", output)
        (tmp_path / f"dump.{output}").write_text(dump)
    live = observe_objects(await list_stored_objects(stage.client, stage.names))
    expected = explanation(live, key)
    assert "cpu: requests 2, 1 free of at most 4: 1 missing" in "\n".join(expected)
    for output in ("yaml", "json"):
        dumped = observe_files(read_object_files([tmp_path / f"dump.{output}"], stage.names.group))
        assert explanation(dumped, key) == expected
        assert dumped.notes == ()


def explanation(cluster: AskedCluster, key: ObjectKey) -> list[str]:
    branch = branch_of(cluster.state, deadline_s=30.0)
    return branch(partial(explain_lines, key=key, now=cluster.now))


def explain_lines(state: AdmissionState, *, key: ObjectKey, now: int) -> list[str]:
    found = explain(state, key, now)
    assert found is not None
    changes = find_cheapest_changes(state, key, now, branch_of(state, deadline_s=30.0))
    return explanation_lines(found, changes)
