"""Processes are killed at random times: no job is lost, duplicated or over-admitted.

The test has its own control plane with the chart, and kills processes with SIGKILL.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, Literal

import pytest

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import JOBS, PODS, Resource
from admitq_api import conditions
from admitq_api.labels import names_for
from admitq_api.quantity import parse_amount
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, QUOTA_CPU, conditions_of, create, job, set_up_queues

JOB_COUNT = 100
Victim = Literal["manager", "webhook", "kube-apiserver"]
VICTIMS: tuple[Victim, ...] = 2 * ("manager", "manager", "webhook", "kube-apiserver")
QUICK_LEASE = {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}

Connect = Callable[[LocalCluster], Awaitable[Client]]


class InvariantSampler:
    """Watches the cluster, and records violations of invariants.

    A repeated list of all Workloads and pods would cost more than all else that the test does.
    """

    def __init__(self, client: Client, api_group: str) -> None:
        self._client = client
        self._resources = (kinds_of(names_for(api_group)).workloads, PODS)
        self._objects: dict[Resource, dict[str, dict[str, Any]]] = {one: {} for one in self._resources}
        self._changed = asyncio.Event()
        self.violations: list[str] = []
        self.samples = 0

    async def run(self) -> None:
        """Watch until cancelled; the watches begin again when the API server is back."""
        async with asyncio.TaskGroup() as tasks:
            for resource in self._resources:
                tasks.create_task(self._watch_repeatedly(resource))
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._check(*(list(objects.values()) for objects in self._objects.values()))
                await asyncio.sleep(0.1)

    async def _watch_repeatedly(self, resource: Resource) -> None:
        while True:
            with suppress(ApiError):
                await self._watch(resource)
            await asyncio.sleep(0.2)

    async def _watch(self, resource: Resource) -> None:
        """Observe all objects, and then their changes.

        Until all objects came, some are older than others, and together they may violate an invariant. So the
        objects of the last watch are checked meanwhile.
        """
        objects: dict[str, dict[str, Any]] = {}
        events = self._client.watch(resource, "", namespace=NAMESPACE, initial_events=True)
        async with aclosing(events):
            async for event in events:
                if event.ends_initial_events:
                    self._objects[resource] = objects
                elif event.type == "BOOKMARK":
                    continue
                elif event.type == "DELETED":
                    objects.pop(event.object["metadata"]["name"], None)
                else:
                    objects[event.object["metadata"]["name"]] = event.object
                if self._objects[resource] is objects:
                    self._changed.set()

    async def check_end(self) -> None:
        """Check the state that the API server returns now."""
        found = [await self._client.list(resource, NAMESPACE) for resource in self._resources]
        self._check(*(objects for objects, _ in found))

    def _check(self, workloads: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
        reserved = sum(_reserved_cpu(workload) for workload in workloads)
        if reserved > QUOTA_CPU * 1000:
            self.violations.append(f"{reserved}m CPU reserved")
        running = _owners(pod for pod in pods if pod["status"].get("phase") in {"Pending", "Running"})
        if running.total() > QUOTA_CPU:
            self.violations.append(f"{running.total()} pods at once, by job: {dict(running)}")
        doubled = [job for job, count in _owners(workloads).items() if count > 1]
        if doubled:
            self.violations.append(f"jobs with several workloads: {doubled}")
        self.samples += 1


def _reserved_cpu(workload: dict[str, Any]) -> int:
    """The milli-CPUs of a workload's assignment, without pods that are reclaimable."""
    status = workload.get("status") or {}
    if conditions.is_true(status.get("conditions"), "Finished"):
        return 0
    ended = {one["name"]: one["count"] for one in status.get("reclaimablePods") or []}
    return sum(
        parse_amount("cpu", one["resourceUsage"]["cpu"])
        * (one["count"] - ended.get(one["name"], 0))
        // one["count"]
        for one in (status.get("admission") or {}).get("podSetAssignments") or []
    )


def _owners(objects: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return how many of the objects each job has."""
    return Counter(obj["metadata"]["ownerReferences"][0]["name"] for obj in objects)


async def kill_and_restart(
    cluster: LocalCluster, installation: Installation, victim: Victim, chance: random.Random
) -> None:
    """Kill a process, and start it again after a random time."""
    if victim == "kube-apiserver":
        await asyncio.to_thread(cluster.kill, victim)
        await asyncio.sleep(chance.uniform(0, 2))
        await asyncio.to_thread(cluster.revive, victim)
    else:
        await asyncio.to_thread(installation.kill, victim)
        await asyncio.sleep(chance.uniform(0, 1))
        await asyncio.to_thread(installation.start, (victim,))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_job_is_lost_duplicated_or_over_admitted_when_processes_are_killed(
    private_cluster: Callable[..., LocalCluster], connect: Connect, api_group: str
) -> None:
    cluster = private_cluster((NodePool(count=10, cpu="16", memory="64Gi"),))
    installation = Installation(cluster)
    installation.install(api_group=api_group, config={"leaderElection": QUICK_LEASE})
    installation.start()
    client = await connect(cluster)
    await set_up_queues(client, api_group)
    sampler = InvariantSampler(client, api_group)
    watching = asyncio.create_task(sampler.run())
    chance = random.Random(20261121)  # noqa: S311 a seeded order of victims, no secret
    label = names_for(api_group).queue_name

    async def submit() -> None:
        for number in range(JOB_COUNT):
            await create(client, job(number, label, chance.uniform(0.7, 4.2)))

    submitting = asyncio.create_task(submit())
    for victim in chance.sample(VICTIMS, len(VICTIMS)):
        await kill_and_restart(cluster, installation, victim, chance)
        await asyncio.sleep(chance.uniform(1, 4))
    assert await _unfinished(client) > 0, "all jobs were finished before the last kill"
    await submitting

    async def all_complete() -> bool:
        # On a busy machine a manager may lose its lease and end. It is restarted as in a Deployment.
        process = installation.process("manager")
        if process is None or not process.alive():
            await asyncio.to_thread(installation.start, ("manager",))
        return await _all_complete(client)

    await eventually(all_complete, timeout=300, interval=1, what="all jobs complete")
    kinds = kinds_of(names_for(api_group))
    await eventually(
        lambda: _settled(client, kinds.workloads, kinds.cluster_queues), what="all workloads are finished"
    )
    await sampler.check_end()
    assert not watching.done(), "the sampler ended early"
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert sampler.violations == []
    assert sampler.samples > 100


async def _unfinished(client: Client) -> int:
    async def count() -> int:
        jobs, _ = await client.list(JOBS, NAMESPACE)
        return 1 + sum(not conditions.is_true(conditions_of(one), "Complete") for one in jobs)

    return await eventually(count, timeout=60) - 1


async def _all_complete(client: Client) -> bool:
    jobs, _ = await client.list(JOBS, NAMESPACE)
    return len(jobs) == JOB_COUNT and all(conditions.is_true(conditions_of(one), "Complete") for one in jobs)


async def _settled(client: Client, workloads: Any, cluster_queues: Any) -> bool:
    found, _ = await client.list(workloads, NAMESPACE)
    owners = _owners(found)
    queue = await client.get(cluster_queues, "all")
    return (
        len(owners) == JOB_COUNT
        and set(owners.values()) == {1}
        and all(conditions.is_true(conditions_of(one), "Finished") for one in found)
        and queue["status"]["reservingWorkloads"] == 0
        and queue["status"]["pendingWorkloads"] == 0
    )
