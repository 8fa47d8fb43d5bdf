"""Stories of Deployments and StatefulSets. Their pods exist while they wait for quota.

Each pod of a Deployment has a Workload. All pods of a StatefulSet have one.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import (
    End,
    OperatedJob,
    OperatorCase,
    ended,
    submit,
    uids_of,
    until_pod_states,
)
from tests.operators.programs import Program
from tests.operators.test_stories import (
    admit_on_hosts,
    check_kept_admission,
    check_places,
    crash,
    host_of,
    open_queue,
    release,
    start,
    story,
    until_nothing_reserved,
)

pytestmark = pytest.mark.operators

HELD: Final[Mapping[str, int]] = {"deployment": 2, "statefulset": 1}
"""The number of pods while they wait. A StatefulSet creates a pod when the one before it is ready."""
WORKLOADS: Final[Mapping[str, int]] = {"deployment": 2, "statefulset": 1}
NOT_READY: Final = {"spec.template.metadata.annotations[kwok.admitq.dev/ready]": "false"}
NO_SURGE: Final = {"spec.strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
"""A rolling update deletes a pod before it creates its successor."""
NEW_IMAGE: Final = "example.com/c:2"

BOTH: Final = ("deployment", "statefulset")


async def pods_of(job: OperatedJob) -> list[dict[str, Any]]:
    """The pods that are not being deleted, without those of a Job ``first``."""
    return await job.pods("job-name!=first")


async def until_pods(job: OperatedJob, **wanted: int) -> list[dict[str, Any]]:
    """Wait until the object has exactly these numbers of pods in each state, and return them."""
    return await until_pod_states(
        job.stage,
        lambda: pods_of(job),
        wanted,
        gate=job.stage.names.admission_gate,
        what=f"pods of {job.name}: {wanted}",
    )


async def until_runs(case: OperatorCase, job: OperatedJob) -> list[dict[str, Any]]:
    """Wait until all pods run and are ready, where the admission says; return them."""
    pods = await until_pods(job, Running=case.pods)
    check_places(pods)
    await until_workloads(case, job, "PodsReady", "True")

    async def ready() -> Any:
        return value_at(await job.get(), ("status", "readyReplicas"))

    await job.stage.until(ready, case.pods, what=f"{case.pods} ready replicas")
    return pods


async def until_replaced(job: OperatedJob, before: set[str]) -> None:
    """Wait until none of these pods exists."""

    async def kept() -> set[str]:
        return before & uids_of(await pods_of(job))

    await job.stage.until(kept, set(), what="all pods to be replaced")


async def workloads_of(job: OperatedJob) -> list[dict[str, Any]]:
    """The Workloads, without that of a Job ``first``."""
    found, _ = await job.stage.client.list(job.stage.kinds.workloads, job.stage.namespace)
    return [one for one in found if one["metadata"]["ownerReferences"][0]["kind"] != "Job"]


async def until_workloads(case: OperatorCase, job: OperatedJob, type_: str, *wanted: str) -> None:
    """Wait until a condition of each Workload has this status and reason, if given."""

    async def are_found() -> bool:
        seen = [(condition_of(one, type_) or ())[: len(wanted)] for one in await workloads_of(job)]
        assert seen == [wanted] * WORKLOADS[case.name], seen
        return True

    await eventually(are_found, what=f"condition {type_} of each Workload is {wanted}")


async def until_gone(case: OperatorCase, job: OperatedJob) -> None:
    """Delete the object, and wait until it has no pods, no Workloads and no quota."""
    stage = job.stage
    await stage.client.delete(case.kind.resource, job.name, stage.namespace, propagation="Background")
    await job.until_no_pods()

    async def number_of_workloads() -> int:
        return len(await workloads_of(job))

    await stage.until(number_of_workloads, 0)
    await until_nothing_reserved(stage)


async def scale(job: OperatedJob, case: OperatorCase, replicas: int) -> None:
    """Scale as ``kubectl scale`` does."""
    await job.stage.change(case.kind.resource, job.name, {"spec": {"replicas": replicas}}, "scale")


async def update_image(job: OperatedJob) -> None:
    await job.change({"spec.template.spec.containers[0].image": NEW_IMAGE})


async def until_updated(case: OperatorCase, job: OperatedJob) -> None:
    """Wait until all pods have the image of an update."""

    async def images() -> list[str]:
        return [one["spec"]["containers"][0]["image"] for one in await pods_of(job)]

    await job.stage.until(images, [NEW_IMAGE] * case.pods)


async def lose_pod(job: OperatedJob) -> str:
    """Let a pod fail, as when its node runs out of memory; return its UID."""
    pod = (await pods_of(job))[0]
    await job.stage.change(PODS, pod["metadata"]["name"], ended(pod, "Failed", End()), "status")
    return pod["metadata"]["uid"]


@story("run", *BOTH)
async def test_pods_are_held_admitted_and_deleted(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case)
    await until_pods(job, held=HELD[case.name])
    await until_workloads(case, job, "QuotaReserved", "False", "Suspended")
    await release(stage)
    await until_runs(case, job)
    await until_workloads(case, job, "PodsReady", "True", "Started")
    await until_gone(case, job)


@story("placed", *BOTH)
async def test_pods_run_on_their_assigned_hosts(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case)
    await until_pods(job, held=HELD[case.name])
    await until_workloads(case, job, "QuotaReserved", "False", "Suspended")
    for number, workload in enumerate(await workloads_of(job), start=1):
        [pod_set] = workload["spec"]["podSets"]
        hosts = [number + rank for rank in range(pod_set.get("count", 1))]
        await admit_on_hosts(stage, workload, {pod_set["name"]: hosts})
    ran = {pod["metadata"]["name"]: host_of(pod) for pod in await until_pods(job, Running=case.pods)}
    assert sorted(ran.values()) == [1, 2]
    if case.name == "statefulset":
        assert ran == {f"{job.name}-0": 1, f"{job.name}-1": 2}


@story("delete", *BOTH)
async def test_object_is_deleted_while_it_waits(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case)
    await until_pods(job, held=HELD[case.name])
    await until_workloads(case, job, "QuotaReserved", "False", "Suspended")
    await until_gone(case, job)


@story("preempt", *BOTH)
async def test_preempted_pods_are_held_again_and_resumed(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 1000})
    job = await submit(stage, case)
    before = uids_of(await until_runs(case, job))
    await stage.job("first", cpu=case.quota["cpu"], labels={stage.names.priority_class: stage.own("high")})
    await stage.until_running("first")
    await until_pods(job, held=HELD[case.name])
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    after = uids_of(await until_runs(case, job))
    assert not before & after


@story("scale", "deployment")
async def test_deployment_that_is_scaled_up_waits_only_with_its_new_pods(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    before = uids_of(await until_runs(case, job))
    await scale(job, case, 3)
    await until_pods(job, Running=2, held=1)
    await scale(job, case, 2)
    assert uids_of(await until_pods(job, Running=2)) == before
    await scale(job, case, 1)
    await until_pods(job, Running=1)
    await scale(job, case, 2)
    await until_runs(case, job)


@story("scale", "statefulset")
async def test_stateful_set_is_scaled_to_zero_and_to_another_size(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_runs(case, job)
    with pytest.raises(ApiError, match=r"spec.replicas.*field is immutable"):
        await scale(job, case, 3)
    await scale(job, case, 0)
    await job.until_no_pods()
    await until_workloads(case, job, "QuotaReserved", "False", "OnHold")
    await until_nothing_reserved(stage)

    async def is_scaled_up() -> bool:
        try:
            await scale(job, case, 1)
        except ApiError as error:
            # The status still counts pods that are gone.
            if "scaling down is still in progress" not in str(error):
                raise
            return False
        return True

    await eventually(is_scaled_up, what="the StatefulSet to be scaled up")
    await until_pods(job, Running=1)
    await stage.until(job.counts, {"main": 1})


@story("restart", "deployment")
async def test_lost_pod_of_a_deployment_gives_its_quota_to_its_successor(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    before = uids_of(await until_runs(case, job))
    lost = await lose_pod(job)
    after = await until_pods(job, Running=2, Failed=1)
    assert before < uids_of(after)
    check_places(after)
    finished = [one for one in await workloads_of(job) if condition_of(one, "Finished") is not None]
    assert [one["metadata"]["ownerReferences"][0]["uid"] for one in finished] == [lost]


@story("restart", "statefulset")
async def test_stateful_set_with_a_lost_pod_keeps_its_admission(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_runs(case, job)
    admitted = await job.workload()
    lost = await lose_pod(job)
    await until_replaced(job, {lost})
    await until_runs(case, job)
    check_kept_admission(await job.workload(), admitted)


@story("update", "deployment")
async def test_rolling_update_of_a_deployment_waits_for_the_quota_of_its_additional_pod(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    before = uids_of(await until_runs(case, job))
    await update_image(job)
    pods = await until_pods(job, Running=2, held=1)
    assert before < uids_of(pods)
    await job.change(NO_SURGE)
    await until_updated(case, job)
    await until_runs(case, job)


@story("update", "statefulset")
async def test_rolling_update_of_a_stateful_set_keeps_its_admission(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_runs(case, job)
    admitted = await job.workload()
    await update_image(job)
    await until_updated(case, job)
    await until_runs(case, job)
    check_kept_admission(await job.workload(), admitted)


@story("pods-ready", *BOTH)
async def test_pods_that_are_not_ready_are_evicted_after_the_timeout(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes=NOT_READY)
    pods = await until_pods(job, Running=HELD[case.name])
    workloads = await workloads_of(job)
    await until_replaced(job, uids_of(pods))
    for one in workloads:
        reasons = {reason for reason, _ in await stage.events("Workload", one["metadata"]["name"])}
        assert "EvictedDueToPodsReadyTimeoutDueToWaitForStart" in reasons, reasons


@story("operator-restart", *BOTH)
async def test_pods_survive_a_crash_of_the_controller_manager(
    stage: Stage, case: OperatorCase, programs: dict[str, Program]
) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case)
    await until_pods(job, held=HELD[case.name])
    await until_workloads(case, job, "QuotaReserved", "False", "Suspended")
    await crash(programs)
    await release(stage)
    await until_pods(job, Running=HELD[case.name])
    await start(programs)
    before = uids_of(await until_runs(case, job))
    await crash(programs)
    for one in await workloads_of(job):
        await stage.change(stage.kinds.workloads, one["metadata"]["name"], {"spec": {"active": False}})
    await job.until_no_pods()
    await start(programs)
    if case.name == "deployment":
        # Its new pods have new Workloads, which are active.
        assert not before & uids_of(await until_runs(case, job))
    else:
        await until_pods(job, held=1)
        await until_workloads(case, job, "QuotaReserved", "False", "Deactivated")
