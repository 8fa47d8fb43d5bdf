"""Clusters of RayServices, which their operator neither stops nor starts with the service."""

from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    admitted,
    condition,
    settings_with,
    timestamp,
)
from tests.unit.controllers.world import World

CLUSTERS, SERVICES = resource_of(RAY_CLUSTER), resource_of(RAY_SERVICE)
OWNER: dict[str, Any] = {
    "apiVersion": RAY_SERVICE.api_version,
    "kind": "RayService",
    "name": "s",
    "uid": "uid-s",
    "controller": True,
}
PODS_RUN = condition("PodsOutliveJob", True, "PodsRunning")


def ray_object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": RAY_SERVICE.api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": timestamp(0),
            **metadata,
        },
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("is_suspended", "conditions", "is_deleted"),
    [
        (True, [PODS_RUN], True),
        (True, [], False),
        # The service was resumed before its pods ended. The condition is still there.
        (False, [PODS_RUN], False),
    ],
    ids=["stopped", "suspended by its user", "resumed"],
)
async def test_running_cluster_of_a_stopped_service_is_deleted_while_its_workload_waits_for_pods(
    is_suspended: bool, conditions: list[dict[str, Any]], is_deleted: bool
) -> None:
    cluster = {"headGroupSpec": {"template": {"spec": TEMPLATE["spec"]}}}
    world = World(settings=settings_with(integrations=(RAY_SERVICE, RAY_CLUSTER)))
    service = {"rayClusterConfig": {**cluster, "suspend": is_suspended}}
    world.put(SERVICES, ray_object("RayService", "s", service, labels={NAMES.queue_name: "lq"}))
    world.put(KINDS.workloads, admitted(*conditions, owner=OWNER))
    world.put(CLUSTERS, ray_object("RayCluster", "s-x7k2p", cluster, ownerReferences=[OWNER]))
    await JobController(world.ctx, RAY_CLUSTER, OwnerLookup(world.ctx)).reconcile(Key("ns", "s-x7k2p"))
    assert ("delete rayclusters/s-x7k2p" in world.calls) is is_deleted
