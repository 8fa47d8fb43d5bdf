"""Pods that an importer admitted while they ran."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.pod_shape import compute_role_hash
from admitq.runtime.resources import JOBS, PODS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    job,
    timestamp,
    workload,
)
from tests.unit.controllers.job.pod_groups import PodWorld, group_workload, owner, pod

IMPORTED = [
    condition("QuotaReserved", True, "Imported", "Imported into ClusterQueue cq"),
    condition("Admitted", True, "Imported", "Imported into ClusterQueue cq"),
]

ROLE = compute_role_hash(TEMPLATE["spec"])


def imported(name: str = "p", *, state: str = "running", **parts: Any) -> dict[str, Any]:
    """Return a pod that ran before it was queued: without role hash, gate and finalizer."""
    pod_ = pod(name, state=state, finalizers=[], **parts)
    del pod_["metadata"]["annotations"][NAMES.role_hash]
    return pod_


def imported_workload() -> dict[str, Any]:
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
    spec = {"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}
    return workload(*IMPORTED, owner=CONTROLLER, admission=admission, spec=spec)


CONTROLLER = {**owner("p"), "controller": True}


async def test_b7_imported_pod_keeps_its_admission_and_runs_on() -> None:
    world = PodWorld()
    world.put(PODS, imported())
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert world.calls == []


async def test_b7_imported_pod_that_succeeds_finishes_its_workload() -> None:
    world = PodWorld()
    world.put(PODS, imported(state="succeeded"))
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert condition_of(world.get(KINDS.workloads, "job-j-1"), "Finished")[1] == "Succeeded"


async def test_b7_workload_of_unlabelled_pod_is_not_changed() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None})
    world.put(KINDS.workloads, imported_workload())
    assert await world.pods.reconcile(Key("ns", "p")) is None
    assert world.calls == ["get pods/p"]


async def test_b7_deleted_workload_of_unlabelled_pod_is_released_when_the_pod_has_ended() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None})
    existing = imported_workload()
    existing["metadata"]["deletionTimestamp"] = timestamp(9)
    world.put(KINDS.workloads, existing)
    assert await world.pods.reconcile(Key("ns", "p")) == 1.0
    kept = world.get(KINDS.workloads, "job-j-1")
    assert kept["metadata"]["finalizers"]
    assert condition_of(kept, "PodsOutliveJob")[1] == "PodsRunning"
    later = PodWorld()
    later.client.api["pods", "p"] = imported(state="succeeded", labels={NAMES.managed: None})
    later.put(KINDS.workloads, kept)
    await later.settle(Key("ns", "p"))
    assert later.get(KINDS.workloads, "job-j-1")["metadata"]["finalizers"] == []


async def test_b7_workload_of_former_pod_with_same_name_is_finished() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None}, uid="another")
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert condition_of(world.get(KINDS.workloads, "job-j-1"), "Finished")[1] == "OwnerNotFound"


@pytest.mark.parametrize("owners", ["ab", ""])
async def test_b7_imported_group_keeps_its_admission_and_runs_on(owners: str) -> None:
    world = PodWorld()
    world.put(PODS, *(imported(name, group="g") for name in "ab"))
    existing = group_workload(workload, *IMPORTED, owners=owners)
    existing["spec"]["podSets"][0]["name"] = ROLE
    existing["status"]["admission"] = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": ROLE, "count": 2}],
    }
    world.put(KINDS.workloads, existing)
    await world.settle()
    kept = world.get(KINDS.workloads, "g")
    assert condition_of(kept, "Finished") is None
    assert condition_of(kept, "Admitted")[:2] == ("True", "Imported")
    assert kept["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert not [call for call in world.calls if "pods" in call]


async def test_b7_started_pod_without_role_hash_keeps_its_podset() -> None:
    world = PodWorld()
    held = [imported(name, group="g", state="held") for name in "ab"]
    world.put(PODS, *held)
    existing = group_workload(admitted)
    existing["spec"]["podSets"][0]["name"] = ROLE
    existing["status"]["admission"]["podSetAssignments"][0]["name"] = ROLE
    world.put(KINDS.workloads, existing)
    await world.settle()
    started = world.get(PODS, "a")
    assert started["spec"]["nodeSelector"] == {"pool": "spot"}, "the role hash of the spec differs now"
    assert not [call for call in world.calls if call.startswith("delete")]
    assert condition_of(world.get(KINDS.workloads, "g"), "Finished") is None


@pytest.mark.parametrize(("queue", "unchanged"), [("lq", True), (None, False)])
async def test_b7_labelled_pod_is_left_to_its_job_only_when_that_job_is_queued(
    queue: str | None, unchanged: bool
) -> None:
    world = PodWorld(integrations=(POD, JOB))
    world.put(JOBS, job(labels={NAMES.queue_name: queue} if queue else {}))
    world.put(PODS, imported("j-x7k2p", ownerReferences=[OWNER]))
    await world.settle(Key("ns", "j-x7k2p"))
    assert (world.calls == []) is unchanged
