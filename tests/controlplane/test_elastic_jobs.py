"""Stories of elastic jobs on the real control plane: they are scaled while their pods run."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.runtime.resources import JOBS, PODS
from admitq.workloads.transitions import is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import KindCase, load, path_of
from tests.controlplane.played_jobs import PlayedJob, open_queues, submit
from tests.controlplane.pods_of_jobs import hold_pods, succeed_pods
from tests.controlplane.recording import sum_of_series
from tests.controlplane.stage import RUN_SECONDS, Stage, controlled_by

REPOSITORY = Path(__file__).parents[2]
CLUSTERS = resource_of(RAY_CLUSTER)
MADE = "count-words-x7k2p"
"""The cluster in the status of a running RayJob."""


async def create_elastic_job(stage: Stage, pods: int, name: str = "j") -> None:
    annotations = {stage.names.elastic_job: "true"}
    await stage.job(name, pods=pods, completions=50, metadata={"annotations": annotations})


async def resize(stage: Stage, pods: int, name: str = "j") -> None:
    await stage.change(JOBS, name, {"spec": {"parallelism": pods}})


async def unfinished_slices(stage: Stage, name: str = "j") -> list[tuple[int, bool]]:
    """The unfinished slices of a job: their number of pods, and whether they have quota."""
    found = [one for one in await stage.workloads(name) if not is_condition_true(one, ConditionType.FINISHED)]
    return sorted((value_at(one, ("spec", "podSets"))[0]["count"], is_reserved(one)) for one in found)


async def until_slices(stage: Stage, *slices: tuple[int, bool], name: str = "j") -> None:
    async def seen() -> list[tuple[int, bool]]:
        return await unfinished_slices(stage, name)

    await stage.until(seen, list(slices), what=f"the slices of {name}")


async def until_pods(stage: Stage, ungated: int, gated: int, name: str = "j") -> None:
    """Wait until so many pods of a job have no gate, and so many are gated."""

    async def counts() -> tuple[int, int]:
        pods = [one for one in await stage.pods(name) if "deletionTimestamp" not in one["metadata"]]
        gate = {"name": stage.names.elastic_gate}
        held = sum(gate in value_at(one, ("spec", "schedulingGates"), []) for one in pods)
        return len(pods) - held, held

    await stage.until(counts, (ungated, gated), what=f"ungated and gated pods of {name}")


async def is_suspended(stage: Stage, name: str = "j") -> bool:
    return value_at(await stage.get(JOBS, name), ("spec", "suspend")) is True


@pytest.mark.core
async def test_elastic_job_scales_up_in_place_and_new_slice_replaces_the_old_one(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.queues(cpu=4)
    await create_elastic_job(stage, 2)
    await until_pods(stage, 2, 0)
    started = value_at(await stage.get(JOBS, "j"), ("status", "startTime"))
    await resize(stage, 4)
    await until_slices(stage, (4, True))
    await until_pods(stage, 4, 0)
    assert value_at(await stage.get(JOBS, "j"), ("status", "startTime")) == started
    first, second = sorted(
        await stage.workloads(), key=lambda one: value_at(one, ("spec", "podSets"))[0]["count"]
    )
    annotations = second["metadata"]["annotations"]
    assert annotations[stage.names.workload_slice_name] == first["metadata"]["name"]
    replaced = f"{stage.namespace}/{first['metadata']['name']}"
    assert annotations[stage.names.workload_slice_replacement_for] == replaced
    finished = [one for one in first["status"]["conditions"] if one["type"] == "Finished"]
    uid = second["metadata"]["labels"][stage.names.job_uid]
    note = (
        f"Replaced to accommodate a workload (UID: {second['metadata']['uid']}, JobUID: {uid}) "
        "due to workload slice aggregation"
    )
    assert [(one["reason"], one["message"]) for one in finished] == [("WorkloadSliceReplaced", note)]
    await stage.until_event("Workload", first["metadata"]["name"], "WorkloadSliceReplaced", note)
    queue, gate = {"cluster_queue": stage.own("cq")}, {"name": stage.names.elastic_gate}

    async def counted() -> list[float]:
        gates = await sum_of_series(
            admitq_running, "pod_scheduling_gate_removal_seconds_count", **queue, **gate
        )
        return [await sum_of_series(admitq_running, "replaced_workload_slices_total", **queue), gates]

    await stage.until(counted, [1.0, 4.0])


async def test_added_pods_of_elastic_job_stay_gated_until_quota_is_free(stage: Stage) -> None:
    await stage.queues(cpu=4)
    await stage.job("other", pods=2)
    await stage.until_running("other")
    await create_elastic_job(stage, 2)
    await until_pods(stage, 2, 0)
    await resize(stage, 3)
    await until_slices(stage, (2, True), (3, False))
    await until_pods(stage, 2, 1)
    assert not await is_suspended(stage)
    await resize(stage, 4)
    await until_slices(stage, (2, True), (4, False))
    await succeed_pods(stage, "other")
    await until_slices(stage, (4, True))
    await until_pods(stage, 4, 0)
    assert not await is_suspended(stage)


async def test_scaled_down_elastic_job_frees_quota_after_its_pods_end_and_keeps_its_workload(
    stage: Stage,
) -> None:
    await stage.queues(cpu=4)
    await create_elastic_job(stage, 4)
    await until_pods(stage, 4, 0)
    before = (await stage.workload())["metadata"]["uid"]
    await stage.job("next", pods=2)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "next")
    await hold_pods(stage, held=True)
    await resize(stage, 2)

    async def terminating() -> int:
        return sum("deletionTimestamp" in one["metadata"] for one in await stage.pods())

    await stage.until(terminating, 2, what="pods to be deleted")
    assert await unfinished_slices(stage) == [(4, True)]
    assert await is_suspended(stage, "next")
    await hold_pods(stage, held=False)
    await stage.until_running("next")
    await until_slices(stage, (2, True))
    workload = await stage.workload()
    assert workload["metadata"]["uid"] == before
    [assignment] = value_at(workload, ("status", "admission", "podSetAssignments"))
    assert (assignment["count"], assignment["resourceUsage"]) == (2, {"cpu": "2"})


def standalone_workload(pods: int, queue: str | None = "lq") -> dict[str, Any]:
    """A Workload of another program, without job and without the annotation of elastic jobs."""
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_sets = [{"name": "main", "count": pods, "template": template}]
    return {"spec": {"podSets": pod_sets, **({"queueName": queue} if queue else {})}}


async def test_c14_scale_down_of_a_reserved_workload_frees_quota_at_once(stage: Stage) -> None:
    await stage.queues(cpu=8)
    workloads = stage.kinds.workloads

    async def has_quota(name: str) -> bool:
        return is_reserved(await stage.get(workloads, name))

    async def reserving_and_total() -> Any:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
        return status["reservingWorkloads"], status["flavorsReservation"][0]["resources"][0]["total"]

    wide = await stage.create(workloads, "wide", standalone_workload(8))
    await stage.until(lambda: has_quota("wide"))
    await stage.create(workloads, "next", standalone_workload(2))
    [pod_set] = wide["spec"]["podSets"]
    await stage.change(workloads, "wide", {"spec": {"podSets": [{**pod_set, "count": 7}]}})
    await stage.until(reserving_and_total, (1, "7"))
    await stage.change(workloads, "wide", {"spec": {"podSets": [{**pod_set, "count": 6}]}})
    await stage.until(lambda: has_quota("next"))
    await stage.until(reserving_and_total, (2, "8"))
    [assignment] = value_at(await stage.get(workloads, "wide"), ("status", "admission", "podSetAssignments"))
    assert (assignment["count"], assignment["resourceUsage"]) == (8, {"cpu": "8"})

    slice_ = standalone_workload(1, queue=None)
    replaced = {stage.names.workload_slice_replacement_for: f"{stage.namespace}/wide"}
    await stage.create(workloads, "slice", {**slice_, "metadata": {"annotations": replaced}})
    await stage.change(workloads, "slice", {"status": {"clusterName": "worker"}}, "status")


async def test_c15_reclaimable_pods_shrink_after_a_scale_down(stage: Stage) -> None:
    await stage.queues(cpu=4)
    annotations = {stage.names.elastic_job: "true"}
    await stage.job("j", pods=4, completionMode="Indexed", metadata={"annotations": annotations})
    await until_pods(stage, 4, 0)
    for pod in await stage.pods():
        if pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] in {"1", "3"}:
            over = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
            await stage.change(PODS, pod["metadata"]["name"], over)

    async def reclaimable() -> int:
        listed = value_at(await stage.workload(), ("status", "reclaimablePods"), [])
        return sum(one["count"] for one in listed)

    await stage.until(reclaimable, 2)
    await stage.change(JOBS, "j", {"spec": {"parallelism": 3, "completions": 3}})
    await stage.until(reclaimable, 1)
    # The manager writes the counts of the podsets afterwards.
    await until_slices(stage, (3, True))


async def test_b11_recreated_slice_has_no_labels_or_annotations_of_the_deleted_workload(stage: Stage) -> None:
    await stage.queues(cpu=4)
    await create_elastic_job(stage, 2)
    await until_pods(stage, 2, 0)
    first, workloads = (await stage.workload())["metadata"]["name"], stage.kinds.workloads
    await stage.change(workloads, first, {"metadata": {"finalizers": []}})
    await stage.client.delete(workloads, first, namespace=stage.namespace)

    async def new_slice() -> dict[str, Any]:
        [found] = [one for one in await stage.workloads() if one["metadata"]["name"] != first]
        assert is_reserved(found)
        return found

    made = await eventually(new_slice, what="another slice with quota")
    metadata = value_at(made, ("spec", "podSets"))[0]["template"].get("metadata", {})
    assert not {**metadata.get("labels", {}), **metadata.get("annotations", {})}.keys() & {
        stage.names.workload_slice_name,
        stage.names.workload,
        stage.names.podset,
    }
    queue, drained = stage.own("cq"), {"spec": {"stopPolicy": "HoldAndDrain"}}
    await stage.change(stage.kinds.cluster_queues, queue, drained)
    await stage.until_running(running=False)
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "None"}})
    await stage.until_running()


async def test_evicted_elastic_job_is_readmitted_with_its_current_parallelism(stage: Stage) -> None:
    await stage.queues(cpu=4)
    await create_elastic_job(stage, 4)
    await until_pods(stage, 4, 0)
    await resize(stage, 6)
    await until_slices(stage, (4, True), (6, False))
    queue = stage.own("cq")
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.until_running(running=False)
    await until_slices(stage, (6, False))
    await resize(stage, 3)
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "None"}})
    await until_slices(stage, (3, True))
    await until_pods(stage, 3, 0)


async def test_elastic_job_of_the_guide_runs_and_scales_up_unchanged(stage: Stage) -> None:
    quota = [{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "4Gi"}]
    flavors = [{"name": stage.own("f"), "resources": quota}]
    await stage.flavor()
    await stage.cluster_queue(resourceGroups=[{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
    await stage.local_queue("default")
    text = (REPOSITORY / "docs" / "guides" / "elastic-jobs.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text.replace("admitq.dev/", f"{stage.names.group}/"), re.DOTALL)
    [shown] = [one for block in blocks for one in yaml.safe_load_all(block)]
    name, pods = shown["metadata"]["name"], shown["spec"]["parallelism"]
    await stage.create(JOBS, name, shown)
    await until_pods(stage, pods, 0, name)
    await resize(stage, pods + 2, name)
    await until_pods(stage, pods + 2, 0, name)


async def test_workers_that_ray_adds_stay_gated_until_quota_is_reserved(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    cluster, job, service = (load(one, stage.names.group) for one in (RAY_CLUSTER, RAY_JOB, RAY_SERVICE))
    definitions({*cluster.definitions, *job.definitions, *service.definitions})
    await open_queues(stage, cluster)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ray_cluster_is_scaled_by_its_user(stage, cluster))
        tasks.create_task(ray_job_follows_the_scale_of_its_cluster(stage, job))
        tasks.create_task(ray_service_has_quota_for_both_clusters_during_an_upgrade(stage, service))


async def slices(stage: Stage, job: PlayedJob) -> list[tuple[list[int], bool]]:
    """The pod counts of the unfinished slices of a job, and whether they have quota."""
    found = [
        one for one in await stage.workloads(job.name) if not is_condition_true(one, ConditionType.FINISHED)
    ]
    return [
        ([each["count"] for each in value_at(one, ("spec", "podSets"))], is_reserved(one)) for one in found
    ]


async def create_ray_cluster(stage: Stage, name: str, owner: dict[str, Any], spec: Any) -> None:
    """Create a cluster for a job, as Ray does. The webhook gates its pods until they are counted."""
    metadata = {**controlled_by(owner), "annotations": {stage.names.elastic_job: "true"}}
    made = await stage.create(CLUSTERS, name, {"metadata": metadata, "spec": spec})
    for pods in ("headGroupSpec", "workerGroupSpecs[0]"):
        gates = value_at(made, path_of(f"spec.{pods}.template.spec.schedulingGates"))
        assert gates == [{"name": stage.names.elastic_gate}]


async def ray_job_follows_the_scale_of_its_cluster(stage: Stage, case: KindCase) -> None:
    """Ray adds workers to the cluster of a job, and removes some."""
    annotation = f"metadata.annotations[{stage.names.elastic_job}]"
    described = "spec.rayClusterSpec"
    changes: Mapping[str, Any] = {
        annotation: "true",
        f"{described}.enableInTreeAutoscaling": True,
        f"{described}.workerGroupSpecs[0].minReplicas": 0,
        f"{described}.workerGroupSpecs[0].maxReplicas": 9,
    }
    job, created = await submit(stage, case, changes=changes)
    running = await job.until_started()

    async def until_granted(pods: list[int], what: str) -> None:
        await stage.until(lambda: slices(stage, job), [(pods, True)], what=what)

    async def scale(workers: int) -> None:
        groups = value_at(await stage.get(CLUSTERS, MADE), ("spec", "workerGroupSpecs"))
        await stage.change(
            CLUSTERS, MADE, {"spec": {"workerGroupSpecs": [{**groups[0], "replicas": workers}]}}
        )

    await job.play("running")
    await create_ray_cluster(stage, MADE, created, value_at(running, path_of(described)))
    await until_granted([1, 3, 1], "quota for the workers that the job states")
    await scale(5)
    await until_granted([1, 5, 1], "quota for the workers that Ray added")
    await scale(1)
    await until_granted([1, 1, 1], "quota for the workers that Ray left")
    assert value_at(await job.get(), ("spec", "suspend")) is False


async def ray_service_has_quota_for_both_clusters_during_an_upgrade(stage: Stage, case: KindCase) -> None:
    """A service is upgraded: it has a second cluster beside the first, which then replaces it."""
    changes = {f"metadata.annotations[{stage.names.elastic_job}]": "true"}
    service, created = await submit(stage, case, changes=changes)
    spec = value_at(await service.until_started(), path_of("spec.rayClusterConfig"))

    async def set_clusters(pods: list[int], *, active: str, pending: str) -> None:
        named = {"activeServiceStatus": active, "pendingServiceStatus": pending}
        status = {key: {"rayClusterName": name} for key, name in named.items()}
        await stage.change(case.resource, service.name, {"status": status}, "status")
        await stage.until(lambda: slices(stage, service), [(pods, True)], what=f"quota for {pods}")

    old, new = (f"{service.name}-{suffix}" for suffix in ("x7k2p", "z4v9q"))
    await create_ray_cluster(stage, old, created, spec)
    await service.play("ready")
    await set_clusters([1, 2], active=old, pending="")
    await create_ray_cluster(stage, new, created, spec)
    await set_clusters([2, 4], active=old, pending=new)
    await set_clusters([1, 2], active=new, pending="")
    assert value_at(await service.get(), path_of("spec.rayClusterConfig.suspend")) is False


async def ray_cluster_is_scaled_by_its_user(stage: Stage, case: KindCase) -> None:
    """A user scales up a cluster that is queued itself."""
    elastic_job = f"metadata.annotations[{stage.names.elastic_job}]"
    cluster, created = await submit(stage, case, changes={elastic_job: "true"})
    gate = {"name": stage.names.elastic_gate}
    for place in ("spec.headGroupSpec", "spec.workerGroupSpecs[0]", "spec.workerGroupSpecs[1]"):
        assert value_at(created, path_of(f"{place}.template.spec.schedulingGates")) == [gate]
    running = await cluster.until_started()
    template = value_at(running, path_of("spec.workerGroupSpecs[0].template"))

    async def create_worker(name: str) -> None:
        labels = {"ray.io/cluster": cluster.name, "ray.io/node-type": "worker", "ray.io/group": "small"}
        metadata = {**template["metadata"], **controlled_by(created)}
        metadata["labels"] = {**template["metadata"].get("labels", {}), **labels}
        await stage.create(PODS, name, {"metadata": metadata, "spec": template["spec"]})

    async def gates() -> list[bool]:
        pods = [await stage.get(PODS, name) for name in made]
        return [gate in value_at(pod, ("spec", "schedulingGates"), []) for pod in pods]

    made = [f"{cluster.name}-small-worker-{suffix}" for suffix in ("bcdf1", "bcdf2", "bcdf3")]
    for name in made:
        await create_worker(name)
    await stage.until(gates, [False, False, True], what="two workers without gate")
    await cluster.change({"spec.workerGroupSpecs[0].maxReplicas": 3, "spec.workerGroupSpecs[0].replicas": 3})
    await stage.until(gates, [False, False, False], what="the third worker without gate")
    assert value_at(await cluster.get(), ("spec", "suspend")) is not True
