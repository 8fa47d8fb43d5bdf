"""The job controller: what it reads and writes, and how it handles errors."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.job.controller import JobController, start_admitted
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.kinds.job import JOB
from admitq.integrations.references import OwnerKind
from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.resources import JOBS, NAMESPACES
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    condition,
    condition_of,
    job,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING
from tests.unit.controllers.world import World, cluster_scoped

KEY = Key("ns", "j")
FLAVOR = cluster_scoped("f", spec={"nodeLabels": {"pool": "spot"}})
WAITING = condition("QuotaReserved", False, "WaitingForQuota")
INVALID = ApiError(422, "Invalid", "spec.template: field is immutable")


@pytest.fixture
def world() -> World:
    result = World()
    result.put(KINDS.resource_flavors, FLAVOR)
    return result


@pytest.fixture
def jobs(world: World) -> JobController:
    return JobController(world.ctx, JOB, OwnerLookup(world.ctx))


def workload_name(world: World) -> str:
    """Return the name of the Workload that the job gets."""
    metadata = world.get(JOBS, "j")["metadata"]
    return create_workload_name("Job", "batch", metadata["name"], metadata["uid"])


async def test_workload_of_new_job_is_stored_right_after_its_creation(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job())
    assert await jobs.reconcile(KEY) is None
    assert len(list(world.stores.of(KINDS.workloads).list())) == 1
    assert await jobs.reconcile(KEY) is None
    assert [call.partition("/")[0] for call in world.calls] == ["create workloads"]
    assert "workload_created" in world.recorder.metrics


async def test_admitted_job_is_started_right_after_admission(world: World, jobs: JobController) -> None:
    world.put(JOBS, job())
    world.put(KINDS.workloads, admitted())
    by_kind = {OwnerKind("batch", "v1", "Job"): jobs}
    await start_admitted(by_kind, admitted())
    assert world.get(JOBS, "j")["spec"]["suspend"] is False
    assert await jobs.reconcile(KEY) is None
    assert world.calls == ["patch jobs/j"]


async def test_job_start_is_written_once_when_reconcile_runs_meanwhile(
    world: World, jobs: JobController
) -> None:
    """After each admission, `start` and `reconcile` run for the same job; only one of them may write."""
    world.put(JOBS, job())
    world.put(KINDS.workloads, admitted())
    under_way = asyncio.Event()
    original = world.client.merge_patch

    async def slowly(*args: Any, **named: Any) -> dict[str, Any]:
        under_way.set()
        await asyncio.sleep(0)
        return await original(*args, **named)

    world.client.merge_patch = slowly
    starting = asyncio.create_task(jobs.start(admitted()))
    await under_way.wait()
    assert await jobs.reconcile(KEY) == 1.0
    await jobs.start(admitted())
    await starting
    assert world.calls == ["patch jobs/j"]


async def test_admitted_workload_without_known_job_kind_starts_nothing(
    world: World, jobs: JobController
) -> None:
    await start_admitted({OwnerKind("batch", "v1", "Job"): jobs}, admitted(owner=None))
    await start_admitted({}, admitted())
    assert world.calls == []


async def test_job_missing_from_watch_is_read_before_its_workload_is_finished(
    world: World, jobs: JobController
) -> None:
    world.put(KINDS.workloads, workload())
    world.client.api["jobs", "j"] = job()
    assert await jobs.reconcile(KEY) == 1.0
    assert world.calls == ["get jobs/j"]
    del world.client.api["jobs", "j"]
    await jobs.reconcile(KEY)
    await jobs.reconcile(KEY)
    ended = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []


async def test_workload_is_not_orphaned_while_kind_of_its_job_is_not_served(
    world: World, jobs: JobController
) -> None:
    world.put(KINDS.workloads, workload())
    world.client.unserved.add(JOBS)
    assert await jobs.reconcile(KEY) == 1.0
    del world.stores.stores[JOBS]
    assert await jobs.reconcile(KEY) is None
    await jobs.start(admitted())
    assert world.calls == ["get jobs/j"]


async def test_job_with_settled_workloads_causes_no_request(world: World, jobs: JobController) -> None:
    world.put(KINDS.workloads, workload(FINISHED, metadata={"finalizers": []}))
    assert await jobs.reconcile(KEY) is None
    assert await jobs.reconcile(Key("ns", "unknown")) is None
    assert world.calls == []


unadmitted = pytest.mark.parametrize(
    "known", [(), (workload(WAITING),)], ids=["no Workload", "pending Workload"]
)
"""The inputs for a job without admission."""


@unadmitted
async def test_running_job_is_not_stopped_when_api_server_has_its_admission(
    known: Sequence[dict[str, Any]], world: World, jobs: JobController
) -> None:
    world.put(JOBS, job(RUNNING))
    world.put(KINDS.workloads, *known)
    newer = admitted(metadata={"resourceVersion": "8", "labels": {NAMES.job_uid: "uid-j"}})
    world.client.api["workloads", "job-j-1"] = newer
    assert await jobs.reconcile(KEY) == 1.0
    assert world.get(KINDS.workloads, "job-j-1") == newer
    await jobs.reconcile(KEY)
    assert world.calls == ["list workloads"]


@unadmitted
async def test_running_job_without_admission_is_stopped(
    known: Sequence[dict[str, Any]], world: World, jobs: JobController
) -> None:
    world.put(JOBS, job({"suspend": False}))
    world.put(KINDS.workloads, *known)
    world.client.api["workloads", "other"] = workload(metadata={"labels": {NAMES.job_uid: "uid-other"}})
    await jobs.reconcile(KEY)
    assert world.calls[:2] == ["list workloads", "patch jobs/j"]
    assert world.get(JOBS, "j")["spec"]["suspend"] is True


async def test_job_is_retried_while_its_namespace_is_not_in_store(world: World, jobs: JobController) -> None:
    world.stores.of(NAMESPACES).remove({"metadata": {"name": "ns", "uid": "uid-ns", "resourceVersion": "9"}})
    world.put(JOBS, job())
    assert await jobs.reconcile(KEY) == 1.0
    assert world.calls == []


async def test_existing_workload_is_stored_when_its_creation_is_rejected(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job())
    name = workload_name(world)
    world.client.fails["create"] = ApiError(409, "AlreadyExists", "exists")
    world.client.api["workloads", name] = workload(name=name)
    assert await jobs.reconcile(KEY) == 1.0
    assert world.get(KINDS.workloads, name) is not None
    assert world.recorder.events == []


async def test_foreign_workload_with_same_name_is_reported(world: World, jobs: JobController) -> None:
    world.put(JOBS, job())
    name = workload_name(world)
    world.client.fails["create"] = ApiError(409, "AlreadyExists", "exists")
    world.client.api["workloads", name] = workload(name=name, owner=None)
    assert await jobs.reconcile(KEY) == 5.0
    note = f"Workload {name} exists already and belongs to something else"
    assert world.recorder.events == [("j", "ErrWorkloadCompose", note)]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ApiError(422, "Invalid", "spec.podSets: too many"), PermanentRejection),
        (ApiError(400, "BadRequest", "spec.podSets: too many"), PermanentRejection),
        (ApiError(403, "Forbidden", "spec.podSets: too many"), ApiError),
    ],
)
async def test_d24_refused_workload_is_reported_and_retried_only_if_the_refusal_may_end(
    world: World, jobs: JobController, error: ApiError, raised: type[Exception]
) -> None:
    world.put(JOBS, job())
    world.client.fails["create"] = error
    with pytest.raises(raised, match=r"spec\.podSets: too many"):
        await jobs.reconcile(KEY)
    assert world.recorder.events == [("j", "ErrWorkloadCompose", "spec.podSets: too many")]


async def test_d24_start_of_a_job_with_refused_workload_only_reports_it(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job())
    world.client.fails["create"] = ApiError(422, "Invalid", "too many")
    await jobs.start(admitted())
    assert world.recorder.events == [("j", "ErrWorkloadCompose", "too many")]


async def test_d24_job_without_podsets_is_reported_and_no_workload_is_created(world: World) -> None:
    without = replace(
        JOB,
        list_pod_sets=lambda _job, _names: (),
        templates=replace(JOB.templates, pod_sets_field="spec.roles"),
    )
    jobs = JobController(world.ctx, without, OwnerLookup(world.ctx))
    world.put(JOBS, job())
    with pytest.raises(PermanentRejection, match=r"spec\.roles: Required value"):
        await jobs.reconcile(KEY)
    note = "spec.roles: Required value: describes no pods; a Workload needs at least one podset"
    assert world.recorder.events == [("j", "ErrWorkloadCompose", note)]
    assert world.calls == []


async def test_pending_job_that_became_invalid_loses_its_workload_and_reports_reason(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job({"parallelism": 2}))
    world.put(KINDS.workloads, workload(WAITING))
    world.client.fails["patch"] = ApiError(422, "Invalid", "spec.podSets[0].count: too many")
    with pytest.raises(PermanentRejection):
        await jobs.reconcile(KEY)
    assert [call.partition("/")[0] for call in world.calls] == [
        "patch workloads",
        "delete workloads",
        "json_patch workloads",
    ]
    assert world.recorder.events == [
        ("j", "ErrWorkloadCompose", "spec.podSets[0].count: too many"),
        ("j", "DeletedWorkload", "Deleted not matching Workload: ns/job-j-1"),
    ]


async def test_deletion_is_reported_despite_a_write_before_the_finalizer_is_removed(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job({"parallelism": 2}))
    world.put(KINDS.workloads, workload(WAITING))
    world.client.fails["patch"] = ApiError(422, "Invalid", "spec.podSets[0].count: too many")
    world.client.fails["json_patch"] = ApiError(409, "Conflict", "is another version")
    with pytest.raises(ApiError):
        await jobs.reconcile(KEY)
    assert ("j", "DeletedWorkload", "Deleted not matching Workload: ns/job-j-1") in world.recorder.events


async def test_terminating_namespace_is_not_reported(world: World, jobs: JobController) -> None:
    world.put(JOBS, job())
    body = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    world.client.fails["create"] = ApiError(403, "Forbidden", "is being terminated", body=body)
    assert await jobs.reconcile(KEY) is None
    assert world.recorder.events == []


async def test_workload_is_finished_when_api_server_rejects_start_of_its_job(
    world: World, jobs: JobController
) -> None:
    world.put(JOBS, job())
    world.put(KINDS.workloads, admitted())
    original = world.client.merge_patch

    async def refuse_jobs(resource: Any, *args: Any, **named: Any) -> dict[str, Any]:
        if resource == JOBS:
            raise INVALID
        return await original(resource, *args, **named)

    world.client.merge_patch = refuse_jobs
    await jobs.reconcile(KEY)
    failed = condition_of(world.get(KINDS.workloads, "job-j-1"), "Finished")
    assert failed == ("True", "FailedToStart", "spec.template: field is immutable")
    assert world.recorder.events == []


@pytest.mark.parametrize(
    ("suspended", "known", "reason"),
    [(True, (admitted(),), "ErrWorkloadCompose"), (False, (workload(WAITING),), "StopRefused")],
    ids=["start", "stop"],
)
async def test_job_start_or_stop_that_webhook_rejects_is_reported(
    world: World, jobs: JobController, suspended: bool, known: Any, reason: str
) -> None:
    world.put(JOBS, job({"suspend": suspended}))
    for obj in known:
        world.put(KINDS.workloads, obj)
    world.client.fails["patch"] = ApiError(403, "Forbidden", "denied by policy")
    with pytest.raises(ApiError, match="denied by policy"):
        await jobs.reconcile(KEY)
    assert world.recorder.events == [("j", reason, "denied by policy")]


async def test_conflict_of_job_start_is_retried_without_event(world: World, jobs: JobController) -> None:
    world.put(JOBS, job())
    world.put(KINDS.workloads, admitted())
    world.client.fails["patch"] = ApiError(409, "Conflict", "changed")
    with pytest.raises(ApiError):
        await jobs.reconcile(KEY)
    assert world.recorder.events == []
    del world.client.fails["patch"]
    await jobs.reconcile(KEY)
    assert world.get(JOBS, "j")["spec"]["suspend"] is False


async def test_start_of_job_that_no_longer_exists_is_not_reported(world: World, jobs: JobController) -> None:
    world.put(JOBS, job())
    world.put(KINDS.workloads, admitted())
    world.client.fails["patch"] = ApiError(404, "NotFound", "gone")
    assert await jobs.reconcile(KEY) == 1.0
    assert world.recorder.events == []
