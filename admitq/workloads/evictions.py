"""The kinds of evictions, and when an evicted workload is requeued (semantics, Eviction).

Transitions, controllers and a page of the documentation use this table.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from admitq_api.conditions import Reason, create_deactivation_reason


class RequeueTime(StrEnum):
    """When an evicted workload is requeued, once its job has stopped."""

    AT_ONCE = "at once"
    AFTER_BACKOFF = "when its backoff ends"
    WITH_QUEUE = "when the queue is resumed"
    WHEN_REACTIVATED = "when `spec.active` is true again"


@dataclass(frozen=True, slots=True)
class EvictionKind:
    """One kind of eviction: its reason, for some reasons an underlying cause, and its trigger."""

    reason: Reason
    trigger: str
    requeue_time: RequeueTime
    requeued_reason: Reason
    """The reason of the condition Requeued=True with which the workload is requeued."""
    cause: str = ""

    @property
    def condition_reason(self) -> str:
        """The reason of the condition Evicted; only the reasons of deactivations contain the cause."""
        return (
            create_deactivation_reason(self.cause) if self.reason is Reason.DEACTIVATED else str(self.reason)
        )

    @property
    def event_reason(self) -> str:
        """The reason of the event about the Workload."""
        return eviction_event_reason(self.reason, self.cause)


def eviction_event_reason(reason: str, cause: str = "") -> str:
    """Return the reason of the event about an eviction."""
    return f"EvictedDueTo{reason}" + (f"DueTo{cause}" if cause else "")


def _deactivated(trigger: str, cause: str = "") -> EvictionKind:
    return EvictionKind(Reason.DEACTIVATED, trigger, RequeueTime.WHEN_REACTIVATED, Reason.REACTIVATED, cause)


EVICTIONS: Final = (
    EvictionKind(
        Reason.PREEMPTED,
        "another workload needs its quota, and the preemption policy allows it",
        RequeueTime.AT_ONCE,
        Reason.PREEMPTED,
    ),
    EvictionKind(
        Reason.NODE_FAILURES,
        "a node of its pods failed, and no other node had room for them; or more than one node failed",
        RequeueTime.AT_ONCE,
        Reason.NODE_FAILURES,
    ),
    EvictionKind(
        Reason.PODS_READY_TIMEOUT,
        "its pods were not ready within `waitForPodsReady.timeout` of the admission",
        RequeueTime.AFTER_BACKOFF,
        Reason.BACKOFF_FINISHED,
        Reason.WAIT_FOR_START,
    ),
    EvictionKind(
        Reason.PODS_READY_TIMEOUT,
        "its pods were ready, failed, and were not ready again within `waitForPodsReady.recoveryTimeout`",
        RequeueTime.AFTER_BACKOFF,
        Reason.BACKOFF_FINISHED,
        Reason.WAIT_FOR_RECOVERY,
    ),
    EvictionKind(
        Reason.ADMISSION_CHECK,
        "an admission check is in state `Retry`",
        RequeueTime.AFTER_BACKOFF,
        Reason.BACKOFF_FINISHED,
    ),
    EvictionKind(
        Reason.CLUSTER_QUEUE_STOPPED,
        "its ClusterQueue has `stopPolicy: HoldAndDrain`",
        RequeueTime.WITH_QUEUE,
        Reason.CLUSTER_QUEUE_RESTARTED,
    ),
    EvictionKind(
        Reason.LOCAL_QUEUE_STOPPED,
        "its LocalQueue has `stopPolicy: HoldAndDrain`",
        RequeueTime.WITH_QUEUE,
        Reason.LOCAL_QUEUE_RESTARTED,
    ),
    _deactivated("a user or a controller set `spec.active` to false"),
    _deactivated("an admission check is in state `Rejected`", Reason.ADMISSION_CHECK),
    _deactivated(
        "it was requeued more often than `waitForPodsReady.requeuingStrategy.backoffLimitCount`",
        Reason.REQUEUING_LIMIT_EXCEEDED,
    ),
    _deactivated(
        "it ran for `spec.maximumExecutionTimeSeconds`, summed over all its admissions",
        Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
    ),
    _deactivated(
        "it was evicted on the manager cluster that created it here; admitq does not write this yet",
        Reason.EVICTED_ON_MANAGER_CLUSTER,
    ),
)


def reasons_requeued(when: RequeueTime) -> frozenset[str]:
    """Return the reasons of the condition Evicted after which a workload is requeued at this time."""
    return frozenset(eviction.condition_reason for eviction in EVICTIONS if eviction.requeue_time is when)
