"""Metrics: one table of series, and a registry of its own that drops what no longer exists.

Every series carries ``replica_role``: leader, follower or standalone. Durations are seconds.
"""

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from admitq_api.version import VERSION

Role = str

# A creation time beside every counter doubles the series and nobody reads it.
disable_created_metrics()


class Type(Enum):
    """How a series behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


def _wait_buckets(count: int) -> tuple[float, ...]:
    return (1.0, *(2.5 * 2**i for i in range(count - 1)))


WAIT_BUCKETS: Final = _wait_buckets(14)
LONG_WAIT_BUCKETS: Final = _wait_buckets(16)
CREATION_BUCKETS: Final = tuple(0.01 * 2**i for i in range(11))
ATTEMPT_BUCKETS: Final = Histogram.DEFAULT_BUCKETS


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: name without prefix, what it tells, its labels besides ``replica_role``."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = WAIT_BUCKETS


_C, _G, _H = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM
_CQ: Final = ("cluster_queue",)
_CQ_CLASS: Final = ("cluster_queue", "priority_class")
_CQ_QUOTA: Final = ("cohort", "cluster_queue", "flavor", "resource")
_LQ: Final = ("name", "namespace")
_LQ_CLASS: Final = ("name", "namespace", "priority_class")
_LQ_QUOTA: Final = ("name", "namespace", "flavor", "resource")
_EVICTION: Final = ("reason", "underlying_cause", "priority_class")

TABLE: Final[tuple[Series, ...]] = (
    Series("build_info", _G, "1, labelled with what was built", ("version", "python_version", "platform")),
    Series("admission_attempts_total", _C, "Admission cycles by result", ("result",)),
    Series(
        "admission_attempt_duration_seconds", _H, "Length of an admission cycle", ("result",), ATTEMPT_BUCKETS
    ),
    Series(
        "admission_cycle_preemption_skips",
        _G,
        "Workloads of the last cycle that could not preempt because another one already did",
        _CQ,
    ),
    Series(
        "preemption_target_recomputations_total",
        _C,
        "Workloads assigned anew because another one preempts whom they would have to preempt",
        ("cluster_queue", "result"),
    ),
    Series("pending_workloads", _G, "Workloads that wait", ("cluster_queue", "status")),
    Series(
        "pending_scheduling_hashes", _G, "Distinct shapes of workloads that wait", ("cluster_queue", "status")
    ),
    Series("finished_workloads", _G, "Finished workloads that still exist", _CQ),
    Series("quota_reserved_workloads_total", _C, "Workloads that got quota", _CQ_CLASS),
    Series("admitted_workloads_total", _C, "Workloads admitted", _CQ_CLASS),
    Series("finished_workloads_total", _C, "Workloads finished", _CQ_CLASS),
    Series("replaced_workload_slices_total", _C, "Slices of elastic jobs replaced by larger ones", _CQ),
    Series("quota_reserved_wait_time_seconds", _H, "From queued to quota reserved", _CQ_CLASS),
    Series("admission_wait_time_seconds", _H, "From queued to admitted", _CQ_CLASS, LONG_WAIT_BUCKETS),
    Series("admission_checks_wait_time_seconds", _H, "From quota reserved to admitted", _CQ_CLASS),
    Series("ready_wait_time_seconds", _H, "From queued to all pods ready", _CQ_CLASS),
    Series("admitted_until_ready_wait_time_seconds", _H, "From admitted to all pods ready", _CQ_CLASS),
    Series("execution_time_seconds", _H, "From admitted to finished", _CQ_CLASS, LONG_WAIT_BUCKETS),
    Series(
        "pods_ready_to_evicted_time_seconds",
        _H,
        "From all pods ready to evicted",
        ("cluster_queue", "reason", "underlying_cause"),
    ),
    Series(
        "workload_eviction_latency_seconds",
        _H,
        "From evicted to quota released",
        ("cluster_queue", "reason"),
    ),
    Series("evicted_workloads_total", _C, "Evictions", ("cluster_queue", *_EVICTION)),
    Series(
        "evicted_workloads_once_total", _C, "Workloads evicted at least once", ("cluster_queue", *_EVICTION)
    ),
    Series("preempted_workloads_total", _C, "Preemptions", ("preempting_cluster_queue", "reason")),
    Series("reserving_active_workloads", _G, "Workloads that hold quota", _CQ),
    Series("admitted_active_workloads", _G, "Workloads admitted and not finished", _CQ),
    Series("cluster_queue_status", _G, "1 for the current status", ("cluster_queue", "status")),
    Series(
        "unadmitted_workloads", _G, "Workloads not admitted", ("cluster_queue", "reason", "underlying_cause")
    ),
    Series(
        "cluster_queue_resource_pending", _G, "Requested by those who wait", ("cluster_queue", "resource")
    ),
    Series(
        "cluster_queue_info",
        _G,
        "1, labelled with the place",
        ("cluster_queue", "parent_cohort", "root_cohort"),
    ),
    Series(
        "cluster_queue_weighted_share",
        _G,
        "Share of what may be borrowed that is borrowed, NaN with a weight of 0",
        ("cluster_queue", "cohort"),
    ),
    Series("cluster_queue_resource_reservation", _G, "Quota reserved", _CQ_QUOTA),
    Series("cluster_queue_resource_usage", _G, "Quota used by admitted workloads", _CQ_QUOTA),
    Series("cluster_queue_nominal_quota", _G, "Nominal quota", _CQ_QUOTA),
    Series("cluster_queue_borrowing_limit", _G, "Borrowing limit, +Inf if unset", _CQ_QUOTA),
    Series("cluster_queue_lending_limit", _G, "Lending limit, +Inf if unset", _CQ_QUOTA),
    Series("cohort_info", _G, "1, labelled with the place", ("cohort", "parent_cohort", "root_cohort")),
    Series(
        "cohort_weighted_share",
        _G,
        "Share of what may be borrowed that is borrowed, NaN with a weight of 0",
        ("cohort",),
    ),
    Series("cohort_subtree_quota", _G, "Quota of the cohort's subtree", ("cohort", "flavor", "resource")),
    Series(
        "cohort_subtree_resource_reservations",
        _G,
        "Quota reserved in the cohort's subtree",
        ("cohort", "flavor", "resource"),
    ),
    Series(
        "cohort_subtree_admitted_workloads_total",
        _C,
        "Workloads admitted in the cohort's subtree",
        ("cohort", "priority_class"),
    ),
    Series("cohort_subtree_admitted_active_workloads", _G, "Admitted in the cohort's subtree", ("cohort",)),
    Series("local_queue_pending_workloads", _G, "Workloads that wait", (*_LQ, "status")),
    Series("local_queue_finished_workloads", _G, "Finished workloads that still exist", _LQ),
    Series("local_queue_reserving_active_workloads", _G, "Workloads that hold quota", _LQ),
    Series("local_queue_admitted_active_workloads", _G, "Workloads admitted and not finished", _LQ),
    Series("local_queue_quota_reserved_workloads_total", _C, "Workloads that got quota", _LQ_CLASS),
    Series("local_queue_admitted_workloads_total", _C, "Workloads admitted", _LQ_CLASS),
    Series("local_queue_finished_workloads_total", _C, "Workloads finished", _LQ_CLASS),
    Series("local_queue_evicted_workloads_total", _C, "Evictions", (*_LQ, *_EVICTION)),
    Series("local_queue_quota_reserved_wait_time_seconds", _H, "From queued to quota reserved", _LQ_CLASS),
    Series("local_queue_admission_wait_time_seconds", _H, "From queued to admitted", _LQ_CLASS),
    Series("local_queue_admission_checks_wait_time_seconds", _H, "From reserved to admitted", _LQ_CLASS),
    Series("local_queue_ready_wait_time_seconds", _H, "From queued to all pods ready", _LQ_CLASS),
    Series("local_queue_admitted_until_ready_wait_time_seconds", _H, "From admitted to ready", _LQ_CLASS),
    Series(
        "local_queue_execution_time_seconds", _H, "From admitted to finished", _LQ_CLASS, LONG_WAIT_BUCKETS
    ),
    Series("local_queue_status", _G, "1 for the current status", (*_LQ, "active")),
    Series("local_queue_resource_reservation", _G, "Quota reserved", _LQ_QUOTA),
    Series("local_queue_resource_usage", _G, "Quota used by admitted workloads", _LQ_QUOTA),
    Series(
        "local_queue_unadmitted_workloads",
        _G,
        "Workloads not admitted",
        (*_LQ, "cluster_queue", "reason", "underlying_cause"),
    ),
    Series(
        "local_queue_admission_fair_sharing_usage",
        _G,
        "What was used, weighed, by which LocalQueues take turns",
        (*_LQ, "cluster_queue"),
    ),
    Series(
        "workload_creation_latency_seconds",
        _H,
        "From the job's creation to its Workload's",
        ("job_kind",),
        CREATION_BUCKETS,
    ),
    Series(
        "pod_scheduling_gate_removal_seconds",
        _H,
        "From when a pod was there, and its workload admitted, to the removal of its scheduling gate",
        ("name", "cluster_queue", "is_group"),
    ),
    Series(
        "forcefully_deleted_pods_total", _C, "Pods deleted by force, for their nodes could not be reached"
    ),
    Series("malformed_objects", _G, "Stored objects that cannot be read", ("resource",)),
    Series(
        "quarantined_keys", _G, "Objects whose reconciliation was given up until they change", ("controller",)
    ),
    Series(
        "managed_kinds",
        _G,
        "1 while the kind that a controller works on is served and managed, 0 while it is waited for",
        ("controller",),
    ),
    Series("reconciliations_total", _C, "Reconciliations by result", ("controller", "result")),
    Series("api_requests_total", _C, "Requests to the API server", ("verb", "resource", "code")),
    Series("watch_restarts_total", _C, "Watches that had to start again", ("resource", "reason")),
    Series("webhook_reviews_total", _C, "Reviews by verdict", ("path", "result")),
    Series("webhook_review_duration_seconds", _H, "Time to a verdict", ("path",), ATTEMPT_BUCKETS),
    Series("certificate_expiry_timestamp_seconds", _G, "When the serving certificate ends", ("certificate",)),
)


class Metrics:
    """The registry of one process.

    Args:
        prefix: what every name starts with, "admitq" by default.
        role: the replica's role at the start.
    """

    def __init__(self, prefix: str = "admitq", *, role: Role = "standalone") -> None:
        # The library files the counter x_total under the family x, so that a gauge x would clash with it.
        self._counters, self._others = CollectorRegistry(), CollectorRegistry()
        self.role = role
        self._series = {series.name: self._build(prefix, series) for series in TABLE}
        self.set(
            "build_info",
            1,
            version=VERSION,
            python_version=platform.python_version(),
            platform=platform.platform(),
        )

    def _build(self, prefix: str, series: Series) -> Counter | Gauge | Histogram:
        labels = (*series.labels, "replica_role")
        name = f"{prefix}_{series.name}"
        if series.type is Type.COUNTER:
            return Counter(name, series.help, labels, registry=self._counters)
        if series.type is Type.HISTOGRAM:
            return Histogram(name, series.help, labels, registry=self._others, buckets=series.buckets)
        return Gauge(name, series.help, labels, registry=self._others)

    def increment(self, name: str, by: float = 1, /, **labels: str) -> None:
        """Count something that happened."""
        series = self._series[name].labels(**labels, replica_role=self.role)
        assert isinstance(series, Counter), name  # noqa: S101
        series.inc(by)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration; a clock that went backwards counts as no time."""
        series = self._series[name].labels(**labels, replica_role=self.role)
        assert isinstance(series, Histogram), name  # noqa: S101
        series.observe(max(0.0, seconds))

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """State how much there is now."""
        series = self._series[name].labels(**labels, replica_role=self.role)
        assert isinstance(series, Gauge), name  # noqa: S101
        series.set(value)

    def forget(self, names: Iterable[str], /, **labels: str) -> None:
        """Drop the series of an object that is gone, whatever their other labels."""
        for name in names:
            self._series[name].remove_by_labels(labels)

    def become(self, role: Role) -> None:
        """Take another role: what the former role reported is dropped."""
        if role == self.role:
            return
        for series in self._series.values():
            series.remove_by_labels({"replica_role": self.role})
        self.role = role

    def exposition(self) -> bytes:
        """All series in the Prometheus text format."""
        return generate_latest(self._counters) + generate_latest(self._others)

    def forget_cluster_queue(self, name: str) -> None:
        """Drop all series of a ClusterQueue that is gone."""
        self.forget(_SERIES_OF["cluster_queue"], cluster_queue=name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """Drop all series of a LocalQueue that is gone."""
        self.forget(_SERIES_OF["namespace"], namespace=namespace, name=name)

    def forget_cohort(self, name: str) -> None:
        """Drop all series of a cohort that is gone."""
        self.forget((series for series in _SERIES_OF["cohort"] if "cluster_queue" not in series), cohort=name)


_SERIES_OF: Final = {
    label: tuple(series.name for series in TABLE if label in series.labels)
    for label in ("cluster_queue", "namespace", "cohort")
}
