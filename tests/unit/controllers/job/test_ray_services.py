"""Clusters of RayServices, which their operator neither stops nor starts with the service."""

from typing import Any

import pytest

from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.kept_children import find_running_children
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.base import Integration
from admitq.integrations.families.ray_clusters import CLUSTER_KIND
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    settings_with,
    timestamp,
)
from tests.unit.controllers.world import World
from tests.unit.ray_objects import ray_object

CLUSTERS, SERVICES = resource_of(RAY_CLUSTER), resource_of(RAY_SERVICE)
OWNER: dict[str, Any] = {
    "apiVersion": RAY_SERVICE.api_version,
    "kind": "RayService",
    "name": "s",
    "uid": "uid-s",
    "controller": True,
}
CLUSTER: dict[str, Any] = {"headGroupSpec": {"template": {"spec": TEMPLATE["spec"]}}}
RELEASE = ["list rayclusters", "list pods", "apply workloads/w/status"]


EVICTED = condition("Evicted", True, "Preempted", "Preempted to accommodate a workload", since=5)


@pytest.fixture
def world() -> World:
    return World(settings=settings_with(integrations=(RAY_SERVICE, RAY_CLUSTER)))


def admitted_workload(*conditions: dict[str, Any]) -> dict[str, Any]:
    spec = {"podSets": [{"name": "head", "count": 1, "template": {"spec": TEMPLATE["spec"]}}]}
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "head", "count": 1}]}
    return admitted(*conditions, name="w", owner=OWNER, spec=spec, admission=admission)


def service(*, is_suspended: bool, status: Any = None) -> dict[str, Any]:
    spec = {"rayClusterConfig": {**CLUSTER, "suspend": is_suspended}}
    return {**ray_object("RayService", "s", spec, labels={NAMES.queue_name: "lq"}), "status": status or {}}


def cluster(*, is_suspended: bool = False, owner: dict[str, Any] = OWNER, **metadata: Any) -> dict[str, Any]:
    spec = {**CLUSTER, "suspend": is_suspended}
    return ray_object("RayCluster", "s-x7k2p", spec, ownerReferences=[owner], **metadata)


async def reconcile(world: World, kind: Integration, name: str) -> tuple[list[str], float | None]:
    """Return the calls of one reconciliation, and when to reconcile again."""
    done = len(world.calls)
    seconds = await JobController(world.ctx, kind, OwnerLookup(world.ctx)).reconcile(Key("ns", name))
    return world.calls[done:], seconds


async def test_cluster_of_evicted_service_runs_until_service_is_suspended(world: World) -> None:
    world.put(KINDS.workloads, admitted_workload(EVICTED))
    world.put(SERVICES, service(is_suspended=False))
    world.put(CLUSTERS, cluster())
    assert await reconcile(world, RAY_CLUSTER, "s-x7k2p") == ([], None)
    calls, _ = await reconcile(world, RAY_SERVICE, "s")
    assert calls == ["patch rayservices/s"]


@pytest.mark.parametrize(
    ("clusters", "calls"),
    [
        ([cluster()], ["list rayclusters", "delete rayclusters/s-x7k2p"]),
        ([cluster(deletionTimestamp=timestamp(9))], ["list rayclusters"]),
        ([cluster(is_suspended=True)], RELEASE),
        ([cluster(owner={**OWNER, "uid": "another"})], RELEASE),
        ([], RELEASE),
    ],
    ids=["running", "being deleted", "suspended", "of another service", "none"],
)
async def test_suspended_service_keeps_its_quota_until_no_cluster_can_create_pods(
    world: World, clusters: list[dict[str, Any]], calls: list[str]
) -> None:
    world.put(KINDS.workloads, admitted_workload(EVICTED))
    world.put(SERVICES, service(is_suspended=True))
    # The list, and not the store, decides.
    world.client.api = {("rayclusters", obj["metadata"]["name"]): obj for obj in clusters}
    seconds = None if calls == RELEASE else 1.0
    assert await reconcile(world, RAY_SERVICE, "s") == (calls, seconds)


async def test_running_service_may_release_the_quota_of_one_slice(world: World) -> None:
    running = [cluster()]
    world.client.api = {("rayclusters", obj["metadata"]["name"]): obj for obj in running}
    for is_suspended, expected in ((False, []), (True, running)):
        found = await find_running_children(world.ctx, RAY_SERVICE, service(is_suspended=is_suspended))
        assert [child.obj for child in found] == expected


@pytest.mark.parametrize("exists", [True, False])
async def test_pods_of_service_are_ready_only_if_its_active_cluster_exists(
    world: World, exists: bool
) -> None:
    """The operator may leave the condition Ready as it was before the last stop."""
    ready = condition("Ready", True, "NonZeroServeEndpoints")
    status = {"activeServiceStatus": {"rayClusterName": "s-x7k2p"}, "conditions": [ready]}
    world.put(SERVICES, service(is_suspended=False, status=status))
    world.put(KINDS.workloads, admitted_workload(condition("PodsReady", False, "WaitForStart")))
    if exists:
        world.put(followed_resource(RAY_SERVICE, CLUSTER_KIND), cluster())
    await reconcile(world, RAY_SERVICE, "s")
    assert condition_of(world.get(KINDS.workloads, "w"), "PodsReady")[0] == str(exists)
