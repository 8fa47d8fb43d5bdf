"""Ray clusters in stories: their autoscaler, and what their pods request and use."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.runtime.resources import PODS
from admitq.runtime.store import ObjectChange, Store
from admitq.workloads.transitions import is_reserved
from admitq_api.json_objects import value_at
from admitq_api.quantity import parse_quantity
from localcluster.cluster import LocalCluster
from localcluster.waiting import eventually
from tests.controlplane.recording import watch
from tests.controlplane.stage import Stage
from tests.controlplane.tenants import impersonate
from tests.operators.operator_case import OperatedJob, until_pod_states

CLUSTERS: Final = resource_of(RAY_CLUSTER)
HEAD: Final = "ray.io/node-type=head"
WORKER: Final = "ray.io/node-type=worker"

Amounts = Mapping[str, Fraction]
"""Amounts by resource."""


# --- amounts ----------------------------------------------------------------------------------------


def requested(pods: Iterable[Mapping[str, Any]]) -> dict[str, Fraction]:
    """The sum of what the containers of pods request.

    The operator adds an init container to each worker, which is not charged to quota.
    """
    containers = (container for pod in pods for container in pod["spec"]["containers"])
    return _sum_of(value_at(container, ("resources", "requests"), {}) for container in containers)


def usage(workload: Mapping[str, Any]) -> dict[str, Fraction]:
    """The quota that a Workload has."""
    listed = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return _sum_of(one.get("resourceUsage", {}) for one in listed)


def amounts(given: Mapping[str, Any]) -> dict[str, Fraction]:
    """Quantities as amounts."""
    return _sum_of([given])


def _sum_of(many: Iterable[Mapping[str, Any]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for one in many:
        for resource, quantity in one.items():
            total[resource] = total.get(resource, Fraction()) + parse_quantity(quantity)
    return total


@dataclass
class PodRecord:
    """The largest amounts that the pods of a namespace, each from its binding to its end, ever requested."""

    peak: dict[str, Fraction] = field(default_factory=dict[str, Fraction])

    def note(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Take the pods of one moment into account."""
        bound = (
            pod
            for pod in pods
            if "nodeName" in pod["spec"] and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        )
        for resource, amount in requested(bound).items():
            self.peak[resource] = max(self.peak.get(resource, Fraction()), amount)


@asynccontextmanager
async def record_pods(stage: Stage) -> AsyncGenerator[PodRecord]:
    """Record within a block how much the pods of the namespace request at a time."""
    record, store = PodRecord(), Store(PODS)

    def note(_change: ObjectChange) -> None:
        record.note(store.list())

    async with watch(stage, store, note):
        yield record


# --- the autoscaler ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Autoscaler:
    """Scales a cluster as the container in its head does, with the permissions of its ServiceAccount."""

    stage: Stage
    cluster: str
    """The name of the RayCluster."""

    async def scale_up(self, replicas: int) -> None:
        """Request this number of workers in the first group."""
        await self._patch({"replicas": replicas})

    async def scale_down(self, replicas: int, workers: Sequence[Mapping[str, Any]]) -> None:
        """Remove idle workers, which the operator then deletes, and forget them when they are gone."""
        names = [pod["metadata"]["name"] for pod in workers]
        await self._patch({"replicas": replicas, "scaleStrategy": {"workersToDelete": names}})

        async def left() -> list[str]:
            pods, _ = await self.stage.client.list(PODS, self.stage.namespace)
            return [one["metadata"]["name"] for one in pods if one["metadata"]["name"] in names]

        await self.stage.until(left, [], what=f"no pods {names}")
        await self._patch({"scaleStrategy": {"workersToDelete": []}})

    async def _patch(self, fields: Mapping[str, Any]) -> None:
        operations = [
            {"op": "replace", "path": f"/spec/workerGroupSpecs/0/{name}", "value": value}
            for name, value in fields.items()
        ]
        await self.stage.client.json_patch(CLUSTERS, self.cluster, operations, self.stage.namespace)


@asynccontextmanager
async def autoscaler(
    stage: Stage, cluster: LocalCluster, head: Mapping[str, Any]
) -> AsyncGenerator[Autoscaler]:
    """Run the autoscaler of the cluster that a head pod belongs to."""
    user = f"system:serviceaccount:{stage.namespace}:{head['spec']['serviceAccountName']}"
    async with impersonate(stage, cluster, user) as own:
        yield Autoscaler(own, head["metadata"]["labels"]["ray.io/cluster"])


# --- what a story waits for -------------------------------------------------------------------------


async def until_workers(job: OperatedJob, *, running: int, gated: int = 0) -> list[dict[str, Any]]:
    """Wait until so many workers run and so many wait behind the gate of elastic jobs; return all of them."""
    wanted = {state: count for state, count in (("Running", running), ("held", gated)) if count}
    workers = await until_pod_states(
        job.stage,
        lambda: job.pods(WORKER),
        wanted,
        gate=job.stage.names.elastic_gate,
        what=f"workers of {job.name}: {wanted}",
    )
    return sorted(workers, key=lambda pod: pod["status"]["phase"] != "Running")


async def until_slices(job: OperatedJob, *wanted: tuple[Mapping[str, int], bool]) -> None:
    """Wait until the unfinished Workloads have these pod counts, first those with quota (True)."""

    async def found() -> list[tuple[dict[str, int], bool]]:
        return [
            ({one["name"]: one["count"] for one in workload["spec"]["podSets"]}, is_reserved(workload))
            for workload in sorted(await job.unfinished(), key=is_reserved, reverse=True)
        ]

    expected = [(dict(counts), has_quota) for counts, has_quota in wanted]
    await job.stage.until(found, expected, what=f"slices of {job.name}")


async def until_finished(job: OperatedJob) -> None:
    """Wait until all Workloads of a job have finished."""
    await job.stage.until(job.unfinished, [], what=f"the end of {job.name}")


async def until_charged_for_its_pods(job: OperatedJob) -> Amounts:
    """Wait until the quota of a job is exactly what its pods request, and return it."""

    async def found() -> Amounts:
        (workload,) = await job.unfinished()
        used, needed = usage(workload), requested(await job.pods())
        assert used == needed
        return used

    return await eventually(found, what=f"quota of {job.name} for exactly its pods")


async def set_quota(stage: Stage, quota: Mapping[str, Any]) -> None:
    """Change the quota of the ClusterQueue."""
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    flavors = [{"name": stage.own("f"), "resources": resources}]
    groups = [{"coveredResources": list(quota), "flavors": flavors}]
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"resourceGroups": groups}})
