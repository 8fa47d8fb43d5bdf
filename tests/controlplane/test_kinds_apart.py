"""Stories of single kinds: TrainJobs, RayJobs and RayServices."""

import dataclasses
from collections.abc import Callable, Iterable

from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.workloads.transitions import is_reserved
from tests.controlplane.kind_cases import differences, load
from tests.controlplane.played_jobs import create_other, open_queues, submit
from tests.controlplane.stage import Stage

Definitions = Callable[[Iterable[str]], None]


async def test_trainjob_is_queued_once_its_runtime_exists(stage: Stage, definitions: Definitions) -> None:
    case = load(TRAIN_JOB, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, dataclasses.replace(case, objects=()))
    job, created = await submit(stage, case)
    assert differences(created, case.suspended) == []
    note = (
        f"TrainingRuntime torch in namespace {stage.namespace} not found: "
        "create it, or name another one in a new job"
    )
    await stage.until_event("TrainJob", job.name, "ErrWorkloadCompose", note)
    assert await stage.workloads(job.name) == []
    for runtime in case.objects:
        await create_other(stage, runtime)
    await job.until_started()
    assert await job.pod_sets() == {one.name: one.count for one in case.podSets}


async def test_rayjob_for_an_existing_cluster_is_not_queued(stage: Stage, definitions: Definitions) -> None:
    case = load(RAY_JOB, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    selecting = {"spec.rayClusterSpec": None, "spec.clusterSelector": {"ray.io/cluster": "there"}}
    job, created = await submit(stage, case, changes=selecting)
    assert created["spec"].get("suspend") is not True
    other, _ = await submit(stage, case, "other")
    await other.until_started()
    assert await stage.workloads(job.name) == []
    assert differences(await job.get(), selecting) == []


async def test_deleted_rayservice_keeps_its_quota_until_redis_is_cleaned_up(
    stage: Stage, definitions: Definitions
) -> None:
    case = load(RAY_SERVICE, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    changes = {
        "spec.rayClusterConfig.gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
        # This finalizer stands for the cleanup that Ray does before a service is removed.
        "metadata.finalizers": ["example.com/cleanup"],
    }
    job, _ = await submit(stage, case, changes=changes)
    await job.until_started()
    other, _ = await submit(stage, case, "other")
    await other.until_started()
    for one in (job, other):
        await stage.client.delete(case.resource, one.name, stage.namespace, propagation="Background")
    # The service without stored state is released. By then the one with state was reconciled, too.
    await stage.until(other.is_gone_for_good, True, timeout=90.0)
    assert is_reserved(await job.workload())
    await stage.client.merge_patch(
        case.resource, job.name, {"metadata": {"finalizers": None}}, stage.namespace
    )
    await stage.until(job.is_gone_for_good, True, timeout=90.0)
