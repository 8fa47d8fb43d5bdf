"""Every way in which a job loses its quota and how it gets it back: conditions in order, events, metrics.

One job for each way, in a queue of its own; all are told at once.
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
TOLD = ("DeactivationTarget", "Evicted", "Preempted", "Requeued")


@dataclass(frozen=True)
class Life:
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
        """State this of the job's one check, as the check's controller would."""

        def stated(status: dict[str, Any]) -> None:
            [check] = status["admissionChecks"]
            status["admissionChecks"] = [{**check, "state": state, "message": "m"}]

        await self.stage.apply_transition(await self.workload(), lambda change: stated(change.status))


Step = Callable[[Life], Awaitable[object]]


async def nothing(_: Life) -> None:
    """It happens, or ends, by itself."""


def policy(kind: str, wanted: str) -> Step:
    return lambda life: life.stop_policy(kind, wanted)


def active(wanted: bool) -> Step:
    return lambda life: life.activate(wanted)


def check(state: str) -> Step:
    return lambda life: life.check(state)


def both(*steps: Step) -> Step:
    async def go(life: Life) -> None:
        for step in steps:
            await step(life)

    return go


async def preempt(life: Life) -> None:
    labels = {life.stage.names.priority_class: life.stage.own("high")}
    await life.stage.job("preemptor", queue=life.name, labels=labels)


async def end_preemptor(life: Life) -> None:
    await life.stage.until_running("preemptor")
    await life.stage.client.delete(JOBS, "preemptor", life.stage.namespace, propagation="Background")


async def nodes_failed(life: Life) -> None:
    """What the watcher of nodes writes."""
    await life.stage.apply_transition(
        await life.workload(), lambda change: change.evict(Reason.NODE_FAILURES, "its node is gone")
    )


async def manager_evicted(life: Life) -> None:
    """What the dispatcher of several clusters writes."""
    target = ConditionType.DEACTIVATION_TARGET
    cause = Reason.EVICTED_ON_MANAGER_CLUSTER
    await life.stage.apply_transition(
        await life.workload(), lambda change: change.set_condition(target, True, cause, "there")
    )


async def more_time(life: Life) -> None:
    labels = {life.stage.names.max_exec_time: "3600"}
    await life.stage.change(JOBS, life.name, {"metadata": {"labels": labels}})
    workloads = life.stage.kinds.workloads

    async def limit() -> int:
        return (await life.stage.get(workloads, await life.workload()))["spec"]["maximumExecutionTimeSeconds"]

    await life.stage.until(limit, 3600)


@dataclass(frozen=True)
class Eviction:
    """One way to lose quota. In texts ``{cq}`` stands for the ClusterQueue, ``{check}`` for its check."""

    name: str
    begin: Step
    """Brings it about, while the job runs."""
    reason: str
    message: str
    end: Step
    """Lets it come back."""
    returns: tuple[str, str] | None
    """What Requeued says when it may compete again; None where it may as soon as its job has stopped."""
    cause: str = ""
    target: str = ""
    """The message of DeactivationTarget, which goes before, where one does."""
    warning: tuple[str, ...] = ()
    """Reason and note of the event that tells of the target."""
    preempted: str = ""
    """By what right it is preempted."""
    by_others: bool = False
    """No controller writes it yet: the test shows its effect, not its reports."""
    seconds: str = ""
    """For how long it may run, where that is limited."""
    checked: bool = False
    """Its ClusterQueue asks for a check."""
    twice: bool = False
    """It is evicted once more after it has come back."""

    @property
    def told(self) -> str:
        """The reason of the condition."""
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
        both(more_time, active(True)),
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

ELSEWHERE = {
    ("PodsReadyTimeout", "WaitForStart"),
    ("PodsReadyTimeout", "WaitForRecovery"),
    ("Deactivated", "RequeuingLimitExceeded"),
}
"""Pods that do not get ready are the matter of test_policies.py."""


def test_every_eviction_reason_has_a_story() -> None:
    told = {(one.reason, one.cause) for one in EVICTIONS} | ELSEWHERE
    assert told == {(one.reason, one.cause) for one in evictions.EVICTIONS}


@pytest.mark.core
async def test_every_eviction_is_reported_and_its_job_is_stopped_and_readmitted(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.flavor()
    for name, value in (("low", 1), ("high", 9)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    await stage.active_check("check")
    async with record_versions(stage) as record:
        tellers = [Teller(Life(stage, one.name), record, admitq_running, one) for one in EVICTIONS]
        await run_concurrently(**{teller.eviction.name: teller.tell() for teller in tellers})
    stopped = record.first_version("preempted", "Requeued", "Preempted")
    started = record.first_version("preemptor", "Admitted", "Admitted")
    assert record.versions.index(stopped) < record.versions.index(started), "quota is given twice"


@dataclass(frozen=True)
class Teller:
    """Tells the story of one eviction."""

    life: Life
    record: Record
    admitq: Installation
    eviction: Eviction

    async def tell(self) -> None:
        """Tell it from the job's creation to its second admission."""
        life, eviction, stage = self.life, self.eviction, self.life.stage
        await self._submit()
        if eviction.begin is not nothing:
            # Otherwise it may be over before the test observes it.
            await self._admitted()
            await stage.until_condition("PodsReady", "Started", life.name)

        await eviction.begin(life)
        requeued = await eventually(lambda: self.record.first_version(life.name, "Requeued", eviction.told))
        message = self._filled(eviction.message)
        self._began(message)
        assert "admission" not in requeued["status"]
        assert condition_of(requeued, "QuotaReserved") == ("False", "PendingEvaluation", message)
        assert condition_of(requeued, "Admitted") == ("False", "NoReservation", NO_RESERVATION)
        assert condition_of(requeued, "PodsReady") == ("False", "WaitForStart", NOT_ALL_PODS_READY)
        await stage.until_event("Job", life.name, "Stopped", message)
        if not eviction.by_others:
            name = await life.workload()
            await stage.until_event("Workload", name, f"EvictedDueTo{eviction.told}", message)
            if eviction.warning:
                await stage.until_event("Workload", name, *map(self._filled, eviction.warning))
            await stage.until(self._counted, self._count(times=1))

        await eviction.end(life)
        await self._admitted()
        await self.record.until_condition_changes(life.name, TOLD, self._course(message))
        if eviction.twice:
            await stage.until_condition("PodsReady", "Started", life.name)
            await eviction.begin(life)
            await stage.until(self._counted, self._count(times=2))

    async def _submit(self) -> None:
        life, stage = self.life, self.life.stage
        asked = {"admissionChecks": [{"name": stage.own("check")}]}
        checks = {"admissionChecksStrategy": asked} if self.eviction.checked else {}
        await stage.cluster_queue(
            life.name, cpu=1, preemption={"withinClusterQueue": "LowerPriority"}, **checks
        )
        await stage.local_queue(life.name, cluster_queue=life.name)
        labels = {stage.names.priority_class: stage.own("low")}
        if self.eviction.seconds:
            labels[stage.names.max_exec_time] = self.eviction.seconds
        await stage.job(life.name, queue=life.name, labels=labels)

    async def _admitted(self) -> None:
        """Have the job admitted, and see it run."""
        life = self.life
        if self.eviction.checked:
            await life.stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", life.name)
            await life.check("Ready")
        await life.stage.until_running(life.name)

    def _filled(self, text: str) -> str:
        preemptor: dict[str, Any] = next(iter(self.record.versions_of("preemptor")), {})
        return text.format(
            cq=self.life.cluster_queue,
            check=self.life.stage.own("check"),
            preemptor=value_at(preemptor, ("metadata", "uid")),
            preemptor_job=value_at(preemptor, ("metadata", "labels", self.life.stage.names.job_uid)),
        )

    def _began(self, message: str) -> None:
        """An eviction begins with telling it; what it holds stays until its job has stopped."""
        eviction = self.eviction
        evicted = self.record.first_version(self.life.name, "Evicted", eviction.told)
        assert condition_of(evicted, "Evicted") == ("True", eviction.told, message)
        assert (condition_of(evicted, "Admitted") or ())[:2] == ("True", "Admitted")
        assert evicted["status"]["admission"]["clusterQueue"] == self.life.cluster_queue
        counted = {"reason": eviction.reason, "underlyingCause": eviction.cause, "count": 1}
        assert evicted["status"]["schedulingStats"]["evictions"] == [counted]

    def _course(self, message: str) -> list[ConditionChange]:
        eviction, course = self.eviction, list[ConditionChange]()
        if eviction.target:
            target = self._filled(eviction.target)
            course += [("DeactivationTarget", "True", eviction.cause, target)]
            course += [("DeactivationTarget", "", "", "")]
        course.append(("Evicted", "True", eviction.told, message))
        if eviction.preempted:
            course.append(("Preempted", "True", eviction.preempted, message))
        course.append(("Requeued", str(eviction.returns is None), eviction.told, message))
        if eviction.returns is not None:
            course.append(("Requeued", "True", *eviction.returns))
        previously = ("False", "QuotaReserved", f"Previously: {message}")
        course.append(("Evicted", *previously))
        if eviction.preempted:
            course.append(("Preempted", *previously))
        return course

    def _count(self, *, times: int) -> dict[str, float]:
        """What metrics must tell after so many evictions."""
        evicted = self.record.first_version(self.life.name, "Evicted", self.eviction.told)
        were_ready = (condition_of(evicted, "PodsReady") or ("",))[0] == "True"
        return {
            "evicted_workloads_total": times,
            "evicted_workloads_once_total": 1,
            "local_queue_evicted_workloads_total": times,
            "pods_ready_to_evicted_time_seconds_count": times if were_ready else 0,
            "workload_eviction_latency_seconds_count": times,
            "preempted_workloads_total": times if self.eviction.preempted else 0,
        }

    async def _counted(self) -> dict[str, float]:
        """What metrics tell of the evictions of the job."""
        queue, life = self.life.cluster_queue, self.life
        reason = {"reason": self.eviction.reason}
        cause = {**reason, "underlying_cause": self.eviction.cause}
        priority = {**cause, "priority_class": life.stage.own("low")}
        local = {"name": life.name, "namespace": life.stage.namespace}
        labels = {
            "evicted_workloads_total": {"cluster_queue": queue, **priority},
            "evicted_workloads_once_total": {"cluster_queue": queue, **priority},
            "local_queue_evicted_workloads_total": {**local, **priority},
            "pods_ready_to_evicted_time_seconds_count": {"cluster_queue": queue, **cause},
            "workload_eviction_latency_seconds_count": {"cluster_queue": queue, **reason},
            "preempted_workloads_total": {"preempting_cluster_queue": queue, "reason": "InClusterQueue"},
        }
        return {series: await sum_of_series(self.admitq, series, **of) for series, of in labels.items()}
