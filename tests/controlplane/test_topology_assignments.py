"""Stories of pods with a topology assignment: they end on the nodes that their Workload was assigned."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.jobset import JOBSET
from admitq.runtime.resources import JOBS, PODS
from admitq_api.json_objects import value_at, with_value
from admitq_api.topology_assignments import Domain, encode
from localcluster.installation import Installation
from tests.controlplane import pods
from tests.controlplane.hosts import BLOCK, HOST, RACK, TEMPLATE, TOLERATION, completion_index, until_on_nodes
from tests.controlplane.kind_cases import load
from tests.controlplane.recording import sum_of_series
from tests.controlplane.stage import Stage, condition_of, controlled_by

JOB_INDEX = "jobset.sigs.k8s.io/job-index"


async def admit(stage: Stage, workload: dict[str, Any], levels: Sequence[str], domains: list[Domain]) -> None:
    """Admit a Workload of one podset with this topology assignment, as another program would."""
    [pod_set] = workload["spec"]["podSets"]
    assignment = {
        "name": pod_set["name"],
        "count": pod_set["count"],
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": str(pod_set["count"])},
        "topologyAssignment": encode(levels, domains),
    }
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": "Imported",
            "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        for type_ in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}
    status = {"status": {"conditions": conditions, "admission": admission}}
    await stage.change(stage.kinds.workloads, workload["metadata"]["name"], status, "status")


async def create_job(stage: Stage, pods: int, **spec: Any) -> dict[str, Any]:
    """Create a Job, and return its Workload, which waits because its queue is stopped."""
    await stage.queues(cpu=8, stopPolicy="Hold")
    await stage.job(pods=pods, template=TEMPLATE, **spec)
    await stage.until_workload_exists()
    return await stage.workload()


@pytest.mark.core
async def test_pods_of_indexed_job_run_on_hosts_of_their_ranks(
    stage: Stage, hosts: list[str], admitq_running: Installation
) -> None:
    workload = await create_job(stage, 4, completionMode="Indexed")
    assigned: list[Domain] = [((hosts[0],), 1), ((hosts[1],), 2), ((hosts[3],), 1)]
    await admit(stage, workload, [HOST], assigned)
    by_index = {"0": hosts[0], "1": hosts[1], "2": hosts[1], "3": hosts[3]}
    await until_on_nodes(stage, by_index, completion_index)
    template = value_at(await stage.get(JOBS, "j"), ("spec", "template"))
    assert template["spec"]["schedulingGates"] == [{"name": stage.names.topology_gate}]
    assert template["metadata"]["annotations"][stage.names.podset_unconstrained_topology] == "true"
    queue, gate = {"cluster_queue": stage.own("cq")}, {"name": stage.names.topology_gate}

    async def counted() -> float:
        return await sum_of_series(
            admitq_running, "pod_scheduling_gate_removal_seconds_count", **queue, **gate
        )

    await stage.until(counted, 4.0)


async def test_failed_pod_is_replaced_on_the_host_of_its_rank(stage: Stage, hosts: list[str]) -> None:
    workload = await create_job(stage, 2, completionMode="Indexed", backoffLimit=5)
    await admit(stage, workload, [HOST], [((hosts[2],), 1), ((hosts[3],), 1)])
    await until_on_nodes(stage, {"0": hosts[2], "1": hosts[3]}, completion_index)
    [first] = [pod for pod in await stage.pods() if completion_index(pod) == "0"]
    await stage.client.delete(PODS, first["metadata"]["name"], namespace=stage.namespace)

    async def is_replaced() -> bool:
        replaced = [pod for pod in await stage.pods() if completion_index(pod) == "0"]
        uids = {pod["metadata"]["uid"] for pod in replaced}
        return [value_at(pod, ("spec", "nodeName")) for pod in replaced] == [hosts[2]] and first["metadata"][
            "uid"
        ] not in uids

    await stage.until(is_replaced, what="the replacement on the same host")


async def test_job_without_indexes_fills_racks_and_stop_restores_its_template(
    stage: Stage, hosts: list[str]
) -> None:
    before = await create_job(stage, 3)
    block = stage.own("b")
    racks: list[Domain] = [((block, stage.own("r1")), 1), ((block, stage.own("r2")), 2)]
    await admit(stage, before, [BLOCK, RACK], racks)

    async def used_racks() -> list[str]:
        selectors = [value_at(pod, ("spec", "nodeSelector"), {}) for pod in await stage.pods()]
        placed = [pod for pod in await stage.pods() if value_at(pod, ("spec", "nodeName")) in hosts]
        return sorted(selector.get(RACK, "") for selector in selectors) if len(placed) == 3 else []

    await stage.until(used_racks, [stage.own("r1"), stage.own("r2"), stage.own("r2")])
    await stage.change(stage.kinds.workloads, before["metadata"]["name"], {"spec": {"active": False}})
    await stage.until_running(running=False)
    template = value_at(await stage.get(JOBS, "j"), ("spec", "template"))
    assert "schedulingGates" not in template["spec"]
    assert stage.names.podset_unconstrained_topology not in template["metadata"].get("annotations", {})


async def test_pods_of_group_run_on_hosts_of_their_indexes(stage: Stage, hosts: list[str]) -> None:
    names = stage.names
    await stage.queues(cpu=8, stopPolicy="Hold")
    for number in (2, 0, 1):
        await pods.pod(
            stage,
            f"g-{number}",
            group="g",
            total=3,
            labels={"example.com/index": str(number)},
            annotations={names.pod_group_pod_index_label: "example.com/index"},
            tolerations=[TOLERATION],
        )

    async def is_created() -> bool:
        return condition_of(await pods.get_workload(stage, "g"), "QuotaReserved") is not None

    await stage.until(is_created, what="the Workload of the group")
    workload = await pods.get_workload(stage, "g")
    await admit(stage, workload, [HOST], [((hosts[1],), 2), ((hosts[2],), 1)])
    by_name = {"g-0": hosts[1], "g-1": hosts[1], "g-2": hosts[2]}
    await until_on_nodes(stage, by_name, lambda pod: pod["metadata"]["name"])


async def test_pods_of_jobset_run_on_hosts_of_their_job_and_index(
    stage: Stage, hosts: list[str], definitions: Callable[[Iterable[str]], None]
) -> None:
    """The test creates the Jobs of the JobSet, as its controller would."""
    definitions(load(JOBSET, stage.names.group).definitions)
    await stage.queues(cpu=8, stopPolicy="Hold")
    job_sets = resource_of(JOBSET)
    job = {"parallelism": 2, "completions": 2, "template": TEMPLATE}
    made = await stage.create(
        job_sets,
        "j",
        {
            "metadata": {"labels": {stage.names.queue_name: "lq"}},
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}]},
        },
    )
    await stage.until_workload_exists()
    assigned: list[Domain] = [((hosts[0],), 1), ((hosts[1],), 2), ((hosts[3],), 1)]
    await admit(stage, await stage.workload(), [HOST], assigned)

    async def is_started() -> bool:
        return value_at(await stage.get(job_sets, "j"), ("spec", "suspend")) is False

    await stage.until(is_started, what="the JobSet to be started")
    [started] = value_at(await stage.get(job_sets, "j"), ("spec", "replicatedJobs"))
    for number in range(2):
        template = value_at(started, ("template", "spec", "template"))
        labels = {**template["metadata"]["labels"], JOB_INDEX: str(number)}
        child = {
            "metadata": {"ownerReferences": controlled_by(made)["ownerReferences"]},
            "spec": {
                **job,
                "completionMode": "Indexed",
                "template": with_value(template, ("metadata", "labels"), labels),
            },
        }
        await stage.create(JOBS, f"j-w-{number}", child)
    by_indexes = {"0/0": hosts[0], "0/1": hosts[1], "1/0": hosts[1], "1/1": hosts[3]}
    await until_on_nodes(
        stage, by_indexes, lambda pod: f"{pod['metadata']['labels'][JOB_INDEX]}/{completion_index(pod)}"
    )
