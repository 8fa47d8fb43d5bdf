"""Two managers that act as leaders at the same time, and a manager without webhooks.

Two managers lead if one has lost the lease and has not noticed yet. The CRDs of kinds have no schemas here,
because these tests do not need them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import pytest

from admitq.integrations.registry import list_framework_names
from admitq.runtime.client import Client
from admitq.runtime.resources import (
    DEPLOYMENTS,
    PODS,
    STATEFUL_SETS,
    Resource,
)
from admitq_api.labels import Names, names_for
from localcluster import crds
from localcluster.cluster import LocalCluster
from localcluster.custom_kinds import configured
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.disabled_webhooks import disabled_webhooks
from tests.controlplane.kind_cases import KindCase, kinds_with_cases, load
from tests.controlplane.leader_worker_sets import LWS, create_group_pods
from tests.controlplane.played_jobs import HELD, PlayedJob, has_finalizers, held_queue, open_queues, submit
from tests.controlplane.pods import gates, group, pod, until_phases
from tests.controlplane.recording import Record, record_versions
from tests.controlplane.stage import Stage, condition_of, run_concurrently
from tests.controlplane.test_serving_kinds import pods_of, scale, serve, template, until_pods

BOTH_LEAD: Final[Mapping[str, Any]] = {
    "leaderElection": {"leaderElect": False},
    "integrations": {"frameworks": list(list_framework_names()), "custom": configured()},
    "featureGates": {"SparkApplicationIntegration": True},
    "objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1s"}},
}


def without_schema(definition: dict[str, Any]) -> dict[str, Any]:
    """A CRD that accepts any object, which costs the API server little time."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": anything} for version in definition["spec"]["versions"]]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


Story = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def installation(installation_of_file: Callable[[str, Mapping[str, Any]], Installation]) -> Installation:
    made = installation_of_file("two-leaders", BOTH_LEAD)
    crds.apply(made.cluster, map(without_schema, crds.definitions((*crds.NAMES, *crds.OWN_NAMES))))
    return made


@pytest.fixture
async def client(installation: Installation, connect: Callable[[LocalCluster], Awaitable[Client]]) -> Client:
    return await connect(installation.cluster)


async def play(stories: Mapping[str, Story], client: Client, names: Names) -> None:
    """Play stories concurrently, each in its own namespace."""

    async def alone(story: Story) -> None:
        async with fresh_namespace(client) as namespace:
            await story(Stage(client, names, namespace))

    await run_concurrently(**{name: alone(story) for name, story in stories.items()})


# --- jobs -------------------------------------------------------------------------------------------


def job_story(case: KindCase) -> Story:
    """A job is started, deactivated after its maximum execution time, and deleted."""

    async def story(stage: Stage) -> None:
        async with record_versions(stage) as workloads, record_versions(stage, case.resource) as jobs:
            await open_queues(stage, case)
            limit = {f"metadata.labels[{stage.names.max_exec_time}]": "1"}
            job, _ = await submit(stage, case, changes=limit)
            await stage.until(job.is_gone_for_good, what="its deletion", timeout=90.0)
        await until_events(job)
        await until_idle(stage, case.queue(stage.names.group))
        # A manager that has not observed the eviction may restart a job that the other just stopped: a write
        # to a job cannot depend on its Workload. A manager that observes the eviction stops the job again.
        assert 1 <= starts(jobs, case, stage.names) <= 2
        assert len({one["metadata"]["uid"] for one in workloads.versions}) == 1
        changes = workloads.condition_changes(job.name, ["QuotaReserved", "Evicted"])
        assert [one[0] for one in changes if one[1] == "True"] == ["QuotaReserved", "Evicted"], changes

    return story


def starts(jobs: Record, case: KindCase, names: Names) -> int:
    """How often a job was started, by all of its versions."""
    suspended = [case.integration.is_suspended(one, names) for one in jobs.versions]
    return sum(before and not after for before, after in pairwise(suspended))


async def until_events(job: PlayedJob) -> None:
    """Wait for the events about the start and the deletion of a job."""
    stage, kind = job.stage, job.case.integration.kind
    await stage.until_event(kind, job.name, "Started", f"Admitted by clusterQueue {stage.own('cq')}")
    await stage.until_event(kind, job.name, "Deleted", "Deleted job: deactivation retention period expired")


# --- pods and serving kinds --------------------------------------------------------------------------


async def pods_story(stage: Stage) -> None:
    """Single pods and a group are started, and deleted after their maximum execution time."""
    await stage.queues()
    limit = {stage.names.max_exec_time: "1"}
    async with record_versions(stage) as workloads, record_versions(stage, PODS) as pods:
        await pod(stage, "alone", labels=limit)
        await group(stage, "g", 2, labels=limit)
        await until_phases(stage, alone="gone", g_0="gone", g_1="gone")
    await until_idle(stage)
    over = "WorkloadEvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded"
    assert ends(pods) == dict.fromkeys(("alone", "g-0", "g-1"), (True, over))
    assert object_count(workloads) == 2


def ends(pods: Record) -> dict[str, tuple[bool, str]]:
    """Whether pods had no gates when they were deleted, and the reason of their deletion."""
    found: dict[str, tuple[bool, str]] = {}
    for one in pods.versions:
        if "deletionTimestamp" in one["metadata"]:
            _, why, _ = condition_of(one, "TerminationTarget") or ("", "", "")
            found.setdefault(one["metadata"]["name"], (gates(one) == [], why))
    return found


def object_count(record: Record) -> int:
    """The number of objects that have existed."""
    return len({one["metadata"]["uid"] for one in record.versions})


async def deployment_story(stage: Stage) -> None:
    """Pods of a Deployment have a Workload each, and all are deleted with it."""
    await stage.queues()
    async with record_versions(stage) as workloads, record_versions(stage, PODS) as pods:
        await serve(stage, DEPLOYMENTS)
        await until_pods(stage, Pending=2)
        await scale(stage, DEPLOYMENTS, 3)
        await until_pods(stage, Pending=3)
        await until_gone(stage, DEPLOYMENTS)
    assert (object_count(workloads), object_count(pods)) == (3, 3)


async def stateful_set_story(stage: Stage) -> None:
    """All pods of a StatefulSet have one Workload."""
    await stage.queues()
    async with record_versions(stage) as workloads, record_versions(stage, PODS) as pods:
        await serve(stage, STATEFUL_SETS, spec={"podManagementPolicy": "Parallel"})
        await until_pods(stage, Pending=2)
        await until_gone(stage, STATEFUL_SETS)
    assert (object_count(workloads), object_count(pods)) == (1, 2)


async def leader_worker_set_story(stage: Stage) -> None:
    """Two groups: one is deleted with its Workload, the other with the LeaderWorkerSet."""
    await stage.queues()
    named = {"metadata": {"labels": {stage.names.queue_name: "lq"}}}
    groups = {"leaderTemplate": template(1), "workerTemplate": template(1), "size": 2}
    spec = {"replicas": 2, "leaderWorkerTemplate": groups}
    async with record_versions(stage) as workloads, record_versions(stage, PODS) as pods:
        lws = await stage.create(LWS, "s", {**named, "spec": spec})
        for number in range(2):
            await create_group_pods(stage, lws, number)
        await asyncio.gather(*(until_pods(stage, f"s-{number}", Pending=2) for number in range(2)))
        await scale(stage, LWS, 1)
        await until_pods(stage, "s-1")
        await until_pods(stage, "s-0", Pending=2)
        for one in await pods_of(stage, "s-0"):
            await stage.client.delete(PODS, one["metadata"]["name"], stage.namespace)
        await until_gone(stage, LWS)
    assert (object_count(workloads), object_count(pods)) == (2, 4)


async def until_gone(stage: Stage, resource: Resource) -> None:
    """Delete the serving object, and wait until its pods are gone and both managers are idle."""
    await stage.client.delete(resource, "s", stage.namespace)
    await until_pods(stage)
    await until_idle(stage)


# --- the end ----------------------------------------------------------------------------------------


async def until_idle(stage: Stage, local_queue: str = "lq") -> None:
    """Wait until no queued object is left, and no manager overwrites another's writes."""
    kinds, seen = stage.kinds, list[list[str]]()

    async def is_idle() -> bool:
        queues = [
            await stage.get(kinds.local_queues, local_queue),
            await stage.get(kinds.cluster_queues, stage.own("cq")),
        ]
        assert [counted(one) for one in queues] == [[0, 0], [0, 0]]
        workloads, _ = await stage.client.list(kinds.workloads, stage.namespace)
        # The garbage collector discovers new kinds only every half a minute.
        assert [one for one in workloads if has_finalizers(one)] == []
        seen.append([one["metadata"]["resourceVersion"] for one in (*queues, *workloads)])
        return seen[-1:] == seen[-2:-1]

    await stage.until(is_idle, interval=0.5, what="both to be idle")


def counted(queue: dict[str, Any]) -> list[int]:
    """The numbers of reserving and admitted workloads that a queue reports."""
    return [queue["status"][f"{what}Workloads"] for what in ("reserving", "admitted")]


async def test_two_leaders_create_one_workload_for_each_job_and_end_it_once(
    installation: Installation, client: Client, api_group: str
) -> None:
    """One job of every kind that can be stopped, pods and serving objects, all concurrently."""
    names = names_for(api_group)
    cases = [load(kind, api_group) for kind in kinds_with_cases()]
    stories: dict[str, Story] = {str(case): job_story(case) for case in cases if "stop" not in case.cannot}
    stories |= {
        "pods": pods_story,
        "Deployment": deployment_story,
        "StatefulSet": stateful_set_story,
        "LeaderWorkerSet": leader_worker_set_story,
    }
    await asyncio.to_thread(installation.start, ("manager",), replica=1)
    try:
        await play(stories, client, names)
        logs = [installation.log("manager", replica=one).read_text() for one in range(2)]
        assert all('"event":"started leading"' in log for log in logs)
    finally:
        await asyncio.to_thread(installation.stop, ("manager",), replica=1)


# --- without webhooks -------------------------------------------------------------------------------


def unsuspended_job_story(case: KindCase) -> Story:
    """A job that is created unsuspended is stopped until it is admitted."""

    async def story(stage: Stage) -> None:
        await open_queues(stage, case)
        await held_queue(stage, case)
        job, created = await submit(stage, case, changes=case.started, queue=HELD)
        assert not case.integration.is_suspended(created, stage.names)
        await job.until_suspended()
        await stage.until_event(case.integration.kind, job.name, "Stopped", UNKNOWN)
        await job.until_condition("QuotaReserved", "False", "Suspended")
        await job.change({f"metadata.labels[{stage.names.queue_name}]": case.queue(stage.names.group)})
        await job.until_started()

    return story


UNKNOWN: Final = "Missing Workload; unable to restore pod templates"


async def ungated_pods_story(stage: Stage) -> None:
    """Pods without the managed label are not queued, whatever queue they name."""
    await stage.closed_queue()
    created = await pod(stage, "p", queue="closed")
    await serve(stage, DEPLOYMENTS, replicas=1, labels={stage.names.queue_name: "closed"})
    await until_pods(stage, Pending=1)
    assert gates(created) == []
    # By the time that a later job runs, the controllers would have handled the pods.
    await stage.queues()
    await stage.job(suspend=True)
    await stage.until_running()
    workloads, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    assert [one["metadata"]["ownerReferences"][0]["kind"] for one in workloads] == ["Job"]
    assert await stage.events("Pod", "p") == []


async def test_job_created_without_webhooks_is_stopped_until_it_is_admitted(
    client: Client, api_group: str
) -> None:
    names = names_for(api_group)
    cases = [load(kind, api_group) for kind in kinds_with_cases()]
    stories: dict[str, Story] = {
        str(case): unsuspended_job_story(case) for case in cases if "stop" not in case.cannot
    }
    stories["pods"] = ungated_pods_story
    async with disabled_webhooks(client, names):
        await play(stories, client, names)
