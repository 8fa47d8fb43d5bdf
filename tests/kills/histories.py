"""The histories: interactions of a manager and its cluster, a few seconds each."""

from typing import Any, Final

from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.runtime.resources import JOBS, NODES, POD_TEMPLATES, PODS, Resource
from admitq_api.json_objects import value_at
from admitq_api.topology_assignments import Domain, encode
from localcluster.waiting import eventually
from tests.controlplane.stage import condition_of
from tests.kills.plays import History
from tests.kills.world import PLAYED, World

JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)

LOWER: Final = {"withinClusterQueue": "LowerPriority"}
QUICK: Final = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}

ASIDE: Final = {"schedulerName": PLAYED, "automountServiceAccountToken": False}
"""Fields that keep scheduler and admission plugins from changing pods at random times."""

_TIME: Final = "2030-01-01T00:00:00Z"


async def queue(world: World, cpu: int = 4, **spec: Any) -> None:
    """Create a flavor with node labels and tolerations, and a queue of it."""
    await world.stage.flavor(
        nodeLabels={"example.com/pool": "p"},
        tolerations=[{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
    )
    await world.stage.cluster_queue(cpu=cpu, **spec)
    await world.stage.local_queue()


async def set_stop_policy(world: World, policy: str) -> None:
    patch = {"spec": {"stopPolicy": policy}}
    await world.stage.change(world.stage.kinds.cluster_queues, world.stage.own("cq"), patch)


# --- a job, from its beginning to its end ---------------------------------------------------------


async def admitted(world: World) -> None:
    await world.job(pods=2)
    await world.until_running()
    await world.end_job()
    await world.until_finished()


# --- preemption -----------------------------------------------------------------------------------


async def two_priorities(world: World) -> None:
    for name, value in (("low", 1), ("high", 9)):
        classes = world.stage.kinds.workload_priority_classes
        await world.stage.create(classes, world.stage.own(name), {"value": value})
    await queue(world, cpu=2, preemption=LOWER)


async def preempted(world: World) -> None:
    for name in ("low", "high"):
        await world.job(name, pods=2, labels={world.stage.names.priority_class: world.stage.own(name)})
        await world.until_running(name)
    await world.end_job("high")
    await world.until_finished("high")
    await world.until_running("low")


# --- partial admission ----------------------------------------------------------------------------


async def three_cpus(world: World) -> None:
    await queue(world, cpu=3)


async def partly_admitted(world: World) -> None:
    await world.job(pods=5, metadata={"annotations": {world.stage.names.job_min_parallelism: "2"}})
    await world.until_running()
    for policy, pods in (("HoldAndDrain", 5), ("None", 3)):
        await set_stop_policy(world, policy)
        await world.until(
            lambda pods=pods: world.get("Job", "j")["spec"]["parallelism"] == pods, f"{pods} pods"
        )
        if policy == "HoldAndDrain":
            # Otherwise the speed of the machine decides if this reason is recorded.
            await world.until_condition("QuotaReserved", "False", "Suspended")
    await world.until_running()


# --- a group of pods ------------------------------------------------------------------------------


async def queue_with_account(world: World) -> None:
    await world.account()
    await queue(world)


async def pod(world: World, name: str) -> None:
    """Create a pod of a group of two."""
    names = world.stage.names
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    metadata = {
        "labels": {names.queue_name: "lq", names.pod_group_name: "g"},
        "annotations": {names.pod_group_total_count: "2"},
    }
    spec = {**ASIDE, "containers": [container]}
    await world.stage.create(PODS, name, {"metadata": metadata, "spec": spec})


async def until_ungated(world: World, *pods: str) -> None:
    await world.until(
        lambda: not any(value_at(world.get("Pod", name), ("spec", "schedulingGates"), []) for name in pods),
        f"{pods} without gates",
    )


async def pods_replaced(world: World) -> None:
    for name in ("g-0", "g-1"):
        await pod(world, name)
    await until_ungated(world, "g-0", "g-1")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": _TIME}
    await world.set_status(PODS, "g-0", {"phase": "Running", "conditions": [ready]})
    await world.set_status(PODS, "g-1", {"phase": "Failed"})
    await world.until_condition("WaitingForReplacementPods", "True", owner="g")
    await pod(world, "g-2")
    await until_ungated(world, "g-2")
    await world.set_status(PODS, "g-0", {"phase": "Succeeded"})
    await world.until(
        lambda: value_at(world.workload("g"), ("status", "reclaimablePods")),
        "the quota of g-0 to be reclaimable",
    )
    await world.set_status(PODS, "g-2", {"phase": "Succeeded"})
    await world.until_finished("g")
    await world.until(
        lambda: not any(one["metadata"].get("finalizers") for one in world.of_kind("Pod").values()),
        "all pods without finalizers",
    )


# --- an elastic job -------------------------------------------------------------------------------


async def grown(world: World) -> None:
    await world.job(pods=2, completions=50, metadata={"annotations": {world.stage.names.elastic_job: "true"}})
    await world.until_running()
    await create_pods(world, 3)
    await until_ungated(world, "j-0", "j-1")
    await world.stage.change(JOBS, "j", {"spec": {"parallelism": 3}})
    await until_ungated(world, "j-2")
    await world.until(lambda: world.workload()["spec"]["podSets"][0]["count"] == 3, "the larger slice")


async def create_pods(world: World, number: int, first: int = 0) -> None:
    """Create the pods ``j-0`` and so on of a started Job, as its controller would."""
    job = world.get("Job", "j")
    template = value_at(job, ("spec", "template"))
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": value_at(job, ("metadata", "uid")),
        "controller": True,
    }
    for index in range(first, first + number):
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)}
        made = {
            **template,
            "metadata": {**template["metadata"], "labels": labels, "ownerReferences": [owner]},
            "spec": {**template["spec"], **ASIDE},
        }
        await world.stage.create(PODS, f"j-{index}", made)


# --- a topology assignment ------------------------------------------------------------------------


async def placed(world: World) -> None:
    # Otherwise admitq would admit the Workload itself.
    await set_stop_policy(world, "Hold")
    await world.job(pods=3)
    await world.until_condition("QuotaReserved", "False", "Suspended")
    await place(world, [(("a",), 1), (("b",), 2)])
    await world.until_running()
    await create_pods(world, 3)
    await until_ungated(world, "j-0", "j-1", "j-2")
    await set_stop_policy(world, "None")


async def place(world: World, domains: list[Domain]) -> None:
    """Admit the Workload of ``j`` with this topology assignment, as another program would."""
    stage = world.stage
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": "Imported",
            "message": "",
            "lastTransitionTime": _TIME,
        }
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assignment = {
        "name": "main",
        "count": 3,
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": "3"},
        "topologyAssignment": encode(["kubernetes.io/hostname"], domains),
    }
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}

    async def written() -> bool:
        metadata = world.workload()["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": conditions, "admission": admission},
        }
        await stage.change(stage.kinds.workloads, metadata["name"], patch, "status")
        return True

    await eventually(written, interval=0.02, what="the topology assignment")


# --- a host that fails -----------------------------------------------------------------------------


async def two_hosts(world: World) -> None:
    """Create two nodes and a queue of a flavor that has them. Each has room for one pod."""
    await world.account()
    stage, pool = world.stage, {"example.com/pool": world.stage.own("p")}
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    for name in (stage.own("a"), stage.own("b")):
        labels = {"kubernetes.io/hostname": name, **pool}
        status = {"allocatable": amounts, "capacity": amounts}
        await stage.create(NODES, name, {"metadata": {"labels": labels}, "status": status})
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    await stage.create(stage.kinds.topologies, stage.own("t"), {"spec": {"levels": levels}})
    await stage.flavor(nodeLabels=pool, topologyName=stage.own("t"))
    await stage.cluster_queue(cpu=4)
    await stage.local_queue()

    def is_ready(node: dict[str, Any]) -> bool:
        return (condition_of(node, "Ready") or ("",))[0] == "True" and not node["spec"].get("taints")

    await world.until(lambda: sum(map(is_ready, world.of_kind("Node").values())) == 2, "ready nodes")


async def moved(world: World) -> None:
    """The pod of the failed host is ended, and the pod that replaces it gets the other host."""
    await world.job(pods=1)
    await world.until_running()
    await create_pods(world, 1)
    await until_ungated(world, "j-0")
    await world.stage.client.delete(NODES, host_of(world, "j-0"))
    await world.until(lambda: world.get("Pod", "j-0")["status"]["phase"] == "Failed", "the end of j-0")
    await create_pods(world, 1, first=1)
    await until_ungated(world, "j-1")
    assert host_of(world, "j-1") != host_of(world, "j-0")


def host_of(world: World, pod: str) -> str:
    return world.get("Pod", pod)["spec"]["nodeSelector"]["kubernetes.io/hostname"]


# --- admission checks -----------------------------------------------------------------------------


async def checked_queue(world: World) -> None:
    checks, own = world.stage.kinds.admission_checks, world.stage.own("check")
    await world.stage.create(checks, own, {"spec": {"controllerName": "example.com/c"}})
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": _TIME,
    }
    await world.set_status(checks, own, {"conditions": [active]})
    await queue(world, admissionChecksStrategy={"admissionChecks": [{"name": own}]})


async def decide(world: World, state: str, **fields: Any) -> None:
    """Set the state of the check of ``j``, as its controller would while the Workload has quota."""

    async def decided() -> bool:
        workload = world.workload()
        assert world.condition("QuotaReserved") == ("True", "QuotaReserved")
        assert world.condition("Evicted")[0] != "True"
        [check] = value_at(workload, ("status", "admissionChecks"), [])
        assert check["state"] != state
        stated = {**check, "state": state, "message": "m", **fields}
        patch = {
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"admissionChecks": [stated]},
        }
        name = workload["metadata"]["name"]
        await world.stage.change(world.stage.kinds.workloads, name, patch, "status")
        return True

    await eventually(decided, interval=0.02, what=state)


async def checked(world: World) -> None:
    update = {"name": "main", "nodeSelector": {"example.com/added": "yes"}, "labels": {"by": "check"}}
    await world.job()
    await decide(world, "Ready", podSetUpdates=[update])
    await world.until_running()
    await decide(world, "Retry", requeueAfterSeconds=1)
    await world.until_condition("QuotaReserved", "False")
    await decide(world, "Ready", podSetUpdates=[update])
    await world.until_running()


# --- provisioning ---------------------------------------------------------------------------------


async def provisioned_queue(world: World) -> None:
    stage, own = world.stage, world.stage.own("check")
    config = {"provisioningClassName": "class.example.com", "retryStrategy": QUICK}
    await stage.create(stage.kinds.provisioning_request_configs, own, {"spec": config})
    parameters = {"apiGroup": stage.names.group, "kind": "ProvisioningRequestConfig", "name": own}
    spec = {"controllerName": stage.names.provisioning_controller, "parameters": parameters}
    await stage.create(stage.kinds.admission_checks, own, {"spec": spec})
    await queue(world, admissionChecksStrategy={"admissionChecks": [{"name": own}]})


async def answer(world: World, attempt: int, *conditions: str) -> None:
    """Answer a request as an autoscaler does."""

    def found() -> dict[str, Any]:
        requests = world.of_kind("ProvisioningRequest")
        [one] = [one for name, one in requests.items() if name.endswith(f"-{attempt}")]
        return one

    def is_handed_over() -> bool:
        templates = [one["podTemplateRef"]["name"] for one in found()["spec"]["podSets"]]
        owners = [world.get("PodTemplate", name)["metadata"]["ownerReferences"] for name in templates]
        return all(one[0]["uid"] == found()["metadata"]["uid"] for one in owners)

    await world.until(is_handed_over, f"attempt {attempt}")
    listed = [
        {"type": one, "status": "True", "reason": "Reported", "message": "m", "lastTransitionTime": _TIME}
        for one in conditions
    ]
    name = found()["metadata"]["name"]
    await world.set_status(PROVISIONING_REQUESTS, name, {"conditions": listed})


async def provisioned(world: World) -> None:
    await world.job()
    await answer(world, 1, "Accepted", "Failed")
    await answer(world, 2, "Accepted", "Provisioned")
    await world.until_running()
    await world.end_job()
    await world.until_finished()


# --- pods that do not get ready -------------------------------------------------------------------


async def never_ready(world: World) -> None:
    world.unready.add("j")
    await queue(world)


async def timed_out(world: World) -> None:
    await world.job()
    await world.until_condition("Evicted", "True", "PodsReadyTimeout")
    world.unready.discard("j")
    await world.until_running()


# --- activity and queues --------------------------------------------------------------------------


async def two_queues(world: World) -> None:
    await queue(world)
    await world.stage.cluster_queue("small", cpu=1)
    await world.stage.local_queue("small", cluster_queue="small")


async def deactivated(world: World) -> None:
    stage = world.stage
    await world.job()
    await world.until_running()
    name = world.workload()["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": False}})
    await world.until_condition("QuotaReserved", "False", "Deactivated")
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": True}})
    await world.until_running()
    await world.job("large", queue="small", pods=2)
    await world.until_condition("QuotaReserved", "False", owner="large")
    await stage.change(JOBS, "large", {"metadata": {"labels": {stage.names.queue_name: "lq"}}})
    await world.until_running("large")


# --- a job inside another -------------------------------------------------------------------------


async def nested(world: World) -> None:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    inside = {"parallelism": 1, "completions": 1, "managedBy": PLAYED, "template": template}
    replicated = {"name": "r", "replicas": 1, "template": {"spec": inside}}
    marks = {"labels": {world.stage.names.queue_name: "lq"}}
    parent = await world.stage.create(
        JOB_SETS, "s", {"metadata": marks, "spec": {"replicatedJobs": [replicated]}}
    )
    owner = {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "name": "s",
        "uid": parent["metadata"]["uid"],
        "controller": True,
    }
    await world.until_started("s", "JobSet")
    started = value_at(world.get("JobSet", "s"), ("spec", "replicatedJobs"))[0]["template"]["spec"]
    await world.stage.create(JOBS, "s-r-0", {"metadata": {"ownerReferences": [owner]}, "spec": started})
    await world.until(lambda: value_at(world.get("Job", "s-r-0"), ("status", "active")), "pods of the child")
    await world.end_job("s-r-0")
    done = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    done["lastTransitionTime"] = _TIME
    await world.set_status(JOB_SETS, "s", {"terminalState": "Completed", "conditions": [done]})
    await world.until(lambda: not world.of_kind("Workload"), "the Workload to be deleted")


HISTORIES: Final = (
    History("admitted", queue, admitted),
    History("preempted", two_priorities, preempted),
    History("partly-admitted", three_cpus, partly_admitted),
    History("pods-replaced", queue_with_account, pods_replaced, ("pod",)),
    History("grown", queue_with_account, grown),
    History("placed", queue_with_account, placed),
    History("moved", two_hosts, moved, kinds=(NODES,)),
    History("checked", checked_queue, checked),
    History("provisioned", provisioned_queue, provisioned, kinds=(PROVISIONING_REQUESTS, POD_TEMPLATES)),
    History(
        "timed-out",
        never_ready,
        timed_out,
        # Longer than a restart on a busy machine: otherwise the job would be evicted twice.
        config={"waitForPodsReady": {"timeout": "6s", "requeuingStrategy": {"backoffBaseSeconds": 1}}},
        sample=1,
    ),
    History("deactivated", two_queues, deactivated),
    History(
        "nested",
        queue,
        nested,
        ("batch/job", "jobset.x-k8s.io/jobset"),
        # Times have whole seconds: with 1s the Workload could be deleted before its end is recorded.
        {"objectRetentionPolicies": {"workloads": {"afterFinished": "2s"}}},
        (JOB_SETS,),
    ),
)
