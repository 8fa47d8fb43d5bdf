"""The stories of the semantics: what is written in the life of a job, write by write, and what is told of it.

Each story has its ClusterQueue, its LocalQueue and its Job of one name, and all are told at once. The one of
pods that do not get ready in time is in test_policies.py, for it takes a configuration of its own; the one of
a manager that is restarted in test_installation.py, because no other may run beside it.
"""

from typing import Any

from admitq_api.json_objects import value_at
from tests.controlplane.pods_of_jobs import succeed_pods
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
STARTS = "nodeSelector given; tolerations given; labels given; suspend=false"
TAKEN_BACK = "nodeSelector taken back; tolerations taken back; labels taken back"


async def test_writes_and_events_of_job_stories_occur_in_the_prescribed_order(stage: Stage) -> None:
    for flavor in ("f", "spot"):
        await stage.flavor(flavor, nodeLabels={"kubernetes.io/os": "linux"}, tolerations=[TOLERATES])
    for name, value in (("low", 1), ("high", 9)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    await stage.active_check("check")
    async with written(stage) as writes:
        await run_concurrently(
            plain=_a_job_without_checks(stage, writes),
            checked=_a_job_with_a_check(stage, writes),
            preempted=_a_preemption(stage, writes),
            drained=_a_queue_is_drained(stage, writes),
            rejected=_a_check_is_rejected(stage, writes),
            deleted=_a_cluster_queue_is_deleted(stage, writes),
        )


async def _queues(stage: Stage, name: str, **spec: Any) -> None:
    """A ClusterQueue that admits, and then a LocalQueue of its name."""
    kinds = stage.kinds
    await stage.cluster_queue(name, **spec)
    await stage.until_active(kinds.cluster_queues, stage.own(name))
    await stage.local_queue(name, cluster_queue=name)
    await stage.until_active(kinds.local_queues, name)


def _made(*names: str) -> list[str]:
    """What is written until the queues of these names admit."""
    return [
        f"~{kind} {name}: {said}"
        for name in names
        for kind in ("ClusterQueue", "LocalQueue")
        for said in ("made; finalizer" if kind == "ClusterQueue" else "made", READY[kind])
    ]


def _reserved(stage: Stage, queue: str) -> str:
    return f"QuotaReserved=True QuotaReserved Quota reserved in ClusterQueue {stage.own(queue)}"


def _admitted(stage: Stage, name: str) -> list[list[str]]:
    """What is written from the reservation to pods that are ready, where no check is asked for."""
    return [
        [f"Workload {name}: admission; {_reserved(stage, name)}; {ADMITTED}; {NOT_READY}"],
        [f"Job {name}: {STARTS}"],
        [f"Workload {name}: {PODS_READY}"],
    ]


def _stopped(name: str, message: str, *, requeued: bool, reason: str) -> list[list[str]]:
    """What is written from the stop of an evicted Job that was running until it may be queued again."""
    ends = released(name, message, requeued=requeued, reason=reason, ready=True)
    return [*stopped(name, given=TAKEN_BACK), *ends]


async def _told(stage: Stage, name: str) -> dict[str, str]:
    """What events of the life of a Job say, by their reasons."""
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


async def _a_job_without_checks(stage: Stage, writes: Writes) -> None:
    """One write reserves and admits; the Job starts after it and ends; what it held is given back."""
    await _queues(stage, "plain")
    await stage.job("plain", queue="plain")
    await stage.until_condition("PodsReady", "Started", "plain")
    await succeed_pods(stage, "plain")
    await stage.until_finished("plain")
    told = await _told(stage, "plain")
    steps = [
        _made("plain"),
        *queued("plain"),
        *_admitted(stage, "plain"),
        ["Workload plain: Finished=True Succeeded Reached expected number of succeeded pods"],
        ["Workload plain: finalizer removed"],
    ]
    events = [told[one] for one in ("created", "reserved", "admitted", "started", "finished")]
    await writes.until(Story(steps, {"plain": events}))


async def _until_checked(stage: Stage, name: str) -> None:
    """Wait until a Workload has quota and its check is listed."""
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", name)

    async def listed() -> int:
        return len(value_at(await stage.workload(name), ("status", "admissionChecks"), []))

    await stage.until(listed, 1, what=f"the check of {name}")


async def _set_check(stage: Stage, name: str, state: str, message: str) -> None:
    """State this of a Workload's one check, as the check's controller would."""

    def stated(status: dict[str, Any]) -> None:
        [check] = status["admissionChecks"]
        status["admissionChecks"] = [{**check, "state": state, "message": message}]

    workload = (await stage.workload(name))["metadata"]["name"]
    await stage.apply_transition(workload, lambda change: stated(change.status))


def _with_check(stage: Stage) -> dict[str, Any]:
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": stage.own("check")}]}}


def _checked(stage: Stage, name: str) -> list[list[str]]:
    """What is written from the coming of a Job until it has quota and waits for its check."""
    return [
        *queued(name),
        [
            f"~Workload {name}: check Pending",
            f"Workload {name}: admission; {_reserved(stage, name)}; {UNCHECKED}; {NOT_READY}",
        ],
    ]


async def _a_job_with_a_check(stage: Stage, writes: Writes) -> None:
    """Quota is reserved first; what a check that is Pending says is told of the Job; Ready admits."""
    await _queues(stage, "checked", **_with_check(stage))
    await stage.job("checked", queue="checked")
    await _until_checked(stage, "checked")
    await _set_check(stage, "checked", "Pending", "soon")
    said = ("UpdatedAdmissionCheck", f"{stage.own('check')}: soon")
    await stage.until_event("Job", "checked", *said)
    await _set_check(stage, "checked", "Ready", "here")
    await stage.until_condition("PodsReady", "Started", "checked")
    told = await _told(stage, "checked")
    steps = [
        _made("checked"),
        *_checked(stage, "checked"),
        ["Workload checked: check Pending soon"],
        ["Workload checked: check Ready here"],
        [f"Workload checked: {ADMITTED}"],
        [f"Job checked: {STARTS}"],
        [f"Workload checked: {PODS_READY}"],
    ]
    events = [told["created"], told["reserved"], f"Job checked: Normal {' '.join(said)}"]
    events += [told["admitted"], told["started"]]
    await writes.until(Story(steps, {"checked": events}))


async def _a_preemption(stage: Stage, writes: Writes) -> None:
    """The victim is told, stopped and gives its quota back; the preemptor takes it; the victim comes back."""
    names, labels = stage.names, stage.names.priority_class
    await _queues(stage, "victim", cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.job("victim", queue="victim", labels={labels: stage.own("low")})
    await stage.until_condition("PodsReady", "Started", "victim")
    await stage.job("taker", queue="victim", labels={labels: stage.own("high")})
    await stage.until_condition("PodsReady", "Started", "taker")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "victim")
    await succeed_pods(stage, "taker")
    await stage.until_condition("PodsReady", "Started", "victim")
    taker, victim, queue = await stage.workload("taker"), await stage.workload("victim"), stage.own("victim")
    for_whom = (
        f"Preempted to accommodate a workload (UID: {taker['metadata']['uid']}, "
        f"JobUID: {taker['metadata']['labels'][names.job_uid]}) due to prioritization in the ClusterQueue; "
        f"preemptor path: /{queue}; preemptee path: /{queue}"
    )
    short = (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor "
        f"{stage.own('f')}, 1 more needed"
    )
    waits = f"WaitingForPreemptedWorkloads {short}. Pending the preemption of 1 workload(s)"
    former = f"=False QuotaReserved Previously: {for_whom}"
    steps = [
        _made("victim"),
        *queued("victim"),
        *_admitted(stage, "victim"),
        *queued("taker"),
        [
            (
                f"Workload victim: Evicted=True Preempted {for_whom}; "
                f"Preempted=True InClusterQueue {for_whom}; evictions Preempted 1"
            ),
            f"~Workload taker: QuotaReserved=False {waits}; {UNRESERVED}; {NOT_READY}",
        ],
        *_stopped("victim", for_whom, requeued=True, reason="Preempted"),
        [f"Workload taker: admission; {_reserved(stage, 'victim')}; {ADMITTED}"],
        [f"~Workload victim: QuotaReserved=False WaitingForQuota {short}"],
        [f"Job taker: {STARTS}"],
        [f"Workload taker: {PODS_READY}"],
        ["Workload taker: Finished=True Succeeded Reached expected number of succeeded pods"],
        ["~Workload taker: finalizer removed"],
        [
            (
                f"Workload victim: admission; Evicted{former}; Preempted{former}; "
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
    of_victim, of_taker = await _told(stage, "victim"), await _told(stage, "taker")
    begins = [of_victim[one] for one in ("created", "reserved", "admitted", "started")]
    await writes.until(
        Story(
            steps,
            {
                "victim": [
                    *begins,
                    f"Workload victim: Normal Preempted {for_whom}; {priorities}",
                    f"Workload victim: Normal EvictedDueToPreempted {for_whom}",
                    f"Job victim: Normal Stopped {for_whom}",
                    f"Workload victim: Warning WaitingForQuota {short}",
                ],
                "taker": [
                    of_taker["created"],
                    (
                        f"Workload taker: Normal PreemptedWorkload Preempted workload {key} (UID: {uid}) in "
                        f"ClusterQueue {queue}; {priorities}"
                    ),
                    f"~Workload taker: Warning {waits}",
                    *(of_taker[one].replace(stage.own("taker"), queue) for one in ("reserved", "admitted")),
                    of_taker["started"].replace(stage.own("taker"), queue),
                    of_taker["finished"],
                ],
            },
        )
    )


async def _a_queue_is_drained(stage: Stage, writes: Writes) -> None:
    """HoldAndDrain evicts what runs; it is parked until the ClusterQueue goes on."""
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
        _made("drained"),
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


async def _a_check_is_rejected(stage: Stage, writes: Writes) -> None:
    """The Workload is to be deactivated, is, and is evicted for that; its checks begin anew."""
    await _queues(stage, "rejected", **_with_check(stage))
    await stage.job("rejected", queue="rejected")
    await _until_checked(stage, "rejected")
    await _set_check(stage, "rejected", "Rejected", "no")
    await stage.until_condition("QuotaReserved", "Deactivated", "rejected")
    target = f'AdmissionCheck in Rejected state: "{stage.own("check")}" (no)'
    message = f"The workload is deactivated due to {target}"
    reason = "DeactivatedDueToAdmissionCheck"
    steps = [
        _made("rejected"),
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
    told = await _told(stage, "rejected")
    events = [
        told["created"],
        told["reserved"],
        f"Workload rejected: Warning AdmissionCheckRejected Deactivated due to {target}",
        f"Workload rejected: Normal EvictedDueTo{reason} {message}",
    ]
    await writes.until(Story(steps, {"rejected": events}))


async def _a_cluster_queue_is_deleted(stage: Stage, writes: Writes) -> None:
    """It stays while workloads run in it; workloads that only hold quota lose it."""
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
    # Statuses of queues are written at most once a second, and it may be gone sooner.
    await stage.until_active(stage.kinds.cluster_queues, queue, active=False)
    await succeed_pods(stage, "deleted")
    await stage.until_condition("QuotaReserved", "Misconfigured", "holds")
    lost = f"ClusterQueue {queue} is terminating or missing"
    inactive = "Can't submit new workloads to clusterQueue"
    steps = [
        _made("deleted"),
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
        ["~Workload deleted: finalizer removed", "ClusterQueue deleted: gone"],
        [
            f"LocalQueue deleted: Active=False ClusterQueueDoesNotExist {inactive}",
            f"Workload holds: QuotaReserved=False Misconfigured ClusterQueue {queue} doesn't exist",
        ],
    ]
    await writes.until(Story(steps))
