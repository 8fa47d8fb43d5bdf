"""Children of queued jobs: the lookup of their owners, and how the children are treated."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import CACHE_SECONDS, MAX_CACHED_OWNERS, OwnerLookup
from admitq.integrations.base import accept_every_child
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.integrations.ownership import Owner
from admitq.integrations.references import OwnerKind
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, REPLICA_SETS, Resource
from admitq.runtime.store import Key, ObjectChange
from tests.unit.controllers.builders import KINDS, NAMES, admitted, job, settings_with, workload
from tests.unit.controllers.world import World

ROBOTS = Resource("example.com", "v1", "robots", "Robot", namespaced=True)
ROBOT = OwnerKind("example.com", "v1", "Robot")
NESTING = replace(
    JOB,
    ownership=replace(
        JOB.ownership,
        created_kinds=None,
        compare_child=accept_every_child,
        intermediate_owners=(OwnerKind("apps", "v1", "ReplicaSet"),),
    ),
)
"""A kind of jobs that may own jobs, also through ReplicaSets."""


def reference(kind: str, name: str, api_version: str = "example.com/v1") -> dict[str, Any]:
    uid = f"uid-{name}"
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def robot(name: str = "r", queue: str | None = "lq", **metadata: Any) -> dict[str, Any]:
    labels = {NAMES.queue_name: queue} if queue else {}
    own = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels, **metadata}
    return {"apiVersion": "example.com/v1", "kind": "Robot", "metadata": own, "spec": {"large": "thing"}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def world() -> World:
    result = World(settings_with(integrations=(NESTING,), external_frameworks=(ROBOT,)))
    result.client.served |= {ROBOTS, REPLICA_SETS}
    result.client.api["robots", "r"] = robot()
    return result


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owners(world: World, clock: Clock) -> OwnerLookup:
    return OwnerLookup(world.ctx, clock)


@pytest.fixture
def jobs(world: World, owners: OwnerLookup) -> JobController:
    return JobController(world.ctx, NESTING, owners)


OF_ROBOT = Owner(ROBOT, "ns", "r", "uid-r")


async def test_unwatched_owner_is_cached_for_limited_time(
    world: World, owners: OwnerLookup, clock: Clock
) -> None:
    owner = await owners.find(OF_ROBOT)
    assert owner is not None
    assert owner["metadata"]["labels"] == {NAMES.queue_name: "lq"}
    clock.now = CACHE_SECONDS - 1
    kept = await owners.find(OF_ROBOT)
    assert kept is not None
    assert "spec" not in kept
    assert world.calls == ["get /apis/example.com/v1", "get robots/r"]
    clock.now = CACHE_SECONDS
    await owners.find(OF_ROBOT)
    assert world.calls[2:] == ["get /apis/example.com/v1", "get robots/r"]


async def test_owner_with_same_name_and_another_uid_is_read(world: World, owners: OwnerLookup) -> None:
    await owners.find(OF_ROBOT)
    world.client.api["robots", "r"] = robot(uid="another")
    owner = await owners.find(OF_ROBOT._replace(uid="another"))
    assert owner is not None
    assert owner["metadata"]["uid"] == "another"


async def test_oldest_owner_is_dropped_when_cache_is_full(world: World, owners: OwnerLookup) -> None:
    for number in range(MAX_CACHED_OWNERS + 1):
        world.client.api["robots", f"r{number}"] = robot(f"r{number}")
        await owners.find(Owner(ROBOT, "ns", f"r{number}", f"uid-r{number}"))
    calls = len(world.calls)
    await owners.find(Owner(ROBOT, "ns", f"r{MAX_CACHED_OWNERS}", f"uid-r{MAX_CACHED_OWNERS}"))
    assert len(world.calls) == calls
    await owners.find(Owner(ROBOT, "ns", "r0", "uid-r0"))
    assert len(world.calls) == calls + 1


async def test_unserved_owner_kind_is_cached_for_limited_time(
    world: World, owners: OwnerLookup, clock: Clock
) -> None:
    world.client.served.clear()
    for _ in range(3):
        assert await owners.find(OF_ROBOT) is None
    assert world.calls == ["get /apis/example.com/v1"]
    world.client.served.add(ROBOTS)
    clock.now = CACHE_SECONDS
    assert await owners.find(OF_ROBOT) is not None


async def test_owner_lookup_retries_failed_read_and_caches_forbidden_owner_as_missing(
    world: World, owners: OwnerLookup, clock: Clock
) -> None:
    await owners.find(Owner(ROBOT, "ns", "unknown", "u"))
    world.client.fails["get"] = ApiError(503, "ServiceUnavailable", "down")
    with pytest.raises(ApiError):
        await owners.find(OF_ROBOT)
    world.client.fails["get"] = ApiError(403, "Forbidden", "no")
    for _ in range(3):
        assert await owners.find(OF_ROBOT) is None
    assert world.calls[-1] == "get robots/r"
    assert world.calls.count("get robots/r") == 2


async def test_owners_of_watched_kinds_cause_no_request(world: World, owners: OwnerLookup) -> None:
    world.put(JOBS, job())
    assert await owners.find(Owner(OwnerKind("batch", "v1", "Job"), "ns", "j", "uid-j")) is not None
    assert await owners.find(Owner(OwnerKind("batch", "v1", "Job"), "ns", "x", "uid-x")) is None
    assert world.calls == []


def running(name: str, owner: dict[str, Any]) -> dict[str, Any]:
    return job({"suspend": False}, name=name, uid=f"uid-{name}", labels={}, ownerReferences=[owner])


async def test_child_of_external_job_runs_while_that_job_is_admitted(
    world: World, jobs: JobController
) -> None:
    """Between the external job and the child are a job and a ReplicaSet."""
    replica_set = {"name": "rs", "namespace": "ns", "uid": "uid-rs"}
    replica_set["ownerReferences"] = [reference("Job", "between", "batch/v1")]  # pyright: ignore[reportArgumentType]
    world.client.api["replicasets", "rs"] = {"metadata": replica_set}
    world.put(JOBS, running("between", reference("Robot", "r")))
    world.put(JOBS, running("child", reference("ReplicaSet", "rs", "apps/v1")))
    world.put(KINDS.workloads, admitted(owner=reference("Robot", "r")))
    assert await jobs.reconcile(Key("ns", "child")) is None
    assert not [call for call in world.calls if call.startswith("patch")]
    world.put(KINDS.workloads, workload(owner=reference("Robot", "r"), metadata={"resourceVersion": "99"}))
    await jobs.reconcile(Key("ns", "child"))
    assert world.get(JOBS, "child")["spec"]["suspend"] is True
    assert world.recorder.events == [("child", "Suspended", "admitq managed child job suspended")]
    assert not [call for call in world.calls if call.startswith("create")]


async def test_too_deeply_nested_owners_are_reported(world: World, jobs: JobController) -> None:
    world.client.api["robots", "r"] = robot(ownerReferences=[reference("Robot", "r")])
    world.put(JOBS, running("child", reference("Robot", "r")))
    assert await jobs.reconcile(Key("ns", "child")) is None
    assert world.recorder.events == [("child", "JobNestingTooDeep", "more than 10 owners")]


async def test_job_with_missing_external_owner_is_retried(world: World, jobs: JobController) -> None:
    del world.client.api["robots", "r"]
    world.put(JOBS, running("child", reference("Robot", "r")))
    assert await jobs.reconcile(Key("ns", "child")) == 5.0
    assert world.get(JOBS, "child")["spec"]["suspend"] is False


def test_changed_admission_of_ancestor_enqueues_jobs_at_every_depth(world: World) -> None:
    world.put(JOBS, running("one", reference("Robot", "r")))
    world.put(JOBS, running("two", reference("Job", "one", "batch/v1")))
    world.put(JOBS, running("three", reference("Job", "two", "batch/v1")))
    part, *_ = registry.build_controllers(world.ctx, world.core).when_served
    keys = next(watch.keys for watch in part.spec.watches if watch.resource == KINDS.workloads)
    new = admitted(owner=reference("Robot", "r"))
    enqueued = {str(key) for key in keys(ObjectChange("added", Key("ns", "w"), new, None))}
    assert enqueued == {"ns/one", "ns/two", "ns/three"}
    pending = workload(owner=reference("Robot", "r"))
    assert {str(key) for key in keys(ObjectChange("added", Key("ns", "w"), pending, None))} == enqueued
    other_priority = orjson.dumps({**pending, "spec": {**pending["spec"], "priority": 5}})
    assert {str(key) for key in keys(ObjectChange("modified", Key("ns", "w"), pending, other_priority))} == {
        "ns/one"
    }


def test_job_controller_starts_with_owners_of_stored_workloads(world: World) -> None:
    world.put(KINDS.workloads, workload(), workload(name="x", owner=reference("Robot", "r")))
    part, *_ = registry.build_controllers(world.ctx, world.core).when_served
    assert list(part.known()) == [Key("ns", "j")]


# --- children that request more than their owner was charged for ------------------------------------

JOBSETS = resource_of(JOBSET)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def jobset_of(pods: int = 2) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "template": TEMPLATE}
    jobs = [{"name": "a", "replicas": 1, "template": {"spec": spec}}]
    metadata: dict[str, Any] = {"name": "set", "namespace": "ns", "uid": "uid-set", "resourceVersion": "1"}
    metadata["labels"] = {NAMES.queue_name: "lq"}
    gvk = {"apiVersion": JOBSET.api_version, "kind": "JobSet"}
    return {**gvk, "metadata": metadata, "spec": {"suspend": False, "replicatedJobs": jobs}}


def child(pods: int, cpu: str = "1", queue: str | None = None, name: str = "set-a-0") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"suspend": False, "parallelism": pods, "completions": pods}
    spec["template"] = {"spec": {"containers": [container]}}
    owner = reference("JobSet", "set", JOBSET.api_version)
    labels = {NAMES.queue_name: queue} if queue else {}
    version = str(pods)
    return job(
        spec,
        name=name,
        uid=f"uid-{name}",
        resourceVersion=version,
        labels=labels,
        ownerReferences=[owner],
    )


class SetWorld(World):
    """A JobSet of two pods that runs, and a controller for its Jobs."""

    def __init__(self) -> None:
        super().__init__(settings_with(integrations=(JOB, JOBSET, TRAIN_JOB)))
        self.put(JOBSETS, jobset_of())
        self.put(KINDS.workloads, admitted(owner=reference("JobSet", "set", JOBSET.api_version)))
        self.jobs = JobController(self.ctx, JOB, OwnerLookup(self.ctx))

    async def is_suspended_after_reconcile(self, child_job: dict[str, Any]) -> bool:
        """Reconcile a child; return whether it is suspended then."""
        self.put(JOBS, child_job)
        name = child_job["metadata"]["name"]
        await self.jobs.reconcile(Key("ns", name))
        return self.get(JOBS, name)["spec"]["suspend"]


async def test_child_without_queue_is_stopped_when_it_has_more_pods_than_its_owner_was_charged_for() -> None:
    world = SetWorld()
    assert not await world.is_suspended_after_reconcile(child(2))
    assert world.calls == []
    assert await world.is_suspended_after_reconcile(child(5))
    note = "admitq managed child job suspended: its number of pods exceeds that of JobSet set"
    assert world.recorder.events == [("set-a-0", "Suspended", note)]
    assert not [call for call in world.calls if call.startswith("create")]


@pytest.mark.parametrize(
    ("deletion", "is_stopped"),
    [
        ({}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        ({"finalizers": ["orphan"]}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}, False),
    ],
    ids=["exists", "deleted", "not yet deleted", "deleted with --cascade=orphan"],
)
async def test_child_runs_on_when_its_owner_is_orphaned_and_has_lost_its_workload(
    deletion: dict[str, Any], is_stopped: bool
) -> None:
    world = SetWorld()
    owner = jobset_of()
    world.put(JOBSETS, {**owner, "metadata": {**owner["metadata"], "resourceVersion": "2", **deletion}})
    workloads = world.stores.of(KINDS.workloads)
    for former in tuple(workloads.list()):
        workloads.remove({**former, "metadata": {**former["metadata"], "resourceVersion": "99"}})
    assert await world.is_suspended_after_reconcile(child(2)) is is_stopped


async def test_child_without_queue_is_not_stopped_when_policies_changed_its_requests() -> None:
    world = SetWorld()
    assert not await world.is_suspended_after_reconcile(child(2, cpu="2"))
    assert world.recorder.events == []


@pytest.mark.parametrize(
    "child_job", [child(5, queue="lq"), child(2, "9", "lq"), child(2, "1", "lq", "mine")]
)
async def test_child_with_queue_that_differs_from_owner_is_queued_on_its_own(
    child_job: dict[str, Any],
) -> None:
    world = SetWorld()
    assert await world.is_suspended_after_reconcile(child_job)
    assert [reason for _, reason, _ in world.recorder.events] == ["Stopped"]


async def test_child_is_compared_with_owner_read_from_api_server() -> None:
    world = SetWorld()
    world.client.api["jobsets", "set"] = jobset_of(pods=5)
    assert not await world.is_suspended_after_reconcile(child(5))
    assert world.calls == ["get jobsets/set"]
    assert world.recorder.events == []


@pytest.mark.parametrize(("pods", "suspended"), [(3, False), (5, True)])
async def test_jobset_of_a_trainjob_is_compared_with_the_runtime(pods: int, suspended: bool) -> None:
    world = SetWorld()
    runtime = {"template": {"spec": {"replicatedJobs": [{"name": "a", "template": train_template()}]}}}
    followed = followed_resource(TRAIN_JOB, TRAIN_JOB.templates.referenced_kinds[0])
    world.put(
        followed, {"metadata": {"name": "rt", "uid": "uid-rt", "resourceVersion": "1"}, "spec": runtime}
    )
    metadata: dict[str, Any] = {"name": "set", "namespace": "ns", "uid": "uid-train", "resourceVersion": "1"}
    metadata["labels"] = {NAMES.queue_name: "lq"}
    spec = {"suspend": False, "runtimeRef": {"name": "rt"}, "trainer": {"numNodes": 3}}
    gvk = {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob"}
    world.put(resource_of(TRAIN_JOB), {**gvk, "metadata": metadata, "spec": spec})
    owner = {**reference("TrainJob", "set", TRAIN_JOB.api_version), "uid": "uid-train"}
    world.put(KINDS.workloads, admitted(owner=owner, metadata={"resourceVersion": "99"}))
    jobset = jobset_of(pods)
    own = {"labels": {}, "resourceVersion": "2", "ownerReferences": [owner]}
    jobset["metadata"] = {**jobset["metadata"], **own}
    world.put(JOBSETS, jobset)
    await JobController(world.ctx, JOBSET, OwnerLookup(world.ctx)).reconcile(Key("ns", "set"))
    assert world.get(JOBSETS, "set")["spec"]["suspend"] is suspended


def train_template() -> dict[str, Any]:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {"metadata": {"labels": labels}, "spec": {"template": TEMPLATE}}
