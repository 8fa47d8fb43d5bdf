"""What the configuration decides over jobs that are done, that do not get ready, or that name no queue.

A control plane of its own, because these settings would change everybody else's stories.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admitq.integrations.registry import registered
from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import JOBS, LEASES
from admitq_api import conditions
from admitq_api.labels import names_for
from admitq_webhooks.live import watched_world
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, job, set_up_queues, state_of

CONFIG = {
    "manageJobsWithoutQueueName": True,
    "waitForPodsReady": {
        "timeout": "3s",
        "requeuingStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1},
    },
    "objectRetentionPolicies": {"workloads": {"afterFinished": "2s", "afterDeactivatedByKueue": "2s"}},
}


@pytest.mark.slow
async def test_jobs_end_as_the_configuration_says(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> None:
    cluster = private_cluster((NodePool(count=2, cpu="16", memory="64Gi"),))
    installation = Installation(cluster)
    installation.install(api_group=api_group, config=CONFIG)
    client = await connect(cluster)
    names = names_for(api_group)
    kinds = kinds_of(names)
    # Whoever tidies up too much: a manager makes its own Lease where there is none.
    await client.delete(LEASES, names.lease_name, installation.namespace)
    installation.start()
    await set_up_queues(client, api_group)

    finishes = job(1, names.queue_name, 0.5)
    never_ready = job(2, names.queue_name, None)
    never_ready["spec"]["template"]["metadata"]["annotations"]["kwok.admitq.dev/ready"] = "false"
    queueless = job(3, names.queue_name, 0.5)
    del queueless["metadata"]["labels"]
    for one in (finishes, never_ready, queueless):
        await client.create(JOBS, one)

    async def workloads_of(name: str) -> list[dict[str, Any]]:
        found, _ = await client.list(kinds.workloads, NAMESPACE)
        return [one for one in found if one["metadata"]["ownerReferences"][0]["name"] == name]

    async def evicted_once() -> bool:
        (workload,) = await workloads_of("job-002")
        return workload["status"]["requeueState"]["count"] == 1

    async def done_and_forgotten() -> bool:
        done = conditions.is_true(state_of(await client.get(JOBS, "job-001", NAMESPACE)), "Complete")
        return done and not await workloads_of("job-001")

    async def gone() -> bool:
        try:
            await client.get(JOBS, "job-002", NAMESPACE)
        except ApiError as error:
            return error.is_not_found
        return False

    async def held() -> bool:
        return (await client.get(JOBS, "job-003", NAMESPACE))["spec"]["suspend"] is True

    await eventually(evicted_once, what="a job that does not get ready is evicted and comes back")
    await eventually(done_and_forgotten, what="the Workload of a finished job is deleted, its job is not")
    await eventually(gone, timeout=60, what="a job that never gets ready is deactivated, then deleted")
    assert await held(), "a job that names no queue is managed, too"
    await client.merge_patch(JOBS, "job-003", {"metadata": {"labels": {names.queue_name: "main"}}}, NAMESPACE)

    async def queueless_done() -> bool:
        return conditions.is_true(state_of(await client.get(JOBS, "job-003", NAMESPACE)), "Complete")

    await eventually(queueless_done, what="it runs once it has got a queue")


async def test_a_namespace_that_no_watch_told_of_is_read(
    admitq_running: Installation, admitq_namespace: str, api_group: str
) -> None:
    """With what the chart grants the webhook, for a job that comes together with its namespace."""
    credentials = load_credentials(admitq_running.kubeconfig("webhook"))
    async with Client(credentials, user_agent="admitq-tests") as client:
        world, _ = watched_world(client, names_for(api_group), registered())
        labels = await world.namespace_labels(admitq_namespace)
    assert labels is not None
    assert labels["kubernetes.io/metadata.name"] == admitq_namespace
