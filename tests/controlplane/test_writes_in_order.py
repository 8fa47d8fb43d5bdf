"""Stories of the semantics: all writes and events about a job, in order.

Each story has a ClusterQueue, a LocalQueue and a Job of one name. All stories run concurrently. Two stories
are in other modules: pods that do not become ready in test_policies.py, which needs another configuration,
and a restarted manager in test_installation.py, which needs its own cluster.
"""

from typing import Any

from admitq_api.json_objects import value_at
from tests.controlplane.pods_of_jobs import hold_pods, succeed_pods
from tests.controlplane.stage import Stage, run_concurrently
from tests.controlplane.writes import (
    ADMITTED,
    NOT_READY,
    PODS_READY,
    UNRESERVED,
    Story,
    Writes,
    queued,
    released,
    stopped,
    written,
)

TOLERATES = {"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}
READY = {
    "ClusterQueue": "Active=True Ready Can admit new workloads",
    "LocalQueue": "Active=True Ready Can submit new workloads to localQueue",
}
UNCHECKED = "Admitted=False UnsatisfiedAdmissionChecks The workload has not all checks ready"
STARTS = "nodeSelector injected; tolerations injected; labels injected; suspend=false"
RESTORED = "nodeSelector restored; tolerations restored; labels restored"


async def test_writes_and_events_of_job_stories_occur_in_the_prescribed_order(stage: Stage) -> None:
    for flavor in ("f", "spot"):
        await stage.flavor(flavor, nodeLabels={"kubernetes.io/os": "linux"}, tolerations=[TOLERATES])
    for name, value in (("low", 1), ("high", 9)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    await stage.active_check("check")
    async with written(stage) as writes:
        await run_concurrently(
            plain=_job_without_checks(stage, writes),
            checked=_job_with_a_check(stage, writes),
            preempted=_preemption(stage, writes),
            drained=_drained_queue(stage, writes),
            rejected=_rejected_check(stage, writes),
            deleted=_deleted_cluster_queue(stage, writes),
        )


async def _queues(stage: Stage, name: str, **spec: Any) -> None:
    """Create a ClusterQueue and a LocalQueue of its name, and wait until each is active."""
    kinds = stage.kinds
    await stage.cluster_queue(name, **spec)
    await stage.until_active(kinds.cluster_queues, stage.own(name))
    await stage.local_queue(name, cluster_queue=name)
    await stage.until_active(kinds.local_queues, name)


def _queues_created(*names: str) -> list[str]:
    """The writes until the queues of these names are active."""
    return [
        f"~{kind} {name}: {change}"
        for name in names
        for kind in ("ClusterQueue", "LocalQueue")
        for change in ("created; finalizer" if kind == "ClusterQueue" else "created", READY[kind])
    ]


def _reserved(stage: Stage, queue: str) -> str:
    return f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own(queue)}"


def _admitted(stage: Stage, name: str) -> list[list[str]]:
    """The writes from the reservation to ready pods, without checks."""
    return [
        [f"Workload {name}: admission; {_reserved(stage, name)}; {ADMITTED}; {NOT_READY}"],
        [f"Job {name}: {STARTS}"],
        [f"Workload {name}: {PODS_READY}"],
    ]


def _stopped(name: str, message: str, *, requeued: bool, reason: str) -> list[list[str]]:
    """The writes from the stop of an evicted running Job until it is requeued."""
    release = released(name, message, requeued=requeued, reason=reason, ready=True)
    return [*stopped(name, restored=RESTORED), *release]


async def _events(stage: Stage, name: str) -> dict[str, str]:
    """The expected events about a Job, by their kind."""
    workload = await stage.workload(name)
    key, queue = f"{stage.namespace}/{workload['metadata']['name']}", stage.own(name)
    return {
        "created": f"Job {name}: Normal CreatedWorkload Created Workload: {key}",
        "reserved": f"Workload {name}: Normal QuotaReserved Quota reserved in ClusterQueue {queue}, "
        "wait time since queued was Ns",
        "admitted": f"Workload {name}: Normal Admitted Admitted by ClusterQueue {queue}, "
        "wait time since reservation was Ns",
        "started": f"Job {name}: Normal Started Admitted by clusterQueue {queue}",
        "finished": f"Job {name}: Normal FinishedWorkload Workload '{key}' is declared finished",
    }


async def _job_without_checks(stage: Stage, writes: Writes) -> None:
    """One write reserves quota and admits. Then the Job starts and ends, and its quota is released."""
    await _queues(stage, "plain")
    await stage.job("plain", queue="plain")
    await stage.until_condition("PodsReady", "Started", "plain")
    await succeed_pods(stage, "plain")
    await stage.until_finished("plain")
    expected = await _events(stage, "plain")
    steps = [
        _queues_created("plain"),
        *queued("plain"),
        *_admitted(stage, "plain"),
        ["Workload plain: Finished=True Succeeded Reached expected number of succeeded pods"],
        ["Workload plain: finalizer removed"],
    ]
    events = [expected[one] for one in ("created", "reserved", "admitted", "started", "finished")]
    await writes.until(Story(steps, {"plain": events}))


async def _until_checked(stage: Stage, name: str) -> None:
    """Wait until a Workload has quota and its check is listed."""
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", name)

    async def listed() -> int:
        return len(value_at(await stage.workload(name), ("status", "admissionChecks"), []))

    await stage.until(listed, 1, what=f"the check of {name}")


async def _set_check(stage: Stage, name: str, state: str, message: str) -> None:
    """Set the state of a Workload's only check, as the check's controller would."""

    def set_state(status: dict[str, Any]) -> None:
        [check] = status["admissionChecks"]
        status["admissionChecks"] = [{**check, "state": state, "message": message}]

    workload = (await stage.workload(name))["metadata"]["name"]
    await stage.apply_transition(workload, lambda change: set_state(change.status))


def _with_check(stage: Stage) -> dict[str, Any]:
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": stage.own("check")}]}}


def _checked(stage: Stage, name: str) -> list[list[str]]:
    """The writes from the creation of a Job until it has quota and waits for its check."""
    return [
        *queued(name),
        [
            f"~Workload {name}: check Pending",
            f"Workload {name}: admission; {_reserved(stage, name)}; {UNCHECKED}; {NOT_READY}",
        ],
    ]


async def _job_with_a_check(stage: Stage, writes: Writes) -> None:
    """Quota is reserved, a Pending check has an event on the Job, and a Ready check admits."""
    await _queues(stage, "checked", **_with_check(stage))
    await stage.job("checked", queue="checked")
    await _until_checked(stage, "checked")
    await _set_check(stage, "checked", "Pending", "soon")
    event = ("UpdatedAdmissionCheck", f"{stage.own('check')}: soon")
    await stage.until_event("Job", "checked", *event)
    await _set_check(stage, "checked", "Ready", "here")
    await stage.until_condition("PodsReady", "Started", "checked")
    expected = await _events(stage, "checked")
    steps = [
        _queues_created("checked"),
        *_checked(stage, "checked"),
        ["Workload checked: check Pending soon"],
        ["Workload checked: check Ready here"],
        [f"Workload checked: {ADMITTED}"],
        [f"Job checked: {STARTS}"],
        [f"Workload checked: {PODS_READY}"],
    ]
    events = [expected["created"], expected["reserved"], f"Job checked: Normal {' '.join(event)}"]
    events += [expected["admitted"], expected["started"]]
    await writes.until(Story(steps, {"checked": events}))


async def _preemption(stage: Stage, writes: Writes) -> None:
    """The target is evicted and stopped, the preemptor gets its quota, and the target is readmitted."""
    names, labels = stage.names, stage.names.priority_class
    await _queues(stage, "victim", cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.job("victim", queue="victim", labels={labels: stage.own("low")})
    await stage.until_condition("PodsReady", "Started", "victim")
    # The report of the preemptor would be dropped if the target released its quota before the report was due.
    await hold_pods(stage, "victim", held=True)
    await stage.job("taker", queue="victim", labels={labels: stage.own("high")})
    await stage.until_condition("QuotaReserved", "WaitingForPreemptedWorkloads", "taker")
    await hold_pods(stage, "victim", held=False)
    await stage.until_condition("PodsReady", "Started", "taker")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "victim")
    await succeed_pods(stage, "taker")
    await stage.until_condition("PodsReady", "Started", "victim")
    taker, victim, queue = await stage.workload("taker"), await stage.workload("victim"), stage.own("victim")
    preempted_for = (
        f"Preempted to accommodate a workload (UID: {taker['metadata']['uid']}, "
        f"JobUID: {taker['metadata']['labels'][names.job_uid]}) due to prioritization in the ClusterQueue; "
        f"preemptor path: /{queue}; preemptee path: /{queue}"
    )
    insufficient = (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor "
        f"{stage.own('f')}, 1 more needed"
    )
    waits = f"WaitingForPreemptedWorkloads {insufficient}. Pending the preemption of 1 workload(s)"
    lacking = (
        f"cpu in flavor {stage.own('f')}: needs 1, 0 of 1 free, limited by the quota of ClusterQueue {queue}"
    )
    of_waiting_victim = f"Waits for unused quota in ClusterQueue {queue}: {lacking}"
    of_waiting_taker = f"Waits for 1 preempted workload to stop: {lacking}"
    previously = f"=False QuotaReserved Previously: {preempted_for}"
    steps = [
        _queues_created("victim"),
        *queued("victim"),
        *_admitted(stage, "victim"),
        *queued("taker"),
        [
            (
                f"Workload victim: Evicted=True Preempted {preempted_for}; "
                f"Preempted=True InClusterQueue {preempted_for}; evictions Preempted 1"
            ),
            f"~Workload taker: QuotaReserved=False {waits}; {UNRESERVED}; {NOT_READY}",
        ],
        *_stopped("victim", preempted_for, requeued=True, reason="Preempted"),
        [f"Workload taker: admission; {_reserved(stage, 'victim')}; {ADMITTED}"],
        [f"~Workload victim: QuotaReserved=False WaitingForQuota {insufficient}"],
        [f"Job taker: {STARTS}"],
        [f"Workload taker: {PODS_READY}"],
        ["Workload taker: Finished=True Succeeded Reached expected number of succeeded pods"],
        ["~Workload taker: finalizer removed"],
        [
            (
                f"Workload victim: admission; Evicted{previously}; Preempted{previously}; "
                f"{_reserved(stage, 'victim')}; {ADMITTED}"
            )
        ],
        [f"Job victim: {STARTS}"],
        [f"Workload victim: {PODS_READY}"],
    ]
    priorities = (
        "preemptor effective priority: 9 (base: 9, boost: 0); "
        "preemptee effective priority: 1 (base: 1, boost: 0)"
    )
    key, uid = f"{stage.namespace}/{victim['metadata']['name']}", victim["metadata"]["uid"]
    of_victim, of_taker = await _events(stage, "victim"), await _events(stage, "taker")
    admission_events = [of_victim[one] for one in ("created", "reserved", "admitted", "started")]
    await writes.until(
        Story(
            steps,
            {
                "victim": [
                    *admission_events,
                    f"Workload victim: Normal Preempted {preempted_for}; {priorities}",
                    f"Workload victim: Normal EvictedDueToPreempted {preempted_for}",
                    f"Job victim: Normal Stopped {preempted_for}",
                    f"~Job victim: Warning PendingEvaluation {preempted_for}",
                    f"~Job victim: Warning WaitingForQuota {of_waiting_victim}",
                    f"Workload victim: Warning WaitingForQuota {insufficient}",
                ],
                "taker": [
                    of_taker["created"],
                    (
                        f"Workload taker: Normal PreemptedWorkload Preempted workload {key} (UID: {uid}) in "
                        f"ClusterQueue {queue}; {priorities}"
                    ),
                    f"~Job taker: Warning WaitingForPreemptedWorkloads {of_waiting_taker}",
                    f"~Workload taker: Warning {waits}",
                    *(of_taker[one].replace(stage.own("taker"), queue) for one in ("reserved", "admitted")),
                    of_taker["started"].replace(stage.own("taker"), queue),
                    of_taker["finished"],
                ],
            },
        )
    )


async def _drained_queue(stage: Stage, writes: Writes) -> None:
    """HoldAndDrain evicts the running Job, which waits until the ClusterQueue is resumed."""
    await _queues(stage, "drained")
    await stage.job("drained", queue="drained")
    await stage.until_condition("PodsReady", "Started", "drained")
    queue = stage.own("drained")
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.until_condition("QuotaReserved", "Suspended", "drained")
    await stage.until_active(stage.kinds.cluster_queues, queue, active=False)
    await stage.until_active(stage.kinds.local_queues, "drained", active=False)
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "None"}})
    await stage.until_condition("PodsReady", "Started", "drained")
    message = "The ClusterQueue is stopped"
    back = "ClusterQueueRestarted The ClusterQueue was restarted after being stopped"
    steps = [
        _queues_created("drained"),
        *queued("drained"),
        *_admitted(stage, "drained"),
        [
            f"Workload drained: Evicted=True ClusterQueueStopped {message}; evictions ClusterQueueStopped 1",
            "~ClusterQueue drained: Active=False Stopped Can't admit new workloads: is stopped.",
            (
                "~LocalQueue drained: Active=False ClusterQueueIsInactive "
                "Can't submit new workloads to clusterQueue"
            ),
        ],
        *_stopped("drained", message, requeued=False, reason="ClusterQueueStopped"),
        [f"Workload drained: QuotaReserved=False Suspended ClusterQueue {queue} is inactive"],
        [f"~{kind} drained: {READY[kind]}" for kind in ("ClusterQueue", "LocalQueue")],
        [f"Workload drained: Requeued=True {back}"],
        [
            (
                f"Workload drained: admission; Evicted=False QuotaReserved Previously: {message}; "
                f"{_reserved(stage, 'drained')}; {ADMITTED}"
            )
        ],
        [f"Job drained: {STARTS}"],
        [f"Workload drained: {PODS_READY}"],
    ]
    await writes.until(Story(steps))


async def _rejected_check(stage: Stage, writes: Writes) -> None:
    """The Workload is deactivated and evicted, and its checks are reset."""
    await _queues(stage, "rejected", **_with_check(stage))
    await stage.job("rejected", queue="rejected")
    await _until_checked(stage, "rejected")
    await _set_check(stage, "rejected", "Rejected", "no")
    await stage.until_condition("QuotaReserved", "Deactivated", "rejected")
    target = f'AdmissionCheck in Rejected state: "{stage.own("check")}" (no)'
    message = f"The workload is deactivated due to {target}"
    reason = "DeactivatedDueToAdmissionCheck"
    steps = [
        _queues_created("rejected"),
        *_checked(stage, "rejected"),
        ["Workload rejected: check Rejected no"],
        [f"Workload rejected: DeactivationTarget=True AdmissionCheck {target}"],
        ["Workload rejected: active=False"],
        [
            (
                f"Workload rejected: DeactivationTarget removed; Evicted=True {reason} {message}; "
                "check Pending Reset to Pending after eviction. Previously: Rejected; "
                "evictions Deactivated AdmissionCheck 1"
            )
        ],
        *released("rejected", message, requeued=False, reason=reason, ready=False),
        ["Workload rejected: QuotaReserved=False Deactivated The workload is deactivated"],
    ]
    expected = await _events(stage, "rejected")
    events = [
        expected["created"],
        expected["reserved"],
        f"Workload rejected: Warning AdmissionCheckRejected Deactivated due to {target}",
        f"Workload rejected: Normal EvictedDueTo{reason} {message}",
        f"~Job rejected: Warning PendingEvaluation {message}",
        "~Job rejected: Warning Deactivated The workload is deactivated",
    ]
    await writes.until(Story(steps, {"rejected": events}))


async def _deleted_cluster_queue(stage: Stage, writes: Writes) -> None:
    """The ClusterQueue remains while a Workload runs in it. One that waits for a check loses its quota."""
    spot = {"name": stage.own("check"), "onFlavors": [stage.own("spot")]}
    checks = {"admissionChecksStrategy": {"admissionChecks": [spot]}}
    await _queues(stage, "deleted", cpu=1, flavors=("f", "spot"), **checks)
    await stage.job("deleted", queue="deleted")
    await stage.until_condition("PodsReady", "Started", "deleted")
    await stage.job("holds", queue="deleted")
    await _until_checked(stage, "holds")
    queue = stage.own("deleted")
    await stage.client.delete(stage.kinds.cluster_queues, queue)
    await stage.until_condition("QuotaReserved", "Suspended", "holds")
    # Statuses of queues are written at most once a second: the test waits for these.
    await stage.until_active(stage.kinds.cluster_queues, queue, active=False)
    await stage.until_active(stage.kinds.local_queues, "deleted", active=False)
    await succeed_pods(stage, "deleted")
    await stage.until_condition("QuotaReserved", "Misconfigured", "holds")
    lost = f"ClusterQueue {queue} is terminating or missing"
    inactive = "Can't submit new workloads to clusterQueue"
    steps = [
        _queues_created("deleted"),
        *queued("deleted"),
        *_admitted(stage, "deleted"),
        *queued("holds"),
        [f"Workload holds: admission; {_reserved(stage, 'deleted')}; {UNCHECKED}; {NOT_READY}"],
        ["Workload holds: check Pending"],
        ["ClusterQueue deleted: deletion begins"],
        [
            (
                "~ClusterQueue deleted: Active=False Terminating "
                "Can't admit new workloads; clusterQueue is terminating"
            ),
            f"~LocalQueue deleted: Active=False ClusterQueueIsInactive {inactive}",
            f"Workload holds: admission removed; QuotaReserved=False Misconfigured {lost}; {UNRESERVED}",
        ],
        ["Workload holds: no checks"],
        [f"Workload holds: QuotaReserved=False Suspended ClusterQueue {queue} is inactive"],
        ["Workload deleted: Finished=True Succeeded Reached expected number of succeeded pods"],
        ["~Workload deleted: finalizer removed", "ClusterQueue deleted: deleted"],
        [
            f"LocalQueue deleted: Active=False ClusterQueueDoesNotExist {inactive}",
            f"Workload holds: QuotaReserved=False Misconfigured ClusterQueue {queue} doesn't exist",
        ],
    ]
    await writes.until(Story(steps))
