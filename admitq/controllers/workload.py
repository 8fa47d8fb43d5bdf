"""The life of one Workload besides its admission: eviction, requeuing, checks, limits of time, retention.

The decision is a chain of steps on the Workload and what surrounds it. The first step that has something to
write ends the chain; its write leads to the next decision. When none has, the earliest deadline says when to
look again. Quota is reserved by the manager, and the job is started and stopped by the job's controller.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from admitq import explain
from admitq.controllers import outliving
from admitq.controllers.absent_owners import AbsentOwners
from admitq.controllers.context import Context, CoreView
from admitq.controllers.executions import Executions
from admitq.controllers.indexes import BY_CHAIN, chains, flavors_of
from admitq.controllers.outliving import Remaining
from admitq.controllers.outliving_pods import OutlivingPods
from admitq.controllers.plan import (
    NOTHING,
    Delete,
    Plan,
    RemoveFinalizer,
    Tell,
    act,
    has_finalizer,
    plan,
    status_patch,
    workload_status_patch,
)
from admitq.controllers.plan import Patch as Write
from admitq.controllers.settings import Settings
from admitq.core.applicable_checks import MOST_CHECKS, applicable_checks, too_many_checks
from admitq.core.model import Instant, ObjectKey
from admitq.core.refusals import NamespaceMismatch
from admitq.evictions import Returns, event_of, returning
from admitq.explain import Explanation, bypassed_condition, is_unwritten, pending_condition
from admitq.integrations.admission_gates import holding_gates
from admitq.integrations.base import Step
from admitq.integrations.paths import Object, value_at
from admitq.runtime.kinds import Kinds
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.store import Key
from admitq.transitions import (
    CHECKS_OUTSTANDING,
    LARGEST_COUNT,
    WORKLOAD_ADMITTED,
    Transition,
    condition,
    holds,
    is_active,
    is_on_hold,
    is_reserved,
    reserved_in,
    since,
)
from admitq.translate.admission_checks import read_admission_check_rules
from admitq.translate.workloads import read_replaced_key
from admitq_api.conditions import (
    GATED_BY,
    SECOND,
    ConditionType,
    Reason,
    format_time,
    gates_told,
    is_false,
    parse_time,
)
from admitq_api.labels import Names

CONCERN: Final = "workload-controller"

FIRST_EVALUATION: Final = 2 * SECOND
"""Within which a new workload is evaluated, or passed over; nanoseconds."""

HELD_RETRY_SECONDS: Final = 10.0
"""When to look again at a deleted Workload that is held until its job has stopped: the kind may have gone."""

DEACTIVATED: Final = "The workload is deactivated"
PENDING: Final = "Workload is pending evaluation in the scheduling queue"
GATES_CLEARED: Final = "AdmissionGatedBy cleared, waiting for quota reservation"

OLD_REASONS: Final[Mapping[str, str]] = {
    Reason.PENDING_EVALUATION: Reason.PENDING,
    Reason.MISCONFIGURED: Reason.INADMISSIBLE,
    Reason.SUSPENDED: Reason.INADMISSIBLE,
    Reason.DEACTIVATED: Reason.INADMISSIBLE,
}
"""What a reason is called where reasons are not told in detail."""

_REFRESHED: Final = frozenset(
    {Reason.PENDING_EVALUATION, Reason.DEACTIVATED, Reason.SUSPENDED, Reason.PENDING, Reason.INADMISSIBLE}
)
"""Reasons why a workload waits that hold only as long as they are seen to hold. The others are results of an
evaluation and stay until the next one."""

_COME_BACK_LATER: Final = returning(Returns.AFTER_BACKOFF)

CATCHING_UP: Final = 30 * SECOND
"""Longest time that a process which begins to act gives to jobs to tell of their pods, before a Workload
loses its admission because they do not."""

_GOING: Final = "is terminating or missing"

_REFUTED_BY_QUEUES: Final = (
    "LocalQueue ",
    "ClusterQueue ",
    pending_condition(NamespaceMismatch()).message,
)
"""How the messages of Misconfigured begin which do not hold once the queues exist and admit the Workload's
namespace. Other messages are results of an evaluation."""


@dataclass(frozen=True, slots=True)
class World:
    """What surrounds a Workload."""

    names: Names
    kinds: Kinds
    settings: Settings
    local_queue: Object | None = None
    is_local_queue_readable: bool = True
    cluster_queue: Object | None = None
    cluster_queue_name: str = ""
    cluster_queue_active: bool | None = False
    """None where the core has not taken the ClusterQueue in yet: nothing can be said."""
    inadmissible: Explanation | None = None
    """Why the Workload can never be admitted as things are configured."""
    original: Object | None = None
    """The Workload that this one replaces (semantics, Elastic jobs)."""
    bypassed: Explanation | None = None
    """Why an equal Workload was refused, so that this one was not tried."""
    owners_gone: bool = False
    """None of the owners that the Workload names is there, and nobody else will find that out."""
    outliving: Remaining | None = None
    """Pods of the Workload that can still run although its job is gone."""
    slices: Sequence[Object] = ()
    """The Workloads of the same elastic job, if the Workload is one of its slices."""
    unrecorded_execution: Instant = 0
    """How long admissions lasted that another program ended without adding up their time; nanoseconds."""
    acting_since: Instant = 0
    """When this process began to act: what happened to pods before is told from then on."""


@dataclass(frozen=True, slots=True)
class Case:
    """A Workload, what surrounds it, and the time."""

    workload: Object
    world: World
    now: Instant

    @property
    def settings(self) -> Settings:
        """The frozen choices."""
        return self.world.settings

    @property
    def active(self) -> bool:
        """Whether the Workload may be queued."""
        return is_active(self.workload)

    @property
    def queue_name(self) -> str:
        """The LocalQueue's name."""
        return value_at(self.workload, ("spec", "queueName"), "")

    def begin(self) -> Transition:
        """A change of the Workload's status."""
        return Transition(self.workload, self.now)

    def end(self, transition: Transition, *after: Tell | None) -> Plan | None:
        """The plan that writes the change and then tells of it; None if there is nothing to write."""
        if transition.patch() is not None and not transition.is_true(ConditionType.QUOTA_RESERVED):
            self.state_pods_awaited(transition)
        write = workload_status_patch(self.world.kinds.workloads, self.workload, transition.patch(), CONCERN)
        return None if write is None else plan(write, *after)

    def state_pods_awaited(self, transition: Transition) -> None:
        """State that no pod is ready yet, where readiness is tracked and nothing was stated so far."""
        if self.settings.pods_ready is not None:
            transition.await_pods()

    def is_true(self, type: ConditionType) -> bool:  # noqa: A002 the API's name
        """Whether a condition of the Workload holds."""
        return holds(self.workload, type)

    def told(self, reason: str) -> str:
        """The reason as the feature gates have it told."""
        return told(reason, self.settings)


def told(reason: str, settings: Settings) -> str:
    """The reason of QuotaReserved=False as the feature gates have it told."""
    return str(reason if settings.tell_reasons else OLD_REASONS.get(reason, reason))


def decide(workload: Object, world: World, now: Instant) -> Plan:
    """What is to be done about a Workload now."""
    case = Case(workload, world, now)
    for step in STEPS:
        decided = step(case)
        if decided is not None:
            return decided
    return Plan(again=_seconds_until(case, *(deadline(case) for deadline in DEADLINES)))


def _seconds_until(case: Case, *deadlines: Instant | None) -> float | None:
    ahead = [deadline for deadline in deadlines if deadline is not None and deadline > case.now]
    return (min(ahead) - case.now) / SECOND if ahead else None


# --- the end --------------------------------------------------------------------------------------


def is_orphan(workload: Object, world: World) -> bool:
    """Whether a Workload without an owner is to end: it is deleted, or it had an owner before."""
    metadata = workload["metadata"]
    if metadata.get("ownerReferences") and not world.owners_gone:
        return False
    had_owner = bool(value_at(metadata, ("labels", world.names.job_uid)))
    return "deletionTimestamp" in metadata or (world.settings.finish_orphaned and had_owner)


def _orphan(case: Case) -> Plan | None:
    """A Workload without an owner is finished, and freed for deletion, once no pods outlive its job."""
    if not is_orphan(case.workload, case.world):
        return None
    if case.world.outliving and (kept := _outlived(case, case.world.outliving)) is not None:
        return kept
    deleting = "deletionTimestamp" in case.workload["metadata"]
    if case.settings.finish_orphaned and not case.is_true(ConditionType.FINISHED):
        transition = case.begin()
        outliving.withdraw(transition)
        transition.finish(Reason.OWNER_NOT_FOUND, "The workload's owner no longer exists")
        return case.end(transition)
    if has_finalizer(case.workload, case.world.names.finalizer):
        return plan(RemoveFinalizer(case.world.kinds.workloads, case.workload))
    return NOTHING if deleting else None


def _outlived(case: Case, remaining: Remaining) -> Plan | None:
    """Stop pods of a job that is gone which run beyond what was admitted, and report those that remain."""
    world, workload = case.world, case.workload
    stopped = outliving.stop_excess(workload, remaining.listed, world.names, world.settings, world.slices)
    again = outliving.next_look(workload, case.now)
    if not outliving.may_have_pods(workload):
        return plan(*stopped, again=again) if stopped else None
    transition = case.begin()
    outliving.report(transition, remaining)
    reported = case.end(transition) or NOTHING
    return plan(*stopped, *reported.actions, again=again)


def _finished(case: Case) -> Plan | None:
    """What is finished stays as it is until its retention is over."""
    if not case.is_true(ConditionType.FINISHED):
        return None
    due = _retention_over(case)
    if due is None or due > case.now or "deletionTimestamp" in case.workload["metadata"]:
        return Plan(again=_seconds_until(case, due))
    workloads = case.world.kinds.workloads
    return plan(
        RemoveFinalizer(workloads, case.workload),
        Delete(workloads, case.workload),
        Tell(case.workload, "Normal", "Deleted", "Deleted finished workload due to elapsed retention"),
    )


def _retention_over(case: Case) -> Instant | None:
    finished_at = since(case.workload, ConditionType.FINISHED)
    retention = case.settings.retention_of_finished
    return None if finished_at is None or retention is None else finished_at + retention


def _record_execution(case: Case) -> Plan | None:
    """Add up the time of an admission that another program ended without doing so."""
    transition = case.begin()
    if case.world.unrecorded_execution >= SECOND:
        transition.accumulate(case.world.unrecorded_execution)
    return case.end(transition)


# --- activity and requeuing -----------------------------------------------------------------------


def _requeue_at(case: Case) -> Instant | None:
    text = value_at(case.workload, ("status", "requeueState", "requeueAt"))
    return None if text is None else parse_time(text)


def _checks(case: Case, state: str) -> list[Object]:
    found = value_at(case.workload, ("status", "admissionChecks"), [])
    return sorted((check for check in found if check.get("state") == state), key=lambda check: check["name"])


def _delay_of_retry(case: Case) -> Plan | None:
    """A check that asks to be retried later sets the time before which nothing is tried.

    Of who is deactivated such times are forgotten, whatever checks go on to ask for.
    """
    if not case.active:
        return None
    asked = [
        parse_time(check["lastTransitionTime"]) + check["requeueAfterSeconds"] * SECOND
        for check in _checks(case, "Retry")
        if check.get("requeueAfterSeconds") is not None
    ]
    latest = max(asked, default=0)
    if latest <= case.now or latest <= (_requeue_at(case) or 0):
        return None
    transition = case.begin()
    state = dict(transition.status.get("requeueState") or {})
    transition.status["requeueState"] = {**state, "requeueAt": _whole_seconds(latest)}
    return case.end(transition)


def _whole_seconds(at: Instant) -> str:
    """The time as the API writes it, rounded up: nobody comes back early."""
    return format_time(-(-at // SECOND) * SECOND)


def _deactivate(case: Case) -> Plan | None:
    """What is to be deactivated is taken out of the queue by its spec, where its owner can put it back."""
    if not case.active or not case.is_true(ConditionType.DEACTIVATION_TARGET):
        return None
    step = Step({"spec": {"active": False}})
    workloads = case.world.kinds.workloads
    return plan(Write(workloads, case.workload, (step,), CONCERN, priority=CallPriority.EVICTION))


def _inactive(case: Case) -> Plan | None:
    """A deactivated workload is evicted once; what was counted about its returns is forgotten.

    One that is evicted already, as by a preemption while it was about to be deactivated, is not evicted
    again: it keeps the reason for which its job was stopped, and its job is not deleted for the deactivation.
    The target goes all the same, or whoever reactivates the workload would see it deactivated at once.
    """
    if case.active:
        return None
    target = condition(case.workload, ConditionType.DEACTIVATION_TARGET)
    transition = case.begin()
    transition.status.pop("requeueState", None)
    if target is not None:
        transition.drop(ConditionType.DEACTIVATION_TARGET)
    if case.is_true(ConditionType.EVICTED):
        return case.end(transition)
    if target is None or target.get("status") != "True":
        return _evict(case, transition, Reason.DEACTIVATED, DEACTIVATED)
    return _evict(
        case,
        transition,
        Reason.DEACTIVATED,
        f"{DEACTIVATED} due to {target.get('message', '')}",
        target.get("reason", ""),
    )


def _evict(case: Case, transition: Transition, reason: Reason, message: str, cause: str = "") -> Plan | None:
    transition.evict(reason, message, cause)
    return case.end(transition, Tell(case.workload, "Normal", event_of(reason, cause), message))


def _backoff_over(case: Case) -> Plan | None:
    """End the backoff of an active Workload at its time, also while it still holds quota.

    A Workload that was reactivated, or whose eviction stated no time, is requeued once its quota is released.
    """
    if not case.active:
        return None
    transition = case.begin()
    requeue_at = _requeue_at(case)
    is_due = requeue_at is not None and requeue_at <= case.now
    if is_due:
        kept = {key: value for key, value in transition.status["requeueState"].items() if key != "requeueAt"}
        transition.status["requeueState"] = kept or None
    if is_reserved(case.workload):
        if is_due and _evicted_for(case) in _COME_BACK_LATER:
            _finish_backoff(transition)
        return case.end(transition)
    reason = _parked_for(case)
    if reason.startswith(Reason.DEACTIVATED):
        transition.set(ConditionType.REQUEUED, True, Reason.REACTIVATED, "The workload was reactivated")
    elif reason in _COME_BACK_LATER and (requeue_at is None or is_due):
        _finish_backoff(transition)
    return case.end(transition)


def _finish_backoff(transition: Transition) -> None:
    # The wait is measured from this return on, not from a former one.
    transition.drop(ConditionType.REQUEUED)
    transition.set(ConditionType.REQUEUED, True, Reason.BACKOFF_FINISHED, "The workload backoff was finished")


def _evicted_for(case: Case) -> str:
    """The reason of the eviction that is going on; empty if there is none."""
    evicted = condition(case.workload, ConditionType.EVICTED)
    return evicted.get("reason", "") if evicted is not None and evicted.get("status") == "True" else ""


def _parked_for(case: Case) -> str:
    """The reason for which the workload may not be queued; empty if it may."""
    requeued = condition(case.workload, ConditionType.REQUEUED)
    return requeued.get("reason", "") if requeued is not None and requeued.get("status") == "False" else ""


def _stop_policy(queue: Object) -> str:
    return value_at(queue, ("spec", "stopPolicy"), "None") or "None"


def _is_usable(queue: Object | None) -> bool:
    return queue is not None and "deletionTimestamp" not in queue["metadata"]


def _queue_restarted(case: Case) -> Plan | None:
    """What a stopped queue evicted comes back when the queue goes on."""
    restarted = {
        Reason.LOCAL_QUEUE_STOPPED: (case.world.local_queue, Reason.LOCAL_QUEUE_RESTARTED, "LocalQueue"),
        Reason.CLUSTER_QUEUE_STOPPED: (
            case.world.cluster_queue,
            Reason.CLUSTER_QUEUE_RESTARTED,
            "ClusterQueue",
        ),
    }
    for parked_for, (queue, reason, kind) in restarted.items():
        if _parked_for(case) == parked_for and queue is not None and _stop_policy(queue) == "None":
            transition = case.begin()
            message = f"The {kind} was restarted after being stopped"
            transition.set(ConditionType.REQUEUED, True, reason, message)
            return case.end(transition)
    return None


# --- why it waits ---------------------------------------------------------------------------------


def _gates(case: Case) -> list[str]:
    return holding_gates(case.workload, case.world.names) if case.settings.admission_gated_by else []


def _admission_gates(case: Case) -> Plan | None:
    """A gated workload says by whom, and says when it no longer is.

    Unless something else is told that it waits for, as is of a queue that is stopped.
    """
    if is_reserved(case.workload):
        return None
    was_gated = bool(gates_told(value_at(case.workload, ("status", "conditions"))))
    gates = ",".join(_gates(case))
    transition = case.begin()
    if gates and not was_gated:
        why = _why_it_waits(case)
        if why is None or why.reason != Reason.ADMISSION_GATED:
            return None
        transition.release(Reason.ADMISSION_GATED, GATED_BY + gates)
        note = f"Workload admission is gated by: {gates}"
        return case.end(transition, Tell(case.workload, "Normal", "AdmissionGated", note))
    if was_gated and not gates:
        transition.release(case.told(Reason.PENDING_EVALUATION), GATES_CLEARED)
        note = "Admission gate cleared, workload is now admissible"
        return case.end(transition, Tell(case.workload, "Normal", "AdmissionGateCleared", note))
    return None


def _problem_of_local_queue(case: Case) -> Explanation | None:
    """Why the Workload's LocalQueue queues nothing; None if it does."""
    queue, name = case.world.local_queue, case.queue_name
    if queue is None:
        return Explanation(Reason.MISCONFIGURED, f"LocalQueue {name} doesn't exist")
    if not _is_usable(queue):
        return Explanation(Reason.MISCONFIGURED, f"LocalQueue {name} {_GOING}")
    if _stop_policy(queue) != "None" or not case.world.is_local_queue_readable:
        return Explanation(Reason.SUSPENDED, f"LocalQueue {name} is inactive")
    return None


def _why_it_waits(case: Case) -> Explanation | None:
    """Reason and message of QuotaReserved=False; None to leave what stands there."""
    cluster_queue = case.world.cluster_queue_name
    quota = condition(case.workload, ConditionType.QUOTA_RESERVED)
    reason = None if quota is None else quota.get("reason")
    if not case.active:
        return Explanation(Reason.DEACTIVATED, DEACTIVATED)
    if is_on_hold(case.workload):
        return None
    if (problem := _problem_of_local_queue(case)) is not None:
        return problem
    if case.world.cluster_queue is None:
        return Explanation(Reason.MISCONFIGURED, f"ClusterQueue {cluster_queue} doesn't exist")
    if case.world.cluster_queue_active is None:
        return None
    if not case.world.cluster_queue_active:
        return Explanation(Reason.SUSPENDED, f"ClusterQueue {cluster_queue} is inactive")
    if case.world.inadmissible is not None:
        return case.world.inadmissible
    if _gates(case):
        return Explanation(Reason.ADMISSION_GATED, GATED_BY + ",".join(_gates(case)))
    if quota is None:
        # Who is never tried because of an equal one would else never learn why.
        if not case.settings.explicit_pending and case.world.bypassed is None:
            return None
    elif reason not in _REFRESHED and not _is_refuted_by_queues(quota):
        return None
    elif _is_of_eviction(case, quota) or is_unwritten(quota.get("message", "")):
        # The next cycle replaces the message.
        return case.world.bypassed
    return case.world.bypassed or Explanation(Reason.PENDING_EVALUATION, PENDING)


def _is_refuted_by_queues(quota: Object) -> bool:
    """Whether the condition names a problem of the queues, which are known to have none."""
    message: str = quota.get("message", "")
    return quota.get("reason") == Reason.MISCONFIGURED and message.startswith(_REFUTED_BY_QUEUES)


def _is_of_eviction(case: Case, quota: Object) -> bool:
    """Whether the condition carries the message of the last eviction, which a cycle will replace."""
    evicted = condition(case.workload, ConditionType.EVICTED) or {}
    return (
        quota.get("reason") == Reason.PENDING_EVALUATION
        and evicted.get("status") == "True"
        and quota.get("message") == evicted.get("message")
    )


def _pending(case: Case) -> Plan | None:
    """Keep the conditions of a workload without reservation up to date."""
    if is_reserved(case.workload):
        return None
    transition = case.begin()
    why = _why_it_waits(case)
    if why is not None and _is_told(case, why.reason):
        transition.set(ConditionType.QUOTA_RESERVED, False, case.told(why.reason), why.message)
    # Another program may have stated an admission without any reservation.
    if transition.find(ConditionType.QUOTA_RESERVED) is not None or case.is_true(ConditionType.ADMITTED):
        transition.end_admission()
    return case.end(transition)


def _is_told(case: Case, reason: str) -> bool:
    """Without detailed reasons only the problems of queues are written."""
    return case.settings.tell_reasons or reason in {Reason.MISCONFIGURED, Reason.SUSPENDED}


# --- admission checks -----------------------------------------------------------------------------


def _assigned_flavors(case: Case) -> frozenset[str] | None:
    """The flavors that the Workload was assigned; None while it has no quota."""
    if not is_reserved(case.workload):
        return None
    assignments = value_at(case.workload, ("status", "admission", "podSetAssignments"), [])
    return frozenset(flavor for each in assignments for flavor in (each.get("flavors") or {}).values())


def _sync_checks(case: Case) -> Plan | None:
    """List exactly the checks that apply; new ones are pending.

    One that is being retried stays listed while the flavors are not known again: it counts its retries. Where
    more apply than can be listed, the list stays as it is, and quota that no job uses yet is released.
    """
    cluster_queue = case.world.cluster_queue
    if cluster_queue is None or not case.active:
        return None
    transition = case.begin()
    rules, offered = read_admission_check_rules(cluster_queue), frozenset(flavors_of(cluster_queue))
    assigned = _assigned_flavors(case)
    too_many = too_many_checks(case.world.cluster_queue_name, rules, offered, assigned)
    if too_many is not None:
        is_used = case.is_true(ConditionType.ADMITTED) or case.is_true(ConditionType.EVICTED)
        if assigned is not None and not is_used:
            why = pending_condition(too_many)
            transition.release(case.told(why.reason), why.message)
        return case.end(transition)
    listed = {check["name"]: check for check in transition.status.get("admissionChecks") or ()}
    names = applicable_checks(rules, offered, assigned)
    if assigned is None:
        retried = {rule.name for rule in rules if listed.get(rule.name, {}).get("retryCount")}
        names |= frozenset(sorted(retried - names)[: MOST_CHECKS - len(names)])
    wanted = [
        listed.get(name)
        or {"name": name, "state": "Pending", "lastTransitionTime": format_time(case.now), "message": ""}
        for name in sorted(names)
    ]
    transition.status["admissionChecks"] = wanted or None
    return case.end(transition)


def _admit(case: Case) -> Plan | None:
    """Admit a Workload with quota when every listed check is ready, whether or not its queues exist.

    Where the ClusterQueue does not exist, the checks that apply are those that the status lists. A condition
    that no admission goes with reserves nothing; such a Workload is reported as not readable.
    """
    if (
        not reserved_in(case.workload)
        or not case.active
        or case.is_true(ConditionType.ADMITTED)
        or case.is_true(ConditionType.EVICTED)
    ):
        return None
    transition = case.begin()
    status = transition.status
    if any(check.get("state") != "Ready" for check in status.get("admissionChecks") or ()):
        transition.set(ConditionType.ADMITTED, False, Reason.UNSATISFIED_ADMISSION_CHECKS, CHECKS_OUTSTANDING)
        return case.end(transition)
    assignments = value_at(status, ("admission", "podSetAssignments"), [])
    if any(assignment.get("delayedTopologyRequest") == "Pending" for assignment in assignments):
        transition.set(
            ConditionType.ADMITTED,
            False,
            Reason.PENDING_DELAYED_TOPOLOGY_REQUESTS,
            "There are pending delayed topology requests",
        )
        return case.end(transition)
    transition.set(ConditionType.ADMITTED, True, Reason.ADMITTED, WORKLOAD_ADMITTED)
    status.pop("resourceRequests", None)
    cluster_queue = status["admission"]["clusterQueue"]
    reserved_at = since(case.workload, ConditionType.QUOTA_RESERVED) or case.now
    waited = max(0, case.now - reserved_at) / SECOND
    note = f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited:.0f}s"
    return case.end(transition, Tell(case.workload, "Normal", "Admitted", note))


def _drop_resource_requests(case: Case) -> Plan | None:
    """Stop showing what was asked for once another program has admitted the Workload."""
    if not (is_reserved(case.workload) and case.is_true(ConditionType.ADMITTED)):
        return None
    transition = case.begin()
    transition.status.pop("resourceRequests", None)
    return case.end(transition)


def _check_verdicts(case: Case) -> Plan | None:
    """A rejected check deactivates, one that asks for a retry evicts; a rejection goes first."""
    if not is_reserved(case.workload) or case.is_true(ConditionType.EVICTED) or not case.active:
        return None
    transition = case.begin()
    rejected, retried = _checks(case, "Rejected"), _checks(case, "Retry")
    if rejected:
        message = _listed(rejected, "Rejected")
        transition.set(ConditionType.DEACTIVATION_TARGET, True, Reason.ADMISSION_CHECK, message)
        note = f"Deactivated due to {message}"
        return case.end(transition, Tell(case.workload, "Warning", "AdmissionCheckRejected", note))
    if retried:
        message = f"Evicted due to {_listed(retried, 'Retry')}"
        return _evict(case, transition, Reason.ADMISSION_CHECK, message)
    return None


def _listed(checks: list[Object], state: str) -> str:
    named = "; ".join(
        f'"{check["name"]}"' + (f" ({message})" if (message := check.get("message")) else "")
        for check in checks
    )
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {named}"


# --- queues that stop -----------------------------------------------------------------------------


def _stopped(case: Case) -> Plan | None:
    """A queue that stops takes back reservations, and where it drains, admissions too."""
    if not is_reserved(case.workload) or case.is_true(ConditionType.EVICTED):
        return None
    world = case.world
    for kind, name, queue, reason in (
        ("LocalQueue", case.queue_name, world.local_queue, Reason.LOCAL_QUEUE_STOPPED),
        ("ClusterQueue", world.cluster_queue_name, world.cluster_queue, Reason.CLUSTER_QUEUE_STOPPED),
    ):
        transition = case.begin()
        if case.is_true(ConditionType.ADMITTED):
            if queue is not None and _stop_policy(queue) == "HoldAndDrain":
                return _evict(case, transition, reason, f"The {kind} is stopped")
        elif queue is None or not _is_usable(queue):
            transition.release(case.told(Reason.MISCONFIGURED), f"{kind} {name} {_GOING}")
            return case.end(transition)
        elif _stop_policy(queue) != "None":
            transition.release(case.told(Reason.SUSPENDED), f"{kind} {name} is stopped")
            return case.end(transition)
    return None


# --- limits of time -------------------------------------------------------------------------------


def _is_running(case: Case) -> bool:
    return case.active and case.is_true(ConditionType.ADMITTED) and not case.is_true(ConditionType.EVICTED)


def _pods_ready_deadline(case: Case) -> Instant | None:
    policy = case.settings.pods_ready
    if policy is None or not _is_running(case):
        return None
    ready = condition(case.workload, ConditionType.PODS_READY) or {}
    if ready.get("status") == "True":
        return None
    if ready.get("reason") == Reason.WAIT_FOR_RECOVERY:
        start, timeout = since(case.workload, ConditionType.PODS_READY), policy.recovery_timeout
    else:
        start, timeout = since(case.workload, ConditionType.ADMITTED), policy.timeout
    if start is None:
        return None
    # Pods may have got ready while nobody was there to write it down.
    return max(start + timeout, case.world.acting_since + min(timeout, CATCHING_UP))


def _pods_ready_timeout(case: Case) -> Plan | None:
    """Pods that are not ready in time cost the admission; too often, and the workload is deactivated."""
    policy, deadline = case.settings.pods_ready, _pods_ready_deadline(case)
    if policy is None or deadline is None or deadline > case.now:
        return None
    transition = case.begin()
    count = (value_at(case.workload, ("status", "requeueState", "count")) or 0) + 1
    if policy.backoff_limit is not None and count > policy.backoff_limit:
        transition.set(
            ConditionType.DEACTIVATION_TARGET,
            True,
            Reason.REQUEUING_LIMIT_EXCEEDED,
            "exceeding the maximum number of re-queuing retries",
        )
        return case.end(transition)
    requeue_at = _whole_seconds(case.now + policy.backoff_seconds(count) * SECOND)
    transition.status["requeueState"] = {"count": min(count, LARGEST_COUNT), "requeueAt": requeue_at}
    ready = condition(case.workload, ConditionType.PODS_READY) or {}
    recovering = ready.get("reason") == Reason.WAIT_FOR_RECOVERY
    metadata = case.workload["metadata"]
    return _evict(
        case,
        transition,
        Reason.PODS_READY_TIMEOUT,
        f"Exceeded the PodsReady timeout {metadata['namespace']}/{metadata['name']}",
        Reason.WAIT_FOR_RECOVERY if recovering else Reason.WAIT_FOR_START,
    )


def _execution_deadline(case: Case) -> Instant | None:
    limit = value_at(case.workload, ("spec", "maximumExecutionTimeSeconds"))
    admitted_at = since(case.workload, ConditionType.ADMITTED)
    if not limit or admitted_at is None or not _is_running(case):
        return None
    past = value_at(case.workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)
    return admitted_at + (limit - past) * SECOND


def _replaces(case: Case) -> Plan | None:
    """Finish the slice that a slice with quota replaces. Its pods and its quota pass to the new slice.

    The write is of the other one, and leads to no decision about this one: its own steps follow at once.
    """
    original = case.world.original
    if original is None or not is_reserved(case.workload) or holds(original, ConditionType.FINISHED):
        return None
    metadata, workloads = case.workload["metadata"], case.world.kinds.workloads
    message = explain.replaced(metadata["uid"], value_at(metadata, ("labels", case.world.names.job_uid), ""))
    transition = Transition(original, case.now)
    transition.finish(Reason.WORKLOAD_SLICE_REPLACED, message)
    return plan(
        status_patch(workloads, original, transition.patch(), CONCERN),
        Tell(original, "Normal", "WorkloadSliceReplaced", message),
        again=0.0,
    )


def _execution_over(case: Case) -> Plan | None:
    """A workload that has run for as long as it may is deactivated."""
    deadline = _execution_deadline(case)
    if deadline is None or deadline > case.now:
        return None
    if case.is_true(ConditionType.DEACTIVATION_TARGET):
        return None
    transition = case.begin()
    transition.set(
        ConditionType.DEACTIVATION_TARGET,
        True,
        Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
        "exceeding the maximum execution time",
    )
    transition.status.pop("accumulatedPastExecutionTimeSeconds", None)
    limit = case.workload["spec"]["maximumExecutionTimeSeconds"]
    note = f"The maximum execution time ({limit}s) exceeded"
    return case.end(transition, Tell(case.workload, "Warning", "MaximumExecutionTimeExceeded", note))


def _await_pods(case: Case) -> Plan | None:
    """State that no pod is ready yet, where another program reserved the quota and did not."""
    if not is_reserved(case.workload) or case.is_true(ConditionType.EVICTED):
        return None
    transition = case.begin()
    case.state_pods_awaited(transition)
    return case.end(transition)


STEPS: Final[tuple[Callable[[Case], Plan | None], ...]] = (
    _orphan,
    _finished,
    _record_execution,
    _replaces,
    _delay_of_retry,
    _deactivate,
    _backoff_over,
    _inactive,
    _queue_restarted,
    _admission_gates,
    _sync_checks,
    _pending,
    _admit,
    _drop_resource_requests,
    _check_verdicts,
    _stopped,
    _pods_ready_timeout,
    _execution_over,
    _await_pods,
)
"""In the order in which they are asked."""


def _first_evaluation(case: Case) -> Instant | None:
    """When to look again at a workload that nothing was said of: it may have been passed over by then."""
    if is_reserved(case.workload) or condition(case.workload, ConditionType.QUOTA_RESERVED) is not None:
        return None
    return parse_time(case.workload["metadata"]["creationTimestamp"]) + FIRST_EVALUATION


DEADLINES: Final[tuple[Callable[[Case], Instant | None], ...]] = (
    _requeue_at,
    _pods_ready_deadline,
    _execution_deadline,
    _first_evaluation,
)


# --- the shell ------------------------------------------------------------------------------------


def _is_quarantined(queue: Object | None, status: object | None) -> bool:
    """Whether a queue is quarantined: the core does not know it, and its condition Active is False."""
    return status is None and is_false(value_at(queue, ("status", "conditions")), ConditionType.ACTIVE)


def _is_held_for_owner(workload: Object, names: Names) -> bool:
    metadata = workload["metadata"]
    is_deleted = "deletionTimestamp" in metadata and has_finalizer(workload, names.finalizer)
    return is_deleted and bool(metadata.get("ownerReferences"))


class WorkloadController:
    """Looks at one Workload at a time and does what is decided."""

    def __init__(self, ctx: Context, core: CoreView) -> None:
        self._ctx = ctx
        self._core = core
        self._absent_owners = AbsentOwners(ctx)
        self._outliving = OutlivingPods(ctx)
        self._chains = chains(ctx.names)
        self._executions = Executions(ctx.clock)
        ctx.stores.of(ctx.kinds.workloads).subscribe(self._executions.observe)
        self._acting_since: Instant | None = None

    async def reconcile(self, key: Key) -> float | None:
        """Bring one Workload forward; returns in how many seconds to look again."""
        if self._acting_since is None:
            self._acting_since = self._ctx.clock()
        workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, key.name)
        if workload is None:
            return None
        world = self._world(key, workload)
        held = _is_held_for_owner(workload, self._ctx.names)
        if held and await self._absent_owners.are_all(workload):
            world = replace(world, owners_gone=True)
        if is_orphan(workload, world):
            found = await self._outliving.of_gone((workload,))
            remaining = found.get(workload["metadata"]["uid"])
            world = replace(world, outliving=remaining, slices=self._slices(workload))
        again = await act(self._ctx, decide(workload, world, self._ctx.clock()))
        return min(again or HELD_RETRY_SECONDS, HELD_RETRY_SECONDS) if held else again

    def _slices(self, workload: Object) -> Sequence[Object]:
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        return [one for chain in self._chains(dict(workload)) for one in workloads.by_index(BY_CHAIN, chain)]

    def _world(self, key: Key, workload: Object) -> World:
        ctx, kinds = self._ctx, self._ctx.kinds
        queue_name: Any = value_at(workload, ("spec", "queueName"), "")
        local_queue = ctx.stores.of(kinds.local_queues).get(key.namespace, queue_name)
        name = reserved_in(workload) or value_at(local_queue, ("spec", "clusterQueue"), "")
        cluster_queue = ctx.stores.of(kinds.cluster_queues).get("", name)
        status = self._core.cluster_queue_status(name)
        is_active = None if status is None else status.active
        local_status = self._core.local_queue_status(ObjectKey(key.namespace, queue_name))
        object_key = ObjectKey(key.namespace, key.name)
        parked = self._core.parked_refusal(object_key) if self._core.is_bypassed(object_key) else None
        inadmissible = self._core.admissibility(object_key)
        return World(
            names=ctx.names,
            kinds=kinds,
            settings=ctx.settings,
            local_queue=local_queue,
            is_local_queue_readable=not _is_quarantined(local_queue, local_status),
            cluster_queue=cluster_queue,
            cluster_queue_name=name,
            cluster_queue_active=False if _is_quarantined(cluster_queue, status) else is_active,
            inadmissible=inadmissible and pending_condition(inadmissible),
            original=self._original(workload) if ctx.settings.elastic_jobs else None,
            bypassed=parked and bypassed_condition(parked),
            unrecorded_execution=self._executions.unrecorded(key),
            acting_since=self._acting_since or 0,
        )

    def _original(self, workload: Object) -> Object | None:
        key = read_replaced_key(workload, self._ctx.names)
        return None if key is None else self._ctx.stores.of(self._ctx.kinds.workloads).get(*key)
