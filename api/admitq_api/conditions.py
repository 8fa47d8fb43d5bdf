"""Status conditions: their types and reasons, and pure functions on lists of them.

A condition is the raw object of the API: `type`, `status`, `reason`, `message`,
`lastTransitionTime` and, where known, `observedGeneration`. Functions never change their input.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

MAX_MESSAGE = 32768
"""The maximum number of characters in the message of a condition."""

SECOND = 1_000_000_000
"""One second in nanoseconds."""


class ConditionType(StrEnum):
    """The types of conditions that admitq writes."""

    ACTIVE = "Active"
    """ClusterQueue, LocalQueue, AdmissionCheck, MultiKueueCluster: the object can be used."""

    JOBS_REFUSED = "JobsRefused"
    """LocalQueue: it has jobs for which no Workload can be created. It is absent without such jobs."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    PODS_READY = "PodsReady"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    FINISHED = "Finished"
    DEACTIVATION_TARGET = "DeactivationTarget"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
    BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"
    PODS_OUTLIVE_JOB = "PodsOutliveJob"
    """Workload: its job is deleted or being deleted, and pods of the job can still run."""

    MULTIKUEUE_QUOTA_AUTOMATION = "MultiKueueManagerQuotaAutomation"


class Reason(StrEnum):
    """The reasons of conditions that admitq writes, grouped by condition."""

    # ClusterQueue and LocalQueue: Active
    READY = "Ready"
    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    MULTIPLE_MULTIKUEUE_CHECKS = "MultipleMultiKueueAdmissionChecks"
    MULTIKUEUE_CHECK_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor"
    MULTIKUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    UNKNOWN = "Unknown"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"

    # the condition JobsRefused of a LocalQueue
    QUARANTINED = "Quarantined"

    # the condition QuotaReserved of a Workload
    QUOTA_RESERVED = "QuotaReserved"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"
    PENDING = "Pending"
    INADMISSIBLE = "Inadmissible"
    WAITING = "Waiting"
    IMPORTED = "Imported"

    # the condition Admitted of a Workload
    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"
    UNSATISFIED_CHECKS = "UnsatisfiedChecks"
    NO_RESERVATION_UNSATISFIED_CHECKS = "NoReservationUnsatisfiedChecks"
    PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests"

    # the condition PodsReady of a Workload
    STARTED = "Started"
    RECOVERED = "Recovered"
    WAIT_FOR_START = "WaitForStart"
    WAIT_FOR_RECOVERY = "WaitForRecovery"

    # the condition Evicted of a Workload; see `create_deactivation_reason` for deactivations with a cause
    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    FLAVOR_MIGRATION = "FlavorMigration"
    VARIANT_EVICTED = "VariantEvicted"
    CONCURRENT_ADMISSION = "ConcurrentAdmission"

    # the condition PodsOutliveJob of a Workload
    PODS_RUNNING = "PodsRunning"

    # the condition DeactivationTarget, and the cause of a deactivation of a Workload
    REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    EVICTED_ON_MANAGER_CLUSTER = "EvictedOnManagerCluster"

    # the condition Preempted of a Workload
    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"

    # the condition Requeued of a Workload
    REACTIVATED = "Reactivated"
    BACKOFF_FINISHED = "BackoffFinished"
    CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted"
    LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted"

    # the condition Finished of a Workload
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    OWNER_NOT_FOUND = "OwnerNotFound"
    WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced"
    FAILED_TO_START = "FailedToStart"

    # the condition WaitingForReplacementPods, BlockedOnPreemptionGates of a Workload
    PODS_FAILED = "PodsFailed"
    PODS_READY = "PodsReady"
    PREEMPTION_GATED = "PreemptionGated"

    # AdmissionCheck, MultiKueueCluster: Active
    ACTIVE = "Active"
    BAD_PARAMETERS_REF = "BadParametersRef"
    BAD_CONFIG = "BadConfig"
    SOME_ACTIVE_CLUSTERS = "SomeActiveClusters"
    NO_USABLE_CLUSTERS = "NoUsableClusters"

    # the condition MultiKueueManagerQuotaAutomation of a ClusterQueue
    UNSUPPORTED_CONFIGURATION = "UnsupportedConfiguration"
    NOT_REQUESTED = "NotRequested"
    QUOTA_AUTOMATED = "QuotaAutomated"


def create_deactivation_reason(cause: str) -> str:
    """Return the reason of Evicted for a Workload that was deactivated for a cause."""
    return f"{Reason.DEACTIVATED}DueTo{cause}" if cause else str(Reason.DEACTIVATED)


def get_metric_reason(reason: str) -> str:
    """Return the reason of an eviction for metrics, which have the cause in a separate label."""
    return str(Reason.DEACTIVATED) if reason.startswith(create_deactivation_reason("")) else reason


Condition = Mapping[str, Any]
"""One condition, as the raw object of the API."""


def find_condition(conditions: Sequence[Condition] | None, type: str) -> Condition | None:  # noqa: A002 the API's name
    """Return the condition of a type; None if there is none."""
    for condition in conditions or ():
        if condition.get("type") == type:
            return condition
    return None


def is_true(conditions: Sequence[Condition] | None, type: str) -> bool:  # noqa: A002 the API's name
    """Whether the condition of a type exists and is True."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.get("status") == "True"


def is_false(conditions: Sequence[Condition] | None, type: str) -> bool:  # noqa: A002 the API's name
    """Whether the condition of a type exists and is False. An absent condition is neither True nor False."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.get("status") == "False"


def transition_time(condition: Condition | None) -> int | None:
    """Return the last transition of a condition in nanoseconds; None if it is absent or not readable."""
    try:
        return None if condition is None else parse_time(condition.get("lastTransitionTime", ""))
    except (ValueError, TypeError):
        return None


class ConditionsByType:
    """The conditions of one object by type, for code that reads many of them without searching each time.

    Of several conditions of one type, the first counts.
    """

    __slots__ = ("_by_type",)

    def __init__(self, conditions: Sequence[Condition] | None) -> None:
        self._by_type = {condition.get("type"): condition for condition in reversed(conditions or ())}

    def find(self, type: str) -> Condition | None:  # noqa: A002 the API's name
        """Return the condition of a type; None if there is none."""
        return self._by_type.get(type)

    def is_true(self, type: str) -> bool:  # noqa: A002 the API's name
        """Whether the condition of a type exists and is True."""
        condition = self._by_type.get(type)
        return condition is not None and condition.get("status") == "True"

    def since(self, type: str) -> int | None:  # noqa: A002 the API's name
        """Return the last transition of a condition in nanoseconds; None if it is absent or not readable."""
        return transition_time(self._by_type.get(type))


GATED_BY = "Admission is gated by: "
"""The start of the message of QuotaReserved if admission gates delay a Workload. The gates follow it."""


def list_reported_gates(conditions: Sequence[Condition] | None) -> tuple[str, ...]:
    """Return the admission gates in the message of QuotaReserved. Preemption gates have the same reason."""
    quota = find_condition(conditions, ConditionType.QUOTA_RESERVED) or {}
    message = quota.get("message") or ""
    if quota.get("reason") != Reason.ADMISSION_GATED or not message.startswith(GATED_BY):
        return ()
    return tuple(message.removeprefix(GATED_BY).split(","))


def with_condition(
    conditions: Sequence[Condition] | None,
    *,
    type: str,  # noqa: A002 the API's name
    status: str | bool,
    reason: str,
    message: str,
    now: int,
    observed_generation: int | None = None,
) -> list[dict[str, Any]]:
    """Return the conditions with one condition set, at its previous position or at the end.

    Args:
        conditions: the list of conditions, which is not changed.
        type: the type of the condition to set.
        status: "True", "False" or "Unknown", or a bool for the first two.
        reason: one word in CamelCase.
        message: a text for people. It is truncated to the maximum length.
        now: Unix time in nanoseconds. It becomes lastTransitionTime if the status changes.
        observed_generation: the metadata.generation that the decision was based on, if known.

    Returns:
        A new list. It is equal to the old one if the condition has not changed, so that callers can compare
        the lists to decide whether a write is needed.
    """
    value = ("True" if status else "False") if isinstance(status, bool) else str(status)
    result = [dict(condition) for condition in conditions or ()]
    old = next((condition for condition in result if condition.get("type") == type), None)
    transition = old.get("lastTransitionTime") if old is not None and old.get("status") == value else None
    new: dict[str, Any] = {
        "type": str(type),
        "status": value,
        "reason": str(reason),
        "message": truncate(message),
        "lastTransitionTime": transition or format_time(now),
    }
    if observed_generation is not None:
        new["observedGeneration"] = observed_generation
    if old is None:
        result.append(new)
    else:
        old.clear()
        old.update(new)
    return result


def without_condition(conditions: Sequence[Condition] | None, type: str) -> list[dict[str, Any]]:  # noqa: A002
    """Return the conditions without the condition of a type."""
    return [dict(condition) for condition in conditions or () if condition.get("type") != type]


def truncate(message: str, limit: int = MAX_MESSAGE) -> str:
    """Return the message with at most `limit` characters. A truncated message ends in " ..."."""
    return message if len(message) <= limit else message[: limit - 4] + " ..."


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def format_time(ns: int) -> str:
    """Return a Unix time in nanoseconds in the format of the API: UTC, in whole seconds, rounded down."""
    return _format_seconds(ns // SECOND)


@lru_cache(maxsize=256)
def _format_seconds(seconds: int) -> str:
    # Very many objects get the present time.
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


_LONGEST_CACHED_TIME = 64


def parse_time(text: str) -> int:
    """Return an RFC 3339 time, with or without fraction, as Unix time in nanoseconds.

    Raises:
        ValueError: the text is not such a time.
    """
    return _parse_time_cached(text) if len(text) <= _LONGEST_CACHED_TIME else _parse_time(text)


def _parse_time(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time like 2026-01-31T12:00:00Z")
    date, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


# Many objects have the same times: those of a burst, and the conditions of one write.
_parse_time_cached = lru_cache(maxsize=8192)(_parse_time)
