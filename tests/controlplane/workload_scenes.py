"""Scenes for writes of Workloads, and causes for which admitq makes the same writes."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from admitq.runtime.resources import JOBS, NODES
from admitq_api.conditions import Reason
from admitq_api.json_objects import with_value
from tests.controlplane.hosts import BLOCK, HOST, RACK, TAINT, TEMPLATE, create_flavor
from tests.controlplane.stage import Stage, condition_of, until_next_second
from tests.controlplane.workload_changes import (
    PRIORITY_CLASS,
    host_of_story,
    set_check_state,
    set_replacing,
)

Step = Callable[[Stage], Awaitable[object]]

JOB: Final = "j"
"""The job of a scene that has one."""
ALONE: Final = "w"
"""The Workload of a scene without job."""


async def grow(stage: Stage, cpu: int = 2) -> None:
    """Set the quota of the story's ClusterQueue."""
    queues, name = stage.kinds.cluster_queues, stage.own("cq")
    queue = await stage.get(queues, name)
    path = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota")
    changed = with_value(queue, path, cpu)
    await stage.change(queues, name, {"spec": {"resourceGroups": changed["spec"]["resourceGroups"]}})


async def workload(
    stage: Stage, name: str = ALONE, *, queue: str = "lq", pods: int = 1, **fields: Any
) -> None:
    """Create a Workload without job, with a CPU for each pod."""
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
    body: dict[str, Any] = {
        "spec": {"queueName": queue, "podSets": [pod_set], **fields.pop("spec", {})},
        **fields,
    }
    await stage.create(stage.kinds.workloads, name, body)


async def priority_class(stage: Stage) -> None:
    """Create a WorkloadPriorityClass."""
    await stage.create(stage.kinds.workload_priority_classes, stage.own(PRIORITY_CLASS), {"value": 10})


async def until_waiting(stage: Stage, subject: str) -> None:
    """Wait until the condition QuotaReserved of a Workload is False."""
    await until(stage, subject, "QuotaReserved", "False")


async def until(stage: Stage, subject: str, type_: str, status_: str, reason: str = "") -> None:
    """Wait until a condition of a subject's Workload has a status, and a reason if one is given."""

    async def found() -> tuple[str, ...]:
        said = condition_of(await subject_of(stage, subject), type_) or ("", "", "")
        return said[: 2 if reason else 1]

    wanted = (status_, reason) if reason else (status_,)
    await stage.until(found, wanted, what=f"{type_} {wanted} of {subject}")


async def subject_of(stage: Stage, subject: str) -> dict[str, Any]:
    """The Workload of a job, or that of this name which has no job."""
    if subject.startswith(ALONE):
        return await stage.get(stage.kinds.workloads, subject)
    return await stage.workload(subject)


async def job_waits(stage: Stage) -> None:
    """A job waits because its ClusterQueue has no quota."""
    await stage.queues(cpu=0)
    await stage.job(JOB)
    await until_waiting(stage, JOB)


async def job_waits_without_priority_class(stage: Stage) -> None:
    """A job without WorkloadPriorityClass waits for quota; a class exists."""
    await priority_class(stage)
    await job_waits(stage)


async def job_runs(stage: Stage) -> None:
    """A job runs, and its pod is ready."""
    await stage.queues(cpu=2)
    await stage.job(JOB)
    await until(stage, JOB, "PodsReady", "True")


async def job_placed(stage: Stage) -> None:
    """A job runs on one of two nodes of a topology, and its pod is ready."""
    taints = [{"key": TAINT, "effect": "NoSchedule"}]
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    for number in (1, 2):
        name = host_of_story(number, stage.namespace)
        labels = {HOST: name, BLOCK: stage.own("b"), RACK: stage.own("r")}
        node = {"metadata": {"labels": labels}, "spec": {"taints": taints}}
        await stage.create(NODES, name, {**node, "status": {"allocatable": amounts, "capacity": amounts}})
    await create_flavor(stage)
    await stage.cluster_queue(cpu=2)
    await stage.local_queue()
    await stage.job(JOB, template=TEMPLATE)
    await until(stage, JOB, "PodsReady", "True")


async def job_runs_with_fewest_pods(stage: Stage) -> None:
    """A job of three pods runs with its minimum of one pod, because there is no more quota."""
    await stage.queues(cpu=1)
    await stage.job(JOB, pods=3, metadata={"annotations": {stage.names.job_min_parallelism: "1"}})
    await until(stage, JOB, "PodsReady", "True")


async def job_preemptible(stage: Stage) -> None:
    """A job runs with all the quota of a ClusterQueue in which higher priorities preempt."""
    await stage.queues(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.job(JOB)
    await until(stage, JOB, "PodsReady", "True")


async def job_checked(stage: Stage) -> None:
    """A job waits in a ClusterQueue with a check and without quota."""
    await _checked_queues(stage, cpu=0)
    await stage.job(JOB)
    await until_waiting(stage, JOB)


async def job_held(stage: Stage) -> None:
    """A job holds quota and waits for a check."""
    await _checked_queues(stage, cpu=2)
    await stage.job(JOB)
    await until(stage, JOB, "QuotaReserved", "True")


async def job_checked_and_running(stage: Stage) -> None:
    """A job runs, and the check that it waited for is ready."""
    await job_held(stage)
    name = (await stage.workload(JOB))["metadata"]["name"]
    await stage.apply_transition(name, set_check_state("Ready"))
    await until(stage, JOB, "PodsReady", "True")
    await until_next_second()


async def _checked_queues(stage: Stage, cpu: int) -> None:
    await stage.active_check("check")
    rule = {"admissionChecks": [{"name": stage.own("check")}]}
    await stage.queues(cpu=cpu, admissionChecksStrategy=rule)


async def job_deactivated(stage: Stage) -> None:
    """A job was deactivated, and has stopped."""
    await job_runs(stage)
    name = (await stage.workload(JOB))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": False}})
    await until(stage, JOB, "QuotaReserved", "False")


async def alone_waits(stage: Stage) -> None:
    """A Workload without job waits because its ClusterQueue has no quota."""
    await stage.queues(cpu=0)
    await workload(stage)
    await until_waiting(stage, ALONE)


async def alone_admitted(stage: Stage) -> None:
    """A Workload without job is admitted."""
    await stage.queues(cpu=2)
    await workload(stage)
    await until(stage, ALONE, "Admitted", "True")


async def alone_evicted(stage: Stage) -> None:
    """A Workload without job is evicted, and holds its quota until a program releases it."""
    await alone_admitted(stage)
    await stage.apply_transition(ALONE, lambda change: change.evict(Reason.NODE_FAILURES, "its node is gone"))


async def alone_gated(stage: Stage) -> None:
    """A Workload without job is held by an admission gate."""
    await stage.queues(cpu=2)
    await workload(stage, metadata={"annotations": {stage.names.admission_gated_by: "example.com/gate"}})
    await until(stage, ALONE, "QuotaReserved", "False", "AdmissionGated")


async def alone_lost(stage: Stage) -> None:
    """A Workload without job names a LocalQueue that does not exist."""
    await stage.queues(cpu=2)
    await workload(stage, queue="missing")
    await until(stage, ALONE, "QuotaReserved", "False", "Misconfigured")


async def alone_closed(stage: Stage) -> None:
    """A Workload without job waits in a stopped LocalQueue; another LocalQueue is active."""
    await stage.queues(cpu=2)
    await stage.closed_queue()
    await workload(stage, queue="closed")
    await until(stage, ALONE, "QuotaReserved", "False", "Suspended")


async def alone_replacing(stage: Stage) -> None:
    """A Workload without job waits for replacement pods, while quota is free."""
    await alone_waits(stage)
    await stage.apply_transition(ALONE, set_replacing(True))
    await grow(stage)


async def two_wait(stage: Stage) -> None:
    """Two Workloads without job wait because their ClusterQueue has no quota."""
    await stage.queues(cpu=0)
    await workload(stage, "w0")
    await until_waiting(stage, "w0")
    await workload(stage)
    await until_waiting(stage, ALONE)


async def two_pods_admitted(stage: Stage) -> None:
    """A Workload of two pods is admitted with all the quota, and another one waits."""
    await stage.queues(cpu=2)
    await workload(stage, pods=2)
    await until(stage, ALONE, "Admitted", "True")
    await workload(stage, "w0")
    await until_waiting(stage, "w0")


async def preempt(stage: Stage) -> None:
    """Create a job of higher priority, which runs and is then deactivated."""
    await priority_class(stage)
    await stage.job("preemptor", labels={stage.names.priority_class: stage.own(PRIORITY_CLASS)})
    await stage.until_running("preemptor")
    name = (await stage.workload("preemptor"))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": False}})


async def label_with_priority_class(stage: Stage) -> None:
    """Set the WorkloadPriorityClass label of the job."""
    labels = {stage.names.priority_class: stage.own(PRIORITY_CLASS)}
    await stage.change(JOBS, JOB, {"metadata": {"labels": labels}})


async def nothing(_: Stage) -> None:
    """No cause: only other programs make this write, or admitq soon corrects it."""
