"""Stories of serving kinds: Deployments, StatefulSets and LeaderWorkerSets.

The real controllers create, roll out and delete the pods of Deployments and StatefulSets. The test creates
the pods of LeaderWorkerSets with the labels that their controller sets.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import yaml

from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from admitq_api.json_objects import value_at
from localcluster.folders import REPOSITORY
from localcluster.waiting import eventually
from tests.controlplane.leader_worker_sets import LWS, create_group_pods
from tests.controlplane.stage import Stage, condition_of, controlled_by


def container(cpu: Any, image: str = "example.com/c:1") -> dict[str, Any]:
    return {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}


def template(cpu: Any, **metadata: Any) -> dict[str, Any]:
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container(cpu)]}
    return {"metadata": metadata, "spec": spec}


async def serve(
    stage: Stage,
    resource: Resource,
    name: str = "s",
    *,
    replicas: int = 2,
    cpu: Any = 1,
    spec: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """Create a Deployment or StatefulSet, in queue ``lq`` unless labels say otherwise."""
    labels = {stage.names.queue_name: "lq", **metadata.pop("labels", {})}
    full: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template(cpu, labels={"app": name}),
        **(spec or {}),
    }
    if resource is STATEFUL_SETS:
        full["serviceName"] = name
    return await stage.create(resource, name, {"metadata": {"labels": labels, **metadata}, "spec": full})


async def pods_of(stage: Stage, name: str = "s") -> list[dict[str, Any]]:
    items, _ = await stage.client.list(PODS, stage.namespace, label_selector=f"app={name}")
    return items


def state_of(pod: dict[str, Any], gate: str) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "going"
    held = any(one["name"] == gate for one in value_at(pod, ("spec", "schedulingGates"), []))
    return "held" if held else pod["status"]["phase"]


async def until_pods(stage: Stage, name: str = "s", **wanted: int) -> None:
    """Wait until the pods of an object have exactly these numbers of each state."""

    async def states() -> Counter[str]:
        return Counter(state_of(pod, stage.names.admission_gate) for pod in await pods_of(stage, name))

    await stage.until(states, Counter(wanted), what=f"pods of {name}: {wanted}")


async def end_pods(stage: Stage, name: str = "s") -> None:
    """Delete pods at once that do not end on their nodes."""
    for pod in await pods_of(stage, name):
        await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace, grace_seconds=0)
    await until_pods(stage, name)


def name_of(stateful_set: dict[str, Any]) -> str:
    metadata = stateful_set["metadata"]
    return create_workload_name("StatefulSet", "apps", metadata["name"], metadata["uid"])


async def until_workload(stage: Stage, name: str, type_: str, status: str, reason: str) -> dict[str, Any]:
    async def found() -> dict[str, Any]:
        one = await stage.get(stage.kinds.workloads, name)
        seen = condition_of(one, type_) or ("", "", "")
        assert seen[:2] == (status, reason), seen
        return one

    return await eventually(found, what=f"{type_} {status} {reason} of {name}")


async def scale(stage: Stage, resource: Resource, replicas: int, name: str = "s") -> None:
    """Set the replicas as ``kubectl scale`` does."""
    await stage.change(resource, name, {"spec": {"replicas": replicas}}, "scale")


def shown(stage: Stage, page: str, kind: str) -> Iterable[dict[str, Any]]:
    text = (REPOSITORY / "docs" / "guides" / "kinds" / f"{page}.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text.replace("admitq.dev/", f"{stage.names.group}/"), re.DOTALL)
    return [one for block in blocks for one in yaml.safe_load_all(block) if one.get("kind") == kind]


async def default_queue(stage: Stage, cpu: Any) -> None:
    """Create the queue that the manifests of the guides name, with a quota of ``cpu`` and enough memory."""
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "2Gi"}]
    flavors = [{"name": stage.own("f"), "resources": quota}]
    await stage.flavor()
    await stage.cluster_queue(resourceGroups=[{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
    await stage.local_queue("default")


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS], ids=lambda one: one.kind)
async def test_serving_manifests_of_the_guide_run_unchanged(stage: Stage, resource: Resource) -> None:
    await default_queue(stage, cpu=2)
    (one,) = shown(stage, resource.kind.lower(), resource.kind)
    name = one["metadata"]["name"]
    await stage.create(resource, name, one)

    async def ready() -> Any:
        return value_at(await stage.get(resource, name), ("status", "readyReplicas"))

    await stage.until(ready, 2)


async def test_pods_of_unqueued_owners_are_queued_by_their_own_queue_name(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    """Pods and Jobs are queued by their own label, because no direct or indirect owner is queued."""
    definitions(["leaderworkersets.leaderworkerset.x-k8s.io"])
    await stage.queues(cpu=2)
    labels = {"app": "s", stage.names.queue_name: "lq"}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "s"}}, "template": template(1, labels=labels)}
    leader = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template(1)}}
    owner = controlled_by(await stage.create(LWS, "s", {"spec": leader}))
    await stage.create(DEPLOYMENTS, "s", {"spec": spec})
    await stage.create(STATEFUL_SETS, "s", {"metadata": owner, "spec": {**spec, "serviceName": "s"}})
    await until_pods(stage, Running=2)
    workloads, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    assert [one["metadata"]["ownerReferences"][0]["kind"] for one in workloads] == ["Pod", "Pod"]
    await stage.client.delete(STATEFUL_SETS, "s", stage.namespace)
    ((replica_set,), _) = await stage.client.list(REPLICA_SETS, stage.namespace)
    await stage.job(metadata={"labels": {stage.names.queue_name: "lq"}, **controlled_by(replica_set)})
    await stage.until_running()


# --- Deployments ----------------------------------------------------------------------------------


async def test_pods_of_a_deployment_are_admitted_one_by_one(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await serve(stage, DEPLOYMENTS, replicas=3)
    await until_pods(stage, Running=2, held=1)
    workloads, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    assert {one["metadata"]["ownerReferences"][0]["kind"] for one in workloads} == {"Pod"}
    assert all("finalizers" not in pod["metadata"] for pod in await pods_of(stage))
    await scale(stage, DEPLOYMENTS, 1)
    await until_pods(stage, Running=1)
    await scale(stage, DEPLOYMENTS, 2)
    await until_pods(stage, Running=2)
    await stage.client.delete(DEPLOYMENTS, "s", stage.namespace)
    await until_pods(stage)

    async def workload_count() -> int:
        return len((await stage.client.list(stage.kinds.workloads, stage.namespace))[0])

    await stage.until(workload_count, 0)


async def test_deployment_moves_to_another_queue_while_no_pod_is_ready(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await stage.closed_queue()
    await serve(stage, DEPLOYMENTS, labels={stage.names.queue_name: "closed"})
    await until_pods(stage, held=2)
    await stage.change(DEPLOYMENTS, "s", {"metadata": {"labels": {stage.names.queue_name: "lq"}}})
    await until_pods(stage, Running=2)


# --- StatefulSets ---------------------------------------------------------------------------------


@pytest.mark.core
async def test_stateful_set_is_admitted_as_a_whole_held_at_zero_replicas_and_readmitted(stage: Stage) -> None:
    name = await admit_stateful_set(stage)
    await scale_to_zero(stage, name)
    await end_pods(stage)
    await check_workload_on_hold(stage, name)
    await eventually(lambda: scale_up(stage), what="the StatefulSet to be scaled up")
    await until_pods(stage, Running=2)
    await until_workload(stage, name, "Admitted", "True", "Admitted")
    await stage.client.delete(STATEFUL_SETS, "s", stage.namespace)
    await until_pods(stage, going=2)
    await end_pods(stage)
    await stage.until_gone(stage.kinds.workloads, name)


async def admit_stateful_set(stage: Stage) -> str:
    """Create a StatefulSet of three pods that outlast their deletion; return the name of its Workload."""
    await stage.queues(cpu=3)
    hangs = {"kwok.admitq.dev/termination-seconds": "3600"}
    pods = {"template": template(1, labels={"app": "s"}, annotations=hangs)}
    name = name_of(await serve(stage, STATEFUL_SETS, replicas=3, spec=pods))
    await until_pods(stage, Running=3)
    workload = await until_workload(stage, name, "PodsReady", "True", "Started")
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 3)]
    assert workload["metadata"]["annotations"][stage.names.job_owner_name] == "s"
    note = f"Created Workload: {stage.namespace}/{name}"
    await stage.until_event("StatefulSet", "s", "CreatedWorkload", note)
    return name


async def scale_to_zero(stage: Stage, workload: str) -> None:
    """Check that only zero replicas are allowed, and that pods keep the quota while they run."""
    with pytest.raises(ApiError, match=r"spec.replicas.*field is immutable"):
        await scale(stage, STATEFUL_SETS, 2)
    await scale(stage, STATEFUL_SETS, 0)
    await until_pods(stage, Running=2, going=1)
    with pytest.raises(ApiError, match=r"spec.replicas.*scaling down is still in progress"):
        await scale(stage, STATEFUL_SETS, 2)
    reserved = condition_of(await stage.get(stage.kinds.workloads, workload), "QuotaReserved")
    assert reserved is not None
    assert reserved[0] == "True", "pods that still run keep the quota"


async def check_workload_on_hold(stage: Stage, name: str) -> None:
    held = await until_workload(stage, name, "QuotaReserved", "False", "OnHold")
    assert condition_of(held, "QuotaReserved") == (
        "False",
        "OnHold",
        "StatefulSet scaled to zero; workload on hold",
    )
    assert "admission" not in held["status"]


async def scale_up(stage: Stage) -> bool:
    """Scale to two replicas; return False while the status still counts pods that are gone."""
    try:
        await scale(stage, STATEFUL_SETS, 2)
    except ApiError as error:
        if "scaling down is still in progress" not in str(error):
            raise
        return False
    return True


async def test_stateful_set_starts_only_when_all_replicas_fit(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await stage.closed_queue()
    other = await serve(stage, STATEFUL_SETS, "other", replicas=1)
    await until_pods(stage, "other", Running=1)
    made = await serve(stage, STATEFUL_SETS, labels={stage.names.queue_name: "closed"})
    await until_pods(stage, held=1)
    await stage.change(STATEFUL_SETS, "s", {"metadata": {"labels": {stage.names.queue_name: "lq"}}})
    await until_workload(stage, name_of(made), "QuotaReserved", "False", "WaitingForQuota")
    await stage.client.delete(STATEFUL_SETS, "other", stage.namespace)
    await stage.until_gone(stage.kinds.workloads, name_of(other))
    await until_pods(stage, Running=2)


async def test_stateful_set_is_rolled_out_within_its_quota(stage: Stage) -> None:
    await stage.queues(cpu=2)
    made = await serve(stage, STATEFUL_SETS)
    await until_pods(stage, Running=2)
    spec = {"template": {"spec": {"containers": [container(1, "example.com/c:2")]}}}
    await stage.change(STATEFUL_SETS, "s", {"spec": spec})

    async def images() -> list[str]:
        pods = await pods_of(stage)
        return [one["spec"]["containers"][0]["image"] for one in pods if one["status"]["phase"] == "Running"]

    await stage.until(images, ["example.com/c:2"] * 2)
    workload = await until_workload(stage, name_of(made), "Admitted", "True", "Admitted")
    assert condition_of(workload, "Evicted") is None


async def test_preempted_stateful_set_waits_and_is_readmitted(stage: Stage) -> None:
    await stage.queues(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    high = stage.own("high")
    await stage.create(stage.kinds.workload_priority_classes, high, {"value": 100})
    await serve(stage, STATEFUL_SETS)
    await until_pods(stage, Running=2)
    await serve(stage, STATEFUL_SETS, "high", labels={stage.names.priority_class: high})
    await until_pods(stage, "high", Running=2)
    await until_pods(stage, held=1)
    await stage.client.delete(STATEFUL_SETS, "high", stage.namespace)
    await until_pods(stage, Running=2)


async def test_stateful_set_from_another_cluster_gets_no_workload(stage: Stage) -> None:
    await stage.queues(cpu=2)
    made = await serve(stage, STATEFUL_SETS, labels={stage.names.multikueue_origin: "home"})

    async def group_names() -> list[Any]:
        pods = await pods_of(stage)
        return [value_at(one, ("metadata", "annotations", stage.names.pod_group_name)) for one in pods]

    await stage.until(group_names, [name_of(made)])
    assert (await stage.client.list(stage.kinds.workloads, stage.namespace))[0] == []


# --- LeaderWorkerSets -----------------------------------------------------------------------------


def lws_name(lws: dict[str, Any], number: int) -> str:
    metadata = lws["metadata"]
    return create_workload_name(LWS.kind, LWS.group, f"{metadata['name']}-{number}", metadata["uid"])


async def test_each_group_of_the_leader_worker_set_of_the_guide_is_admitted_as_a_whole(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    definitions([f"{LWS.plural}.{LWS.group}"])
    names = stage.names
    # A group requests 250m and twice 500m, so that only one group fits.
    await default_queue(stage, cpu=2)
    (one,) = shown(stage, "leaderworkerset", LWS.kind)
    name = one["metadata"]["name"]
    lws = await stage.create(LWS, name, one)
    first = await until_workload(stage, lws_name(lws, 0), "QuotaReserved", "True", "QuotaReserved")
    assert [(one["name"], one["count"]) for one in first["spec"]["podSets"]] == [("leader", 1), ("worker", 2)]
    await until_workload(stage, lws_name(lws, 1), "QuotaReserved", "False", "WaitingForQuota")
    for number in range(2):
        await create_group_pods(stage, lws, number)
    await until_pods(stage, f"{name}-0", Running=3)
    await until_pods(stage, f"{name}-1", held=3)
    await until_workload(stage, lws_name(lws, 0), "PodsReady", "True", "Started")
    leader = await stage.get(PODS, f"{name}-0")
    assert leader["metadata"]["labels"][names.podset] == "leader"
    # All pods of an evicted group are deleted, and the next group runs.
    await stage.change(stage.kinds.workloads, lws_name(lws, 0), {"spec": {"active": False}})
    await until_workload(stage, lws_name(lws, 0), "QuotaReserved", "False", "Deactivated")
    await until_pods(stage, f"{name}-0")
    await until_pods(stage, f"{name}-1", Running=3)
    await scale(stage, LWS, 1, name)
    await stage.until_gone(stage.kinds.workloads, lws_name(lws, 1))
    await until_pods(stage, f"{name}-1")
    await stage.client.delete(LWS, name, stage.namespace)

    async def unreleased() -> list[dict[str, Any]]:
        # The garbage collector deletes Workloads later: it discovers new kinds only every half a minute.
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return [one for one in listed if one["metadata"].get("finalizers")]

    await stage.until(unreleased, [])


async def test_b11_workload_under_the_older_name_of_a_stateful_set_is_adopted(stage: Stage) -> None:
    await stage.queues()
    name = create_workload_name("StatefulSet", "apps", "s", "")
    # Another release creates the Workload from the stored template, which has all defaults.
    model = await serve(stage, STATEFUL_SETS, "model", replicas=0)
    pod_sets = [{"name": "main", "count": 2, "template": model["spec"]["template"]}]
    metadata = {"annotations": {stage.names.is_group_workload: "true"}}
    spec = {"queueName": "lq", "podSets": pod_sets}
    await stage.create(stage.kinds.workloads, name, {"metadata": metadata, "spec": spec})
    created = await serve(stage, STATEFUL_SETS)
    await until_pods(stage, Running=2)
    [workload], _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    assert workload["metadata"]["name"] == name
    owners = workload["metadata"]["ownerReferences"]
    assert created["metadata"]["uid"] in [one["uid"] for one in owners]
