"""Transitions of a Workload's status (pure).

A ``StatusTransition`` starts with the current Workload. Its methods change a copy of the status, and
``patch`` returns the merge patch of all changes. The patch has the resourceVersion of the Workload, so that
the API server rejects it if the Workload has changed since. Lists in it are complete, so entries of other
programs stay.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from admitq.workloads.evictions import RequeueTime, reasons_requeued
from admitq_api import conditions
from admitq_api.conditions import SECOND, ConditionType, Reason, create_deactivation_reason
from admitq_api.json_objects import JsonObject, create_merge_patch, value_at

NOT_ALL_PODS_READY: Final = "Not all pods are ready or succeeded"
NO_RESERVATION: Final = "The workload has no reservation"
WORKLOAD_ADMITTED: Final = "The workload is admitted"
CHECKS_OUTSTANDING: Final = "The workload has not all checks ready"
CHECK_RESET_PREFIX: Final = "Reset to Pending after eviction."
"""Start of the message of a check that an eviction has reset."""

LARGEST_COUNT: Final = 2**31 - 1
"""The largest number that the API server accepts for a counter of the status."""

MAX_COUNTED_EVICTIONS: Final = 256
"""The maximum number of items in the list of counted evictions; each is for one reason and cause."""

_LONGEST_CAUSE: Final = 316
"""The maximum length of the cause of counted evictions that the API server accepts."""

_REASONS_REQUEUED_AT_ONCE: Final = reasons_requeued(RequeueTime.AT_ONCE)
"""Reasons of evictions after which a workload is requeued as soon as its job has stopped."""

_REASONS_REQUEUED_AFTER_BACKOFF: Final = reasons_requeued(RequeueTime.AFTER_BACKOFF)


def find_condition(workload: JsonObject, type: ConditionType) -> conditions.Condition | None:  # noqa: A002 the name in the API
    """Return a condition of the Workload; None if it is absent."""
    return conditions.find_condition(value_at(workload, ("status", "conditions")), type)


def is_condition_true(workload: JsonObject, type: ConditionType) -> bool:  # noqa: A002 the name in the API
    """Whether a condition of the Workload is True."""
    return conditions.is_true(value_at(workload, ("status", "conditions")), type)


def is_reserved(workload: JsonObject) -> bool:
    """Whether quota is reserved for the Workload."""
    return is_condition_true(workload, ConditionType.QUOTA_RESERVED)


def reserved_cluster_queue(workload: JsonObject) -> str:
    """Return the ClusterQueue in which quota is reserved; empty without a reservation.

    An admission without a reservation was left by another program and does not count.
    """
    return value_at(workload, ("status", "admission", "clusterQueue"), "") if is_reserved(workload) else ""


def is_admitted(workload: JsonObject) -> bool:
    """Whether the job of the Workload may run: the Workload is admitted, and quota is reserved for it.

    Another program may set Admitted without a reservation. Such a Workload holds no quota.
    """
    return bool(reserved_cluster_queue(workload)) and is_condition_true(workload, ConditionType.ADMITTED)


def is_on_hold(workload: JsonObject) -> bool:
    """Whether the Workload is on hold: its job requests no quota at present."""
    quota = find_condition(workload, ConditionType.QUOTA_RESERVED) or {}
    return (quota.get("status"), quota.get("reason")) == ("False", Reason.ON_HOLD)


def holds_quota(workload: JsonObject) -> bool:
    """Whether the Workload uses quota: quota is reserved, and the Workload has not finished."""
    return is_reserved(workload) and not is_condition_true(workload, ConditionType.FINISHED)


def is_being_evicted(workload: JsonObject) -> bool:
    """Whether the Workload holds quota and is being evicted, for any reason."""
    return is_reserved(workload) and is_condition_true(workload, ConditionType.EVICTED)


def is_finished_or_deleting(workload: JsonObject) -> bool:
    """Whether the Workload has finished or is being deleted."""
    return "deletionTimestamp" in workload["metadata"] or is_condition_true(workload, ConditionType.FINISHED)


def is_active(workload: JsonObject) -> bool:
    """Whether the Workload may be queued; ``spec.active`` is true by default."""
    return value_at(workload, ("spec", "active"), True) is not False


def condition_since(workload: JsonObject, type: ConditionType) -> int | None:  # noqa: A002 the name in the API
    """Return the last transition of a condition in nanoseconds; None if it is absent or not readable."""
    return conditions.transition_time(find_condition(workload, type))


class StatusTransition:
    """A change of a Workload's status that is being prepared."""

    def __init__(self, workload: JsonObject, now: int) -> None:
        self._workload = workload
        self._before: Mapping[str, Any] = value_at(workload, ("status",), {})
        self._now = now
        self.status: dict[str, Any] = dict(self._before)

    # --- parts -------------------------------------------------------------------------------------

    def set_condition(self, type: ConditionType, status: bool, reason: str, message: str) -> None:  # noqa: A002
        """Set a condition. An equal condition stays as it is, even if it has another observedGeneration."""
        condition = self.find_condition(type)
        if condition is not None and (
            condition.get("status"),
            condition.get("reason"),
            condition.get("message"),
        ) == (
            str(status),
            str(reason),
            conditions.truncate(message),
        ):
            return
        self.status["conditions"] = conditions.with_condition(
            self.status.get("conditions"),
            type=type,
            status=status,
            reason=reason,
            message=message,
            now=self._now,
            observed_generation=value_at(self._workload, ("metadata", "generation")),
        )

    def remove_condition(self, type: ConditionType) -> None:  # noqa: A002 the name in the API
        """Remove a condition."""
        self.status["conditions"] = conditions.without_condition(self.status.get("conditions"), type)

    def find_condition(self, type: ConditionType) -> conditions.Condition | None:  # noqa: A002 the name in the API
        """Return a condition of the changed status; None if it is absent."""
        return conditions.find_condition(self.status.get("conditions"), type)

    def is_condition_true(self, type: ConditionType) -> bool:  # noqa: A002 the name in the API
        """Whether a condition of the changed status is True."""
        return conditions.is_true(self.status.get("conditions"), type)

    def patch(self) -> dict[str, Any] | None:
        """Return the merge patch of all changes, with the resourceVersion; None if nothing changes."""
        if self.status == self._before or not create_merge_patch(self._before, self.status):
            return None
        changed = create_merge_patch(self._before, self._without_leftovers())
        version = value_at(self._workload, ("metadata", "resourceVersion"))
        return {"metadata": {"resourceVersion": version}, "status": changed}

    def _without_leftovers(self) -> dict[str, Any]:
        """Return the status without an admission that another program wrote although no quota is reserved."""
        if self.is_condition_true(ConditionType.QUOTA_RESERVED):
            return self.status
        return {key: value for key, value in self.status.items() if key != "admission"}

    # --- transitions ----------------------------------------------------------------------------------

    def evict(self, reason: str, message: str, cause: str = "") -> None:
        """Evict the workload, so that its job stops. It keeps its quota until then; its checks are reset.

        Values of other programs must not prevent the write: a cause that is too long is shortened, counters
        stop at the largest number, and an eviction for which the list has no space is not counted.
        """
        cause = cause[:_LONGEST_CAUSE].rstrip(",:")
        eviction_reason = create_deactivation_reason(cause) if reason == Reason.DEACTIVATED else reason
        self.set_condition(ConditionType.EVICTED, True, eviction_reason, message)
        self._reset_for_eviction(eviction_reason, message)
        self._count_eviction(reason, cause)

    def preempt(self, reason: str, message: str) -> None:
        """Evict the workload for a preemptor, with the reason of the preemption."""
        self.evict(Reason.PREEMPTED, message)
        self.set_condition(ConditionType.PREEMPTED, True, reason, message)

    def _reset_for_eviction(self, reason: str, message: str) -> None:
        """Reset the decisions about the evicted admission: clusters, nodes, checks and gates."""
        for field in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
            self.status.pop(field, None)
        if self.is_condition_true(ConditionType.BLOCKED_ON_PREEMPTION_GATES):
            self.set_condition(ConditionType.BLOCKED_ON_PREEMPTION_GATES, False, reason, message)
        self._reset_checks_and_gates(lambda _: True)

    def _reset_checks_and_gates(self, is_outdated: Callable[[JsonObject], bool]) -> None:
        """Reset outdated checks and gates."""
        for field, reset in (("admissionChecks", self._reset_check), ("preemptionGates", self._close_gate)):
            if self.status.get(field):
                self.status[field] = [
                    reset(item) if is_outdated(item) else item for item in self.status[field]
                ]

    def _reset_check(self, check: JsonObject) -> JsonObject:
        """Return the check after an eviction: Retry increments its retry count, Ready removes the count."""
        state = check.get("state")
        if state == "Pending":
            return check
        result = {key: value for key, value in check.items() if key != "podSetUpdates"}
        result |= {
            "state": "Pending",
            "message": f"{CHECK_RESET_PREFIX} Previously: {state}",
            "lastTransitionTime": conditions.format_time(self._now),
        }
        if state == "Ready":
            result.pop("retryCount", None)
        if state == "Retry":
            result["retryCount"] = _next_count(check.get("retryCount"))
        return result

    def _close_gate(self, gate: JsonObject) -> JsonObject:
        if gate.get("position") == "Closed":
            return gate
        return {**gate, "position": "Closed", "lastTransitionTime": conditions.format_time(self._now)}

    def _count_eviction(self, reason: str, cause: str) -> None:
        stats = dict(self.status.get("schedulingStats") or {})
        counts = [dict(count) for count in stats.get("evictions") or ()]
        for count in counts:
            if (count.get("reason"), count.get("underlyingCause") or "") == (reason, cause):
                count["count"] = _next_count(count.get("count"))
                break
        else:
            if len(counts) == MAX_COUNTED_EVICTIONS:
                return
            counts.append({"reason": reason, "underlyingCause": cause, "count": 1})
        stats["evictions"] = counts
        self.status["schedulingStats"] = stats

    def release(self, reason: str, message: str) -> None:
        """Release the reservation; the workload waits again for the given reason."""
        self.set_condition(ConditionType.QUOTA_RESERVED, False, reason, message)
        self.status.pop("admission", None)
        self.end_admission()
        self.reset_pods_ready()

    def end_admission(self) -> None:
        """Set Admitted=False, and add the time of the admission to the past execution time."""
        admitted = self.find_condition(ConditionType.ADMITTED)
        if admitted is not None and admitted.get("status") == "True":
            self.add_execution_time(self._now - conditions.parse_time(admitted["lastTransitionTime"]))
        self.set_condition(ConditionType.ADMITTED, False, Reason.NO_RESERVATION, NO_RESERVATION)

    def add_execution_time(self, ran: int) -> None:
        """Add the time of an ended admission, in nanoseconds, to the past execution time."""
        if forgets_past_execution_time({"status": self.status}):
            self.status.pop("accumulatedPastExecutionTimeSeconds", None)
            return
        past = self.status.get("accumulatedPastExecutionTimeSeconds") or 0
        self.status["accumulatedPastExecutionTimeSeconds"] = min(past + max(0, ran) // SECOND, LARGEST_COUNT)

    def requeue(self, pending_reason: str, *, may_return: bool = True) -> None:
        """End an eviction after the job has stopped: release the quota, and requeue the workload.

        With ``may_return=False`` the workload is not requeued at once, whatever the kind of eviction. If the
        backoff ended while the workload still held its quota, the workload stays requeued, because nothing
        would end a second backoff. Another program may have written only the eviction, so checks and gates
        that have not changed since are reset here. Checks in state Retry are reset, too: this is the retry,
        and cycles do not evaluate a workload with such a check.
        """
        evicted = self.find_condition(ConditionType.EVICTED) or {}
        reason, message = evicted.get("reason", ""), evicted.get("message", "")
        if not self._is_backoff_over(evicted):
            # The condition gets a new transition time, because the wait is measured from this requeue on.
            self.remove_condition(ConditionType.REQUEUED)
            returns = may_return and reason in _REASONS_REQUEUED_AT_ONCE
            self.set_condition(ConditionType.REQUEUED, returns, reason, message)
        if evicted:
            began = conditions.parse_time(evicted["lastTransitionTime"])
            self._reset_checks_and_gates(
                lambda check: (
                    check.get("state") == "Retry"
                    or conditions.parse_time(check["lastTransitionTime"]) < began
                )
            )
        self.release(pending_reason, message)

    def _is_backoff_over(self, evicted: Mapping[str, Any]) -> bool:
        """Whether the backoff of the eviction has ended: Requeued states the end, and no requeueAt is set."""
        requeued = self.find_condition(ConditionType.REQUEUED) or {}
        return (
            evicted.get("reason") in _REASONS_REQUEUED_AFTER_BACKOFF
            and (requeued.get("status"), requeued.get("reason")) == ("True", Reason.BACKOFF_FINISHED)
            and not (self.status.get("requeueState") or {}).get("requeueAt")
            and conditions.parse_time(requeued["lastTransitionTime"])
            >= conditions.parse_time(evicted["lastTransitionTime"])
        )

    def reset_pods_ready(self) -> None:
        """Set the condition PodsReady, if it is present, to its state before the start of the job."""
        ready = self.find_condition(ConditionType.PODS_READY)
        if ready is not None and (ready.get("status"), ready.get("reason")) != (
            "False",
            Reason.WAIT_FOR_START,
        ):
            self.set_condition(ConditionType.PODS_READY, False, Reason.WAIT_FOR_START, NOT_ALL_PODS_READY)

    def add_pods_ready(self) -> None:
        """Add PodsReady=False if the status has QuotaReserved and does not have PodsReady."""
        if self.find_condition(ConditionType.QUOTA_RESERVED) is None or self.find_condition(
            ConditionType.PODS_READY
        ):
            return
        self.set_condition(ConditionType.PODS_READY, False, Reason.WAIT_FOR_START, NOT_ALL_PODS_READY)

    def update_pods_ready(self, *, admitted: bool, ready: bool) -> None:
        """Set PodsReady by whether the pods are ready.

        If pods were ready and are not any more, the reason is WaitForRecovery until they are ready again.
        This method does not add the condition for pods that have not started: the writes of a reservation or
        a refusal add it.
        """
        before = self.find_condition(ConditionType.PODS_READY)
        if not admitted or (before is None and not ready):
            self.reset_pods_ready()
            return
        before = before or {}
        was_ready, reason = before.get("status") == "True", before.get("reason")
        recovering = reason in {Reason.WAIT_FOR_RECOVERY, Reason.RECOVERED}
        if ready:
            self.set_condition(
                ConditionType.PODS_READY,
                True,
                Reason.RECOVERED if recovering else Reason.STARTED,
                "All pods reached readiness and the workload is running",
            )
        elif was_ready or reason == Reason.WAIT_FOR_RECOVERY:
            self.set_condition(
                ConditionType.PODS_READY,
                False,
                Reason.WAIT_FOR_RECOVERY,
                "At least one pod has failed, waiting for recovery",
            )
        else:
            self.set_condition(ConditionType.PODS_READY, False, Reason.WAIT_FOR_START, NOT_ALL_PODS_READY)

    def set_unhealthy_nodes(self, hosts: Iterable[str]) -> None:
        """List the failed hosts of the topology assignment, on which no pods run any more."""
        self.status["unhealthyNodes"] = [{"name": host} for host in hosts]

    def finish(self, reason: str, message: str) -> None:
        """Set the condition Finished."""
        self.set_condition(ConditionType.FINISHED, True, reason, message)


def _next_count(count: int | None) -> int:
    return min((count or 0) + 1, LARGEST_COUNT)


def forgets_past_execution_time(workload: JsonObject) -> bool:
    """Whether the past execution time is reset: the workload was deactivated when it reached its maximum."""
    evicted = find_condition(workload, ConditionType.EVICTED) or {}
    return evicted.get("reason") == create_deactivation_reason(Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED)


def count_evictions(workload: JsonObject, reason: str, cause: str) -> int:
    """Return how often the Workload was evicted for this reason and cause."""
    for count in value_at(workload, ("status", "schedulingStats", "evictions"), []):
        if (count.get("reason"), count.get("underlyingCause") or "") == (reason, cause):
            return count.get("count") or 0
    return 0
