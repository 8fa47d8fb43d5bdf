"""Invalid objects that were stored without validation report their problem and block no others."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import EVENTS, JOBS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, conditions_of, job, set_up_queues


@pytest.fixture
async def unguarded(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> tuple[Client, Installation]:
    """A cluster without webhooks, which stores any object that the schema allows, and a manager to start."""
    cluster = private_cluster((NodePool(count=2, cpu="16", memory="64Gi"),))
    installation = Installation(cluster)
    installation.install(api_group=api_group)
    client = await connect(cluster)
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for found in (await client.list(resource))[0]:
            await client.delete(resource, found["metadata"]["name"])
    await set_up_queues(client, api_group)
    return client, installation


def cluster_queue(kinds: Kinds, quantity: str) -> dict[str, Any]:
    resources = [{"name": "memory", "nominalQuota": quantity}]
    flavors = [{"name": "default", "resources": resources}]
    return {
        "apiVersion": kinds.cluster_queues.api_version,
        "kind": "ClusterQueue",
        "metadata": {"name": "odd"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["memory"], "flavors": flavors}],
        },
    }


def local_queue(kinds: Kinds) -> dict[str, Any]:
    return {
        "apiVersion": kinds.local_queues.api_version,
        "kind": "LocalQueue",
        "metadata": {"name": "odd", "namespace": NAMESPACE},
        "spec": {"clusterQueue": "odd"},
    }


def workload(kinds: Kinds, name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "work", "resources": {"requests": {"cpu": cpu}}}
    pod_set = {
        "name": "main",
        "count": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {
        "apiVersion": kinds.workloads.api_version,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


TOO_LARGE = "1" + "0" * 2048
RESERVED = conditions.with_condition(
    [], type="QuotaReserved", status=True, reason="QuotaReserved", message="by hand", now=0
)


@dataclass(frozen=True)
class Cluster:
    """The objects of the test: invalid ones, and a Job that must not be blocked."""

    client: Client
    kinds: Kinds

    async def create_objects(self, queue_label: str) -> None:
        """Create the invalid objects and a Job."""
        client, kinds = self.client, self.kinds
        await client.create(kinds.cluster_queues, cluster_queue(kinds, TOO_LARGE))
        await client.create(kinds.local_queues, local_queue(kinds))
        in_odd = workload(kinds, "in-odd", "1")
        await client.create(kinds.workloads, {**in_odd, "spec": {**in_odd["spec"], "queueName": "odd"}})
        await client.create(kinds.workloads, workload(kinds, "huge", TOO_LARGE))
        await client.create(kinds.workloads, workload(kinds, "negative", "-3"))
        await client.create(kinds.workloads, workload(kinds, "broken", "1"))
        await self.write_conditions("broken", RESERVED)
        job_of_queue = job(1, queue_label, 1)
        job_of_queue["spec"]["suspend"] = True
        await client.create(JOBS, job_of_queue)

    async def write_conditions(self, name: str, conditions_: Any) -> None:
        """Write the conditions of a Workload as another program would."""
        status = {"status": {"conditions": conditions_}}
        await self.client.merge_patch(self.kinds.workloads, name, status, NAMESPACE, "status")

    async def condition(
        self, resource: Any, name: str, type_: str, namespace: str | None = None
    ) -> dict[str, Any]:
        found = conditions.find_condition(
            conditions_of(await self.client.get(resource, name, namespace)), type_
        )
        assert found is not None, f"{name} has no condition {type_}"
        return dict(found)

    async def quota_reserved(self, name: str) -> dict[str, Any]:
        return await self.condition(self.kinds.workloads, name, "QuotaReserved", NAMESPACE)

    async def queue_reports_malformed_quota(self) -> bool:
        active = await self.condition(self.kinds.cluster_queues, "odd", "Active")
        place = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
        return active["status"] == "False" and place in active["message"]

    async def workload_of_malformed_queue_is_suspended(self) -> bool:
        found = await self.quota_reserved("in-odd")
        return (found["reason"], found["message"]) == ("Suspended", "ClusterQueue odd is inactive")

    async def workload_reports(self, name: str, text: str) -> bool:
        found = await self.quota_reserved(name)
        return found["reason"] == "Misconfigured" and text in found["message"]

    async def event_reports_missing_admission(self) -> bool:
        events, _ = await self.client.list(EVENTS, NAMESPACE)
        notes = [
            one["note"]
            for one in events
            if (one["regarding"]["name"], one["reason"]) == ("broken", "Malformed")
        ]
        return any("status.admission: must be set" in note for note in notes)

    async def job_is_complete(self) -> bool:
        found = await self.client.get(JOBS, "job-001", NAMESPACE)
        return conditions.is_true(conditions_of(found), "Complete")

    async def no_quota_is_reserved(self) -> bool:
        queue = await self.client.get(self.kinds.cluster_queues, "all")
        return queue["status"]["reservingWorkloads"] == 0

    async def broken_workload_has_admission(self) -> bool:
        found = await self.client.get(self.kinds.workloads, "broken", NAMESPACE)
        has_quota = conditions.is_true(conditions_of(found), "QuotaReserved")
        return has_quota and bool(found["status"]["admission"])

    async def malformed_queue_is_active(self) -> bool:
        return (await self.condition(self.kinds.cluster_queues, "odd", "Active"))["status"] == "True"


async def test_malformed_objects_report_their_problem_and_block_no_others(
    unguarded: tuple[Client, Installation], api_group: str
) -> None:
    client, installation = unguarded
    names = names_for(api_group)
    cluster = Cluster(client, kinds_of(names))
    await cluster.create_objects(names.queue_name)
    installation.start(("manager",))
    # Each invalid object reports its problem, and the Job runs.
    await eventually(cluster.queue_reports_malformed_quota)
    await eventually(cluster.workload_of_malformed_queue_is_suspended)
    await eventually(lambda: cluster.workload_reports("huge", "spec.podSets[0].template.spec.containers[0]"))
    await eventually(lambda: cluster.workload_reports("negative", "must not be negative"))
    await eventually(cluster.event_reports_missing_admission)
    await eventually(cluster.job_is_complete)
    await check_that_broken_reservation_is_unchanged(cluster)
    await eventually(cluster.no_quota_is_reserved)
    # Corrected objects are queued again.
    await cluster.write_conditions("broken", [{**RESERVED[0], "status": "False"}])
    await eventually(
        cluster.broken_workload_has_admission, what="a Workload without the condition to be queued again"
    )
    corrected = cluster_queue(cluster.kinds, "1Gi")["spec"]
    await client.merge_patch(cluster.kinds.cluster_queues, "odd", {"spec": corrected})
    await eventually(cluster.malformed_queue_is_active)


async def check_that_broken_reservation_is_unchanged(cluster: Cluster) -> None:
    broken = await cluster.client.get(cluster.kinds.workloads, "broken", NAMESPACE)
    assert conditions.find_condition(conditions_of(broken), "QuotaReserved") == RESERVED[0], (
        "a2: neither queued nor released"
    )
    assert "admission" not in broken["status"]
