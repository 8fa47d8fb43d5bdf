"""Workloads keep their quota while pods outlive their job."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.controllers.indexes import group_key_name, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq.runtime.store import Key
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    job,
    reserved,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.pods.remaining_pods import (
    HELD_SLICE,
    JOB_KEY,
    LARGER_SLICE,
    LIST,
    ORPHANED,
    SLICE,
    WORKLOAD_KEY,
    add_pods,
    aged_pod,
    end_of_workload,
    pod,
)
from tests.unit.controllers.world import World


@pytest.fixture
def world() -> World:
    """Return a world in which Jobs are the only kind of jobs."""
    return World(settings_with(integrations=(JOB,)))


async def reconcile_job(world: World) -> float | None:
    return await JobController(world.ctx, JOB, OwnerLookup(world.ctx)).reconcile(JOB_KEY)


async def reconcile_workload(world: World) -> float | None:
    return await WorkloadController(world.ctx, world.core).reconcile(WORKLOAD_KEY)


@pytest.mark.parametrize("job_", [None, job(deletionTimestamp=timestamp(9))], ids=["gone", "terminating"])
async def test_workload_is_released_after_one_list_when_no_pods_outlive_its_job(
    world: World, job_: dict[str, Any] | None
) -> None:
    world.put(KINDS.workloads, admitted())
    if job_ is not None:
        world.put(JOBS, job_)
    add_pods(world, pod("ended", status={"phase": "Succeeded"}))
    await reconcile_job(world)
    assert world.calls.count(LIST) == 1
    assert end_of_workload(world) == (None, "OwnerNotFound")


@pytest.mark.parametrize("job_", [None, job(deletionTimestamp=timestamp(9))], ids=["gone", "terminating"])
async def test_workload_keeps_quota_while_pods_outlive_its_job(
    world: World, job_: dict[str, Any] | None
) -> None:
    world.put(KINDS.workloads, admitted())
    if job_ is not None:
        world.put(JOBS, job_)
    add_pods(world, pod("b"), pod("a"))
    assert await reconcile_job(world) == 1.0
    assert end_of_workload(world) == ("PodsRunning", None)
    stored = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(stored, "PodsOutliveJob") == (
        "True",
        "PodsRunning",
        "2 pods can still run after the end of the job: a, b. Delete them to release the quota",
    )
    assert stored["metadata"]["finalizers"]
    world.client.api.clear()
    await reconcile_job(world)
    assert end_of_workload(world) == (None, "OwnerNotFound")


async def test_workload_of_former_job_keeps_quota_beside_new_job_while_pods_run(world: World) -> None:
    world.put(KINDS.workloads, admitted(owner={**OWNER, "uid": "uid-old"}))
    world.put(JOBS, job())
    add_pods(world, pod(labels={NAMES.podset: "main", "batch.kubernetes.io/controller-uid": "uid-old"}))
    assert await reconcile_job(world) == 1.0
    assert end_of_workload(world) == ("PodsRunning", None)
    assert await reconcile_job(world) == 1.0, "the steps of the new job do not end the checks"


async def test_no_pods_are_listed_for_finished_workload(world: World) -> None:
    world.put(KINDS.workloads, admitted(FINISHED))
    add_pods(world, pod())
    await reconcile_job(world)
    assert LIST not in world.calls


@pytest.mark.parametrize("make", [workload, reserved])
@pytest.mark.parametrize("owner", [OWNER, None])
async def test_pods_of_deleted_job_that_was_never_admitted_are_deleted(
    world: World, make: Callable[[], dict[str, Any]], owner: dict[str, Any] | None
) -> None:
    obj = make()
    if owner is None:
        del obj["metadata"]["ownerReferences"]
        obj["metadata"]["labels"] = {NAMES.job_uid: "uid-j"}
    world.put(KINDS.workloads, obj)
    labels = {"batch.kubernetes.io/controller-uid": "uid-j"}
    add_pods(world, pod("a", uid="uid-a", labels=labels), pod("other", uid="uid-o", labels={}))
    await (reconcile_workload(world) if owner is None else reconcile_job(world))
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]
    world.client.api.clear()
    await (reconcile_workload(world) if owner is None else reconcile_job(world))
    assert end_of_workload(world) == (None, "OwnerNotFound")


async def test_orphaned_pods_of_slice_without_owner_are_deleted_beyond_its_grant(world: World) -> None:
    def orphaned(obj: dict[str, Any]) -> dict[str, Any]:
        metadata = {**obj["metadata"], **ORPHANED}
        del metadata["ownerReferences"]
        return {**obj, "metadata": metadata}

    world.put(KINDS.workloads, orphaned(HELD_SLICE), orphaned(LARGER_SLICE))
    add_pods(
        world,
        *(aged_pod(name, number, annotations=SLICE["annotations"]) for number, name in enumerate("abcd")),
    )
    controller = WorkloadController(world.ctx, world.core)
    for name in ("larger", "held"):
        await controller.reconcile(Key("ns", name))
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/d"]
    assert world.recorder.excess == [("held", "", 1)]


@pytest.mark.parametrize("is_gone", [False, True], ids=["held by a finalizer", "gone"])
async def test_pods_of_deleted_mpi_job_that_was_never_admitted_are_deleted(is_gone: bool) -> None:
    world = World(settings_with(integrations=(MPI_JOB, POD)))
    owner = {**OWNER, "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    world.put(KINDS.workloads, workload(owner=owner))
    if not is_gone:
        world.put(
            resource_of(MPI_JOB), with_value(mpi_job({}), ("metadata", "deletionTimestamp"), timestamp(9))
        )
    owned = {"ownerReferences": [{"uid": "uid-j"}]}
    add_pods(world, aged_pod("a", 1, labels={}, **owned), aged_pod("other", 1, labels={}))
    controller = JobController(world.ctx, MPI_JOB, OwnerLookup(world.ctx))
    await controller.reconcile(JOB_KEY)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]
    assert world.recorder.excess == [("job-j-1", "MPIJob.kubeflow.org", 1)]
    world.client.api.clear()
    await controller.reconcile(JOB_KEY)
    assert end_of_workload(world) == (None, "OwnerNotFound")


async def test_pods_of_deleted_job_with_manual_selector_are_found_by_their_owner(world: World) -> None:
    world.put(KINDS.workloads, workload())
    world.put(JOBS, job({"manualSelector": True}, deletionTimestamp=timestamp(9)))
    add_pods(world, aged_pod("a", 1, labels={}, ownerReferences=[{"uid": "uid-j"}]))
    await reconcile_job(world)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]


async def test_orphaned_pods_of_raised_job_are_deleted_beyond_its_grant(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    add_pods(world, *(aged_pod(name, number) for number, name in enumerate("abcde")))
    assert await reconcile_job(world) == 1.0
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/e", "delete pods/d"]
    assert [event[:2] for event in world.recorder.events] == [(name, "ExcessPodDeleted") for name in "ed"]
    assert world.recorder.excess == [("job-j-1", "Job.batch", 1)] * 2
    assert end_of_workload(world) == ("PodsRunning", None)


async def test_quota_is_not_released_when_pods_cannot_be_listed(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    world.client.fails["list"] = ApiError(403, "Forbidden", "no")
    with pytest.raises(ApiError):
        await reconcile_job(world)
    assert end_of_workload(world) == (None, None)


async def test_workload_without_owner_keeps_quota_while_orphaned_pods_run(world: World) -> None:
    world.put(KINDS.workloads, admitted(owner=None, metadata=ORPHANED))
    add_pods(world, pod())
    assert await reconcile_workload(world) == 1.0
    assert end_of_workload(world) == ("PodsRunning", None)
    assert await reconcile_workload(world) == 1.0
    world.client.api.clear()
    await reconcile_workload(world)
    assert end_of_workload(world) == (None, "OwnerNotFound")


async def test_deleted_workload_without_owner_keeps_finalizer_while_orphaned_pods_run(world: World) -> None:
    deleted = {**ORPHANED, "deletionTimestamp": timestamp(0)}
    world.put(KINDS.workloads, admitted(owner=None, metadata=deleted))
    add_pods(world, pod())
    await reconcile_workload(world)
    stored = world.get(KINDS.workloads, "job-j-1")
    assert stored["metadata"]["finalizers"]
    assert end_of_workload(world) == ("PodsRunning", None)


EVICTED = condition("Evicted", True, "Preempted", "preempted")

RAISED = {"parallelism": 5, "completions": 9}

PREBUILT = {"labels": {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "job-j-1"}}


@pytest.mark.parametrize(
    ("held", "stopped", "expected"),
    [
        (admitted(EVICTED), job(), ("QuotaReserved", "False", "PendingEvaluation")),
        (admitted(), job(RAISED), None),
        (admitted(metadata={"deletionTimestamp": timestamp(1)}), job(), None),
        (admitted(metadata=ORPHANED), job(RAISED, **PREBUILT), ("Finished", "True", "OutOfSync")),
    ],
    ids=["evicted", "raised", "Workload deleted", "prebuilt Workload out of sync"],
)
async def test_quota_of_a_stopped_job_is_kept_until_its_pods_have_ended(
    world: World, held: dict[str, Any], stopped: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    world.put(KINDS.workloads, held)
    world.put(JOBS, stopped)
    add_pods(world, pod(spec={"nodeName": "n"}, deletionTimestamp=timestamp(0)))
    assert await reconcile_job(world) == 1.0
    kept = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(kept, "QuotaReserved")[0] == "True"
    assert kept["metadata"]["finalizers"]
    assert end_of_workload(world) == ("PodsRunning", None)
    world.client.api.clear()
    await reconcile_job(world)
    stored_after = world.stores.of(KINDS.workloads).get("ns", "job-j-1")
    is_gone = stored_after is None or not stored_after["metadata"].get("finalizers")
    assert is_gone is (expected is None)
    if stored_after is not None and expected is not None:
        assert condition_of(stored_after, "PodsOutliveJob") is None
        assert condition_of(stored_after, expected[0])[:2] == expected[1:]


def mpi_job(status: dict[str, Any]) -> dict[str, Any]:
    replicas = {"Worker": {"replicas": 3, "template": TEMPLATE}}
    spec = {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": replicas}
    owned = job()["metadata"]
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": owned} | {
        "spec": spec,
        "status": status,
    }


async def test_quota_of_a_finished_job_is_kept_while_its_operator_leaves_pods_running() -> None:
    world = World(settings_with(integrations=(MPI_JOB,)))
    owner = {**OWNER, "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    world.put(KINDS.workloads, admitted(owner=owner))
    ended = mpi_job({"conditions": [{"type": "Succeeded", "status": "True"}]})
    world.put(resource_of(MPI_JOB), ended)
    add_pods(world, pod(labels={}, annotations={NAMES.workload: "job-j-1"}))
    assert await JobController(world.ctx, MPI_JOB, OwnerLookup(world.ctx)).reconcile(JOB_KEY) == 1.0
    assert end_of_workload(world) == ("PodsRunning", None)
    world.client.api.clear()
    await JobController(world.ctx, MPI_JOB, OwnerLookup(world.ctx)).reconcile(JOB_KEY)
    assert end_of_workload(world) == (None, "Succeeded")


async def test_no_pods_are_listed_for_batch_job_that_finishes_or_starts(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, job({"suspend": False}, {"conditions": [{"type": "Complete", "status": "True"}]}))
    await reconcile_job(world)
    assert end_of_workload(world) == (None, "Succeeded")
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, job())
    await reconcile_job(world)
    assert LIST not in world.calls


async def test_group_keeps_quota_while_pod_without_label_runs() -> None:
    world = World(settings_with(integrations=(POD,)))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    metadata = {"name": "g", "annotations": {NAMES.is_group_workload: "true"}}
    held = admitted(owner=None, metadata={**metadata, "ownerReferences": [owner]})
    world.put(KINDS.workloads, held)
    add_pods(world, pod(uid="uid-p", labels={}))
    controller = JobController(world.ctx, POD, OwnerLookup(world.ctx))
    requeue_after = await controller.reconcile(Key("ns", group_key_name("g")))
    stored = world.get(KINDS.workloads, "g")
    assert requeue_after == 1.0
    assert condition_of(stored, "Finished") is None
    assert condition_of(stored, "PodsOutliveJob") is not None
