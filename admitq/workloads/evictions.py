"""Every way in which a workload loses its quota, and when it may compete for it again (semantics, Eviction).

The transitions, the controllers and the page of the documentation are made from this table.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from admitq_api.conditions import Reason, create_deactivation_reason


class RequeueTime(StrEnum):
    """When an evicted workload may compete again, once its job has stopped."""

    AT_ONCE = "at once"
    AFTER_BACKOFF = "when its backoff is over"
    WITH_QUEUE = "when the queue goes on"
    WHEN_REACTIVATED = "when `spec.active` is true again"


@dataclass(frozen=True, slots=True)
class EvictionKind:
    """One way: the reason, for some of them the cause beneath it, and what brings it about."""

    reason: Reason
    trigger: str
    requeue_time: RequeueTime
    requeued_reason: Reason
    """The reason of Requeued=True from when on it may compete again."""
    cause: str = ""

    @property
    def condition_reason(self) -> str:
        """The reason of the condition Evicted; of causes it names those of deactivations only."""
        return (
            create_deactivation_reason(self.cause) if self.reason is Reason.DEACTIVATED else str(self.reason)
        )

    @property
    def event_reason(self) -> str:
        """The reason of the event about the Workload."""
        return eviction_event_reason(self.reason, self.cause)


def eviction_event_reason(reason: str, cause: str = "") -> str:
    """The reason of the event that tells of an eviction."""
    return f"EvictedDueTo{reason}" + (f"DueTo{cause}" if cause else "")


def _deactivated(trigger: str, cause: str = "") -> EvictionKind:
    return EvictionKind(Reason.DEACTIVATED, trigger, RequeueTime.WHEN_REACTIVATED, Reason.REACTIVATED, cause)


EVICTIONS: Final = (
    EvictionKind(
        Reason.PREEMPTED,
        "another workload needs its quota, and may take it",
        RequeueTime.AT_ONCE,
        Reason.PREEMPTED,
    ),
    EvictionKind(
        Reason.NODE_FAILURES,
        "nodes of its pods failed; whoever watches nodes writes it, admitq itself does not yet",
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
    _deactivated("somebody set `spec.active` to false"),
    _deactivated("an admission check is in state `Rejected`", Reason.ADMISSION_CHECK),
    _deactivated(
        "it came back more often than `waitForPodsReady.requeuingStrategy.backoffLimitCount`",
        Reason.REQUEUING_LIMIT_EXCEEDED,
    ),
    _deactivated(
        "it ran for `spec.maximumExecutionTimeSeconds`, all its admissions taken together",
        Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
    ),
    _deactivated(
        "it was evicted on the cluster that sent it here; admitq itself does not write it yet",
        Reason.EVICTED_ON_MANAGER_CLUSTER,
    ),
)


def reasons_requeued(when: RequeueTime) -> frozenset[str]:
    """The reasons of Evicted after which a workload returns like this."""
    return frozenset(one.condition_reason for one in EVICTIONS if one.requeue_time is when)
