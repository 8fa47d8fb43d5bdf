"""Every reason of an eviction, and the readmission: conditions in order, events and metrics.

Each reason has a job in its own queue. All stories run concurrently.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from admitq.runtime.resources import JOBS
from admitq.workloads import evictions
from admitq.workloads.transitions import NO_RESERVATION, NOT_ALL_PODS_READY
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.recording import ConditionChange, Record, record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of, run_concurrently

DEACTIVATED = "The workload is deactivated"
REACTIVATED = ("Reactivated", "The workload was reactivated")
CONDITIONS = ("DeactivationTarget", "Evicted", "Preempted", "Requeued")


@dataclass(frozen=True)
class JobInQueue:
    """A job ``name`` in a LocalQueue and a ClusterQueue of that name."""

    stage: Stage
    name: str

    @property
    def cluster_queue(self) -> str:
        """The name of the ClusterQueue."""
        return self.stage.own(self.name)

    async def workload(self) -> str:
        """The name of the job's Workload."""
        return (await self.stage.workload(self.name))["metadata"]["name"]

    async def stop_policy(self, kind: str, policy: str) -> None:
        kinds = self.stage.kinds
        of = {"ClusterQueue": kinds.cluster_queues, "LocalQueue": kinds.local_queues}[kind]
        name = self.cluster_queue if kind == "ClusterQueue" else self.name
        await self.stage.change(of, name, {"spec": {"stopPolicy": policy}})

    async def activate(self, active: bool) -> None:
        spec = {"spec": {"active": active}}
        await self.stage.change(self.stage.kinds.workloads, await self.workload(), spec)

    async def check(self, state: str) -> None:
        """Set the state of the job's only check, as the check's controller would."""

        def set_state(status: dict[str, Any]) -> None:
            [check] = status["admissionChecks"]
            status["admissionChecks"] = [{**check, "state": state, "message": "m"}]

        await self.stage.apply_transition(await self.workload(), lambda change: set_state(change.status))


Step = Callable[[JobInQueue], Awaitable[object]]


async def nothing(_: JobInQueue) -> None:
    """Do nothing: the eviction begins or ends by itself."""


def policy(kind: str, wanted: str) -> Step:
    return lambda job: job.stop_policy(kind, wanted)


def active(wanted: bool) -> Step:
    return lambda job: job.activate(wanted)


def check(state: str) -> Step:
    return lambda job: job.check(state)


def in_order(*steps: Step) -> Step:
    async def go(job: JobInQueue) -> None:
        for step in steps:
            await step(job)

    return go


async def preempt(job: JobInQueue) -> None:
    labels = {job.stage.names.priority_class: job.stage.own("high")}
    await job.stage.job("preemptor", queue=job.name, labels=labels)


async def end_preemptor(job: JobInQueue) -> None:
    await job.stage.until_running("preemptor")
    await job.stage.client.delete(JOBS, "preemptor", job.stage.namespace, propagation="Background")


async def nodes_failed(job: JobInQueue) -> None:
    """Evict as the node watcher does."""
    await job.stage.apply_transition(
        await job.workload(), lambda change: change.evict(Reason.NODE_FAILURES, "its node is gone")
    )


async def manager_evicted(job: JobInQueue) -> None:
    """Request the deactivation as the MultiKueue dispatcher does."""
    target = ConditionType.DEACTIVATION_TARGET
    cause = Reason.EVICTED_ON_MANAGER_CLUSTER
    await job.stage.apply_transition(
        await job.workload(), lambda change: change.set_condition(target, True, cause, "there")
    )


async def more_time(job: JobInQueue) -> None:
    labels = {job.stage.names.max_exec_time: "3600"}
    await job.stage.change(JOBS, job.name, {"metadata": {"labels": labels}})
    workloads = job.stage.kinds.workloads

    async def limit() -> int:
        return (await job.stage.get(workloads, await job.workload()))["spec"]["maximumExecutionTimeSeconds"]

    await job.stage.until(limit, 3600)


@dataclass(frozen=True)
class Eviction:
    """A reason of evictions. Texts have ``{cq}`` for the ClusterQueue and ``{check}`` for its check."""

    name: str
    begin: Step
    """Cause the eviction of the running job."""
    reason: str
    message: str
    end: Step
    """Allow the readmission."""
    returns: tuple[str, str] | None
    """Reason and message of Requeued when the job may be readmitted; None if it may once it has stopped."""
    cause: str = ""
    target: str = ""
    """The message of DeactivationTarget, if that condition precedes the eviction."""
    warning: tuple[str, ...] = ()
    """Reason and note of the event about the target."""
    preempted: str = ""
    """The reason of the condition Preempted."""
    by_others: bool = False
    """No controller of admitq writes it yet: events and metrics are not checked."""
    seconds: str = ""
    """The maximum execution time, if there is one."""
    checked: bool = False
    """Whether its ClusterQueue has a check."""
    twice: bool = False
    """Whether it is evicted again after its readmission."""

    @property
    def condition_reason(self) -> str:
        """The reason of the condition Evicted."""
        return f"{self.reason}DueTo{self.cause}" if self.cause else self.reason


EVICTIONS = (
    Eviction(
        "preempted",
        preempt,
        "Preempted",
        "Preempted to accommodate a workload (UID: {preemptor}, JobUID: {preemptor_job}) due to "
        "prioritization in the ClusterQueue; preemptor path: /{cq}; preemptee path: /{cq}",
        end_preemptor,
        None,
        preempted="InClusterQueue",
    ),
    Eviction("nodes-failed", nodes_failed, "NodeFailures", "its node is gone", nothing, None, by_others=True),
    Eviction(
        "check-retried",
        check("Retry"),
        "AdmissionCheck",
        'Evicted due to AdmissionCheck in Retry state: "{check}" (m)',
        nothing,
        ("BackoffFinished", "The workload backoff was finished"),
        checked=True,
    ),
    Eviction(
        "check-rejected",
        check("Rejected"),
        "Deactivated",
        DEACTIVATED + ' due to AdmissionCheck in Rejected state: "{check}" (m)',
        active(True),
        REACTIVATED,
        cause="AdmissionCheck",
        target='AdmissionCheck in Rejected state: "{check}" (m)',
        warning=(
            "AdmissionCheckRejected",
            'Deactivated due to AdmissionCheck in Rejected state: "{check}" (m)',
        ),
        checked=True,
    ),
    Eviction(
        "cluster-queue-stopped",
        policy("ClusterQueue", "HoldAndDrain"),
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
        policy("ClusterQueue", "None"),
        ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
    ),
    Eviction(
        "local-queue-stopped",
        policy("LocalQueue", "HoldAndDrain"),
        "LocalQueueStopped",
        "The LocalQueue is stopped",
        policy("LocalQueue", "None"),
        ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    ),
    Eviction("deactivated", active(False), "Deactivated", DEACTIVATED, active(True), REACTIVATED, twice=True),
    Eviction(
        "ran-too-long",
        nothing,
        "Deactivated",
        DEACTIVATED + " due to exceeding the maximum execution time",
        in_order(more_time, active(True)),
        REACTIVATED,
        cause="MaximumExecutionTimeExceeded",
        target="exceeding the maximum execution time",
        warning=("MaximumExecutionTimeExceeded", "The maximum execution time (3s) exceeded"),
        seconds="3",
    ),
    Eviction(
        "evicted-elsewhere",
        manager_evicted,
        "Deactivated",
        DEACTIVATED + " due to there",
        active(True),
        REACTIVATED,
        cause="EvictedOnManagerCluster",
        target="there",
    ),
)

IN_TEST_POLICIES = {
    ("PodsReadyTimeout", "WaitForStart"),
    ("PodsReadyTimeout", "WaitForRecovery"),
    ("Deactivated", "RequeuingLimitExceeded"),
}
"""test_policies.py tests evictions of jobs with pods that do not become ready."""


def test_every_eviction_reason_has_a_story() -> None:
    tested = {(one.reason, one.cause) for one in EVICTIONS} | IN_TEST_POLICIES
    assert tested == {(one.reason, one.cause) for one in evictions.EVICTIONS}


@pytest.mark.core
async def test_every_eviction_is_reported_and_its_job_is_stopped_and_readmitted(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.flavor()
    for name, value in (("low", 1), ("high", 9)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    await stage.active_check("check")
    async with record_versions(stage) as record:
        stories = [
            EvictionStory(JobInQueue(stage, one.name), record, admitq_running, one) for one in EVICTIONS
        ]
        await run_concurrently(**{story.eviction.name: story.play() for story in stories})
    stopped = record.first_version("preempted", "Requeued", "Preempted")
    started = record.first_version("preemptor", "Admitted", "Admitted")
    assert record.versions.index(stopped) < record.versions.index(started), "quota was reserved for both"


@dataclass(frozen=True)
class EvictionStory:
    """The story of one eviction."""

    job: JobInQueue
    record: Record
    admitq: Installation
    eviction: Eviction

    async def play(self) -> None:
        """Play the story from the job's creation to its second admission."""
        job, eviction, stage = self.job, self.eviction, self.job.stage
        await self._submit()
        if eviction.begin is not nothing:
            # An eviction that begins by itself may be over before the test observes the admission.
            await self._admitted()
            await stage.until_condition("PodsReady", "Started", job.name)

        await eviction.begin(job)
        requeued = await eventually(
            lambda: self.record.first_version(job.name, "Requeued", eviction.condition_reason)
        )
        message = self._filled(eviction.message)
        self._check_begin(message)
        assert "admission" not in requeued["status"]
        assert condition_of(requeued, "QuotaReserved") == ("False", "PendingEvaluation", message)
        assert condition_of(requeued, "Admitted") == ("False", "NoReservation", NO_RESERVATION)
        assert condition_of(requeued, "PodsReady") == ("False", "WaitForStart", NOT_ALL_PODS_READY)
        await stage.until_event("Job", job.name, "Stopped", message)
        if not eviction.by_others:
            name = await job.workload()
            await stage.until_event("Workload", name, f"EvictedDueTo{eviction.condition_reason}", message)
            if eviction.warning:
                await stage.until_event("Workload", name, *map(self._filled, eviction.warning))
            await stage.until(self._metrics, self._expected_metrics(times=1))

        await eviction.end(job)
        await self._admitted()
        await self.record.until_condition_changes(job.name, CONDITIONS, self._expected_changes(message))
        if eviction.twice:
            await stage.until_condition("PodsReady", "Started", job.name)
            await eviction.begin(job)
            await stage.until(self._metrics, self._expected_metrics(times=2))

    async def _submit(self) -> None:
        job, stage = self.job, self.job.stage
        strategy = {"admissionChecks": [{"name": stage.own("check")}]}
        checks = {"admissionChecksStrategy": strategy} if self.eviction.checked else {}
        await stage.cluster_queue(
            job.name, cpu=1, preemption={"withinClusterQueue": "LowerPriority"}, **checks
        )
        await stage.local_queue(job.name, cluster_queue=job.name)
        labels = {stage.names.priority_class: stage.own("low")}
        if self.eviction.seconds:
            labels[stage.names.max_exec_time] = self.eviction.seconds
        await stage.job(job.name, queue=job.name, labels=labels)

    async def _admitted(self) -> None:
        """Admit the job and wait until it runs."""
        job = self.job
        if self.eviction.checked:
            await job.stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", job.name)
            await job.check("Ready")
        await job.stage.until_running(job.name)

    def _filled(self, text: str) -> str:
        preemptor: dict[str, Any] = next(iter(self.record.versions_of("preemptor")), {})
        return text.format(
            cq=self.job.cluster_queue,
            check=self.job.stage.own("check"),
            preemptor=value_at(preemptor, ("metadata", "uid")),
            preemptor_job=value_at(preemptor, ("metadata", "labels", self.job.stage.names.job_uid)),
        )

    def _check_begin(self, message: str) -> None:
        """Check that the write of the condition Evicted keeps the admission until the job has stopped."""
        eviction = self.eviction
        evicted = self.record.first_version(self.job.name, "Evicted", eviction.condition_reason)
        assert condition_of(evicted, "Evicted") == ("True", eviction.condition_reason, message)
        assert (condition_of(evicted, "Admitted") or ())[:2] == ("True", "Admitted")
        assert evicted["status"]["admission"]["clusterQueue"] == self.job.cluster_queue
        counted = {"reason": eviction.reason, "underlyingCause": eviction.cause, "count": 1}
        assert evicted["status"]["schedulingStats"]["evictions"] == [counted]

    def _expected_changes(self, message: str) -> list[ConditionChange]:
        eviction, changes = self.eviction, list[ConditionChange]()
        if eviction.target:
            target = self._filled(eviction.target)
            changes += [("DeactivationTarget", "True", eviction.cause, target)]
            changes += [("DeactivationTarget", "", "", "")]
        changes.append(("Evicted", "True", eviction.condition_reason, message))
        if eviction.preempted:
            changes.append(("Preempted", "True", eviction.preempted, message))
        changes.append(("Requeued", str(eviction.returns is None), eviction.condition_reason, message))
        if eviction.returns is not None:
            changes.append(("Requeued", "True", *eviction.returns))
        previously = ("False", "QuotaReserved", f"Previously: {message}")
        changes.append(("Evicted", *previously))
        if eviction.preempted:
            changes.append(("Preempted", *previously))
        return changes

    def _expected_metrics(self, *, times: int) -> dict[str, float]:
        """The metrics of the job after so many evictions."""
        evicted = self.record.first_version(self.job.name, "Evicted", self.eviction.condition_reason)
        were_ready = (condition_of(evicted, "PodsReady") or ("",))[0] == "True"
        return {
            "evicted_workloads_total": times,
            "evicted_workloads_once_total": 1,
            "local_queue_evicted_workloads_total": times,
            "pods_ready_to_evicted_time_seconds_count": times if were_ready else 0,
            "workload_eviction_latency_seconds_count": times,
            "preempted_workloads_total": times if self.eviction.preempted else 0,
        }

    async def _metrics(self) -> dict[str, float]:
        """The current metrics about evictions of the job."""
        queue, job = self.job.cluster_queue, self.job
        reason = {"reason": self.eviction.reason}
        cause = {**reason, "underlying_cause": self.eviction.cause}
        priority = {**cause, "priority_class": job.stage.own("low")}
        local = {"name": job.name, "namespace": job.stage.namespace}
        labels = {
            "evicted_workloads_total": {"cluster_queue": queue, **priority},
            "evicted_workloads_once_total": {"cluster_queue": queue, **priority},
            "local_queue_evicted_workloads_total": {**local, **priority},
            "pods_ready_to_evicted_time_seconds_count": {"cluster_queue": queue, **cause},
            "workload_eviction_latency_seconds_count": {"cluster_queue": queue, **reason},
            "preempted_workloads_total": {"preempting_cluster_queue": queue, "reason": "InClusterQueue"},
        }
        return {series: await sum_of_series(self.admitq, series, **of) for series, of in labels.items()}
