"""Invalid objects that were stored without validation: each reports its problem, and the others go on."""

from collections.abc import Awaitable, Callable
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
from tests.faults.worlds import NAMESPACE, job, set_up_queues, state_of


@pytest.fixture
async def unguarded(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> tuple[Client, Installation]:
    """A manager beside a cluster without webhooks, which stores anything that the schema allows."""
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


async def test_malformed_objects_report_their_problem_and_block_no_others(
    unguarded: tuple[Client, Installation], api_group: str
) -> None:
    client, installation = unguarded
    names = names_for(api_group)
    kinds = kinds_of(names)
    await client.create(kinds.cluster_queues, cluster_queue(kinds, "1" + "0" * 2048))
    await client.create(kinds.local_queues, local_queue(kinds))
    in_odd = workload(kinds, "in-odd", "1")
    await client.create(kinds.workloads, {**in_odd, "spec": {**in_odd["spec"], "queueName": "odd"}})
    await client.create(kinds.workloads, workload(kinds, "huge", "1" + "0" * 2048))
    await client.create(kinds.workloads, workload(kinds, "negative", "-3"))
    broken = await client.create(kinds.workloads, workload(kinds, "broken", "1"))
    reserved = conditions.with_condition(
        [], type="QuotaReserved", status=True, reason="QuotaReserved", message="by hand", now=0
    )
    await client.merge_patch(
        kinds.workloads, broken["metadata"]["name"], {"status": {"conditions": reserved}}, NAMESPACE, "status"
    )
    held = job(1, names.queue_name, 1)
    held["spec"]["suspend"] = True
    await client.create(JOBS, held)

    installation.start(("manager",))

    async def condition(resource: Any, name: str, type_: str, namespace: str | None = None) -> dict[str, Any]:
        obj = await client.get(resource, name, namespace)
        found = conditions.find_condition(state_of(obj), type_)
        assert found is not None, f"{name} has no condition {type_}"
        return dict(found)

    async def told(name: str, text: str) -> bool:
        found = await condition(kinds.workloads, name, "QuotaReserved", NAMESPACE)
        return found["reason"] == "Misconfigured" and text in found["message"]

    async def reported_as_malformed(name: str) -> bool:
        events, _ = await client.list(EVENTS, NAMESPACE)
        notes = [
            one["note"] for one in events if (one["regarding"]["name"], one["reason"]) == (name, "Malformed")
        ]
        return any("status.admission: must be set" in note for note in notes)

    async def reserved_properly() -> bool:
        obj = await client.get(kinds.workloads, "broken", NAMESPACE)
        return conditions.is_true(state_of(obj), "QuotaReserved") and bool(obj["status"]["admission"])

    async def odd_queue_told() -> bool:
        found = await condition(kinds.cluster_queues, "odd", "Active")
        place = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
        return found["status"] == "False" and place in found["message"]

    async def job_done() -> bool:
        return conditions.is_true(state_of(await client.get(JOBS, "job-001", NAMESPACE)), "Complete")

    async def nothing_is_charged() -> bool:
        return (await client.get(kinds.cluster_queues, "all"))["status"]["reservingWorkloads"] == 0

    async def workload_of_odd_queue_told() -> bool:
        found = await condition(kinds.workloads, "in-odd", "QuotaReserved", NAMESPACE)
        return (found["reason"], found["message"]) == ("Suspended", "ClusterQueue odd is inactive")

    await eventually(odd_queue_told)
    await eventually(workload_of_odd_queue_told)
    await eventually(lambda: told("huge", "spec.podSets[0].template.spec.containers[0]"))
    await eventually(lambda: told("negative", "must not be negative"))
    await eventually(lambda: reported_as_malformed("broken"))
    await eventually(job_done)
    untouched = await client.get(kinds.workloads, "broken", NAMESPACE)
    assert conditions.find_condition(state_of(untouched), "QuotaReserved") == reserved[0], (
        "a2: neither queued nor released"
    )
    assert "admission" not in untouched["status"]
    await eventually(nothing_is_charged)

    released = [{**reserved[0], "status": "False"}]
    await client.merge_patch(
        kinds.workloads, "broken", {"status": {"conditions": released}}, NAMESPACE, "status"
    )
    await eventually(reserved_properly, what="a Workload without the condition to be queued again")

    await client.merge_patch(kinds.cluster_queues, "odd", {"spec": cluster_queue(kinds, "1Gi")["spec"]})

    async def odd_queue_mended() -> bool:
        return (await condition(kinds.cluster_queues, "odd", "Active"))["status"] == "True"

    await eventually(odd_queue_mended)
