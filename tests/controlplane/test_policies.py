"""What the configuration decides over jobs that are done, that do not get ready, or that name no queue.

A control plane of its own, because these settings would change everybody else's stories. It has no nodes:
whether pods are ready is up to the stories.
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
        # Pods that are to be ready in time are, also on a busy machine.
        "timeout": "10s",
        "recoveryTimeout": "1s",
        # Longer than an evicted job takes to stop: its quota is released before the backoff ends.
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
    """An admitq that waits for pods, and retains nothing for long."""
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
    await _until_they_admit(stage, "cq", "lq")
    async with record_versions(stage) as record, written(stage) as writes:
        await run_concurrently(
            late=_gets_ready_the_second_time(stage, record, admitq, writes),
            fails=_recovers_too_late(stage, record, admitq),
            never=_is_deactivated_for_good(stage, record, admitq, writes),
            order=_timed_out_job_queues_behind_others(stage, record),
            done=_is_forgotten_when_done(stage, record),
            queueless=_waits_for_a_queue(stage),
        )


async def _until_they_admit(stage: Stage, cluster_queue: str, local_queue: str) -> None:
    """Wait for queues in which a story begins, which would otherwise begin with what they lack."""
    await stage.until_active(stage.kinds.cluster_queues, stage.own(cluster_queue))
    await stage.until_active(stage.kinds.local_queues, local_queue)


async def _gets_ready_the_second_time(
    stage: Stage, record: Record, admitq: Installation, writes: Writes
) -> None:
    """Pods that do not start cost the admission, and the job is tried again after a while."""
    await stage.job("late")
    evicted = await eventually(lambda: record.first_version("late", "Evicted", "PodsReadyTimeout"))
    assert evicted["status"]["requeueState"]["count"] == 1
    parked = await eventually(lambda: record.first_version("late", "Requeued", "PodsReadyTimeout"))
    assert value_at(parked, ("status", "requeueState", "requeueAt")) is not None
    back = await eventually(lambda: record.first_version("late", "Requeued", "BackoffFinished"))
    assert back["status"]["requeueState"] == {"count": 1}, "how often it came back is remembered"
    await stage.until_running("late")
    await set_pod_status(stage, "late", ready=True)
    await stage.until_condition("PodsReady", "Started", "late")
    name = back["metadata"]["name"]
    message = f"Exceeded the PodsReady timeout {stage.namespace}/{name}"
    course = [WAIT_FOR_START, *_evicted_and_back(message), STARTED]
    await record.until_condition_changes("late", ("PodsReady", "Evicted", "Requeued"), course)
    await _is_counted(stage, admitq, name, message, "WaitForStart")
    reserved = f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own('cq')}"
    steps = [
        *queued("late"),
        [f"Workload late: admission; {reserved}; {ADMITTED}; {NOT_READY}"],
        ["Job late: labels given; suspend=false"],
        [
            (
                f"Workload late: Evicted=True PodsReadyTimeout {message}; "
                "requeueState count 1 with requeueAt; evictions PodsReadyTimeout WaitForStart 1"
            )
        ],
        *stopped("late", given="labels taken back"),
        *released("late", message, requeued=False, reason="PodsReadyTimeout", ready=False),
        [f"Workload late: {_line(BACK)}; requeueState count 1 without requeueAt"],
        [
            (
                f"Workload late: admission; Evicted=False QuotaReserved Previously: {message}; "
                f"{reserved}; {ADMITTED}"
            )
        ],
        ["Job late: labels given; suspend=false"],
        [f"Workload late: {PODS_READY}"],
    ]
    await writes.until(Story(steps))


def _line(said: ConditionChange) -> str:
    """A condition as a write tells it."""
    type_, *rest = said
    return f"{type_}={' '.join(rest)}"


async def _recovers_too_late(stage: Stage, record: Record, admitq: Installation) -> None:
    """Pods that were ready have another while when they no longer are."""
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
    course = [WAIT_FOR_START, STARTED, RECOVERS, evicted, WAIT_FOR_START, *back, STARTED]
    await record.until_condition_changes("fails", ("PodsReady", "Evicted", "Requeued"), course)
    await _is_counted(stage, admitq, name, message, "WaitForRecovery")


def _evicted_and_back(message: str) -> list[ConditionChange]:
    return [
        ("Evicted", "True", "PodsReadyTimeout", message),
        ("Requeued", "False", "PodsReadyTimeout", message),
        BACK,
        ("Evicted", "False", "QuotaReserved", f"Previously: {message}"),
    ]


async def _is_counted(stage: Stage, admitq: Installation, name: str, message: str, cause: str) -> None:
    """That it was evicted for this cause is told in an event, and counted."""
    await stage.until_event("Workload", name, f"EvictedDueToPodsReadyTimeoutDueTo{cause}", message)
    of = {"cluster_queue": stage.own("cq"), "reason": "PodsReadyTimeout", "underlying_cause": cause}
    assert await sum_of_series(admitq, "evicted_workloads_total", **of) == 1


async def _is_deactivated_for_good(
    stage: Stage, record: Record, admitq: Installation, writes: Writes
) -> None:
    """A job that was requeued as often as allowed is deactivated, and deleted after a while."""
    await stage.cluster_queue("never")
    await stage.local_queue("never", cluster_queue="never")
    await _until_they_admit(stage, "never", "never")
    await stage.job("never", queue="never")
    await stage.until_workload_exists("never")
    name = (await stage.workload("never"))["metadata"]["name"]
    await stage.apply_transition(name, lambda change: change.status.update(requeueState={"count": 1}))
    await stage.until_gone(JOBS, "never")
    told = "DeactivatedDueToRequeuingLimitExceeded"
    message = f"The workload is deactivated due to {TOO_OFTEN}"
    course = [
        ("DeactivationTarget", "True", "RequeuingLimitExceeded", TOO_OFTEN),
        ("DeactivationTarget", "", "", ""),
        ("Evicted", "True", told, message),
        ("Requeued", "False", told, message),
    ]
    await record.until_condition_changes("never", ("DeactivationTarget", "Evicted", "Requeued"), course)
    evicted = record.first_version("never", "Evicted", told)
    assert evicted["spec"]["active"] is False
    assert "requeueState" not in evicted["status"], "a reactivation begins anew"
    await stage.until_event("Workload", name, f"EvictedDueTo{told}", message)
    await stage.until_event("Job", "never", "Deleted", "Deleted job: deactivation retention period expired")
    steps = [
        ["~Workload never: requeueState count 1 without requeueAt"],
        [f"Workload never: DeactivationTarget=True RequeuingLimitExceeded {TOO_OFTEN}"],
        ["Workload never: active=False"],
        [
            (
                f"Workload never: DeactivationTarget removed; Evicted=True {told} {message}; "
                "requeueState removed; evictions Deactivated RequeuingLimitExceeded 1"
            )
        ],
        *stopped("never", given="labels taken back"),
        *released("never", message, requeued=False, reason=told, ready=False),
    ]
    reserved = f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own('never')}"
    began = [f"Workload never: admission; {reserved}; {ADMITTED}; {NOT_READY}"]
    starts = ["Job never: labels given; suspend=false"]
    await writes.until(Story([*queued("never"), began, starts, *steps], goes_on=True))
    of = {"cluster_queue": stage.own("never"), "reason": "Deactivated"}
    of["underlying_cause"] = "RequeuingLimitExceeded"
    assert await sum_of_series(admitq, "evicted_workloads_total", **of) == 1


async def _timed_out_job_queues_behind_others(stage: Stage, record: Record) -> None:
    """A job that did not get ready is queued behind jobs that waited meanwhile."""
    await stage.cluster_queue("one", cpu=1)
    await stage.local_queue("one", cluster_queue="one")
    for name in ("first", "second", "third"):
        await stage.job(name, queue="one")
        # They are in line in the order of the seconds in which they were made.
        made = (await stage.get(JOBS, name))["metadata"]["creationTimestamp"]
        await stage.until_workload_exists(name)
        await eventually(lambda made=made: format_time(time.time_ns()) > made, interval=0.02)
    await eventually(lambda: record.first_version("first", "Requeued", "BackoffFinished"))
    await stage.until_running("second")
    await set_pod_status(stage, "second", phase="Succeeded")
    await stage.until_running("third")
    assert await stage.condition("Admitted", "first") != ("True", "Admitted", "The workload is admitted")
    await set_pod_status(stage, "third", phase="Succeeded")
    await stage.until_running("first")


async def _is_forgotten_when_done(stage: Stage, record: Record) -> None:
    """The Workload of a finished job is deleted, its job is not."""
    await stage.job("done")
    await stage.until_running("done")
    await set_pod_status(stage, "done", phase="Succeeded")
    finished = await eventually(lambda: record.first_version("done", "Finished", "Succeeded"))
    await stage.until(lambda: stage.workloads("done"), [])
    note = "Deleted finished workload due to elapsed retention"
    await stage.until_event("Workload", finished["metadata"]["name"], "Deleted", note)
    assert await stage.is_complete("done")


async def _waits_for_a_queue(stage: Stage) -> None:
    """A job that names no queue is managed, too, and runs once it has got one."""
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
    """With what the chart grants the webhook, for a job that comes together with its namespace."""
    credentials = load_credentials(admitq_running.kubeconfig("webhook"))
    async with Client(credentials, user_agent="admitq-tests") as client:
        world, _ = watched_lookups(client, names_for(api_group), load_integrations())
        labels = await world.namespace_labels(admitq_namespace)
    assert labels is not None
    assert labels["kubernetes.io/metadata.name"] == admitq_namespace
