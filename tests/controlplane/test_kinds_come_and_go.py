"""The CRD of a kind is installed, changed and deleted while admitq runs."""

from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.jobset import JOBSET
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, JOBS, Resource
from admitq_api.json_objects import value_at
from localcluster import crds
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.recording import sum_of_series
from tests.controlplane.stage import DELETED_OWNER, Stage, condition_of, controlled_by

JOBSETS = resource_of(JOBSET)
DEFINITION = "jobsets.jobset.x-k8s.io"
ROBOTS = Resource("example.com", "v1", "robots", "Robot", namespaced=True)
"""A kind of an external framework."""


@dataclass
class Manager:
    """Probes and metrics of a manager."""

    installation: Installation

    async def _read(self, endpoint: Any, path: str) -> tuple[int, str]:
        url = self.installation.url("manager", endpoint) + path
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def is_ready(self) -> bool:
        return (await self._read("health", "/readyz"))[0] == 200

    async def sum_of_series(self, series: str, **labels: str) -> float:
        """The sum of the series that carry all of these labels."""
        return await sum_of_series(self.installation, series, **labels)

    async def manages(self) -> bool:
        return await self.sum_of_series("managed_kinds", controller=JOBSET.framework) == 1

    async def until_it_manages(self, *, manages: bool) -> None:
        async def found() -> bool:
            return await self.manages() is manages

        await eventually(found, what=f"JobSets {'' if manages else 'not '}to be managed")


@pytest.fixture
def manager(admitq_alone: Installation) -> Manager:
    return Manager(admitq_alone)


async def create_job_set(stage: Stage, name: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    jobs = {"name": "workers", "replicas": 2, "template": {"spec": {"template": pods}}}
    labels = {} if metadata else {stage.names.queue_name: "lq"}
    return await stage.create(
        JOBSETS, name, {"metadata": {"labels": labels, **metadata}, "spec": {"replicatedJobs": [jobs]}}
    )


async def until_unsuspended(stage: Stage, name: str) -> None:
    async def found() -> Any:
        return value_at(await stage.get(JOBSETS, name), ("spec", "suspend"))

    await stage.until(found, False, what=f"{name} to be started")


async def complete(stage: Stage, name: str) -> None:
    """Set the condition of a succeeded JobSet, as its controller would."""
    ended = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    await stage.change(JOBSETS, name, {"status": {"conditions": [ended]}}, "status")


async def is_admitted(stage: Stage, name: str) -> bool:
    workload = await stage.workload(name)
    return (condition_of(workload, "Admitted") or ("",))[0] == "True" and not condition_of(
        workload, "Finished"
    )


async def set_served(stage: Stage, *, served: bool) -> None:
    """Change whether the API server serves JobSets."""
    definition = await stage.client.get(CRDS, DEFINITION)
    versions = [{**one, "served": served} for one in definition["spec"]["versions"]]
    await stage.client.merge_patch(CRDS, DEFINITION, {"spec": {"versions": versions}})


async def test_kind_is_managed_only_while_its_crd_exists(
    admitq_alone: Installation, manager: Manager, stage_alone: Stage
) -> None:
    stage = stage_alone
    await stage.queues(cpu=9)
    await stage.job()
    await stage.until_running()
    assert await manager.is_ready()
    assert not await manager.manages()

    crds.install(admitq_alone.cluster, [DEFINITION])
    created = await create_job_set(stage, "first")
    assert created["spec"]["suspend"] is True
    await until_unsuspended(stage, "first")
    assert await manager.manages()
    await complete(stage, "first")
    await stage.until_finished("first")

    await create_job_set(stage, "second")
    await until_unsuspended(stage, "second")
    await stage.client.delete(CRDS, DEFINITION)
    await manager.until_it_manages(manages=False)
    assert await manager.is_ready()
    # The API server deletes the objects before the CRD, so that no job of the kind holds quota. The garbage
    # collector deletes their Workloads later: it may not have discovered the kind yet.
    await stage.until(lambda: holders(stage), ["j"])

    before = await manager.sum_of_series("api_requests_total", resource=str(JOBSETS))
    polls = await manager.sum_of_series("api_requests_total", verb="get", resource="")
    await eventually(lambda: has_polled(manager, polls + 4), what="four polls of the served kinds")
    assert await manager.sum_of_series("api_requests_total", resource=str(JOBSETS)) == before

    crds.install(admitq_alone.cluster, [DEFINITION])
    await create_job_set(stage, "third")
    await until_unsuspended(stage, "third")
    await stage.job("other")
    await stage.until_running("other")
    await stage.client.delete(CRDS, DEFINITION)
    await manager.until_it_manages(manages=False)


async def has_polled(manager: Manager, times: float) -> bool:
    return await manager.sum_of_series("api_requests_total", verb="get", resource="") >= times


async def holders(stage: Stage) -> list[str]:
    """Return the jobs that hold quota, by name."""
    items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    return [
        one["metadata"]["ownerReferences"][0]["name"]
        for one in items
        if condition_of(one, "Admitted") and not condition_of(one, "Finished")
    ]


async def owners(stage: Stage) -> list[str]:
    """Return the jobs with a Workload, by name."""
    items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    return sorted(one["metadata"]["ownerReferences"][0]["name"] for one in items)


async def test_jobs_keep_their_workloads_while_their_version_is_not_served(
    admitq_alone: Installation, manager: Manager, stage_alone: Stage
) -> None:
    stage = stage_alone
    await stage.queues(cpu=5)
    crds.install(admitq_alone.cluster, [DEFINITION])
    # Before the garbage collector watches JobSets, it looks up each owner, and treats owners of a kind that
    # is not served as deleted. Once it deletes a JobSet, it watches them.
    await create_job_set(stage, "garbage", ownerReferences=[DELETED_OWNER])
    await stage.until_gone(JOBSETS, "garbage")
    for name in ("long", "given-up"):
        await create_job_set(stage, name)
        await until_unsuspended(stage, name)
    before = await stage.workload("long")

    await set_served(stage, served=False)
    await manager.until_it_manages(manages=False)
    with pytest.raises(ApiError):
        await stage.get(JOBSETS, "long")
    assert await stage.workload("long") == before
    # A change of the Workload causes no lookup of a job of an unserved kind.
    patch = {"metadata": {"annotations": {"example.com/note": "x"}}}
    await stage.change(stage.kinds.workloads, before["metadata"]["name"], patch)
    await stage.job()
    await stage.until_running()
    assert await is_admitted(stage, "long")
    # A deleted Workload is not held for a job that cannot be stopped.
    given_up = (await stage.workload("given-up"))["metadata"]["name"]
    await stage.client.delete(stage.kinds.workloads, given_up, namespace=stage.namespace)
    await stage.until(lambda: owners(stage), ["j", "long"])

    await set_served(stage, served=True)
    await manager.until_it_manages(manages=True)
    await complete(stage, "long")
    await stage.until_finished("long")
    await stage.client.delete(CRDS, DEFINITION)
    await manager.until_it_manages(manages=False)


def robot_crd() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "robots.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "robots", "kind": "Robot"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def allow_reading_robots(stage: Stage, installation: Installation) -> None:
    """Create the role that the chart creates for kinds in its values."""
    rule = {"apiGroups": ["example.com"], "resources": ["robots"], "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "robots"}
    accounts = [
        {
            "kind": "ServiceAccount",
            "name": f"{installation.prefix}-{component}",
            "namespace": installation.namespace,
        }
        for component in ("manager", "webhook")
    ]
    await stage.create(CLUSTER_ROLES, "robots", {"rules": [rule]})
    await stage.create(CLUSTER_ROLE_BINDINGS, "robots", {"roleRef": role, "subjects": accounts})


async def test_nested_jobs_of_an_external_framework_run_only_while_their_root_holds_quota(
    admitq_alone: Installation, manager: Manager, stage_alone: Stage
) -> None:
    stage = stage_alone
    crds.install(admitq_alone.cluster, [DEFINITION])
    crds.apply(admitq_alone.cluster, [robot_crd()])
    await allow_reading_robots(stage, admitq_alone)
    await stage.queues()
    await manager.until_it_manages(manages=True)

    queued = {"labels": {stage.names.queue_name: "lq"}}
    robot = await stage.create(ROBOTS, "r", {"metadata": queued})
    between = await create_job_set(stage, "between", **controlled_by(robot))
    assert "suspend" not in between["spec"]
    child = "between-workers-0"
    created = await stage.job(child, metadata=controlled_by(between))
    assert created["spec"]["suspend"] is False

    # The robot has no quota yet, so that its nested jobs must not run.
    await stage.until_running(child, running=False)
    note = f"{stage.names.product} managed child job suspended"
    await stage.until_event("Job", child, "Suspended", note)
    await stage.until_event("JobSet", "between", "Suspended", note)

    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    workload = {"metadata": controlled_by(robot), "spec": {"queueName": "lq", "podSets": [pods]}}
    await stage.create(stage.kinds.workloads, "of-robot", workload)
    await stage.until(lambda: holders(stage), ["r"])
    for resource, name in ((JOBSETS, "between"), (JOBS, child)):
        await stage.change(resource, name, {"spec": {"suspend": False}})
    await stage.job("another")
    await stage.until_running("another")
    assert value_at(await stage.get(JOBS, child), ("spec", "suspend")) is False
    assert value_at(await stage.get(JOBSETS, "between"), ("spec", "suspend")) is False
    assert sorted(await holders(stage)) == ["another", "r"]

    for definition in (DEFINITION, "robots.example.com"):
        await stage.client.delete(CRDS, definition)
    await manager.until_it_manages(manages=False)
