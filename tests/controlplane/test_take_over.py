"""A cluster of the group of others changes hands and comes back: no job is stopped, admitted twice or lost.

The manager in charge is played by one more installation of ours, in a namespace and with objects as theirs
has, and by what is written by hand as they write it. Commands are those that the plan prints.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

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
from admitq_api.json_objects import value_at
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.controlplane.pods_of_jobs import some_pods
from tests.controlplane.recording import recorded
from tests.controlplane.stage import Stage, condition_of

NAMES = names_for(COMPAT_GROUP)
THEIRS = NAMES.default_namespace
CONFIG = {"clientConnection": {"qps": 90, "burst": 180}, "featureGates": {"PriorityBoost": True}}
SINCE = "2030-01-01T00:00:00Z"


@pytest.mark.slow
async def test_cluster_migrates_to_admitq_and_back_without_stopping_jobs(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    tmp_path: Path,
) -> None:
    cluster = private_cluster((NodePool(count=1, cpu="16", memory="64Gi"),))
    before = Installation(cluster, release=NAMES.metric_prefix, namespace=THEIRS)
    ours = Installation(cluster, namespace=THEIRS)

    async def run(commands: Sequence[str]) -> None:
        """Run the commands of the plan as a reader would."""
        for command in commands:
            done = await asyncio.to_thread(
                subprocess.run,
                ["bash", "-o", "pipefail", "-c", command],
                cwd=tmp_path,
                env=cluster.environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"

    async def checked() -> tuple[int, dict[str, Any]]:
        """What `admitq adopt` ends with and prints."""
        program = Path(sys.executable).with_name("admitq")
        arguments = ["adopt", "--from=kueue", "--output=json", f"--kubeconfig={cluster.kubeconfig}"]
        done = await asyncio.to_thread(
            subprocess.run, [program, *arguments], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    stage = Stage(await connect(cluster), NAMES, "default")
    empty, plan = await checked()
    assert (empty, [one["name"] for one in plan["findings"]]) == (1, ["nothing-to-adopt"])

    await asyncio.to_thread(before.install, api_group=COMPAT_GROUP, config=CONFIG)
    await asyncio.to_thread(before.start)
    await looks_like_theirs(stage)
    await stage.queues(cpu=3)
    await written_as_theirs(stage)
    async with recorded(stage) as workloads, recorded(stage, JOBS) as jobs:
        for name in ("stays", "ends"):
            await stage.job(name)
            await stage.until_running(name)
        await stage.job("waits")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "waits")
        unknown = {"type": "OfTheirs", "status": "True", "reason": "Known", "message": "only to them"}
        named = (await stage.workload("waits"))["metadata"]["name"]
        await applied_as_theirs(stage, named, {"conditions": [{**unknown, "lastTransitionTime": SINCE}]})

        status, plan = await checked()
        assert status == 0, plan["findings"]
        assert plan["workloads"] == {"pending": 1, "quota reserved": 0, "admitted": 3, "finished": 0}
        assert plan["inCharge"] == [f"{THEIRS}/theirs (example.com/theirs:1): running"]
        found = {one["name"]: one["places"] for one in plan["findings"]}
        assert f"deployments/theirs in {THEIRS}" in found["in-charge"]
        assert len(found["webhooks"]) == 3
        keep, _, _, stop, _, look = (step["commands"] for step in plan["steps"])
        leave, return_, remove = (step["commands"] for step in plan["wayBack"])
        values: dict[str, Any] = plan["values"]
        config = values.pop("config")
        assert {name: config[name] for name in CONFIG} == CONFIG

        # There. At first the webhooks of both answer, and only theirs manages.
        await run(keep)
        chosen = {"api_group": values["apiGroup"], "config": config}
        await asyncio.to_thread(ours.install, **chosen, values=values, take_ownership=True)
        # Processes run beside the cluster; there, the chart has no Deployments that could be scaled.
        await asyncio.to_thread(ours.start, ["webhook"])
        await converts(stage, "admitq")
        await stage.job("comes-between")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-between")
        _, again = await checked()
        assert (again["steps"], again["wayBack"]) == (plan["steps"], plan["wayBack"])
        as_it_was = await standing(stage)
        await run(stop)
        await asyncio.to_thread(before.stop)
        # Its job is held while no manager creates its Workload.
        await stage.job("comes-late")
        await asyncio.to_thread(ours.start, ["manager"])
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-late")
        await run(look)
        assert await standing(stage) == as_it_was
        await stage.client.delete(JOBS, "ends", stage.namespace, propagation="Background")
        await stage.until_running("waits")
        await stage.until(lambda: admitted_by_queue(stage), 3)
        await some_pods(stage, "waits")

        # And back.
        as_it_was = await standing(stage)
        await asyncio.to_thread(ours.stop, ["manager"])
        await run([one for one in leave if "scale deployment" not in one])
        await run(return_)
        await asyncio.to_thread(before.start)
        await converts(stage, NAMES.installation or "")
        await asyncio.to_thread(ours.stop)
        await run(remove)
        await stage.job("comes-last")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "comes-last")
        assert await standing(stage) == as_it_was
        await stage.client.delete(stage.kinds.workloads, "by-hand", stage.namespace)
        await stage.until_running("comes-between")

        left = {"stays": 1, "waits": 1, "comes-between": 1, "comes-late": 0, "comes-last": 0}
        for name, times in left.items():
            await stage.workload(name)
            course = [one[1] for one in workloads.course(name, ["Admitted"]) if one[1]]
            assert course.count("True") == times, course
            assert course[-1:] == ["True"] * times or times == 0, course
            assert workloads.course(name, ["Evicted"]) == []
        assert await stage.condition("OfTheirs", "waits") == ("True", "Known", "only to them")
        suspended = [one["spec"]["suspend"] for one in jobs.versions if one["metadata"]["name"] == "stays"]
        assert suspended == sorted(suspended, reverse=True), "it was stopped in between"
    end, last = await checked()
    assert (end, last["steps"]) == (0, plan["steps"]), last["findings"]


async def standing(stage: Stage) -> dict[str, Any]:
    """What must not change with the manager: admissions, their flavors, charged usage, pods.

    The garbage collector takes what belonged to a job that is gone when it comes to it.
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
                    told
                    for told in one["status"]["conditions"]
                    if told["type"] in {"QuotaReserved", "Admitted"}
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


async def admitted_by_queue(stage: Stage) -> int:
    queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
    return int(value_at(queue, ("status", "admittedWorkloads"), 0))


async def converts(stage: Stage, installation: str) -> None:
    """Wait until an installation converts between versions, as it does where its webhooks answer."""
    hooks = await stage.get(MUTATING_WEBHOOKS, f"{installation}-mutating-webhook-configuration")
    older = replace(stage.kinds.cluster_queues, version="v1beta1")

    async def done() -> bool:
        definition = await stage.get(CRDS, NAMES.crd_name(older.plural))
        asked = [
            urlsplit(one["clientConfig"]["url"]).netloc
            for one in (definition["spec"]["conversion"]["webhook"], hooks["webhooks"][0])
        ]
        assert asked[0] == asked[1], asked
        return bool((await stage.client.list(older))[0])

    await eventually(done, what=f"{installation} to convert")


async def looks_like_theirs(stage: Stage) -> None:
    """A Deployment, its Service and its configuration; its pods are only said to run."""
    labels = {"app": "theirs"}
    file = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", **CONFIG}
    container = {"name": "manager", "image": "example.com/theirs:1"}
    volume = {"name": "config", "configMap": {"name": "theirs"}}
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
        await stage.client.create(resource, {**whole, "metadata": {"name": "theirs", "namespace": THEIRS}})
    # Their objects are not labelled as ours.
    unlabelled = {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}
    for resource, verb in ((MUTATING_WEBHOOKS, "mutating"), (VALIDATING_WEBHOOKS, "validating")):
        await stage.change(resource, f"{NAMES.installation}-{verb}-webhook-configuration", unlabelled)
    # Their webhooks are called through that Service: one is for an unused kind.
    robots = {"apiGroups": ["example.com"], "resources": ["robots"]}
    hook = {
        "name": f"vrobot.{COMPAT_GROUP}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "theirs", "namespace": THEIRS, "path": "/"}},
        "rules": [{**robots, "apiVersions": ["v1"], "operations": ["CREATE"]}],
    }
    await stage.create(VALIDATING_WEBHOOKS, "theirs", {"webhooks": [hook]})


async def written_as_theirs(stage: Stage) -> None:
    """A Workload without job that was admitted by server-side apply, under their field manager."""
    workloads = stage.kinds.workloads
    pod = {"containers": [{"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}]}
    spec = {"queueName": "theirs", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}
    # No other manager admits from it.
    queue = {"clusterQueue": stage.own("cq"), "stopPolicy": "Hold"}
    await stage.create(stage.kinds.local_queues, "theirs", {"spec": queue})
    await stage.create(workloads, "by-hand", {"spec": spec})
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": text, "lastTransitionTime": SINCE}
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
    }
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}
    await applied_as_theirs(stage, "by-hand", {"conditions": conditions, "admission": admission})

    async def charged() -> bool:
        queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
        return value_at(queue, ("status", "admittedWorkloads")) == 1

    await eventually(charged, what="the Workload to be charged")


async def applied_as_theirs(stage: Stage, workload: str, status: dict[str, Any]) -> None:
    """Have a Workload's status written by server-side apply, under their field manager."""
    workloads = stage.kinds.workloads
    written = {
        "apiVersion": workloads.api_version,
        "kind": workloads.kind,
        "metadata": {"name": workload, "namespace": stage.namespace},
        "status": status,
    }
    manager = NAMES.field_manager("admission")
    await stage.client.apply(workloads, written, field_manager=manager, subresource="status")
