"""admitq beside a cluster, as hack/up, the benchmarks and the fixture `admitq_running` start it."""

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
from tests.controlplane.pods_of_jobs import some_pods
from tests.controlplane.stage import Stage, condition_of
from tests.controlplane.test_pods import pod, until_phases


async def make_queue(client: Client, names: Names, namespace: str) -> str:
    """Makes a queue of 4 CPUs for one namespace alone; the answer is the LocalQueue's name."""
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
    ours = audited(admitq_running)
    assert any(event["verb"] == "patch" and event["objectRef"]["resource"] == "jobs" for event in ours)
    # Not every 403 is one: a namespace that goes away refuses new content to everybody.
    assert [event for event in ours if event["annotations"]["authorization.k8s.io/decision"] != "allow"] == []


def audited(installation: Installation) -> list[dict[str, Any]]:
    """What the API server noted of the calls of the release's processes."""
    events = [json.loads(line) for line in installation.cluster.audit_log.read_text().splitlines()]
    accounts = f"system:serviceaccount:{installation.namespace}:"
    return [event for event in events if event["user"]["username"].startswith(accounts)]


async def test_restarted_manager_resumes_jobs_and_pod_groups_in_every_state(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Any], api_group: str
):
    # Not the shared installation: the others' tests would wait, too.
    installation = Installation(private_cluster())
    installation.install(api_group=api_group, config=ALONE_AND_WITH_PODS)
    installation.start()
    stage = Stage(await connect(installation.cluster), names_for(api_group), "default")
    await stage.queues(cpu=8)
    await a_default_class_is_given(stage)

    def kill() -> None:
        before = installation.process("manager")
        installation.kill("manager")
        assert before is not None
        assert not before.alive()

    async def start() -> None:
        await asyncio.to_thread(installation.start, ("manager",))

    before = await _jobs_in_every_state(stage)
    kill()
    await stage.job("patient", seconds=0.5)
    await pod(stage, "alone", seconds=0.5)
    for number in (0, 1):
        await pod(stage, f"stormy-{number}", group="stormy", total=3)
    assert (await stage.get(JOBS, "patient"))["spec"]["suspend"]
    await start()
    await stage.until(lambda: stage.is_complete("patient"))
    assert (await stage.workload("patient"))["spec"]["priority"] == CLASS_VALUE
    # Held quota was known before any workload was evaluated, and no forbidden workload was ever queued.
    assert {job: await stage.workload(job) for job in before} == before
    await until_phases(stage, alone="Succeeded", **{"stormy-0": "held", "stormy-1": "held"})
    await _delete_and_leave_pods(stage, "holds")
    kill()
    await pod(stage, "stormy-2", group="stormy", total=3)
    await start()
    await _until_pods_end(stage, before["holds"], "holds", "waits")
    await stage.until(lambda: reason(stage, "stormy", "QuotaReserved"), "QuotaReserved")
    kill()
    await start()
    await stage.until(lambda: reason(stage, "stormy", "PodsReady"), "Started")
    kill()
    await succeed(stage, "stormy")
    await start()
    for number in range(3):
        await pod(stage, f"calm-{number}", group="calm", total=3)
    await stage.until(lambda: reason(stage, "calm", "PodsReady"), "Started")
    await succeed(stage, "calm")
    calm = await eventually(lambda: end(stage, "calm"), what="the calm group to be let go")
    await stage.until(lambda: end(stage, "stormy"), calm)


async def _jobs_in_every_state(stage: Stage) -> dict[str, Any]:
    """Workloads by their jobs: one runs, one waits for what that holds, one is inactive, one has finished."""
    await stage.cluster_queue("full", cpu=1)
    await stage.local_queue("full", cluster_queue="full")
    await stage.job("ends", queue="full", seconds=0.5)
    await stage.until_finished("ends")
    await stage.job("holds", queue="full")
    await stage.until_condition("PodsReady", "Started", "holds")
    await stage.job("waits", queue="full")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "waits")
    await stage.job("sleeps")
    await stage.until_condition("PodsReady", "Started", "sleeps")
    sleeper = (await stage.workload("sleeps"))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, sleeper, {"spec": {"active": False}})
    await stage.until_condition("QuotaReserved", "Deactivated", "sleeps")
    return {job: await stage.workload(job) for job in ("ends", "holds", "waits", "sleeps")}


async def _delete_and_leave_pods(stage: Stage, job: str) -> None:
    """Delete a Job that a finalizer holds, so that its pods run on."""
    await stage.change(JOBS, job, {"metadata": {"finalizers": ["example.com/hold"]}})
    await stage.client.delete(JOBS, job, stage.namespace, propagation="Background")


async def _until_pods_end(stage: Stage, workload: Any, job: str, waiting: str) -> None:
    """End the pods of a deleted Job; until then they keep its quota from the Job that waits for it."""
    workloads, name = stage.kinds.workloads, workload["metadata"]["name"]

    async def outlived() -> str | None:
        found = condition_of(await stage.get(workloads, name), "PodsOutliveJob")
        return found and found[0]

    await stage.until(outlived, "True", what="condition PodsOutliveJob")
    assert (await stage.get(JOBS, waiting))["spec"]["suspend"]
    for one in await some_pods(stage, job):
        await stage.client.delete(PODS, one["metadata"]["name"], stage.namespace)
    await stage.until_running(waiting)


ALONE_AND_WITH_PODS: Final = {
    "integrations": {"frameworks": ["batch/job", "pod"]},
    # Another test covers the lease of a killed manager; this one does not wait until it expires.
    "leaderElection": {"leaderElect": False},
}


CLASS_VALUE: Final = 7


async def a_default_class_is_given(stage: Stage) -> None:
    """To pods and jobs that name no queue, too, which are not held; but not to the pods of a job."""
    await stage.create(stage.kinds.workload_priority_classes, "default", {"value": CLASS_VALUE})
    names, numbers = stage.names, count()

    async def given() -> Any:
        made = await pod(stage, f"nobodys-{next(numbers)}", queue=None)
        return made["metadata"].get("labels"), made["spec"].get("schedulingGates")

    await stage.until(given, ({names.priority_class: "default"}, None), what="the class to be known")
    job = await stage.job("unqueued", queue=None)
    assert job["metadata"]["labels"] == {names.priority_class: "default"}
    assert not job["spec"]["suspend"]
    [own] = await some_pods(stage, "unqueued")
    assert names.priority_class not in own["metadata"]["labels"]
    assert not own["spec"].get("schedulingGates")


async def reason(stage: Stage, group: str, type_: str) -> str | None:
    """The reason of a condition of a group's Workload."""
    found = condition_of(await stage.get(stage.kinds.workloads, group), type_)
    return found and found[1]


async def succeed(stage: Stage, group: str) -> None:
    """Let the three pods of a group end."""
    for number in range(3):
        await stage.change(PODS, f"{group}-{number}", {"status": {"phase": "Succeeded"}}, "status")


async def end(stage: Stage, group: str) -> Any:
    """How a group of three came out: its Workload, once that is let go, and what holds its pods."""
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
