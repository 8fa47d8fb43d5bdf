"""Settings about finished jobs, pods that do not become ready, and jobs without queue name.

The tests have their own control plane, because these settings would change other stories. It has no nodes:
the stories set the statuses of pods.
"""

import time
from collections.abc import AsyncGenerator, Callable

import pytest

from admitq.integrations.registry import load_integrations
from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.resources import JOBS
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from admitq_api.labels import names_for
from admitq_webhooks.live_lookups import watched_lookups
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.conftest import StagesBeside
from tests.controlplane.further_writes import RETENTION
from tests.controlplane.pods_of_jobs import set_pod_status
from tests.controlplane.recording import ConditionChange, Record, record_versions, sum_of_series
from tests.controlplane.stage import Stage, run_concurrently
from tests.controlplane.test_other_programs import play_all
from tests.controlplane.writes import (
    ADMITTED,
    NOT_READY,
    PODS_READY,
    Story,
    Writes,
    queued,
    released,
    stopped,
    written,
)

CONFIG = {
    "manageJobsWithoutQueueName": True,
    "waitForPodsReady": {
        # Long enough for pods that must become ready in time on a busy machine.
        "timeout": "10s",
        "recoveryTimeout": "1s",
        # Longer than an evicted job takes to stop, so that its quota is released before the backoff ends.
        "requeuingStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 4},
    },
    "objectRetentionPolicies": {"workloads": {"afterFinished": "1s", "afterDeactivatedByKueue": "1s"}},
}
WAIT_FOR_START = ("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded")
STARTED = ("PodsReady", "True", "Started", "All pods reached readiness and the workload is running")
RECOVERS = ("PodsReady", "False", "WaitForRecovery", "At least one pod has failed, waiting for recovery")
BACK = ("Requeued", "True", "BackoffFinished", "The workload backoff was finished")
TOO_OFTEN = "exceeding the maximum number of re-queuing retries"


@pytest.fixture
def admitq_strict(installation_of_file: Callable[..., Installation]) -> Installation:
    """An admitq with a timeout for ready pods and short retention periods."""
    return installation_of_file("strict", CONFIG)


@pytest.fixture
async def strict(
    admitq_strict: Installation, stages_beside: StagesBeside
) -> AsyncGenerator[tuple[Stage, Installation]]:
    """A stage beside that admitq."""
    async with (await stages_beside(admitq_strict))() as stage:
        yield stage, admitq_strict


async def test_e_writes_of_another_program_lead_to_the_same_end_state_under_retention_policies(
    admitq_strict: Installation, stages_beside: StagesBeside
) -> None:
    await play_all(await stages_beside(admitq_strict), RETENTION)


async def test_timeouts_retention_and_jobs_without_queue_name_follow_the_configuration(
    strict: tuple[Stage, Installation],
) -> None:
    stage, admitq = strict
    await stage.queues(cpu=16)
    await _until_queues_are_active(stage, "cq", "lq")
    async with record_versions(stage) as record, written(stage) as writes:
        await run_concurrently(
            late=_job_becomes_ready_after_a_timeout(stage, record, admitq, writes),
            fails=_job_does_not_recover_in_time(stage, record, admitq),
            never=_job_is_deactivated_after_too_many_timeouts(stage, record, admitq, writes),
            order=_timed_out_job_queues_behind_others(stage, record),
            done=_workload_of_finished_job_is_deleted(stage, record),
            queueless=_job_without_queue_name_waits(stage),
        )


async def _until_queues_are_active(stage: Stage, cluster_queue: str, local_queue: str) -> None:
    """Wait until a ClusterQueue and a LocalQueue are active."""
    await stage.until_active(stage.kinds.cluster_queues, stage.own(cluster_queue))
    await stage.until_active(stage.kinds.local_queues, local_queue)


async def _job_becomes_ready_after_a_timeout(
    stage: Stage, record: Record, admitq: Installation, writes: Writes
) -> None:
    """A job with pods that do not become ready is evicted, and readmitted after a backoff."""
    await stage.job("late")
    evicted = await eventually(lambda: record.first_version("late", "Evicted", "PodsReadyTimeout"))
    assert evicted["status"]["requeueState"]["count"] == 1
    waiting = await eventually(lambda: record.first_version("late", "Requeued", "PodsReadyTimeout"))
    assert value_at(waiting, ("status", "requeueState", "requeueAt")) is not None
    back = await eventually(lambda: record.first_version("late", "Requeued", "BackoffFinished"))
    assert back["status"]["requeueState"] == {"count": 1}, "the count of requeues is kept"
    await stage.until_running("late")
    await set_pod_status(stage, "late", ready=True)
    await stage.until_condition("PodsReady", "Started", "late")
    name = back["metadata"]["name"]
    message = f"Exceeded the PodsReady timeout {stage.namespace}/{name}"
    changes = [WAIT_FOR_START, *_evicted_and_back(message), STARTED]
    await record.until_condition_changes("late", ("PodsReady", "Evicted", "Requeued"), changes)
    await _check_event_and_metric(stage, admitq, name, message, "WaitForStart")
    reserved = f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own('cq')}"
    steps = [
        *queued("late"),
        [f"Workload late: admission; {reserved}; {ADMITTED}; {NOT_READY}"],
        ["Job late: labels injected; suspend=false"],
        [
            (
                f"Workload late: Evicted=True PodsReadyTimeout {message}; "
                "requeueState count 1 with requeueAt; evictions PodsReadyTimeout WaitForStart 1"
            )
        ],
        *stopped("late", restored="labels restored"),
        *released("late", message, requeued=False, reason="PodsReadyTimeout", ready=False),
        [f"Workload late: {_line(BACK)}; requeueState count 1 without requeueAt"],
        [
            (
                f"Workload late: admission; Evicted=False QuotaReserved Previously: {message}; "
                f"{reserved}; {ADMITTED}"
            )
        ],
        ["Job late: labels injected; suspend=false"],
        [f"Workload late: {PODS_READY}"],
    ]
    await writes.until(Story(steps))


def _line(change: ConditionChange) -> str:
    """A condition as the text of a write."""
    type_, *rest = change
    return f"{type_}={' '.join(rest)}"


async def _job_does_not_recover_in_time(stage: Stage, record: Record, admitq: Installation) -> None:
    """Pods that were ready have a recovery timeout when they become unready."""
    await stage.local_queue("fails")
    await stage.job("fails", queue="fails")
    await stage.until_running("fails")
    await set_pod_status(stage, "fails", ready=True)
    await stage.until_condition("PodsReady", "Started", "fails")
    await set_pod_status(stage, "fails", ready=False)
    await eventually(lambda: record.first_version("fails", "Requeued", "BackoffFinished"))
    await stage.until_running("fails")
    await set_pod_status(stage, "fails", ready=True)
    await stage.until_condition("PodsReady", "Started", "fails")
    name = (await stage.workload("fails"))["metadata"]["name"]
    message = f"Exceeded the PodsReady timeout {stage.namespace}/{name}"
    evicted, *back = _evicted_and_back(message)
    changes = [WAIT_FOR_START, STARTED, RECOVERS, evicted, WAIT_FOR_START, *back, STARTED]
    await record.until_condition_changes("fails", ("PodsReady", "Evicted", "Requeued"), changes)
    await _check_event_and_metric(stage, admitq, name, message, "WaitForRecovery")


def _evicted_and_back(message: str) -> list[ConditionChange]:
    return [
        ("Evicted", "True", "PodsReadyTimeout", message),
        ("Requeued", "False", "PodsReadyTimeout", message),
        BACK,
        ("Evicted", "False", "QuotaReserved", f"Previously: {message}"),
    ]


async def _check_event_and_metric(
    stage: Stage, admitq: Installation, name: str, message: str, cause: str
) -> None:
    """The eviction has an event and a metric with its cause."""
    await stage.until_event("Workload", name, f"EvictedDueToPodsReadyTimeoutDueTo{cause}", message)
    of = {"cluster_queue": stage.own("cq"), "reason": "PodsReadyTimeout", "underlying_cause": cause}
    assert await sum_of_series(admitq, "evicted_workloads_total", **of) == 1


async def _job_is_deactivated_after_too_many_timeouts(
    stage: Stage, record: Record, admitq: Installation, writes: Writes
) -> None:
    """A job that was requeued as often as allowed is deactivated, and deleted after its retention period."""
    await stage.cluster_queue("never")
    await stage.local_queue("never", cluster_queue="never")
    await _until_queues_are_active(stage, "never", "never")
    await stage.job("never", queue="never")
    await stage.until_workload_exists("never")
    name = (await stage.workload("never"))["metadata"]["name"]
    await stage.apply_transition(name, lambda change: change.status.update(requeueState={"count": 1}))
    await stage.until_gone(JOBS, "never")
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    message = f"The workload is deactivated due to {TOO_OFTEN}"
    changes = [
        ("DeactivationTarget", "True", "RequeuingLimitExceeded", TOO_OFTEN),
        ("DeactivationTarget", "", "", ""),
        ("Evicted", "True", reason, message),
        ("Requeued", "False", reason, message),
    ]
    await record.until_condition_changes("never", ("DeactivationTarget", "Evicted", "Requeued"), changes)
    evicted = record.first_version("never", "Evicted", reason)
    assert evicted["spec"]["active"] is False
    assert "requeueState" not in evicted["status"], "a reactivation starts a new count"
    await stage.until_event("Workload", name, f"EvictedDueTo{reason}", message)
    await stage.until_event("Job", "never", "Deleted", "Deleted job: deactivation retention period expired")
    steps = [
        ["~Workload never: requeueState count 1 without requeueAt"],
        [f"Workload never: DeactivationTarget=True RequeuingLimitExceeded {TOO_OFTEN}"],
        ["Workload never: active=False"],
        [
            (
                f"Workload never: DeactivationTarget removed; Evicted=True {reason} {message}; "
                "requeueState removed; evictions Deactivated RequeuingLimitExceeded 1"
            )
        ],
        *stopped("never", restored="labels restored"),
        *released("never", message, requeued=False, reason=reason, ready=False),
    ]
    reserved = f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own('never')}"
    admission = [f"Workload never: admission; {reserved}; {ADMITTED}; {NOT_READY}"]
    start = ["Job never: labels injected; suspend=false"]
    await writes.until(Story([*queued("never"), admission, start, *steps], goes_on=True))
    of = {"cluster_queue": stage.own("never"), "reason": "Deactivated"}
    of["underlying_cause"] = "RequeuingLimitExceeded"
    assert await sum_of_series(admitq, "evicted_workloads_total", **of) == 1


async def _timed_out_job_queues_behind_others(stage: Stage, record: Record) -> None:
    """A job that did not become ready in time is queued behind the jobs that wait."""
    await stage.cluster_queue("one", cpu=1)
    await stage.local_queue("one", cluster_queue="one")
    for name in ("first", "second", "third"):
        await stage.job(name, queue="one")
        # The queue is ordered by creation time, which has whole seconds.
        created = (await stage.get(JOBS, name))["metadata"]["creationTimestamp"]
        await stage.until_workload_exists(name)
        await eventually(lambda created=created: format_time(time.time_ns()) > created, interval=0.02)
    await eventually(lambda: record.first_version("first", "Requeued", "BackoffFinished"))
    await stage.until_running("second")
    await set_pod_status(stage, "second", phase="Succeeded")
    await stage.until_running("third")
    assert await stage.condition("Admitted", "first") != ("True", "Admitted", "The workload is admitted")
    await set_pod_status(stage, "third", phase="Succeeded")
    await stage.until_running("first")


async def _workload_of_finished_job_is_deleted(stage: Stage, record: Record) -> None:
    """The Workload of a finished job is deleted, the job is not."""
    await stage.job("done")
    await stage.until_running("done")
    await set_pod_status(stage, "done", phase="Succeeded")
    finished = await eventually(lambda: record.first_version("done", "Finished", "Succeeded"))
    await stage.until(lambda: stage.workloads("done"), [])
    note = "Deleted finished workload due to elapsed retention"
    await stage.until_event("Workload", finished["metadata"]["name"], "Deleted", note)
    assert await stage.is_complete("done")


async def _job_without_queue_name_waits(stage: Stage) -> None:
    """A job without queue name is managed, too, and runs once it has one."""
    created = await stage.job("queueless", queue=None)
    assert created["spec"]["suspend"] is True
    queue = {"metadata": {"labels": {stage.names.queue_name: "lq"}}}
    await stage.change(JOBS, "queueless", queue)
    await stage.until_running("queueless")
    await set_pod_status(stage, "queueless", phase="Succeeded")
    await stage.until(lambda: stage.is_complete("queueless"))


async def test_webhook_reads_a_namespace_that_its_watch_has_not_delivered(
    admitq_running: Installation, admitq_namespace: str, api_group: str
) -> None:
    """A job may be created right after its namespace. The client has only the rights of the webhook."""
    credentials = load_credentials(admitq_running.kubeconfig("webhook"))
    async with Client(credentials, user_agent="admitq-tests") as client:
        world, _ = watched_lookups(client, names_for(api_group), load_integrations())
        labels = await world.namespace_labels(admitq_namespace)
    assert labels is not None
    assert labels["kubernetes.io/metadata.name"] == admitq_namespace
