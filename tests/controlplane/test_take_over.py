"""A cluster is taken over from the manager of another installation and given back.

No job is stopped, admitted twice or lost. Another installation of admitq plays the manager in charge, in the
namespace of Kueue and with its object names. The test writes what only Kueue writes, and runs the commands of
the plan that `admitq adopt` prints.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from admitq.core.topology.domains import HOST_NAME
from admitq.runtime.client import Client
from admitq.runtime.resources import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    JOBS,
    MUTATING_WEBHOOKS,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.recording import Record, record_versions
from tests.controlplane.stage import Stage, condition_of

NAMES = names_for(COMPAT_GROUP)
NAMESPACE = NAMES.default_namespace
CONFIG = {"clientConnection": {"qps": 90, "burst": 180}, "featureGates": {"PriorityBoost": True}}
POOL = {"example.com/pool": "p"}
WRITTEN_AT = "2030-01-01T00:00:00Z"
UNKNOWN_CONDITION = {"type": "OfOther", "status": "True", "reason": "Known", "message": "only to the other"}


@dataclass(frozen=True)
class Takeover:
    """A cluster with two installations, and the plan by which the second takes over from the first."""

    cluster: LocalCluster
    other: Installation
    admitq: Installation
    stage: Stage
    folder: Path

    async def plan(self) -> tuple[int, dict[str, Any]]:
        """Run `admitq adopt`, and return its exit status and the plan that it prints."""
        program = Path(sys.executable).with_name("admitq")
        arguments = ["adopt", "--from=kueue", "--output=json", f"--kubeconfig={self.cluster.kubeconfig}"]
        done = await asyncio.to_thread(
            subprocess.run, [program, *arguments], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    async def run(self, commands: Sequence[str]) -> None:
        """Run commands of the plan as a reader would."""
        for command in commands:
            done = await asyncio.to_thread(
                subprocess.run,
                ["bash", "-o", "pipefail", "-c", command],
                cwd=self.folder,
                env=self.cluster.environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"

    async def check_plan_of_empty_cluster(self) -> None:
        status, plan = await self.plan()
        assert (status, [one["name"] for one in plan["findings"]]) == (1, ["nothing-to-adopt"])

    async def start_other_manager(self) -> None:
        """Install and start the manager in charge, with the objects that a Kueue installation has."""
        await asyncio.to_thread(self.other.install, api_group=COMPAT_GROUP, config=CONFIG)
        await asyncio.to_thread(self.other.start)
        await create_objects_of_kueue(self.stage)

    async def submit_jobs(self) -> None:
        """Create two jobs that run and one that waits. Its Workload has a condition unknown to admitq."""
        for name in ("stays", "ends"):
            await self.stage.job(name)
            await self.stage.until_running(name)
        await self.stage.job("waits")
        await self.stage.until_condition("QuotaReserved", "WaitingForQuota", "waits")
        workload = (await self.stage.workload("waits"))["metadata"]["name"]
        condition = {**UNKNOWN_CONDITION, "lastTransitionTime": WRITTEN_AT}
        await apply_status_as_kueue(self.stage, workload, {"conditions": [condition]})

    async def check_plan(self) -> dict[str, Any]:
        """Check the plan for the cluster with jobs, and return it."""
        status, plan = await self.plan()
        assert status == 0, plan["findings"]
        assert plan["workloads"] == {"pending": 1, "quota reserved": 0, "admitted": 4, "finished": 0}
        assert plan["inCharge"] == [f"{NAMESPACE}/other (example.com/other:1): running"]
        places = {one["name"]: one["places"] for one in plan["findings"]}
        assert f"deployments/other in {NAMESPACE}" in places["in-charge"]
        assert len(places["webhooks"]) == 3
        config = plan["values"]["config"]
        assert {name: config[name] for name in CONFIG} == CONFIG
        return plan

    async def move_to_admitq(self, plan: dict[str, Any]) -> None:
        """Follow the steps of the plan. Each job that is created in between waits for quota."""
        stage = self.stage
        keep, _, _, stop, _, look = (step["commands"] for step in plan["steps"])
        # The webhooks of both installations answer, and only the other manager manages.
        await self.run(keep)
        chosen = {"api_group": plan["values"]["apiGroup"], "config": plan["values"]["config"]}
        values = {name: value for name, value in plan["values"].items() if name != "config"}
        await asyncio.to_thread(self.admitq.install, **chosen, values=values, take_ownership=True)
        # Processes run beside the cluster, so the chart has no Deployments that could be scaled.
        await asyncio.to_thread(self.admitq.start, ["webhook"])
        await until_conversion_by(stage, "admitq")
        await stage.job("comes-between")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-between")
        _, second_plan = await self.plan()
        assert (second_plan["steps"], second_plan["wayBack"]) == (plan["steps"], plan["wayBack"])
        before = await held_state(stage)
        await self.run(stop)
        await asyncio.to_thread(self.other.stop)
        # Without a manager the job stays suspended and gets no Workload, and a new pod stays gated.
        await stage.job("comes-late")
        [lost] = await stage.pods("stays")
        await stage.client.delete(PODS, lost["metadata"]["name"], stage.namespace)
        replacement = await until_replaced(stage, lost)
        assert replacement["spec"]["schedulingGates"] == [{"name": NAMES.topology_gate}]
        before["pods"] = sorted({*before["pods"], replacement["metadata"]["uid"]} - {lost["metadata"]["uid"]})
        await asyncio.to_thread(self.admitq.start, ["manager"])
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-late")
        await until_bound(stage, replacement)
        await self.run(look)
        assert await held_state(stage) == before

    async def admit_waiting_job(self) -> None:
        """Delete a running job; admitq admits the job that waits."""
        await self.stage.client.delete(JOBS, "ends", self.stage.namespace, propagation="Background")
        await self.stage.until_running("waits")
        await self.stage.until(lambda: admitted_workloads(self.stage), 4)
        await until_pods_exist(self.stage, "waits")

    async def move_back(self, plan: dict[str, Any]) -> None:
        """Follow the way back of the plan."""
        stage = self.stage
        leave, return_, remove = (step["commands"] for step in plan["wayBack"])
        before = await held_state(stage)
        await asyncio.to_thread(self.admitq.stop, ["manager"])
        await self.run([one for one in leave if "scale deployment" not in one])
        await self.run(return_)
        await asyncio.to_thread(self.other.start)
        await until_conversion_by(stage, NAMES.installation or "")
        await asyncio.to_thread(self.admitq.stop)
        await self.run(remove)
        await stage.job("comes-last")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-last")
        assert await held_state(stage) == before
        await stage.client.delete(stage.kinds.workloads, name_by_hand("v1beta1"), stage.namespace)
        await stage.until_running("comes-between")

    async def check_histories(self, workloads: Record, jobs: Record) -> None:
        """Check that each job was admitted at most once, and that none was evicted or stopped."""
        admissions = {"stays": 1, "waits": 1, "comes-between": 1, "comes-late": 0, "comes-last": 0}
        for name, expected in admissions.items():
            await self.stage.workload(name)
            changes = workloads.condition_changes(name, ["Admitted"])
            statuses = [status for _, status, _, _ in changes if status]
            assert statuses.count("True") == expected, statuses
            assert expected == 0 or statuses[-1:] == ["True"] * expected, statuses
            assert workloads.condition_changes(name, ["Evicted"]) == []
        kept = await self.stage.condition(UNKNOWN_CONDITION["type"], "waits")
        assert kept == tuple(UNKNOWN_CONDITION[key] for key in ("status", "reason", "message"))
        suspended = [one["spec"]["suspend"] for one in jobs.versions if one["metadata"]["name"] == "stays"]
        assert suspended == sorted(suspended, reverse=True), "the job was stopped in between"


@pytest.mark.slow
async def test_cluster_migrates_to_admitq_and_back_without_stopping_jobs(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    tmp_path: Path,
) -> None:
    cluster = private_cluster((NodePool(count=1, cpu="4", memory="64Gi", labels=POOL),))
    other = Installation(cluster, release=NAMES.metric_prefix, namespace=NAMESPACE)
    admitq = Installation(cluster, namespace=NAMESPACE)
    stage = Stage(await connect(cluster), NAMES, "default")
    takeover = Takeover(cluster, other, admitq, stage, tmp_path)
    await takeover.check_plan_of_empty_cluster()
    await takeover.start_other_manager()
    await create_queues(stage)
    for version, assignment in ASSIGNMENTS_OF_KUEUE.items():
        await create_workload_of_kueue(stage, version, assignment)
    await until_charged(stage, len(ASSIGNMENTS_OF_KUEUE))
    async with record_versions(stage) as workloads, record_versions(stage, JOBS) as jobs:
        await takeover.submit_jobs()
        plan = await takeover.check_plan()
        await takeover.move_to_admitq(plan)
        await takeover.admit_waiting_job()
        await takeover.move_back(plan)
        await takeover.check_histories(workloads, jobs)
    status, last_plan = await takeover.plan()
    assert (status, last_plan["steps"]) == (0, plan["steps"]), last_plan["findings"]


async def create_queues(stage: Stage) -> None:
    """Create queues with much quota. The places on the only node decide how many jobs run."""
    levels = {"spec": {"levels": [{"nodeLabel": HOST_NAME}]}}
    await stage.create(stage.kinds.topologies, stage.own("t"), levels)
    await stage.flavor(nodeLabels=POOL, topologyName=stage.own("t"))
    await stage.cluster_queue(cpu=100)
    await stage.local_queue()


async def held_state(stage: Stage) -> dict[str, Any]:
    """What must not change with the manager: admissions, their flavors, charged usage and pods.

    Pods of deleted jobs are left out: the garbage collector deletes them at some time.
    """
    workloads, _ = await stage.client.list(stage.kinds.workloads)
    pods, _ = await stage.client.list(PODS, stage.namespace)
    jobs = {one["metadata"]["uid"] for one in (await stage.client.list(JOBS, stage.namespace))[0]}
    queue = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
    charged = ("flavorsReservation", "flavorsUsage", "reservingWorkloads", "admittedWorkloads")
    return {
        "workloads": {
            one["metadata"]["uid"]: (
                one["status"]["admission"],
                [
                    condition
                    for condition in one["status"]["conditions"]
                    if condition["type"] in {"QuotaReserved", "Admitted"}
                ],
            )
            for one in workloads
            if value_at(one, ("status", "admission")) and condition_of(one, "Finished") is None
        },
        "pods": sorted(
            one["metadata"]["uid"]
            for one in pods
            if jobs.intersection(owner["uid"] for owner in one["metadata"].get("ownerReferences", ()))
        ),
        "usage": {name: queue.get(name) for name in charged},
    }


async def until_replaced(stage: Stage, lost: dict[str, Any]) -> dict[str, Any]:
    """Wait until the Job has created another pod, and return it."""
    found: list[dict[str, Any]] = []

    async def is_replaced() -> bool:
        found[:] = await stage.pods("stays")
        return len(found) == 1 and found[0]["metadata"]["uid"] != lost["metadata"]["uid"]

    await stage.until(is_replaced, what="another pod")
    [replacement] = found
    return replacement


async def until_bound(stage: Stage, pod: dict[str, Any]) -> None:
    """Wait until a pod is on the only node."""

    async def node() -> Any:
        return value_at(await stage.get(PODS, pod["metadata"]["name"]), ("spec", "nodeName"))

    await stage.until(node, "node-0")


async def admitted_workloads(stage: Stage) -> int:
    """The number of admitted Workloads that the ClusterQueue reports."""
    queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
    return int(value_at(queue, ("status", "admittedWorkloads"), 0))


async def until_conversion_by(stage: Stage, installation: str) -> None:
    """Wait until the webhooks of an installation convert between API versions."""
    hooks = await stage.get(MUTATING_WEBHOOKS, f"{installation}-mutating-webhook-configuration")
    older = replace(stage.kinds.cluster_queues, version="v1beta1")

    async def converts() -> bool:
        definition = await stage.get(CRDS, NAMES.crd_name(older.plural))
        conversion, reviews = (
            urlsplit(one["clientConfig"]["url"]).netloc
            for one in (definition["spec"]["conversion"]["webhook"], hooks["webhooks"][0])
        )
        assert conversion == reviews, (conversion, reviews)
        return bool((await stage.client.list(older))[0])

    await eventually(converts, what=f"{installation} to convert")


async def create_objects_of_kueue(stage: Stage) -> None:
    """Create a Deployment with its Service, configuration and a webhook; the Deployment has no pods."""
    labels = {"app": "other"}
    file = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", **CONFIG}
    container = {"name": "manager", "image": "example.com/other:1"}
    volume = {"name": "config", "configMap": {"name": "other"}}
    objects: list[tuple[Resource, dict[str, Any]]] = [
        (CONFIG_MAPS, {"data": {"file.yaml": yaml.safe_dump(file)}}),
        (
            DEPLOYMENTS,
            {
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [container], "volumes": [volume]},
                    },
                }
            },
        ),
        (SERVICES, {"spec": {"selector": labels, "ports": [{"port": 443}]}}),
    ]
    for resource, obj in objects:
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        await stage.client.create(resource, {**whole, "metadata": {"name": "other", "namespace": NAMESPACE}})
    # Objects of Kueue do not have the labels of admitq's chart.
    unlabelled = {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}
    for resource, verb in ((MUTATING_WEBHOOKS, "mutating"), (VALIDATING_WEBHOOKS, "validating")):
        await stage.change(resource, f"{NAMES.installation}-{verb}-webhook-configuration", unlabelled)
    # Webhooks of Kueue are called through a Service. This one is for a kind that does not exist.
    robots = {"apiGroups": ["example.com"], "resources": ["robots"]}
    hook = {
        "name": f"vrobot.{COMPAT_GROUP}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "other", "namespace": NAMESPACE, "path": "/"}},
        "rules": [{**robots, "apiVersions": ["v1"], "operations": ["CREATE"]}],
    }
    await stage.create(VALIDATING_WEBHOOKS, "other", {"webhooks": [hook]})


ASSIGNMENTS_OF_KUEUE: Final[Mapping[str, JsonObject]] = {
    "v1beta1": {"levels": [HOST_NAME], "domains": [{"values": ["node-0"], "count": 1}]},
    # admitq writes the same with values in common.
    "v1beta2": {
        "levels": [HOST_NAME],
        "slices": [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": ["0"]}}],
                "podCounts": {"individual": [1]},
            }
        ],
    },
}
"""The assignment of one pod to the only node, by the API version in which Kueue wrote it."""


async def create_workload_of_kueue(stage: Stage, version: str, topology: JsonObject) -> None:
    """Create a Workload without job and admit it by server-side apply, with Kueue's field manager."""
    name, workloads = name_by_hand(version), stage.kinds.workloads
    pod = {"containers": [{"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}]}
    spec = {"queueName": name, "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}
    # The queue is stopped, so that no running manager admits the Workload.
    queue = {"clusterQueue": stage.own("cq"), "stopPolicy": "Hold"}
    await stage.create(stage.kinds.local_queues, name, {"spec": queue})
    await stage.create(workloads, name, {"spec": spec})
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": text, "lastTransitionTime": WRITTEN_AT}
        for kind, text in (
            ("QuotaReserved", f"Quota reserved in ClusterQueue {stage.own('cq')}"),
            ("Admitted", "The workload is admitted"),
        )
    ]
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": "1"},
        "topologyAssignment": topology,
    }
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}
    status = {"conditions": conditions, "admission": admission}
    await apply_status_as_kueue(stage, name, status, version)


def name_by_hand(version: str) -> str:
    return f"by-hand-{version}"


async def until_charged(stage: Stage, workloads: int) -> None:
    """Wait until the ClusterQueue counts so many Workloads as admitted."""

    async def is_charged() -> bool:
        queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
        return value_at(queue, ("status", "admittedWorkloads")) == workloads

    await eventually(is_charged, what="the Workloads to be charged")


async def apply_status_as_kueue(
    stage: Stage, workload: str, status: dict[str, Any], version: str = "v1beta2"
) -> None:
    """Write the status of a Workload by server-side apply, with Kueue's field manager."""
    workloads = replace(stage.kinds.workloads, version=version)
    applied = {
        "apiVersion": workloads.api_version,
        "kind": workloads.kind,
        "metadata": {"name": workload, "namespace": stage.namespace},
        "status": status,
    }
    manager = NAMES.field_manager("admission")
    await stage.client.apply(workloads, applied, field_manager=manager, subresource="status")
