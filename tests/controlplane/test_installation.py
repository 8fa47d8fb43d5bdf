"""The processes of admitq beside a cluster, as hack/up, the benchmarks and `admitq_running` start them."""

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS, PODS, Resource
from admitq_api.labels import Names, names_for
from admitq_webhooks.large_reviews import LARGE_BYTES
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.pods import pod, until_phases
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import Stage, condition_of


async def make_queue(client: Client, names: Names, namespace: str) -> str:
    """Create a queue of 4 CPUs for one namespace, and return the name of its LocalQueue."""
    resources = [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": namespace, "resources": resources}]}
    for plural, kind, place, spec in (
        ("resourceflavors", "ResourceFlavor", None, {}),
        ("clusterqueues", "ClusterQueue", None, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("localqueues", "LocalQueue", namespace, {"clusterQueue": namespace}),
    ):
        metadata = {"name": namespace} | ({"namespace": place} if place else {})
        obj = {"apiVersion": names.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        await client.create(
            Resource(names.group, names.version, plural, kind, namespaced=place is not None), obj
        )
    return namespace


async def submit(
    client: Client,
    names: Names,
    namespace: str,
    name: str,
    queue: str,
    annotations: dict[str, str] | None = None,
) -> None:
    template = {
        "metadata": {"annotations": {"kwok.admitq.dev/run-seconds": "0.5"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "work", "image": "example.com/work", "resources": {"requests": {"cpu": "4"}}}
            ],
        },
    }
    await client.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {names.queue_name: queue}, "annotations": annotations or {}},
            "spec": {"template": template},
        },
        namespace,
    )


async def complete(client: Client, namespace: str, name: str) -> bool:
    status = (await client.get(JOBS, name, namespace))["status"]
    return any(entry["type"] == "Complete" for entry in status["conditions"])


async def test_jobs_finish_in_turn_and_no_call_of_admitq_is_denied(
    admitq_running: Installation, admitq_client: Client, admitq_namespace: str, api_group: str
):
    names = names_for(api_group)
    queue = await make_queue(admitq_client, names, admitq_namespace)
    # A child process of the webhook reviews the second one.
    for name, annotations in (("one", {}), ("two", {"padding": "x" * LARGE_BYTES})):
        await submit(admitq_client, names, admitq_namespace, name, queue, annotations)
    for name in ("one", "two"):
        await eventually(
            lambda name=name: complete(admitq_client, admitq_namespace, name), what=f"Job {name}"
        )
    calls = audited(admitq_running)
    assert any(call["verb"] == "patch" and call["objectRef"]["resource"] == "jobs" for call in calls)
    # Not every 403 is a denial: a namespace that is being deleted refuses new objects of any user.
    assert [
        event for event in calls if event["annotations"]["authorization.k8s.io/decision"] != "allow"
    ] == []


def audited(installation: Installation) -> list[dict[str, Any]]:
    """The audit events of calls of the release's processes."""
    events = [json.loads(line) for line in installation.cluster.audit_log.read_text().splitlines()]
    accounts = f"system:serviceaccount:{installation.namespace}:"
    return [event for event in events if event["user"]["username"].startswith(accounts)]


async def test_restarted_manager_resumes_jobs_and_pod_groups_in_every_state(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Any], api_group: str
):
    # Not the shared installation: tests of other processes would wait while its manager is down.
    installation = Installation(private_cluster())
    installation.install(api_group=api_group, config=NO_LEASE_AND_PODS)
    installation.start()
    stage = Stage(await connect(installation.cluster), names_for(api_group), "default")
    await stage.queues(cpu=8)
    await check_default_priority_class(stage)
    workloads = await _jobs_in_every_state(stage)

    # A job, a pod and an incomplete group are created while no manager runs.
    _kill_manager(installation)
    await stage.job("patient", seconds=0.5)
    await pod(stage, "alone", seconds=0.5)
    await _create_group_pods(stage, "interrupted", range(2))
    assert (await stage.get(JOBS, "patient"))["spec"]["suspend"]
    await _start_manager(installation)
    await stage.until(lambda: stage.is_complete("patient"))
    assert (await stage.workload("patient"))["spec"]["priority"] == CLASS_VALUE
    # The manager knew the held quota before it evaluated any workload, and queued no inactive workload.
    assert {job: await stage.workload(job) for job in workloads} == workloads
    await until_phases(stage, alone="Succeeded", **{"interrupted-0": "held", "interrupted-1": "held"})

    # A Job is deleted while its pods run, and the group becomes complete while no manager runs.
    await _delete_and_leave_pods(stage, "holds")
    _kill_manager(installation)
    await _create_group_pods(stage, "interrupted", range(2, 3))
    await _start_manager(installation)
    await _until_pods_end(stage, workloads["holds"], "holds", "waits")
    await stage.until(lambda: group_condition_reason(stage, "interrupted", "QuotaReserved"), "QuotaReserved")

    # The manager restarts while the group is admitted, and once more while its pods end.
    _kill_manager(installation)
    await _start_manager(installation)
    await stage.until(lambda: group_condition_reason(stage, "interrupted", "PodsReady"), "Started")
    _kill_manager(installation)
    await succeed_group_pods(stage, "interrupted")
    await _start_manager(installation)

    # A group of the same size that no restart interrupts has the same end.
    await _create_group_pods(stage, "undisturbed", range(3))
    await stage.until(lambda: group_condition_reason(stage, "undisturbed", "PodsReady"), "Started")
    await succeed_group_pods(stage, "undisturbed")
    undisturbed = await eventually(
        lambda: end_of_group(stage, "undisturbed"), what="the undisturbed group to be released"
    )
    await stage.until(lambda: end_of_group(stage, "interrupted"), undisturbed)


def _kill_manager(installation: Installation) -> None:
    process = installation.process("manager")
    installation.kill("manager")
    assert process is not None
    assert not process.alive()


async def _start_manager(installation: Installation) -> None:
    await asyncio.to_thread(installation.start, ("manager",))


async def _create_group_pods(stage: Stage, group: str, numbers: range) -> None:
    """Create pods of a group of three."""
    for number in numbers:
        await pod(stage, f"{group}-{number}", group=group, total=3)


async def _jobs_in_every_state(stage: Stage) -> dict[str, Any]:
    """Create a running, a pending, an inactive and a finished job; return their Workloads by job."""
    await stage.cluster_queue("full", cpu=1)
    await stage.local_queue("full", cluster_queue="full")
    await stage.job("ends", queue="full", seconds=0.5)
    await stage.until_finished("ends")
    await stage.job("holds", queue="full")
    await stage.until_condition("PodsReady", "Started", "holds")
    await stage.job("waits", queue="full")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "waits")
    await stage.job("inactive")
    await stage.until_condition("PodsReady", "Started", "inactive")
    inactive = (await stage.workload("inactive"))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, inactive, {"spec": {"active": False}})
    await stage.until_condition("QuotaReserved", "Deactivated", "inactive")
    return {job: await stage.workload(job) for job in ("ends", "holds", "waits", "inactive")}


async def _delete_and_leave_pods(stage: Stage, job: str) -> None:
    """Delete a Job that has a finalizer, so that its pods keep running."""
    await stage.change(JOBS, job, {"metadata": {"finalizers": ["example.com/hold"]}})
    await stage.client.delete(JOBS, job, stage.namespace, propagation="Background")


async def _until_pods_end(stage: Stage, workload: Any, job: str, waiting: str) -> None:
    """Delete the pods of a deleted Job. Until then they hold its quota, and another Job waits for it."""
    workloads, name = stage.kinds.workloads, workload["metadata"]["name"]

    async def pods_outlive_job() -> str | None:
        found = condition_of(await stage.get(workloads, name), "PodsOutliveJob")
        return found and found[0]

    await stage.until(pods_outlive_job, "True", what="condition PodsOutliveJob")
    assert (await stage.get(JOBS, waiting))["spec"]["suspend"]
    for one in await until_pods_exist(stage, job):
        await stage.client.delete(PODS, one["metadata"]["name"], stage.namespace)
    await stage.until_running(waiting)


NO_LEASE_AND_PODS: Final = {
    "integrations": {"frameworks": ["batch/job", "pod"]},
    # Another test covers the lease of a killed manager; this one does not wait until it expires.
    "leaderElection": {"leaderElect": False},
}


CLASS_VALUE: Final = 7


async def check_default_priority_class(stage: Stage) -> None:
    """Pods and jobs without queue name get the default class and are not held; pods of a job do not."""
    await stage.create(stage.kinds.workload_priority_classes, "default", {"value": CLASS_VALUE})
    names, numbers = stage.names, count()

    async def labels_and_gates() -> Any:
        created = await pod(stage, f"unqueued-{next(numbers)}", queue=None)
        return created["metadata"].get("labels"), created["spec"].get("schedulingGates")

    await stage.until(
        labels_and_gates, ({names.priority_class: "default"}, None), what="the webhook to know the class"
    )
    job = await stage.job("unqueued", queue=None)
    assert job["metadata"]["labels"] == {names.priority_class: "default"}
    assert not job["spec"]["suspend"]
    [own] = await until_pods_exist(stage, "unqueued")
    assert names.priority_class not in own["metadata"]["labels"]
    assert not own["spec"].get("schedulingGates")


async def group_condition_reason(stage: Stage, group: str, type_: str) -> str | None:
    """The reason of a condition of a group's Workload."""
    found = condition_of(await stage.get(stage.kinds.workloads, group), type_)
    return found and found[1]


async def succeed_group_pods(stage: Stage, group: str) -> None:
    """Let the three pods of a group succeed."""
    for number in range(3):
        await stage.change(PODS, f"{group}-{number}", {"status": {"phase": "Succeeded"}}, "status")


async def end_of_group(stage: Stage, group: str) -> Any:
    """The end of a group of three: its released Workload, and the finalizers and gates of its pods."""
    workload = await stage.get(stage.kinds.workloads, group)
    assert condition_of(workload, "Finished")
    assert not workload["metadata"].get("finalizers")
    types = sorted(one["type"] for one in workload["status"]["conditions"])
    pods = [await stage.get(PODS, f"{group}-{number}") for number in range(3)]
    return (
        [(type_, condition_of(workload, type_)) for type_ in types],
        [one["count"] for one in workload["status"]["admission"]["podSetAssignments"]],
        [one["name"] for one in workload["metadata"]["ownerReferences"]]
        == [f"{group}-{n}" for n in range(3)],
        [
            (
                one["metadata"].get("finalizers"),
                one["spec"].get("schedulingGates"),
                one["status"]["phase"],
                one["metadata"]["labels"][stage.names.podset],
            )
            for one in pods
        ],
    )


def test_renew_tokens_replaces_the_token_file(admitq_running: Installation):
    file = admitq_running.token_file("manager")
    before = file.read_text()
    admitq_running.renew_tokens()
    assert file.read_text() != before
    assert file.stat().st_mode & 0o077 == 0
