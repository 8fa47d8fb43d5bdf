"""Another program writes states of Workloads, and admitq continues from them."""

import time
from collections.abc import Callable
from typing import Any

from admitq.runtime.resources import JOBS
from admitq.workloads.transitions import NOT_ALL_PODS_READY, StatusTransition, condition_since
from admitq_api.conditions import SECOND, ConditionType, Reason, format_time
from localcluster.installation import Installation
from tests.controlplane.recording import Record, record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of, run_concurrently, until_next_second

LOST = "lost to another program"


async def test_a1_a3_a4_a5_workloads_continue_from_states_written_by_another_program(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.flavor()
    async with record_versions(stage) as record:
        await run_concurrently(
            later=_workload_without_queues_is_admitted_and_not_charged_to_a_later_queue(
                stage, admitq_running
            ),
            held=_backoff_of_workload_with_quota_ends(stage, admitq_running),
            kept=_message_of_eviction_is_kept(stage, record, admitq_running),
            ran=_execution_that_another_program_ended_is_added_up(stage),
        )


async def _queue(stage: Stage, name: str) -> None:
    """A LocalQueue with its own ClusterQueue."""
    await stage.cluster_queue(name, cpu=1)
    await stage.local_queue(name, cluster_queue=name)


async def _reserve(stage: Stage, name: str) -> None:
    """Create a Workload without a job and reserve quota for it in a ClusterQueue that does not exist."""
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": name, "podSets": [pod_set]}
    await stage.create(stage.kinds.workloads, name, {"spec": spec})
    flavors = {"flavors": {"cpu": stage.own("f")}, "resourceUsage": {"cpu": "1"}}
    assignment = {"name": "main", "count": 1, **flavors}

    def reserve(transition: StatusTransition) -> None:
        transition.status["admission"] = {
            "clusterQueue": stage.own(name),
            "podSetAssignments": [assignment],
        }
        transition.set_condition(
            ConditionType.QUOTA_RESERVED, True, Reason.QUOTA_RESERVED, "by another program"
        )

    await stage.apply_transition(name, reserve)


async def _until_condition(
    stage: Stage, name: str, type_: str, wanted: tuple[str, str, str]
) -> dict[str, Any]:
    async def found() -> Any:
        return condition_of(await stage.get(stage.kinds.workloads, name), type_)

    await stage.until(found, wanted)
    return await stage.get(stage.kinds.workloads, name)


async def _until_counted(
    admitq: Installation, stage: Stage, cluster_queue: str, *series: str, **labels: str
) -> None:
    for one in series:

        async def counted(name: str = one) -> float:
            return await sum_of_series(admitq, name, cluster_queue=stage.own(cluster_queue), **labels)

        await stage.until(counted, 1.0, what=f"{one} of {cluster_queue}")


def _evict(requeue_in_seconds: float) -> Callable[[StatusTransition], None]:
    def evict(transition: StatusTransition) -> None:
        transition.evict(Reason.PODS_READY_TIMEOUT, LOST, Reason.WAIT_FOR_START)
        at = time.time_ns() + round(requeue_in_seconds * SECOND)
        transition.status["requeueState"] = {"count": 1, "requeueAt": format_time(at)}

    return evict


async def _workload_without_queues_is_admitted_and_not_charged_to_a_later_queue(
    stage: Stage, admitq: Installation
) -> None:
    await _reserve(stage, "later")
    not_ready = ("False", "WaitForStart", NOT_ALL_PODS_READY)
    await _until_condition(stage, "later", "Admitted", ("True", "Admitted", "The workload is admitted"))
    await _until_condition(stage, "later", "PodsReady", not_ready)
    counted = (
        "quota_reserved_workloads_total",
        "admitted_workloads_total",
        "admission_wait_time_seconds_count",
    )
    await _until_counted(admitq, stage, "later", *counted)
    await stage.change(stage.kinds.workloads, "later", {"spec": {"active": False}})
    deactivated = ("True", "Deactivated", "The workload is deactivated")
    await _until_condition(stage, "later", "Evicted", deactivated)
    await until_next_second()
    await _queue(stage, "later")
    await stage.job("next", queue="later")
    await stage.until_running("next")
    await stage.client.delete(JOBS, "next", stage.namespace, propagation="Background")
    await stage.client.delete(stage.kinds.cluster_queues, stage.own("later"))
    await stage.until_gone(stage.kinds.cluster_queues, stage.own("later"))
    assert (await stage.get(stage.kinds.workloads, "later"))["status"]["admission"]


async def _backoff_of_workload_with_quota_ends(stage: Stage, admitq: Installation) -> None:
    await _reserve(stage, "held")
    await _until_condition(stage, "held", "Admitted", ("True", "Admitted", "The workload is admitted"))
    await stage.apply_transition("held", _evict(1))
    over = ("True", "BackoffFinished", "The workload backoff was finished")
    held = await _until_condition(stage, "held", "Requeued", over)
    assert held["status"]["requeueState"] == {"count": 1}
    assert held["status"]["admission"]
    await stage.apply_transition(
        "held", lambda transition: transition.finish("Succeeded", "by another program")
    )
    counted = ("finished_workloads_total", "execution_time_seconds_count")
    await _until_counted(admitq, stage, "held", *counted)
    released = "workload_eviction_latency_seconds_count"
    await _until_counted(admitq, stage, "held", released, reason="PodsReadyTimeout")


async def _message_of_eviction_is_kept(stage: Stage, record: Record, admitq: Installation) -> None:
    await _queue(stage, "kept")
    await stage.job("kept", queue="kept")
    await stage.until_running("kept")
    workload = (await stage.workload("kept"))["metadata"]["name"]
    await stage.apply_transition(workload, _evict(3600))
    waits = ("False", "PendingEvaluation", LOST)
    await _until_condition(stage, workload, "QuotaReserved", waits)
    counted = ("evicted_workloads_total", "evicted_workloads_once_total")
    await _until_counted(admitq, stage, "kept", *counted, underlying_cause="WaitForStart")
    await _until_counted(admitq, stage, "kept", "workload_eviction_latency_seconds_count")
    await stage.change(stage.kinds.workloads, workload, {"metadata": {"labels": {"example.com/a": "b"}}})
    await stage.change(stage.kinds.local_queues, "kept", {"spec": {"stopPolicy": "Hold"}})
    stopped = ("False", "Suspended", "LocalQueue kept is inactive")
    changes = [
        ("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {stage.own('kept')}"),
        ("QuotaReserved", *waits),
        ("QuotaReserved", *stopped),
    ]
    await record.until_condition_changes("kept", ("QuotaReserved",), changes)


async def _execution_that_another_program_ended_is_added_up(stage: Stage) -> None:
    await _queue(stage, "ran")
    await stage.job("ran", queue="ran")
    await stage.until_running("ran")

    async def has_run() -> bool:
        admitted_at = condition_since(await stage.workload("ran"), ConditionType.ADMITTED)
        return admitted_at is not None and time.time_ns() - admitted_at > 2 * SECOND

    await stage.until(has_run)

    def end(transition: StatusTransition) -> None:
        transition.set_condition(ConditionType.QUOTA_RESERVED, False, Reason.PENDING, LOST)
        transition.set_condition(ConditionType.ADMITTED, False, Reason.NO_RESERVATION, LOST)
        transition.status.pop("admission")

    await stage.apply_transition((await stage.workload("ran"))["metadata"]["name"], end)

    async def is_added_up() -> bool:
        workload = await stage.workload("ran")
        return workload["status"].get("accumulatedPastExecutionTimeSeconds", 0) >= 2

    await stage.until(is_added_up)
