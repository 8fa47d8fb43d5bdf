"""Single pods: each pod is a job."""

import pytest

from admitq.controllers.job.controller import start_admitted
from admitq.integrations.references import OwnerKind
from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    reserved,
    timestamp,
)
from tests.unit.controllers.job.pod_groups import GATES, PodWorld, gate_names, owner, pod


async def test_single_pod_gets_workload_that_it_controls() -> None:
    world = PodWorld()
    world.put(PODS, pod())
    await world.settle(Key("ns", "p"))
    created = world.get(KINDS.workloads, create_workload_name("Pod", "", "p", "uid-p"))
    assert created["metadata"]["ownerReferences"] == [{**owner("p"), "controller": True}]
    assert created["metadata"]["labels"][NAMES.job_uid] == "uid-p"
    (pod_set,) = created["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert "schedulingGates" not in pod_set["template"]["spec"]


async def test_admitted_pod_is_started_right_after_admission() -> None:
    world = PodWorld()
    world.put(PODS, pod())
    reference = {**owner("p"), "controller": True}
    world.put(
        KINDS.workloads,
        admitted(owner=reference, spec={"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}),
    )
    await start_admitted({OwnerKind("", "v1", "Pod"): world.pods}, world.get(KINDS.workloads, "job-j-1"))
    started = world.get(PODS, "p")
    assert gate_names(started) == []
    assert started["spec"]["nodeSelector"] == {"pool": "spot"}
    assert started["metadata"]["labels"][NAMES.podset] == "main"
    assert ("p", "Started", "Admitted by clusterQueue cq") in world.recorder.events
    assert world.recorder.gates == [(gate["name"], "cq", 10, False) for gate in GATES]


async def test_deleted_pod_is_released_and_its_workload_is_finished() -> None:
    world = PodWorld()
    world.put(PODS, pod(state="deleted"))
    world.put(KINDS.workloads, admitted(owner={**owner("p"), "controller": True}))
    await world.settle(Key("ns", "p"))
    stored = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(stored, "Finished")[1] == "OwnerNotFound"
    assert stored["metadata"]["finalizers"] == []
    assert world.get(PODS, "p")["metadata"]["finalizers"] == []


async def test_deleted_pod_keeps_its_quota_until_its_grace_period_ends() -> None:
    world = PodWorld()
    world.put(PODS, pod(state="deleted", deletion=timestamp(40)))
    world.put(KINDS.workloads, admitted(owner={**owner("p"), "controller": True}))
    assert await world.pods.reconcile(Key("ns", "p")) == pytest.approx(30.1)
    assert world.calls == []


EVICTED_PODS = [
    (reason, skips, finishes)
    for reason in ("Preempted", "NodeFailures", "ClusterQueueStopped")
    for skips in (True, False)
    for finishes in (True, False)
]


@pytest.mark.parametrize(("reason", "skips_reassignment", "finish_orphaned"), EVICTED_PODS)
async def test_evicted_running_pod_is_requeued_only_when_reassignment_is_not_skipped(
    reason: str, skips_reassignment: bool, finish_orphaned: bool
) -> None:
    """A pod cannot be started a second time, so that its Workload ends with it."""
    world = PodWorld(skip_reassignment=skips_reassignment, finish_orphaned=finish_orphaned)
    world.put(PODS, pod(state="running"))
    reference = {**owner("p"), "controller": True}
    world.put(KINDS.workloads, admitted(condition("Evicted", True, reason, "m", since=5), owner=reference))
    await world.settle(Key("ns", "p"))
    stored = world.get(KINDS.workloads, "job-j-1")
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]
    is_requeued = reason != "ClusterQueueStopped" and not skips_reassignment
    assert condition_of(stored, "Requeued") == (str(is_requeued), reason, "m")
    assert condition_of(stored, "QuotaReserved") == ("False", "PendingEvaluation", "m")
    assert (condition_of(stored, "Finished") is not None) is finish_orphaned
    assert stored["metadata"]["finalizers"] == []
    assert world.get(PODS, "p")["metadata"]["finalizers"] == []


@pytest.mark.parametrize(("reason", "skips_reassignment", "finish_orphaned"), EVICTED_PODS)
async def test_evicted_gated_pod_is_requeued_with_any_reassignment_policy(
    reason: str, skips_reassignment: bool, finish_orphaned: bool
) -> None:
    """No controller would create another pod in its place."""
    world = PodWorld(skip_reassignment=skips_reassignment, finish_orphaned=finish_orphaned)
    world.put(PODS, pod())
    reference = {**owner("p"), "controller": True}
    spec = {"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}
    world.put(KINDS.workloads, reserved(condition("Evicted", True, reason, "m"), owner=reference, spec=spec))
    await world.settle(Key("ns", "p"))
    assert gate_names(world.get(PODS, "p")) == [gate["name"] for gate in GATES]
    stored = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(stored, "Requeued") == (str(reason != "ClusterQueueStopped"), reason, "m")
    assert condition_of(stored, "QuotaReserved") == ("False", "PendingEvaluation", "m")
