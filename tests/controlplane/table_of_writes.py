"""All writes of admitq to Workloads, made by another program.

Each row has a scene, the change that the other program writes, and the cause for which admitq writes the
same. `test_other_programs.py` plays each row in every manner, and compares the ends. Rows about slices of
elastic jobs, prebuilt Workloads and retention are in `further_writes.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admitq_api.conditions import ConditionType, Reason
from tests.controlplane.manners import Change, Manner
from tests.controlplane.stage import Stage
from tests.controlplane.workload_changes import (
    REMOVALS,
    count_evictions,
    evict_and_release,
    evict_and_retry,
    evict_only,
    park,
    park_for_a_while,
    reclaim_pods,
    refer_to_priority_class,
    release_only,
    remove_reservation_condition,
    remove_status,
    requeue,
    reserve,
    reserve_and_leave_evicted,
    set_backoff,
    set_check_state,
    set_replacing,
    spec,
    status,
    time_out,
    ungate,
)
from tests.controlplane.workload_scenes import (
    ALONE,
    JOB,
    Step,
    alone_admitted,
    alone_closed,
    alone_evicted,
    alone_gated,
    alone_lost,
    alone_replacing,
    alone_waits,
    grow,
    job_checked,
    job_checked_and_running,
    job_deactivated,
    job_held,
    job_preemptible,
    job_runs,
    job_runs_with_fewest_pods,
    job_waits,
    job_waits_without_priority_class,
    label_with_priority_class,
    nothing,
    preempt,
    two_pods_admitted,
    two_wait,
)


@dataclass(frozen=True)
class Row:
    """One write."""

    name: str
    writers: tuple[str, ...]
    """The functions of admitq that make this write, with their modules."""
    scene: Step
    change: Change
    end: Mapping[str, Any]
    """Some facts of the end; the play waits for them."""
    cause: Step | None = None
    """The cause of the same write by admitq; None if it never makes it: the merge patch is the reference."""
    then: Step = field(default=nothing)
    """The steps after the write."""
    subject: str = JOB
    written: Callable[[Stage], Awaitable[Mapping[str, Any]]] | None = None
    """A function that finds the written Workload; None for the only one of the subject."""
    manners: tuple[Manner, ...] = tuple(Manner)
    """The manners in which another program can make the write."""

    def __str__(self) -> str:
        return self.name


def _alone(name: str, writers: tuple[str, ...], scene: Step, change: Change, end: Any, **more: Any) -> Row:
    return Row(name, writers, scene, change, end, subject=ALONE, **more)


_RESERVED: Final = {"QuotaReserved": "True QuotaReserved"}
_ADMITTED: Final = {**_RESERVED, "Admitted": "True Admitted"}
_RUNS: Final = {**_ADMITTED, "PodsReady": "True Started", "job": "running"}
_WAITS: Final = {"Admitted": "False NoReservation", "admission": None}
_STOPPED: Final = {**_WAITS, "job": "suspended"}
# Until its reason is reported, a stopped Workload has that of the release.
_INACTIVE: Final = {**_STOPPED, "active": False, "QuotaReserved": "False Deactivated"}
_FORMERLY_EVICTED: Final = "False QuotaReserved"


def _queue(*, admitted: int, cpu: int, pending: int = 0) -> dict[str, int]:
    """The expected status of a ClusterQueue at the end."""
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
            ("admission_patches.reservation_patch", "workload.admit"),
            job_waits,
            reserve(admit=False),
            _RUNS,
            grow,
        ),
        Row("admit", ("admission_patches.reservation_patch",), job_waits, reserve(admit=True), _RUNS, grow),
        Row(
            "reserve-before-checks",
            ("admission_patches.reservation_patch", "workload.sync_checks", "workload.admit"),
            job_checked,
            reserve(admit=False),
            {**_RESERVED, "Admitted": "False UnsatisfiedAdmissionChecks", "checks": [("Pending", 0)]},
            grow,
        ),
        _alone(
            "admit-without-job",
            (
                "admission_patches.reservation_patch",
                "transitions.add_pods_ready",
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
            ("admission_patches.reservation_patch", "workload.admit"),
            alone_lost,
            reserve(admit=False),
            _ADMITTED,
        ),
        _alone(
            "reserve-without-cluster-queue",
            ("admission_patches.reservation_patch", "workload.admit"),
            alone_lost,
            reserve(admit=False, queue="missing"),
            _ADMITTED,
        ),
        Row(
            "admit-without-reservation",
            ("transitions.end_admission", "workload.report_pending"),
            job_waits,
            status(lambda one: one.set_condition(ConditionType.ADMITTED, True, Reason.ADMITTED, "m")),
            {
                **_STOPPED,
                "ClusterQueue": _queue(admitted=0, cpu=0, pending=1),
                "LocalQueues": {"lq": _queue(admitted=0, cpu=0, pending=1)},
            },
        ),
        Row(
            "reserve-and-leave-evicted",
            ("transitions.requeue", "quota_release.handle_eviction"),
            job_waits,
            reserve_and_leave_evicted,
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
            then=grow,
        ),
        Row(
            "say-why-it-waits",
            ("admission_patches.pending_patch", "workload.report_pending"),
            job_waits,
            status(
                lambda one: one.set_condition(
                    ConditionType.QUOTA_RESERVED, False, Reason.PENDING_EVALUATION, "m"
                )
            ),
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
            ("transitions.requeue", "quota_release.handle_eviction"),
            job_runs,
            status(evict_only),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        Row(
            "evict-for-pods-not-ready",
            ("transitions.evict", "workload.evict_after_pods_ready_timeout", "workload.end_backoff"),
            job_runs,
            status(time_out),
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
            (
                "transitions.evict",
                "transitions.requeue",
                "transitions.release",
                "transitions.reset_pods_ready",
            ),
            job_runs,
            status(evict_and_release),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        Row(
            "deactivation-target",
            ("workload.deactivate_after_execution_limit", "workload.set_inactive", "workload.evict_inactive"),
            job_runs,
            status(
                lambda one: one.set_condition(
                    ConditionType.DEACTIVATION_TARGET,
                    True,
                    Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
                    "too long",
                )
            ),
            {**_INACTIVE, "Evicted": "True DeactivatedDueToMaximumExecutionTimeExceeded"},
        ),
        Row(
            "deactivate",
            ("workload.set_inactive", "workload.evict_inactive"),
            job_runs,
            spec(active=False),
            {**_INACTIVE, "Evicted": "True Deactivated"},
        ),
        Row(
            "reactivate",
            ("workload.end_backoff",),
            job_deactivated,
            spec(active=True),
            {**_RUNS, "Evicted": _FORMERLY_EVICTED, "Requeued": "True Reactivated"},
        ),
    ),
    "quota_release": (
        _alone(
            "release-after-eviction",
            ("transitions.requeue", "transitions.release", "quota_release.handle_eviction"),
            alone_evicted,
            status(requeue(may_return=True)),
            {**_ADMITTED, "Evicted": _FORMERLY_EVICTED, "Requeued": "True NodeFailures"},
        ),
        _alone(
            "release-without-return",
            ("transitions.requeue", "transitions.release"),
            alone_evicted,
            status(requeue(may_return=False)),
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
        Row("release-and-leave-admission", ("transitions.release",), job_runs, status(release_only), _RUNS),
        _alone(
            "release-without-job-and-leave-admission",
            ("transitions.release",),
            alone_admitted,
            status(release_only),
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
            ("transitions.release", "quota_release.sync_on_hold", "serving._release_quota"),
            alone_admitted,
            status(lambda one: one.release(Reason.ON_HOLD, "on hold")),
            {**_WAITS, "QuotaReserved": "False OnHold"},
        ),
        Row(
            "hold-a-job-that-is-not-on-hold",
            ("transitions.release", "quota_release.sync_on_hold"),
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
            ("provisioning.ProvisioningCase.state",),
            job_held,
            status(set_check_state("Ready")),
            {**_RUNS, "checks": [("Ready", 0)]},
        ),
        Row(
            "evict-and-leave-check-ready",
            ("transitions.requeue",),
            job_checked_and_running,
            status(evict_only),
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
            ("transitions.requeue", "quota_release.handle_eviction"),
            job_checked_and_running,
            status(evict_and_retry),
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
            ("provisioning.ProvisioningCase.state", "workload.apply_check_states", "transitions.evict"),
            job_held,
            status(set_check_state("Retry")),
            {**_RESERVED, "Requeued": "True BackoffFinished", "checks": [("Pending", 1)]},
        ),
        Row(
            "check-retry-later",
            ("provisioning.ProvisioningCase.state", "workload.delay_retry", "workload.end_backoff"),
            job_held,
            status(set_check_state("Retry", requeueAfterSeconds=1)),
            {**_RESERVED, "Requeued": "True BackoffFinished", "checks": [("Pending", 1)]},
        ),
        Row(
            "check-rejected",
            (
                "provisioning.ProvisioningCase.state",
                "workload.apply_check_states",
                "workload.set_inactive",
                "workload.evict_inactive",
            ),
            job_held,
            status(set_check_state("Rejected")),
            {**_INACTIVE, "Evicted": "True DeactivatedDueToAdmissionCheck"},
        ),
    ),
    "ends": (
        Row(
            "finish",
            ("transitions.finish", "quota_release.finish_with_job", "quota_release.handle_finished_workload"),
            job_runs,
            status(lambda one: one.finish(Reason.SUCCEEDED, "done")),
            {"Finished": "True Succeeded", "finalizer": False, "job": "suspended"},
        ),
        Row(
            "finish-before-admission",
            ("transitions.finish", "quota_release.end_out_of_sync_workload"),
            job_waits,
            status(lambda one: one.finish(Reason.FAILED, "never tried")),
            {"Finished": "True Failed", "finalizer": False, "job": "suspended"},
        ),
        _alone(
            "finish-without-job",
            ("transitions.finish", "workload.finish_orphan", "serving._release_workload"),
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
            status(park_for_a_while),
            {**_STOPPED, "Requeued": "True BackoffFinished", "requeueState": (1, False)},
        ),
        Row(
            "backoff-while-quota-is-held",
            ("workload.delay_retry", "workload.end_backoff"),
            job_runs,
            status(set_backoff),
            {**_RUNS, "requeueState": (1, False)},
        ),
        Row(
            "parked-for-a-cluster-queue-that-is-on",
            ("workload.requeue_after_queue_restart",),
            job_waits,
            status(park(Reason.CLUSTER_QUEUE_STOPPED)),
            {**_RUNS, "Requeued": "True ClusterQueueRestarted"},
            then=grow,
        ),
        Row(
            "parked-for-a-local-queue-that-is-on",
            ("workload.requeue_after_queue_restart",),
            job_waits,
            status(park(Reason.LOCAL_QUEUE_STOPPED)),
            {**_RUNS, "Requeued": "True LocalQueueRestarted"},
            then=grow,
        ),
        _alone("take-gate-off", ("job._remove_lifted_gates",), alone_gated, ungate, _ADMITTED),
        _alone(
            "raise-priority",
            ("priority_classes.update_priority", "job._update_priority_class"),
            two_wait,
            spec(priority=10),
            {**_ADMITTED, "priority": 10, "ClusterQueue": _queue(admitted=1, pending=1, cpu=1000)},
            then=lambda stage: grow(stage, 1),
        ),
        Row(
            "refer-to-priority-class",
            ("priority_classes.update_priority", "job._update_priority_class"),
            job_waits_without_priority_class,
            refer_to_priority_class,
            {**_STOPPED, "priority": 10, "ClusterQueue": _queue(admitted=0, cpu=0, pending=1)},
            cause=label_with_priority_class,
        ),
        _alone(
            "move-to-another-queue",
            ("job._handle_suspended_job",),
            alone_closed,
            spec(queueName="lq"),
            {**_ADMITTED, "queue": "lq"},
        ),
    ),
    "pods": (
        Row(
            "pods-not-ready-though-they-are",
            ("transitions.update_pods_ready", "job._report_pods_ready"),
            job_runs,
            status(
                lambda one: one.set_condition(ConditionType.PODS_READY, False, Reason.WAIT_FOR_START, "m")
            ),
            _RUNS,
            nothing,
        ),
        _alone(
            "pods-ready",
            ("transitions.update_pods_ready", "job._report_pods_ready"),
            alone_admitted,
            status(lambda one: one.update_pods_ready(admitted=True, ready=True)),
            {**_ADMITTED, "PodsReady": "True Started"},
        ),
        _alone(
            "reclaim",
            ("job._report_reclaimable_pods",),
            two_pods_admitted,
            status(reclaim_pods),
            {"reclaimable": [("main", 1)], "ClusterQueue": _queue(admitted=2, cpu=2000)},
        ),
        _alone(
            "wait-for-replacement",
            ("members.release_replaced_members",),
            alone_waits,
            status(set_replacing(True)),
            {
                **_WAITS,
                "WaitingForReplacementPods": "True PodsFailed",
                "ClusterQueue": _queue(admitted=0, cpu=0),
            },
            then=grow,
        ),
        _alone(
            "replaced",
            ("members.release_replaced_members",),
            alone_replacing,
            status(set_replacing(False)),
            {**_ADMITTED, "WaitingForReplacementPods": "False PodsReady"},
        ),
        Row(
            "bookkeeping",
            ("transitions.add_execution_time", "workload.record_execution_time"),
            job_runs,
            status(count_evictions),
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
"""The writes of random sequences: those that are possible for any Workload, in every manner."""

NOT_PLAYED: Final[Mapping[str, str]] = {
    "workload_sync._create_workload": "creates the Workload",
    "members.report_name_conflict": "writes members of groups, not Workloads",
    "prebuilt_workloads.stop_mismatched_group": "writes members of groups, not Workloads",
    "members.delete_excess_members": "writes members of groups, not Workloads",
    "members.add_owner_references": "writes metadata alone: members become owners",
    "members.report_awaited_replacements": "writes members of groups, not Workloads",
    "quota_release.handle_deleted_workload": "removes the finalizer alone",
    "workload.remove_false_label": "writes metadata alone: a label that only the webhooks let pass",
    "unadmitted_jobs.finish_begun_stop": "writes jobs, not Workloads",
    "unadmitted_jobs.stop_unadmitted_run": "writes jobs, not Workloads",
    "quota_release.release_workloads_without_job": "writes what `_finish` and removing the finalizer write",
    "job._skip_unselected_namespace": "writes no Workload",
    "job._skip_job_without_pods": "writes no Workload",
    "job._follow_ancestor": "writes no Workload",
    "job._skip_job_without_queue": "writes no Workload",
}
"""Functions of admitq with writes that no row plays, each with the reason."""
