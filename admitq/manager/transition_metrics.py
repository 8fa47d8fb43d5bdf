"""Counts the transitions of Workloads, whichever program wrote them.

A transition is a difference between two consecutive versions of a Workload in the store. The store reports
each version once, whether it comes from the watch or from the answer to a write. So each transition is
counted once. The first version of a Workload that a process observes counts nothing.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from admitq.core.model import Instant
from admitq.workloads.admission_patches import queued_since
from admitq.workloads.transitions import count_evictions
from admitq_api.conditions import SECOND, ConditionsByType, ConditionType, Reason, get_metric_reason
from admitq_api.json_objects import JsonObject, value_at


class TransitionMetrics(Protocol):
    """The metrics that transitions of Workloads change. Durations are seconds; arguments are positional."""

    def quota_reserved(self, workload: JsonObject, cluster_queue: str, since_queued: float, /) -> None:
        """Count that quota was reserved, ``since_queued`` after the Workload was queued."""
        ...

    def admitted(
        self, workload: JsonObject, cluster_queue: str, since_queued: float, since_reserved: float, /
    ) -> None:
        """Count that the Workload was admitted."""
        ...

    def pods_became_ready(self, workload: JsonObject, since_queued: float, since_admitted: float, /) -> None:
        """Record that all pods were ready for the first time since the admission."""
        ...

    def evicted(self, workload: JsonObject, reason: str, cause: str, /, *, first: bool) -> None:
        """Count an eviction; ``first`` if it is the Workload's first one for this reason and cause."""
        ...

    def quota_released(self, workload: JsonObject, reason: str, since_evicted: float, /) -> None:
        """Record that the quota of an evicted Workload was released."""
        ...

    def finished(self, workload: JsonObject, ran: float | None, /) -> None:
        """Count that the Workload finished, ``ran`` after its admission; None if it was not admitted."""
        ...

    def slice_replaced(self, workload: JsonObject, /) -> None:
        """Count that a larger slice replaced a slice of an elastic job."""
        ...


_CONDITIONS: Final = ("status", "conditions")


class WorkloadVersions:
    """Two consecutive versions of one Workload.

    Args:
        old: the former version.
        new: the current version; None if the Workload was deleted.
        now: the time, in nanoseconds.

    Attributes:
        last_seen: the current Workload, or its last version before the deletion.
        former: the conditions of the former version.
        latest: the conditions of the last version.
    """

    def __init__(self, old: JsonObject, new: JsonObject | None, now: Instant) -> None:
        self.old = old
        self.new = new
        self.last_seen = old if new is None else new
        self.former = ConditionsByType(value_at(old, _CONDITIONS))
        self.latest = self.former if new is None else ConditionsByType(value_at(new, _CONDITIONS))
        self._now = now

    def has_become_true(self, type: ConditionType) -> bool:  # noqa: A002 the name in the API
        """Whether a condition became True."""
        return not self.former.is_true(type) and self.latest.is_true(type)

    def seconds_since(self, type: ConditionType) -> float:  # noqa: A002 the name in the API
        """Return the seconds since the last transition of a condition."""
        return self._seconds(self.latest.since(type))

    @property
    def seconds_queued(self) -> float:
        """Seconds since the Workload was queued before its last reservation."""
        return self._seconds(queued_since(self.last_seen))

    def _seconds(self, start: Instant | None) -> float:
        return 0.0 if start is None else max(0, self._now - start) / SECOND


def _cluster_queue(workload: JsonObject) -> str:
    return value_at(workload, ("status", "admission", "clusterQueue"), "")


def _count_reservation(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    if versions.has_become_true(ConditionType.QUOTA_RESERVED):
        workload = versions.last_seen
        metrics.quota_reserved(workload, _cluster_queue(workload), versions.seconds_queued)


def _count_admission(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    if not versions.has_become_true(ConditionType.ADMITTED):
        return
    at_once = versions.has_become_true(ConditionType.QUOTA_RESERVED)
    since_reserved = 0.0 if at_once else versions.seconds_since(ConditionType.QUOTA_RESERVED)
    workload = versions.last_seen
    metrics.admitted(workload, _cluster_queue(workload), versions.seconds_queued, since_reserved)


def _count_readiness(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    if not versions.has_become_true(ConditionType.PODS_READY):
        return
    ready = versions.latest.find(ConditionType.PODS_READY) or {}
    if ready.get("reason") == Reason.STARTED and versions.latest.is_true(ConditionType.ADMITTED):
        since_admitted = versions.seconds_since(ConditionType.ADMITTED)
        metrics.pods_became_ready(versions.last_seen, versions.seconds_queued, since_admitted)


class _Eviction(NamedTuple):
    reason: str
    cause: str


def _find_eviction(versions: WorkloadVersions) -> _Eviction:
    """Return what the eviction counts as: the statistics of the Workload decide, else its conditions."""
    for counted in value_at(versions.last_seen, ("status", "schedulingStats", "evictions"), []):
        eviction = _Eviction(counted.get("reason", ""), counted.get("underlyingCause") or "")
        if (counted.get("count") or 0) > count_evictions(versions.old, *eviction):
            return eviction
    stated: str = (versions.latest.find(ConditionType.EVICTED) or {}).get("reason", "")
    reason = get_metric_reason(stated)
    cause = stated.removeprefix(reason).removeprefix("DueTo")
    if stated == Reason.PODS_READY_TIMEOUT:
        ready = versions.former.find(ConditionType.PODS_READY) or {}
        recovers = ready.get("reason") == Reason.WAIT_FOR_RECOVERY
        cause = Reason.WAIT_FOR_RECOVERY if recovers else Reason.WAIT_FOR_START
    return _Eviction(reason, str(cause))


def _count_eviction(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    if versions.has_become_true(ConditionType.EVICTED):
        eviction = _find_eviction(versions)
        first = count_evictions(versions.old, *eviction) == 0
        metrics.evicted(versions.last_seen, eviction.reason, eviction.cause, first=first)


def _holds_quota(state: ConditionsByType) -> bool:
    return state.is_true(ConditionType.QUOTA_RESERVED) and not state.is_true(ConditionType.FINISHED)


def _count_release(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    """Record the end of an eviction: the Workload waits again, has finished, or was deleted."""
    evicted = versions.latest.find(ConditionType.EVICTED)
    if evicted is None or evicted.get("status") != "True":
        return
    holds_on = versions.new is not None and _holds_quota(versions.latest)
    if _holds_quota(versions.former) and not holds_on:
        reason = get_metric_reason(evicted.get("reason", ""))
        metrics.quota_released(versions.old, reason, versions.seconds_since(ConditionType.EVICTED))


def _count_end(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    if not versions.has_become_true(ConditionType.FINISHED):
        return
    workload = versions.last_seen
    is_admitted = versions.latest.is_true(ConditionType.ADMITTED)
    metrics.finished(workload, versions.seconds_since(ConditionType.ADMITTED) if is_admitted else None)
    reason = (versions.latest.find(ConditionType.FINISHED) or {}).get("reason")
    if reason == Reason.WORKLOAD_SLICE_REPLACED and versions.former.is_true(ConditionType.QUOTA_RESERVED):
        metrics.slice_replaced(workload)


TRANSITIONS: Final[tuple[Callable[[WorkloadVersions, TransitionMetrics], None], ...]] = (
    _count_reservation,
    _count_admission,
    _count_readiness,
    _count_eviction,
    _count_release,
    _count_end,
)


def count_transitions(versions: WorkloadVersions, metrics: TransitionMetrics) -> None:
    """Count every transition between two versions of a Workload."""
    for count in TRANSITIONS:
        count(versions, metrics)
