"""Jobs with pod templates in another object, ignored jobs, and jobs with a slow cleanup."""

from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.runtime.resources import PRIORITY_CLASSES
from admitq.runtime.store import Key, ObjectChange
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    apply_patch,
    condition,
    reserved,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import actions_of, events_of, plan_for
from tests.unit.controllers.world import World, cluster_scoped

TRAIN_JOBS = resource_of(TRAIN_JOB)
RUNTIME_KINDS = tuple(followed_resource(TRAIN_JOB, kind) for kind in TRAIN_JOB.templates.referenced_kinds)
RUNTIMES = RUNTIME_KINDS[0]
KEY = Key("ns", "j")
TEMPLATE = {"spec": {"containers": [{"name": "node", "image": "i"}]}}
MISSING = "ClusterTrainingRuntime torch not found: create it, or name another one in a new job"
EVICTED = condition("Evicted", True, "Deactivated", "The workload is deactivated")


def runtime(nodes: int = 2, **metadata: Any) -> dict[str, Any]:
    replicated = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": TEMPLATE},
        },
    }
    spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [replicated]}}}
    return cluster_scoped("torch", spec=spec, **metadata)


def owned_by(kind: str, group: str, **metadata: Any) -> dict[str, Any]:
    """Return the owner reference of the Workloads of a job."""
    return {"apiVersion": group, "kind": kind, "name": "j", "uid": "uid-j", "controller": True, **metadata}


TRAINER = owned_by("TrainJob", "trainer.kubeflow.org/v1alpha1")
PODS = {"podSets": [{"name": "node", "count": 2, "template": TEMPLATE}]}
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [{"name": "node", "count": 2, "flavors": {}}]}


def job_of_kind(kind: str, api_version: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "uid-j",
            "resourceVersion": "3",
            "creationTimestamp": timestamp(0),
            "labels": {NAMES.queue_name: "lq"},
            **metadata,
        },
        "spec": spec,
        "status": {},
    }


def train_job(*, suspend: bool = True, status: Any = None, **metadata: Any) -> dict[str, Any]:
    spec = {"suspend": suspend, "runtimeRef": {"name": "torch"}}
    obj = job_of_kind("TrainJob", "trainer.kubeflow.org/v1alpha1", spec, **metadata)
    return {**obj, "status": status or {}}


@pytest.fixture
def world() -> World:
    return World(settings=settings_with(integrations=(TRAIN_JOB,)))


@pytest.fixture
def jobs(world: World) -> JobController:
    return JobController(world.ctx, TRAIN_JOB, OwnerLookup(world.ctx))


def events_in(world: World) -> list[tuple[str, str]]:
    return [(reason, note) for _, reason, note in world.recorder.events]


# --- existing runtime -----------------------------------------------------------------------------


async def test_workload_of_train_job_gets_podsets_of_its_runtime(world: World, jobs: JobController) -> None:
    world.put(RUNTIMES, runtime())
    world.put(TRAIN_JOBS, train_job())
    await jobs.reconcile(KEY)
    [created] = world.stores.of(KINDS.workloads).list()
    indexes = {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 1,
    }
    assert created["spec"]["podSets"] == [{**PODS["podSets"][0], "topologyRequest": indexes}]


async def test_train_job_start_writes_runtime_patches_and_then_unsuspends(
    world: World, jobs: JobController
) -> None:
    world.put(RUNTIMES, runtime())
    world.put(TRAIN_JOBS, train_job())
    world.put(KINDS.workloads, admitted(owner=TRAINER, spec=PODS, admission=ADMISSION))
    await jobs.reconcile(KEY)
    assert world.calls == ["patch trainjobs/j", "patch trainjobs/j"]
    started = world.get(TRAIN_JOBS, "j")
    assert set(started) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert started["spec"]["suspend"] is False
    assert [patch["manager"] for patch in started["spec"]["runtimePatches"]] == [NAMES.trainjob_manager]


async def test_pending_workload_of_train_job_follows_changed_runtime(
    world: World, jobs: JobController
) -> None:
    world.put(RUNTIMES, runtime(5))
    world.put(TRAIN_JOBS, train_job())
    world.put(KINDS.workloads, workload(owner=TRAINER, spec=PODS))
    await jobs.reconcile(KEY)
    [workload_] = world.stores.of(KINDS.workloads).list()
    assert workload_["spec"]["podSets"][0]["count"] == 5


# --- missing runtime ------------------------------------------------------------------------------


async def test_train_job_without_runtime_reports_missing_runtime(world: World, jobs: JobController) -> None:
    world.put(TRAIN_JOBS, train_job())
    assert await jobs.reconcile(KEY) is None
    assert world.calls == []
    assert events_in(world) == [("ErrWorkloadCompose", MISSING)]


async def test_train_job_with_runtime_of_unknown_kind_reports_missing_runtime(
    world: World, jobs: JobController
) -> None:
    world.put(TRAIN_JOBS, apply_patch(train_job(), {"spec": {"runtimeRef": {"kind": "Other"}}}))
    assert await jobs.reconcile(KEY) is None
    assert events_in(world) == [("ErrWorkloadCompose", MISSING.replace("ClusterTrainingRuntime", "Other"))]


async def test_running_train_job_without_workload_and_runtime_is_suspended(
    world: World, jobs: JobController
) -> None:
    world.put(TRAIN_JOBS, train_job(suspend=False))
    await jobs.reconcile(KEY)
    assert world.get(TRAIN_JOBS, "j")["spec"]["suspend"] is True


@pytest.mark.parametrize(
    "workload_",
    [
        workload(owner=TRAINER, spec=PODS),
        reserved(owner=TRAINER, spec=PODS, admission=ADMISSION),
        admitted(owner=TRAINER, spec=PODS, admission=ADMISSION),
    ],
    ids=["waiting", "reserved", "running"],
)
async def test_train_job_with_deleted_runtime_keeps_its_workload(
    world: World, jobs: JobController, workload_: dict[str, Any]
) -> None:
    is_admitted = len(workload_["status"].get("conditions", ())) == 2
    world.put(TRAIN_JOBS, train_job(suspend=not is_admitted))
    world.put(KINDS.workloads, workload_)
    await jobs.reconcile(KEY)
    assert [call for call in world.calls if "status" not in call] == []


async def test_admitted_train_job_is_not_started_without_runtime(world: World, jobs: JobController) -> None:
    world.put(TRAIN_JOBS, train_job())
    world.put(KINDS.workloads, admitted(owner=TRAINER, spec=PODS, admission=ADMISSION))
    await jobs.reconcile(KEY)
    assert world.get(TRAIN_JOBS, "j")["spec"]["suspend"] is True
    assert ("ErrWorkloadCompose", MISSING) in events_in(world)


async def test_evicted_train_job_is_stopped_without_runtime(world: World, jobs: JobController) -> None:
    world.put(TRAIN_JOBS, train_job(suspend=False))
    world.put(KINDS.workloads, admitted(EVICTED, owner=TRAINER, spec=PODS, admission=ADMISSION))
    await jobs.reconcile(KEY)
    assert world.get(TRAIN_JOBS, "j")["spec"]["suspend"] is True


async def test_prebuilt_workload_is_not_compared_without_runtime(world: World, jobs: JobController) -> None:
    labels = {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "mine"}
    world.put(TRAIN_JOBS, train_job(labels=labels))
    world.put(KINDS.workloads, workload(name="mine", owner=TRAINER, spec=PODS))
    await jobs.reconcile(KEY)
    [workload_] = world.stores.of(KINDS.workloads).list()
    assert not any(item["type"] == "Finished" for item in workload_["status"].get("conditions", ()))


# --- watches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "enqueued"),
    [
        (None, runtime(), {KEY}),
        (runtime(), None, {KEY}),
        (runtime(), runtime(3), {KEY}),
        (runtime(), runtime(), set()),
        (None, {**runtime(), "metadata": {"name": "jax"}}, set()),
    ],
)
def test_changed_runtime_enqueues_jobs_that_reference_it(
    world: World, old: Any, new: Any, enqueued: Any
) -> None:
    world.put(TRAIN_JOBS, train_job())
    name = (new or old)["metadata"]["name"]
    change = create_change(Key("", name), old, new)
    assert enqueued_keys(world, RUNTIMES, change) == enqueued


def test_changed_priority_class_enqueues_jobs_with_runtime(world: World) -> None:
    world.put(TRAIN_JOBS, train_job())
    change = create_change(Key("", "high"), None, {"metadata": {"name": "high"}, "value": 5})
    assert enqueued_keys(world, PRIORITY_CLASSES, change) == {KEY}


def create_change(key: Key, old: Any, new: Any) -> ObjectChange:
    return ObjectChange("modified", key, new, None if old is None else orjson.dumps(old))


def enqueued_keys(world: World, resource: Any, change: ObjectChange) -> set[Key]:
    served = registry.build_controllers(world.ctx, world.core).when_served
    [part] = [part for part in served if part.resource == TRAIN_JOBS]
    followed = {followed.resource for followed in part.follows}
    assert resource in followed or resource not in RUNTIME_KINDS
    return {key for watch in part.spec.watches if watch.resource == resource for key in watch.keys(change)}


# --- ignored jobs, and jobs with a slow cleanup ---------------------------------------------------


RAY_OWNER = owned_by("RayJob", "ray.io/v1")
IGNORED_JOB = job_of_kind("RayJob", "ray.io/v1", {"clusterSelector": {"ray.io/cluster": "c"}})


def test_ignored_job_gets_no_actions_and_no_events() -> None:
    plan = plan_for(IGNORED_JOB, integration=RAY_JOB, settings={"without_queue_name": True})
    assert (actions_of(plan), events_of(plan)) == ([], [])


def test_workloads_of_job_that_becomes_ignored_are_deleted_or_released() -> None:
    waiting, ended = workload(owner=RAY_OWNER), workload(FINISHED, owner=RAY_OWNER, name="ended")
    plan = plan_for(IGNORED_JOB, waiting, ended, integration=RAY_JOB)
    assert actions_of(plan) == ["delete Workload", "free Workload"]


def test_running_job_that_becomes_ignored_is_stopped_and_keeps_its_quota() -> None:
    plan = plan_for(IGNORED_JOB, admitted(owner=RAY_OWNER), integration=RAY_JOB)
    assert actions_of(plan) == ["patch RayJob"]


REDIS = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}


@pytest.mark.parametrize(
    ("cluster", "settings", "actions"),
    [
        (REDIS, {}, []),
        (REDIS, {"defer_cleanup": False}, ["patch Workload"]),
        ({}, {}, ["patch Workload"]),
    ],
)
def test_ray_service_with_redis_cleanup_keeps_its_workload_until_it_is_gone(
    cluster: Any, settings: Any, actions: list[str]
) -> None:
    service = job_of_kind(
        "RayService", "ray.io/v1", {"rayClusterConfig": cluster}, deletionTimestamp=timestamp(5)
    )
    owner = owned_by("RayService", "ray.io/v1")
    plan = plan_for(service, admitted(owner=owner), integration=RAY_SERVICE, settings=settings)
    assert actions_of(plan) == actions
    deleted = plan_for(None, admitted(owner=owner), integration=RAY_SERVICE, settings=settings)
    assert actions_of(deleted) == ["patch Workload"]
