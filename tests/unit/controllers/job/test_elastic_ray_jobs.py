"""RayJobs with clusters that the Ray autoscaler, or a user, scales."""

from itertools import count
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.families.ray_clusters import CLUSTER_KIND as CLUSTERS_OF_JOBS
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import value_at
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    admitted,
    apply_patch,
    condition_of,
    settings_with,
    timestamp,
)
from tests.unit.controllers.job.elastic_jobs import ELASTIC, watch_started_pods
from tests.unit.controllers.world import World

VERSIONS = count(1)


def ray_job(**status: Any) -> dict[str, Any]:
    """Return a running RayJob with three workers."""
    group = {"groupName": "g", "replicas": 3, "template": {"metadata": MARKS, "spec": TEMPLATE["spec"]}}
    head = {"template": {"metadata": MARKS, "spec": TEMPLATE["spec"]}}
    cluster = {"enableInTreeAutoscaling": True, "headGroupSpec": head, "workerGroupSpecs": [group]}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "uid-j",
            "resourceVersion": str(next(VERSIONS)),
            "generation": 2,
            "creationTimestamp": timestamp(0),
            "labels": {NAMES.queue_name: "lq"},
            "annotations": ELASTIC,
        },
        "spec": {"suspend": False, "submissionMode": "HTTPMode", "rayClusterSpec": cluster},
        "status": {"jobDeploymentStatus": "Running", "rayClusterName": "j-1", **status},
    }


def ray_cluster(workers: int, generation: int = 1, name: str = "j-1", owner: str = "uid-j") -> dict[str, Any]:
    job_ = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": owner, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "resourceVersion": str(next(VERSIONS)),
        "ownerReferences": [job_],
    }
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "g", "replicas": workers}]}
    return {"metadata": {**metadata, "generation": generation}, "spec": spec}


MARKS: dict[str, Any] = {"labels": {NAMES.podset: "g"}, "annotations": {NAMES.workload_slice_name: "first"}}

RAY_JOBS = resource_of(RAY_JOB)

CLUSTERS = followed_resource(RAY_JOB, CLUSTERS_OF_JOBS)

RAY_KEY = Key("ns", "j")


def workload_with_quota(job_: dict[str, Any]) -> dict[str, Any]:
    """Return a Workload with quota for the podsets in the spec of a RayJob."""
    spec = {
        "podSets": [
            {"name": pod_set.name, "count": pod_set.count, "template": pod_set.get_template(job_)}
            for pod_set in RAY_JOB.list_pod_sets(job_, NAMES)
        ]
    }
    assignments = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {"cpu": "f"}}
        for pod_set in spec["podSets"]
    ]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "uid-j", "controller": True}
    annotations = {**ELASTIC, NAMES.workload_slice_name: "first"}
    admission = {"clusterQueue": "cq", "podSetAssignments": assignments}
    metadata = {"annotations": annotations}
    return admitted(name="first", owner=owner, metadata=metadata, spec=spec, admission=admission)


class RayWorld:
    """A running RayJob with quota for three workers, and its controller."""

    def __init__(self, job_: dict[str, Any] | None = None, **settings: Any) -> None:
        self.world = World(settings=settings_with(integrations=(RAY_JOB,), **settings))
        watch_started_pods(self.world).record_progress("1")
        self.world.put(RAY_JOBS, job_ or ray_job())
        self.world.put(KINDS.workloads, workload_with_quota(job_ or ray_job()))
        self.jobs = JobController(self.world.ctx, RAY_JOB, OwnerLookup(self.world.ctx))

    async def reconcile(self, *clusters: dict[str, Any]) -> list[tuple[str, list[int]]]:
        """Reconcile with these clusters; return name and pod counts of each unfinished slice."""
        self.world.put(CLUSTERS, *clusters)
        await self.jobs.reconcile(RAY_KEY)
        return [
            (obj["metadata"]["name"], [pod_set["count"] for pod_set in obj["spec"]["podSets"]])
            for obj in self.world.stores.of(KINDS.workloads).list()
            if not condition_of(obj, "Finished")
        ]


async def test_ray_job_gets_slice_that_follows_its_cluster_when_ray_adds_workers() -> None:
    ray = RayWorld()
    assert await ray.reconcile(ray_cluster(3)) == [("first", [1, 3])]
    [first, (second, pods)] = await ray.reconcile(ray_cluster(5, generation=2))
    assert (first, pods) == (("first", [1, 3]), [1, 5])
    assert second == create_workload_name("RayJob", "ray.io", "j", "uid-j", extra="2_2")
    assert await ray.reconcile(ray_cluster(6, generation=3)) == [first, (second, [1, 6])]
    assert await ray.reconcile(ray_cluster(3, generation=4)) == [first]


async def test_ray_job_releases_quota_when_ray_removed_workers_and_no_pod_runs() -> None:
    ray = RayWorld()
    assert await ray.reconcile(ray_cluster(1, generation=2)) == [("first", [1, 1])]
    await ray.jobs.reconcile(RAY_KEY)
    stored = ray.world.get(KINDS.workloads, "first")
    assignments = value_at(stored, ("status", "admission", "podSetAssignments"))
    assert [assignment["count"] for assignment in assignments] == [1, 1]


async def test_ray_job_keeps_its_slices_when_its_cluster_is_unknown() -> None:
    ray = RayWorld()
    slices = await ray.reconcile(ray_cluster(5, generation=2))
    ray.world.stores.of(CLUSTERS).remove(ray_cluster(5))
    calls = len(ray.world.calls)
    assert await ray.reconcile() == slices
    assert ray.world.calls[calls:] == []
    assert not [note for _, _, note in ray.world.recorder.events if "not found" in note]


async def test_ray_cluster_of_former_job_does_not_change_slices() -> None:
    ray = RayWorld()
    assert await ray.reconcile(ray_cluster(5, owner="former")) == [("first", [1, 3])]
    assert await ray.reconcile(ray_cluster(1, owner="former")) == [("first", [1, 3])]
    assert ray.world.calls == []
    assert [pods for _, pods in await ray.reconcile(ray_cluster(5))] == [[1, 3], [1, 5]]


async def test_recreated_ray_cluster_gets_slice_with_another_name() -> None:
    ray = RayWorld()
    [_, (name, _)] = await ray.reconcile(ray_cluster(5))
    assert await ray.reconcile(ray_cluster(3)) == await ray.reconcile() == [("first", [1, 3])]
    ray.world.put(RAY_JOBS, ray_job(rayClusterName="j-2"))
    [_, (other, pods)] = await ray.reconcile(ray_cluster(4, name="j-2"))
    assert (pods, other == name) == ([1, 4], False)


@pytest.mark.parametrize(
    ("job_", "settings"),
    [
        (ray_job(rayClusterName=""), {}),
        (ray_job(), {"elastic_jobs": False}),
    ],
    ids=["no cluster yet", "without the gate"],
)
async def test_ray_job_without_a_cluster_or_the_gate_keeps_podsets_of_its_spec(
    job_: dict[str, Any], settings: Any
) -> None:
    ray = RayWorld(job_, **settings)
    assert await ray.reconcile(ray_cluster(5, generation=2)) == [("first", [1, 3])]
    assert value_at(ray.world.get(RAY_JOBS, "j"), ("spec", "suspend")) is False


async def test_ray_job_follows_its_cluster_also_without_the_autoscaler() -> None:
    """Its operator does not change the cluster when the job changes."""
    unscaled: Any = {"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": False}}}
    ray = RayWorld(apply_patch(ray_job(), unscaled))
    changed = apply_patch(ray_job(), unscaled)
    changed["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = 9
    ray.world.put(RAY_JOBS, changed)
    assert await ray.reconcile(ray_cluster(3)) == [("first", [1, 3])]
    [_, (_, pods)] = await ray.reconcile(ray_cluster(5, generation=2))
    assert pods == [1, 5]


def test_scaled_ray_cluster_enqueues_its_ray_job() -> None:
    world = RayWorld().world
    [part] = [
        part
        for part in registry.build_controllers(world.ctx, world.core).when_served
        if part.resource == RAY_JOBS
    ]
    [followed] = part.follows
    assert followed.resource == CLUSTERS
    assert followed.transform is not None
    old, new, same = (followed.transform(dict(ray_cluster(*args))) for args in ((3, 1), (4, 2), (4, 3)))
    assert "headGroupSpec" not in new["spec"]

    def keys(before: dict[str, Any], now: dict[str, Any], name: str = "j-1") -> set[Key]:
        change = ObjectChange("modified", Key("ns", name), now, orjson.dumps(before))
        return {
            key for watch in part.spec.watches if watch.resource == CLUSTERS for key in watch.keys(change)
        }

    assert (keys(old, new), keys(new, same), keys(old, new, "other")) == ({RAY_KEY}, set(), set())
