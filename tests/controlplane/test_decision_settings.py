"""Settings that change decisions, and past usage after a restart of the manager.

The test has its own control plane, because these settings would change other stories.
"""

from collections.abc import Awaitable, Callable

import pytest

from admitq.runtime.client import Client
from admitq.runtime.resources import LEASES
from admitq_api.conditions import format_time, parse_time
from admitq_api.json_objects import value_at
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from localcluster.waiting import eventually
from tests.controlplane.play import Case, cases, play
from tests.controlplane.pods_of_jobs import set_pod_status
from tests.controlplane.stage import Stage

CONFIG = {
    "waitForPodsReady": {"blockAdmission": True, "requeuingStrategy": {"timestamp": "Creation"}},
    "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
    "admissionFairSharing": {"usageSamplingInterval": "1s"},
    "featureGates": {
        "FlavorFungibility": False,
        "FlavorFungibilityPreserveScanProgress": False,
        "PrioritizePreemptorWorkloads": True,
    },
}
UNSET_HALF_LIFE = (
    "admissionFairSharing.usageHalfLifeTime is not set: past usage loses half its weight in 24h0m0s"
)

QUEUES = Case(
    "two LocalQueues of one ClusterQueue, both with a waiting workload",
    ("3.8 seeding",),
    (
        {"queue": {"cq": {"cpu": 4, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}}},
        {"local_queue": {"greedy": {"clusterQueue": "$cq"}, "modest": {"clusterQueue": "$cq"}}},
        {"workload": {"had": {"queue": "cq", "cpu": 4}}},
        {"admitted": ["had"]},
        {"pods_ready": ["had"]},
        {"workload": {"again": {"queue": "greedy", "cpu": 4, "priority": 9}}},
        {"workload": {"first": {"queue": "modest", "cpu": 4, "priority": 1}}},
    ),
)
AFTERWARDS = Case(
    "less past usage comes first", ("3.8 seeding",), ({"finish": ["had"]}, {"admitted": ["first"]})
)


@pytest.mark.slow
async def test_decision_settings_apply_and_past_usage_survives_a_manager_restart(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> None:
    cluster = private_cluster(())
    installation = Installation(cluster)
    installation.install(api_group=api_group, config=CONFIG)
    client = await connect(cluster)
    # A manager creates its own Lease if it was deleted.
    await client.delete(LEASES, names_for(api_group).lease_name, installation.namespace)
    installation.start()
    for case in cases("settings.yaml"):
        async with fresh_namespace(client) as namespace:
            await play(Stage(client, names_for(api_group), namespace), case)
    async with fresh_namespace(client) as namespace:
        await _admission_waits_for_ready_pods(Stage(client, names_for(api_group), namespace))
    async with fresh_namespace(client) as namespace:
        await _past_usage_survives(Stage(client, names_for(api_group), namespace), installation)
    assert UNSET_HALF_LIFE in installation.log("manager").read_text()


async def _admission_waits_for_ready_pods(stage: Stage) -> None:
    """While the pods of an admitted job are not ready, no other job is admitted."""
    await stage.queues()
    await stage.job("first")
    await stage.until_running("first")
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForPodsReady", "second")
    await set_pod_status(stage, "first", ready=True)
    await stage.until_running("second")
    await set_pod_status(stage, "second", ready=True)
    await stage.until_condition("PodsReady", "Started", "second")


async def _past_usage_survives(stage: Stage, installation: Installation) -> None:
    """A restarted manager continues with the past usage in the status of a LocalQueue."""
    queues = stage.kinds.local_queues
    await play(stage, QUEUES)

    async def use() -> tuple[int, str]:
        past = value_at(
            await stage.get(queues, "greedy"), ("status", "fairSharing", "admissionFairSharingStatus")
        )
        return parse_time(past["lastUpdate"]), value_at(past, ("consumedResources", "cpu"), "0")

    at, _ = await eventually(use, what="the use of a LocalQueue in its status")
    installation.stop(["manager"])
    past = {"consumedResources": {"cpu": "100"}, "lastUpdate": format_time(at)}
    patch = {"status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": past}}}
    await stage.change(queues, "greedy", patch, "status")
    installation.start(["manager"])

    async def is_continued() -> bool:
        later, consumed = await use()
        assert later > at
        # Within these seconds the use hardly decays.
        assert 99_000 < int(consumed.removesuffix("m")) * (1 if consumed.endswith("m") else 1000) <= 100_000
        return True

    await eventually(is_continued, what="the past usage of before the restart to be reported")
    await play(stage, AFTERWARDS)
