"""Every write of Workloads that admitq makes, as another program would make it.

Each row has a scene, the change that the other program makes in it, and what makes admitq write the same in
the same scene. `test_other_programs.py` plays each row in every manner, and compares what it comes to. Rows
about slices of elastic jobs, prebuilt Workloads and retention are in `further_writes.py`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.integrations.paths import Object, value_at, with_value
from admitq.runtime.resources import JOBS
from admitq.transitions import Transition
from admitq_api.conditions import SECOND, ConditionType, Reason, format_time
from tests.controlplane.manners import Change, Manner
from tests.controlplane.stage import Stage, condition_of, until_next_second

Step = Callable[[Stage], Awaitable[object]]

JOB: Final = "j"
"""The job of a scene, where it has one."""
ALONE: Final = "w"
"""The Workload of a scene without job."""
PRIORITY_CLASS: Final = "high"
"""The WorkloadPriorityClass of a scene, where it has one."""


# --- changes --------------------------------------------------------------------------------------


def status(what: Callable[[Transition], object]) -> Change:
    """A change of the status."""

    def change(workload: Object, now: int) -> Object:
        transition = Transition(workload, now)
        what(transition)
        kept = {key: value for key, value in transition.status.items() if value is not None}
        return {**workload, "status": kept}

    return change


def spec(**fields: Any) -> Change:
    """A change of fields of the spec."""
    return lambda workload, _: {**workload, "spec": {**workload["spec"], **fields}}


def refer_to_priority_class(workload: Object, _: int) -> Object:
    """Name the story's WorkloadPriorityClass, and leave the priority as it is."""
    reference = {
        "group": workload["apiVersion"].partition("/")[0],
        "kind": "WorkloadPriorityClass",
        "name": f"{PRIORITY_CLASS}-{workload['metadata']['namespace']}",
    }
    return with_value(workload, ("spec", "priorityClassRef"), reference)


def ungate(workload: Object, _: int) -> Object:
    """Take the annotation away that names admission gates."""
    annotations: Object = workload["metadata"].get("annotations", {})
    kept = {key: value for key, value in annotations.items() if not key.endswith("/admission-gated-by")}
    return with_value(workload, ("metadata", "annotations"), kept)


def reserve(*, admit: bool, queue: str = "cq") -> Change:
    """Reserve quota in a story's ClusterQueue, and admit in the same write or leave that to others."""

    def change(workload: Object, now: int) -> Object:
        transition = Transition(workload, now)
        namespace = workload["metadata"]["namespace"]
        cluster_queue = f"{queue}-{namespace}"
        transition.status["admission"] = {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [_assignment(one, f"f-{namespace}") for one in workload["spec"]["podSets"]],
        }
        transition.set(
            ConditionType.QUOTA_RESERVED,
            True,
            Reason.QUOTA_RESERVED,
            f"Quota reserved in ClusterQueue {cluster_queue}",
        )
        for former in (ConditionType.EVICTED, ConditionType.PREEMPTED):
            if transition.is_true(former):
                found = transition.find(former) or {}
                message = f"Previously: {found.get('message', '')}"
                transition.set(former, False, Reason.QUOTA_RESERVED, message)
        if admit:
            transition.set(ConditionType.ADMITTED, True, Reason.ADMITTED, "The workload is admitted")
            transition.status.pop("resourceRequests", None)
        return {**workload, "status": transition.status}

    return change


def _assignment(pod_set: Object, flavor: str) -> Object:
    count = pod_set.get("count", 1)
    requests = value_at(pod_set, ("template", "spec", "containers", 0, "resources", "requests"), {})
    return {
        "name": pod_set["name"],
        "count": count,
        "flavors": dict.fromkeys(requests, flavor),
        "resourceUsage": {resource: str(count * int(amount)) for resource, amount in requests.items()},
    }


def reserve_and_leave_evicted(workload: Object, now: int) -> Object:
    """Reserve quota, and leave an eviction that came before as it is."""
    evicted = status(_evict_only)(workload, now)
    reserved = reserve(admit=True)(workload, now)
    kept = evicted["status"]["conditions"]
    conditions = [*(one for one in kept if one["type"] == ConditionType.EVICTED)]
    conditions += [one for one in reserved["status"]["conditions"] if one["type"] != ConditionType.EVICTED]
    return {**reserved, "status": {**reserved["status"], "conditions": conditions}}


def remove_status(workload: Object, _: int) -> Object:
    """Remove all that the status says."""
    return {**workload, "status": {}}


def remove_reservation_condition(workload: Object, now: int) -> Object:
    """Remove the condition QuotaReserved, and leave the admission as it is."""
    return status(lambda one: one.drop(ConditionType.QUOTA_RESERVED))(workload, now)


REMOVALS: Final = (Manner.MERGE_PATCH, Manner.PUT, Manner.TYPED_UPDATE)
"""Server-side apply cannot remove what another field manager owns."""


def _evict_only(transition: Transition) -> None:
    """State an eviction and nothing of what follows from it."""
    transition.set(ConditionType.EVICTED, True, Reason.NODE_FAILURES, "its node is gone")


def _release_only(transition: Transition) -> None:
    """Say that no quota is reserved, and leave the admission where it is."""
    transition.set(ConditionType.QUOTA_RESERVED, False, Reason.PENDING, "released")


def _check(state: str, **fields: Any) -> Callable[[Transition], None]:
    def stated(transition: Transition) -> None:
        [check] = transition.status["admissionChecks"]
        at = format_time(time.time_ns())
        said = {**check, "state": state, "message": "m", "lastTransitionTime": at, **fields}
        transition.status["admissionChecks"] = [said]

    return stated


def _backoff(transition: Transition, *, seconds: int = 1) -> None:
    at = format_time((time.time_ns() // SECOND + seconds + 1) * SECOND)
    transition.status["requeueState"] = {"count": 1, "requeueAt": at}


def _timed_out(transition: Transition) -> None:
    transition.evict(Reason.PODS_READY_TIMEOUT, "late", Reason.WAIT_FOR_START)
    _backoff(transition)


def _parked(reason: Reason) -> Callable[[Transition], None]:
    return lambda transition: transition.set(ConditionType.REQUEUED, False, reason, "m")


def _parked_for_a_while(transition: Transition) -> None:
    _parked(Reason.PODS_READY_TIMEOUT)(transition)
    _backoff(transition)


def _evicted_and_released(transition: Transition) -> None:
    transition.evict(Reason.NODE_FAILURES, "its node is gone")
    transition.requeue(Reason.PENDING_EVALUATION)


def _evicted_and_retried(transition: Transition) -> None:
    """State an eviction, and of a check that it asks for a retry since."""
    transition.evict(Reason.NODE_FAILURES, "its node is gone")
    _check("Retry")(transition)


def _requeue(*, may_return: bool) -> Callable[[Transition], None]:
    """End an eviction, if there is one."""

    def requeued(transition: Transition) -> None:
        if transition.is_true(ConditionType.EVICTED):
            transition.requeue(Reason.PENDING_EVALUATION, may_return=may_return)

    return requeued


def _replacing(value: bool) -> Callable[[Transition], None]:
    type_, reason = ConditionType.WAITING_FOR_REPLACEMENT_PODS, "PodsFailed" if value else "PodsReady"
    return lambda transition: transition.set(type_, value, reason, "m")


def _reclaim(transition: Transition) -> None:
    transition.status["reclaimablePods"] = [{"name": "main", "count": 1}]


def _bookkeeping(transition: Transition) -> None:
    transition.status["accumulatedPastExecutionTimeSeconds"] = 5
    evictions = [{"reason": "Preempted", "underlyingCause": "", "count": 2}]
    transition.status["schedulingStats"] = {"evictions": evictions}


# --- scenes ---------------------------------------------------------------------------------------


async def grow(stage: Stage, cpu: int = 2) -> None:
    """Give the story's ClusterQueue so much quota."""
    queues, name = stage.kinds.cluster_queues, stage.own("cq")
    queue = await stage.get(queues, name)
    path = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota")
    changed = with_value(queue, path, cpu)
    await stage.change(queues, name, {"spec": {"resourceGroups": changed["spec"]["resourceGroups"]}})


async def workload(
    stage: Stage, name: str = ALONE, *, queue: str = "lq", pods: int = 1, **fields: Any
) -> None:
    """Create a Workload without a job, which asks for a CPU for each pod."""
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
    """Wait until a Workload says that it does not get quota."""
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
    """A job waits, for its ClusterQueue has no quota."""
    await stage.queues(cpu=0)
    await stage.job(JOB)
    await until_waiting(stage, JOB)


async def job_waits_without_priority_class(stage: Stage) -> None:
    """A job waits for quota and names no WorkloadPriorityClass, though there is one."""
    await priority_class(stage)
    await job_waits(stage)


async def job_runs(stage: Stage) -> None:
    """A job runs, and its pod is ready."""
    await stage.queues(cpu=2)
    await stage.job(JOB)
    await until(stage, JOB, "PodsReady", "True")


async def job_runs_with_fewest_pods(stage: Stage) -> None:
    """A job of three pods runs with one, the fewest that it makes do with, for there is no more quota."""
    await stage.queues(cpu=1)
    await stage.job(JOB, pods=3, metadata={"annotations": {stage.names.job_min_parallelism: "1"}})
    await until(stage, JOB, "PodsReady", "True")


async def job_preemptible(stage: Stage) -> None:
    """A job runs with all the quota of a ClusterQueue in which higher priorities preempt."""
    await stage.queues(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.job(JOB)
    await until(stage, JOB, "PodsReady", "True")


async def job_checked(stage: Stage) -> None:
    """A job waits in a ClusterQueue without quota that asks for a check."""
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
    await stage.transit(name, _check("Ready"))
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
    """A Workload without job waits, for its ClusterQueue has no quota."""
    await stage.queues(cpu=0)
    await workload(stage)
    await until_waiting(stage, ALONE)


async def alone_admitted(stage: Stage) -> None:
    """A Workload without job is admitted."""
    await stage.queues(cpu=2)
    await workload(stage)
    await until(stage, ALONE, "Admitted", "True")


async def alone_evicted(stage: Stage) -> None:
    """A Workload without job is evicted, and holds its quota until something says that its pods are gone."""
    await alone_admitted(stage)
    await stage.transit(ALONE, lambda change: change.evict(Reason.NODE_FAILURES, "its node is gone"))


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
    """A Workload without job waits in a LocalQueue that is stopped, beside one that is not."""
    await stage.queues(cpu=2)
    await stage.queues_closed()
    await workload(stage, queue="closed")
    await until(stage, ALONE, "QuotaReserved", "False", "Suspended")


async def alone_replacing(stage: Stage) -> None:
    """A Workload without job waits until pods of it are replaced, beside free quota."""
    await alone_waits(stage)
    await stage.transit(ALONE, _replacing(True))
    await grow(stage)


async def two_wait(stage: Stage) -> None:
    """A Workload without job waits behind another, for their ClusterQueue has no quota."""
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


# --- what makes admitq write the same ---------------------------------------------------------------


async def preempt(stage: Stage) -> None:
    """Have a job of higher priority come, run and be deactivated."""
    await priority_class(stage)
    await stage.job("preemptor", labels={stage.names.priority_class: stage.own(PRIORITY_CLASS)})
    await stage.until_running("preemptor")
    name = (await stage.workload("preemptor"))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": False}})


async def label_with_priority_class(stage: Stage) -> None:
    """Name the WorkloadPriorityClass in a label of the job."""
    labels = {stage.names.priority_class: stage.own(PRIORITY_CLASS)}
    await stage.change(JOBS, JOB, {"metadata": {"labels": labels}})


async def nothing(_: Stage) -> None:
    """Admitq writes nothing, for what is written is the other program's to write, or is soon corrected."""


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One write."""

    name: str
    writers: tuple[str, ...]
    """The functions of admitq that make this write, with their modules."""
    scene: Step
    change: Change
    end: Mapping[str, Any]
    """Some facts of the end, so that no play ends before what it is about."""
    cause: Step | None = None
    """What makes admitq write it; None where it would not, and a merge patch is what others compare to."""
    then: Step = field(default=nothing)
    """What happens after the write."""
    subject: str = JOB
    written: Callable[[Stage], Awaitable[Mapping[str, Any]]] | None = None
    """Finds the Workload that is written; None for the only one of the subject."""
    manners: tuple[Manner, ...] = tuple(Manner)
    """The manners in which the write makes sense."""

    def __str__(self) -> str:
        return self.name


def _alone(name: str, writers: tuple[str, ...], scene: Step, change: Change, end: Any, **more: Any) -> Row:
    return Row(name, writers, scene, change, end, subject=ALONE, **more)


_RESERVED: Final = {"QuotaReserved": "True QuotaReserved"}
_ADMITTED: Final = {**_RESERVED, "Admitted": "True Admitted"}
_RUNS: Final = {**_ADMITTED, "PodsReady": "True Started", "job": "running"}
_WAITS: Final = {"Admitted": "False NoReservation", "admission": None}
_STOPPED: Final = {**_WAITS, "job": "suspended"}
_FORMERLY_EVICTED: Final = "False QuotaReserved"


def _queue(*, admitted: int, cpu: int, pending: int = 0) -> dict[str, int]:
    """What a ClusterQueue says in the end."""
    return {
        "pendingWorkloads": pending,
        "reservingWorkloads": admitted,
        "admittedWorkloads": admitted,
        "reserved": cpu,
        "used": cpu,
    }


TABLE: Final[Mapping[str, tuple[Row, ...]]] = {
    "reservations": (
        Row(
            "reserve",
            ("reservation.reservation_patch", "workload.admit"),
            job_waits,
            reserve(admit=False),
            _RUNS,
            grow,
        ),
        Row("admit", ("reservation.reservation_patch",), job_waits, reserve(admit=True), _RUNS, grow),
        Row(
            "reserve-before-checks",
            ("reservation.reservation_patch", "workload.sync_checks", "workload.admit"),
            job_checked,
            reserve(admit=False),
            {**_RESERVED, "Admitted": "False UnsatisfiedAdmissionChecks", "checks": [("Pending", 0)]},
            grow,
        ),
        _alone(
            "admit-without-job",
            (
                "reservation.reservation_patch",
                "transitions.await_pods",
                "workload.report_awaited_pods",
                "workload.drop_resource_requests",
            ),
            alone_waits,
            reserve(admit=True),
            {**_ADMITTED, "PodsReady": "False WaitForStart"},
            cause=grow,
        ),
        _alone(
            "reserve-without-local-queue",
            ("reservation.reservation_patch", "workload.admit"),
            alone_lost,
            reserve(admit=False),
            _ADMITTED,
        ),
        _alone(
            "reserve-without-cluster-queue",
            ("reservation.reservation_patch", "workload.admit"),
            alone_lost,
            reserve(admit=False, queue="missing"),
            _ADMITTED,
        ),
        Row(
            "admit-without-reservation",
            ("transitions.end_admission", "workload.report_pending"),
            job_waits,
            status(lambda one: one.set(ConditionType.ADMITTED, True, Reason.ADMITTED, "m")),
            {
                **_STOPPED,
                "ClusterQueue": _queue(admitted=0, cpu=0, pending=1),
                "LocalQueues": {"lq": _queue(admitted=0, cpu=0, pending=1)},
            },
        ),
        Row(
            "reserve-and-leave-evicted",
            ("transitions.requeue", "releases.evicted"),
            job_waits,
            reserve_and_leave_evicted,
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
            then=grow,
        ),
        Row(
            "say-why-it-waits",
            ("reservation.pending_patch", "workload.report_pending"),
            job_waits,
            status(lambda one: one.set(ConditionType.QUOTA_RESERVED, False, Reason.PENDING_EVALUATION, "m")),
            {**_STOPPED, "LocalQueues": {"lq": _queue(admitted=0, cpu=0, pending=1)}},
        ),
    ),
    "evictions": (
        Row(
            "evict-preempted",
            ("transitions.preempt", "transitions.evict"),
            job_preemptible,
            status(lambda one: one.preempt(Reason.IN_CLUSTER_QUEUE, "m")),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True Preempted"},
            preempt,
        ),
        Row(
            "evict-for-node-failures",
            ("transitions.evict",),
            job_runs,
            status(lambda one: one.evict(Reason.NODE_FAILURES, "its node is gone")),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        Row(
            "evict-job-that-runs-with-its-fewest-pods",
            ("transitions.evict",),
            job_runs_with_fewest_pods,
            status(lambda one: one.evict(Reason.NODE_FAILURES, "its node is gone")),
            {
                "Admitted": "True Admitted",
                "Evicted": _FORMERLY_EVICTED,
                "admission": [("main", 1, ["cpu"], [("cpu", 1000)])],
                "job": "running",
            },
            manners=(Manner.MERGE_PATCH,),
        ),
        Row(
            "evict-and-say-no-more",
            ("transitions.requeue", "releases.evicted"),
            job_runs,
            status(_evict_only),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        Row(
            "evict-for-pods-not-ready",
            ("transitions.evict", "workload.evict_after_pods_ready_timeout", "workload.end_backoff"),
            job_runs,
            status(_timed_out),
            {
                **_RUNS,
                "Evicted": _FORMERLY_EVICTED,
                "Requeued": "True BackoffFinished",
                "requeueState": (1, False),
            },
        ),
        Row(
            "evict-as-deactivated-though-active",
            ("transitions.evict", "workload.end_backoff"),
            job_runs,
            status(lambda one: one.evict(Reason.DEACTIVATED, "m", "Mine")),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True Reactivated"},
        ),
        Row(
            "evict-and-release-at-once",
            ("transitions.evict", "transitions.requeue", "transitions.release", "transitions.not_started"),
            job_runs,
            status(_evicted_and_released),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        Row(
            "deactivation-target",
            ("workload.deactivate_after_execution_limit", "workload.set_inactive", "workload.evict_inactive"),
            job_runs,
            status(
                lambda one: one.set(
                    ConditionType.DEACTIVATION_TARGET,
                    True,
                    Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
                    "too long",
                )
            ),
            {**_STOPPED, "active": False, "Evicted": "True DeactivatedDueToMaximumExecutionTimeExceeded"},
        ),
        Row(
            "deactivate",
            ("workload.set_inactive", "workload.evict_inactive"),
            job_runs,
            spec(active=False),
            {**_STOPPED, "active": False, "Evicted": "True Deactivated"},
        ),
        Row(
            "reactivate",
            ("workload.end_backoff",),
            job_deactivated,
            spec(active=True),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True Reactivated"},
        ),
    ),
    "releases": (
        _alone(
            "release-after-eviction",
            ("transitions.requeue", "transitions.release", "releases.evicted"),
            alone_evicted,
            status(_requeue(may_return=True)),
            {**_ADMITTED, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        _alone(
            "release-without-return",
            ("transitions.requeue", "transitions.release"),
            alone_evicted,
            status(_requeue(may_return=False)),
            {**_WAITS, "Evicted": "True NodeFailures", "Requeued": "False NodeFailures"},
        ),
        Row(
            "release",
            ("transitions.release", "transitions.end_admission", "workload.leave_stopped_queue"),
            job_runs,
            status(lambda one: one.release(Reason.PENDING, "released")),
            _RUNS,
        ),
        _alone(
            "release-without-job",
            ("transitions.release", "workload.leave_stopped_queue"),
            alone_admitted,
            status(lambda one: one.release(Reason.PENDING, "released")),
            _ADMITTED,
        ),
        Row("release-and-leave-admission", ("transitions.release",), job_runs, status(_release_only), _RUNS),
        _alone(
            "release-without-job-and-leave-admission",
            ("transitions.release",),
            alone_admitted,
            status(_release_only),
            _ADMITTED,
        ),
        Row("remove-status", ("transitions.release",), job_runs, remove_status, _RUNS, manners=REMOVALS),
        _alone(
            "remove-status-without-job",
            ("transitions.release",),
            alone_admitted,
            remove_status,
            _ADMITTED,
            manners=REMOVALS,
        ),
        Row(
            "remove-reservation-and-leave-admission",
            ("transitions.end_admission", "workload.report_pending"),
            job_runs,
            remove_reservation_condition,
            _RUNS,
            manners=REMOVALS,
        ),
        _alone(
            "hold",
            ("transitions.release", "releases.on_hold", "serving._back_in_queue"),
            alone_admitted,
            status(lambda one: one.release(Reason.ON_HOLD, "on hold")),
            {**_WAITS, "QuotaReserved": "False OnHold"},
        ),
        Row(
            "hold-a-job-that-is-not-on-hold",
            ("transitions.release", "releases.on_hold"),
            job_runs,
            status(lambda one: one.release(Reason.ON_HOLD, "on hold")),
            _RUNS,
        ),
        Row(
            "say-gated-without-gate",
            ("workload.report_admission_gates",),
            job_runs,
            status(
                lambda one: one.release(Reason.ADMISSION_GATED, "Admission is gated by: example.com/gate")
            ),
            _RUNS,
        ),
    ),
    "checks": (
        Row(
            "check-ready",
            ("provisioning.Case.state",),
            job_held,
            status(_check("Ready")),
            {**_RUNS, "checks": [("Ready", 0)]},
        ),
        Row(
            "evict-and-leave-check-ready",
            ("transitions.requeue",),
            job_checked_and_running,
            status(_evict_only),
            {
                **_RESERVED,
                "Evicted": _FORMERLY_EVICTED,
                "checks": [("Pending", 0)],
                "job": "suspended",
                "LocalQueues": {"lq": {**_queue(admitted=1, cpu=1000), "admittedWorkloads": 0, "used": 0}},
            },
        ),
        Row(
            "check-retry-during-an-eviction",
            ("transitions.requeue", "releases.evicted"),
            job_checked_and_running,
            status(_evicted_and_retried),
            {
                **_RESERVED,
                "Evicted": _FORMERLY_EVICTED,
                "Requeued": "True NodeFailures",
                "checks": [("Pending", 1)],
                "job": "suspended",
            },
            manners=(Manner.MERGE_PATCH,),
        ),
        Row(
            "check-retry",
            ("provisioning.Case.state", "workload.apply_check_states", "transitions.evict"),
            job_held,
            status(_check("Retry")),
            {**_RESERVED, "Requeued": "True BackoffFinished", "checks": [("Pending", 1)]},
        ),
        Row(
            "check-retry-later",
            ("provisioning.Case.state", "workload.delay_retry", "workload.end_backoff"),
            job_held,
            status(_check("Retry", requeueAfterSeconds=1)),
            {**_RESERVED, "Requeued": "True BackoffFinished", "checks": [("Pending", 1)]},
        ),
        Row(
            "check-rejected",
            (
                "provisioning.Case.state",
                "workload.apply_check_states",
                "workload.set_inactive",
                "workload.evict_inactive",
            ),
            job_held,
            status(_check("Rejected")),
            {**_STOPPED, "active": False, "Evicted": "True DeactivatedDueToAdmissionCheck"},
        ),
    ),
    "ends": (
        Row(
            "finish",
            ("transitions.finish", "releases.job_finished", "releases.workload_finished"),
            job_runs,
            status(lambda one: one.finish(Reason.SUCCEEDED, "done")),
            {"Finished": "True Succeeded", "finalizer": False, "job": "suspended"},
        ),
        Row(
            "finish-before-admission",
            ("transitions.finish", "releases.out_of_sync"),
            job_waits,
            status(lambda one: one.finish(Reason.FAILED, "never tried")),
            {"Finished": "True Failed", "finalizer": False, "job": "suspended"},
        ),
        _alone(
            "finish-without-job",
            ("transitions.finish", "workload.finish_orphan", "serving._release"),
            alone_admitted,
            status(lambda one: one.finish(Reason.SUCCEEDED, "done")),
            {"Finished": "True Succeeded"},
        ),
    ),
    "returns": (
        Row(
            "backoff",
            ("workload.evict_after_pods_ready_timeout", "workload.end_backoff"),
            job_waits,
            status(_parked_for_a_while),
            {**_STOPPED, "Requeued": "True BackoffFinished", "requeueState": (1, False)},
        ),
        Row(
            "backoff-while-quota-is-held",
            ("workload.delay_retry", "workload.end_backoff"),
            job_runs,
            status(_backoff),
            {**_RUNS, "requeueState": (1, False)},
        ),
        Row(
            "parked-for-a-cluster-queue-that-is-on",
            ("workload.requeue_after_queue_restart",),
            job_waits,
            status(_parked(Reason.CLUSTER_QUEUE_STOPPED)),
            {**_RUNS, "Requeued": "True ClusterQueueRestarted"},
            then=grow,
        ),
        Row(
            "parked-for-a-local-queue-that-is-on",
            ("workload.requeue_after_queue_restart",),
            job_waits,
            status(_parked(Reason.LOCAL_QUEUE_STOPPED)),
            {**_RUNS, "Requeued": "True LocalQueueRestarted"},
            then=grow,
        ),
        _alone("take-gate-off", ("job._gates_lifted",), alone_gated, ungate, _ADMITTED),
        _alone(
            "raise-priority",
            ("priority_class.decide", "job._priority_changed"),
            two_wait,
            spec(priority=10),
            {**_ADMITTED, "priority": 10, "ClusterQueue": _queue(admitted=1, pending=1, cpu=1000)},
            then=lambda stage: grow(stage, 1),
        ),
        Row(
            "refer-to-priority-class",
            ("priority_class.decide", "job._priority_changed"),
            job_waits_without_priority_class,
            refer_to_priority_class,
            {**_STOPPED, "priority": 10, "ClusterQueue": _queue(admitted=0, cpu=0, pending=1)},
            cause=label_with_priority_class,
        ),
        _alone(
            "move-to-another-queue",
            ("job._suspended",),
            alone_closed,
            spec(queueName="lq"),
            {**_ADMITTED, "queue": "lq"},
        ),
    ),
    "pods": (
        Row(
            "pods-not-ready-though-they-are",
            ("transitions.pods_ready", "job._pods_ready"),
            job_runs,
            status(lambda one: one.set(ConditionType.PODS_READY, False, Reason.WAIT_FOR_START, "m")),
            _RUNS,
            nothing,
        ),
        _alone(
            "pods-ready",
            ("transitions.pods_ready", "job._pods_ready"),
            alone_admitted,
            status(lambda one: one.pods_ready(admitted=True, ready=True)),
            {**_ADMITTED, "PodsReady": "True Started"},
        ),
        _alone(
            "reclaim",
            ("job._reclaim",),
            two_pods_admitted,
            status(_reclaim),
            {"reclaimable": [("main", 1)], "ClusterQueue": _queue(admitted=2, cpu=2000)},
        ),
        _alone(
            "wait-for-replacement",
            ("members.replaced",),
            alone_waits,
            status(_replacing(True)),
            {
                **_WAITS,
                "WaitingForReplacementPods": "True PodsFailed",
                "ClusterQueue": _queue(admitted=0, cpu=0),
            },
            then=grow,
        ),
        _alone(
            "replaced",
            ("members.replaced",),
            alone_replacing,
            status(_replacing(False)),
            {**_ADMITTED, "WaitingForReplacementPods": "False PodsReady"},
        ),
        Row(
            "bookkeeping",
            ("transitions.accumulate", "workload.record_execution_time"),
            job_runs,
            status(_bookkeeping),
            {**_RUNS, "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
        ),
    ),
}
"""By topic."""

DRAWN: Final[Mapping[str, Change]] = {
    row.name: row.change
    for topic, rows in TABLE.items()
    for row in rows
    if topic != "checks" and row.change is not ungate and row.manners == tuple(Manner)
}
"""What sequences of writes are drawn from: all that makes sense of any Workload, in every manner."""

NOT_PLAYED: Final[Mapping[str, str]] = {
    "one_workload._create": "creates the Workload",
    "members.name_taken": "writes members of groups, not Workloads",
    "prebuilt.refuse_group": "writes members of groups, not Workloads",
    "members.excess": "writes members of groups, not Workloads",
    "members.owners": "writes metadata alone: members become owners",
    "members.awaited": "writes members of groups, not Workloads",
    "releases.workload_deleted": "removes the finalizer alone",
    "excess.end_begun_stop": "writes jobs, not Workloads",
    "excess.stop_running": "writes jobs, not Workloads",
    "releases.gone": "writes what `_finish` and the removal of the finalizer write",
    "job._elsewhere": "writes no Workload",
    "job._skipped": "writes no Workload",
    "job._nested": "writes no Workload",
    "job._unmanaged": "writes no Workload",
}
"""Writers that no row plays, each with the reason."""
