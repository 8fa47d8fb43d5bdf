"""Metrics: one table of series, and a registry of its own that drops what no longer exists.

Every series carries ``replica_role``: leader, follower or standalone. Durations are seconds.
"""

import platform
from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from admitq.custom_labels import NONE, SERIES_PREFIX, CustomLabel, CustomLabels, Source
from admitq.unexpected_errors import ErrorPart, UnexpectedErrors
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
ATTEMPT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of the Prometheus client for Go, which dashboards of the API group expect."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: name without prefix, what it tells, its labels besides ``replica_role``."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = WAIT_BUCKETS
    carries: tuple[Source, ...] = ()
    """The kinds whose custom labels it has, beside ``labels``."""


OF_CQ: Final = (Source.CLUSTER_QUEUE,)
OF_CQ_WL: Final = (Source.CLUSTER_QUEUE, Source.WORKLOAD)
OF_COHORT: Final = (Source.COHORT,)
OF_LQ: Final = (Source.LOCAL_QUEUE,)
OF_LQ_WL: Final = (Source.LOCAL_QUEUE, Source.WORKLOAD)

_C, _G, _H = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM
_CQ: Final = ("cluster_queue",)
_CQ_CLASS: Final = ("cluster_queue", "priority_class")
_CQ_QUOTA: Final = ("cohort", "cluster_queue", "flavor", "resource")
_LQ: Final = ("name", "namespace")
_LQ_CLASS: Final = ("name", "namespace", "priority_class")
_LQ_QUOTA: Final = ("name", "namespace", "flavor", "resource")
_EVICTION: Final = ("reason", "underlying_cause", "priority_class")

# Named as clients of the API group know them; what does not exist here is empty.
_BUILD: Final = ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")

UNEXPECTED_ERRORS: Final = "unexpected_errors_total"

TABLE: Final[tuple[Series, ...]] = (
    Series("build_info", _G, "1, labelled with what was built", _BUILD),
    Series("admission_attempts_total", _C, "Admission cycles by result", ("result",)),
    Series(
        "admission_attempt_duration_seconds", _H, "Length of an admission cycle", ("result",), ATTEMPT_BUCKETS
    ),
    Series(
        "admission_cycle_preemption_skips",
        _G,
        "Workloads of the last cycle that could not preempt because another one already did",
        _CQ,
        carries=OF_CQ,
    ),
    Series(
        "preemption_target_recomputations_total",
        _C,
        "Workloads assigned anew because another one preempts whom they would have to preempt",
        ("cluster_queue", "result"),
        carries=OF_CQ,
    ),
    Series("pending_workloads", _G, "Workloads that wait", ("cluster_queue", "status"), carries=OF_CQ_WL),
    Series(
        "pending_scheduling_hashes",
        _G,
        "Distinct combinations of requests and priority among pending workloads",
        ("cluster_queue", "status"),
        carries=OF_CQ,
    ),
    Series("finished_workloads", _G, "Finished workloads that still exist", _CQ, carries=OF_CQ),
    Series("quota_reserved_workloads_total", _C, "Workloads that got quota", _CQ_CLASS, carries=OF_CQ),
    Series("admitted_workloads_total", _C, "Workloads admitted", _CQ_CLASS, carries=OF_CQ),
    Series("finished_workloads_total", _C, "Workloads finished", _CQ_CLASS, carries=OF_CQ),
    Series(
        "replaced_workload_slices_total",
        _C,
        "Slices of elastic jobs replaced by larger ones",
        _CQ,
        carries=OF_CQ,
    ),
    Series("quota_reserved_wait_time_seconds", _H, "From queued to quota reserved", _CQ_CLASS, carries=OF_CQ),
    Series(
        "admission_wait_time_seconds",
        _H,
        "From queued to admitted",
        _CQ_CLASS,
        LONG_WAIT_BUCKETS,
        carries=OF_CQ,
    ),
    Series(
        "admission_checks_wait_time_seconds", _H, "From quota reserved to admitted", _CQ_CLASS, carries=OF_CQ
    ),
    Series("ready_wait_time_seconds", _H, "From queued to all pods ready", _CQ_CLASS, carries=OF_CQ),
    Series(
        "admitted_until_ready_wait_time_seconds",
        _H,
        "From admitted to all pods ready",
        _CQ_CLASS,
        carries=OF_CQ,
    ),
    Series(
        "execution_time_seconds", _H, "From admitted to finished", _CQ_CLASS, LONG_WAIT_BUCKETS, carries=OF_CQ
    ),
    Series(
        "pods_ready_to_evicted_time_seconds",
        _H,
        "From all pods ready to evicted",
        ("cluster_queue", "reason", "underlying_cause"),
        carries=OF_CQ,
    ),
    Series(
        "workload_eviction_latency_seconds",
        _H,
        "From evicted to quota released",
        ("cluster_queue", "reason"),
        carries=OF_CQ,
    ),
    Series("evicted_workloads_total", _C, "Evictions", ("cluster_queue", *_EVICTION), carries=OF_CQ),
    Series(
        "evicted_workloads_once_total",
        _C,
        "Workloads evicted at least once",
        ("cluster_queue", *_EVICTION),
        carries=OF_CQ,
    ),
    Series(
        "preempted_workloads_total", _C, "Preemptions", ("preempting_cluster_queue", "reason"), carries=OF_CQ
    ),
    Series("reserving_active_workloads", _G, "Workloads that hold quota", _CQ, carries=OF_CQ),
    Series("admitted_active_workloads", _G, "Workloads admitted and not finished", _CQ, carries=OF_CQ_WL),
    Series(
        "cluster_queue_status", _G, "1 for the current status", ("cluster_queue", "status"), carries=OF_CQ
    ),
    Series(
        "unadmitted_workloads",
        _G,
        "Workloads not admitted",
        ("cluster_queue", "reason", "underlying_cause"),
        carries=OF_CQ,
    ),
    Series(
        "cluster_queue_resource_pending",
        _G,
        "Requests of pending workloads, without those of reclaimable pods",
        ("cluster_queue", "resource"),
        carries=OF_CQ,
    ),
    Series(
        "cluster_queue_info",
        _G,
        "1, labelled with the place",
        ("cluster_queue", "parent_cohort", "root_cohort"),
        carries=OF_CQ,
    ),
    Series(
        "cluster_queue_weighted_share",
        _G,
        "Exact weighted share, NaN while a weight of 0 borrows",
        ("cluster_queue", "cohort"),
        carries=OF_CQ,
    ),
    Series("cluster_queue_resource_reservation", _G, "Quota reserved", _CQ_QUOTA, carries=OF_CQ),
    Series("cluster_queue_resource_usage", _G, "Quota used by admitted workloads", _CQ_QUOTA, carries=OF_CQ),
    Series("cluster_queue_nominal_quota", _G, "Nominal quota", _CQ_QUOTA, carries=OF_CQ),
    Series("cluster_queue_borrowing_limit", _G, "Borrowing limit, +Inf if unset", _CQ_QUOTA, carries=OF_CQ),
    Series("cluster_queue_lending_limit", _G, "Lending limit, +Inf if unset", _CQ_QUOTA, carries=OF_CQ),
    Series(
        "cohort_info",
        _G,
        "1, labelled with the place",
        ("cohort", "parent_cohort", "root_cohort"),
        carries=OF_COHORT,
    ),
    Series(
        "cohort_weighted_share",
        _G,
        "Exact weighted share, NaN while a weight of 0 borrows",
        ("cohort",),
        carries=OF_COHORT,
    ),
    Series(
        "cohort_subtree_quota",
        _G,
        "Quota of the cohort's subtree",
        ("cohort", "flavor", "resource"),
        carries=OF_COHORT,
    ),
    Series(
        "cohort_subtree_resource_reservations",
        _G,
        "Quota reserved in the cohort's subtree",
        ("cohort", "flavor", "resource"),
        carries=OF_COHORT,
    ),
    Series(
        "cohort_subtree_admitted_workloads_total",
        _C,
        "Workloads admitted in the cohort's subtree",
        ("cohort", "priority_class"),
        carries=OF_COHORT,
    ),
    Series(
        "cohort_subtree_admitted_active_workloads",
        _G,
        "Admitted workloads of the ClusterQueues in the cohort's subtree",
        ("cohort",),
        carries=OF_CQ,
    ),
    Series("local_queue_pending_workloads", _G, "Workloads that wait", (*_LQ, "status"), carries=OF_LQ),
    Series("local_queue_finished_workloads", _G, "Finished workloads that still exist", _LQ, carries=OF_LQ),
    Series("local_queue_reserving_active_workloads", _G, "Workloads that hold quota", _LQ, carries=OF_LQ),
    Series(
        "local_queue_admitted_active_workloads",
        _G,
        "Workloads admitted and not finished",
        _LQ,
        carries=OF_LQ_WL,
    ),
    Series(
        "local_queue_quota_reserved_workloads_total", _C, "Workloads that got quota", _LQ_CLASS, carries=OF_LQ
    ),
    Series("local_queue_admitted_workloads_total", _C, "Workloads admitted", _LQ_CLASS, carries=OF_LQ_WL),
    Series("local_queue_finished_workloads_total", _C, "Workloads finished", _LQ_CLASS, carries=OF_LQ),
    Series("local_queue_evicted_workloads_total", _C, "Evictions", (*_LQ, *_EVICTION), carries=OF_LQ),
    Series(
        "local_queue_quota_reserved_wait_time_seconds",
        _H,
        "From queued to quota reserved",
        _LQ_CLASS,
        carries=OF_LQ,
    ),
    Series(
        "local_queue_admission_wait_time_seconds", _H, "From queued to admitted", _LQ_CLASS, carries=OF_LQ_WL
    ),
    Series(
        "local_queue_admission_checks_wait_time_seconds",
        _H,
        "From reserved to admitted",
        _LQ_CLASS,
        carries=OF_LQ,
    ),
    Series(
        "local_queue_ready_wait_time_seconds", _H, "From queued to all pods ready", _LQ_CLASS, carries=OF_LQ
    ),
    Series(
        "local_queue_admitted_until_ready_wait_time_seconds",
        _H,
        "From admitted to ready",
        _LQ_CLASS,
        carries=OF_LQ,
    ),
    Series(
        "local_queue_execution_time_seconds",
        _H,
        "From admitted to finished",
        _LQ_CLASS,
        LONG_WAIT_BUCKETS,
        carries=OF_LQ,
    ),
    Series("local_queue_status", _G, "1 for the current status", (*_LQ, "active"), carries=OF_LQ),
    Series("local_queue_resource_reservation", _G, "Quota reserved", _LQ_QUOTA, carries=OF_LQ),
    Series("local_queue_resource_usage", _G, "Quota used by admitted workloads", _LQ_QUOTA, carries=OF_LQ),
    Series(
        "local_queue_unadmitted_workloads",
        _G,
        "Workloads not admitted",
        (*_LQ, "cluster_queue", "reason", "underlying_cause"),
        carries=OF_LQ,
    ),
    Series(
        "local_queue_admission_fair_sharing_usage",
        _G,
        "What was used, weighed, by which LocalQueues take turns",
        (*_LQ, "cluster_queue"),
        carries=OF_LQ,
    ),
    Series(
        "workload_creation_latency_seconds",
        _H,
        "From the job's creation to its Workload's",
        ("job_kind",),
        CREATION_BUCKETS,
        carries=OF_LQ,
    ),
    Series(
        "pod_scheduling_gate_removal_seconds",
        _H,
        "From when a pod was there, and its workload admitted, to the removal of its scheduling gate",
        ("name", "cluster_queue", "is_group"),
    ),
    Series(
        "excess_pods_total",
        _C,
        "Pods beyond what was reserved for their workload, stopped or about to be created",
        ("cluster_queue", "job_kind"),
    ),
    Series(
        "forcefully_deleted_pods_total", _C, "Pods deleted by force, for their nodes could not be reached"
    ),
    Series(
        "unwritten_decisions",
        _G,
        "Reservations and preemptions whose writes have failed for more than 5 seconds and are retried",
        ("decision",),
    ),
    Series("malformed_objects", _G, "Stored objects that are left out", ("resource",)),
    Series(
        "core_failures_total", _C, "Internal errors of the core, which was then started anew", ("during",)
    ),
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
    Series(
        UNEXPECTED_ERRORS,
        _C,
        "Unexpected exceptions; the log has the traceback of each. A review has the path of its webhook",
        ("part", "route"),
    ),
    Series("webhook_reviews_total", _C, "Reviews by verdict", ("path", "result")),
    Series("webhook_review_duration_seconds", _H, "Time to a verdict", ("path",), ATTEMPT_BUCKETS),
    Series("shadow_decisions_total", _C, "Decisions that a shadow compared with its own", _CQ, carries=OF_CQ),
    Series(
        "shadow_disagreements_total",
        _C,
        "Those of them in which the manager in charge decided otherwise",
        ("cluster_queue", "kind"),
        carries=OF_CQ,
    ),
    Series("certificate_expiry_timestamp_seconds", _G, "When the serving certificate ends", ("certificate",)),
)


ROLE: Final = "replica_role"

_KEYS: Final[Mapping[Source, tuple[tuple[str, ...], ...]]] = {
    Source.CLUSTER_QUEUE: (("cluster_queue",), ("preempting_cluster_queue",)),
    Source.COHORT: (("cohort",),),
    Source.LOCAL_QUEUE: (("namespace", "name"),),
}
"""The labels by which a series names the object that it tells of."""


def clashes(custom: Sequence[CustomLabel]) -> list[str]:
    """What is wrong with the names of custom labels: a series would have two labels of one name."""
    labels = CustomLabels(custom)
    problems: list[str] = []
    for carries in (OF_CQ_WL, OF_LQ_WL):
        twice = [name for name, count in Count(labels.names(carries)).items() if count > 1]
        kinds = " and ".join(carries)
        remedy = f"is taken from {kinds}, which one metric carries: rename one"
        problems += [f"{name.removeprefix(SERIES_PREFIX)!r} {remedy}" for name in twice]
    return problems


class Metrics:
    """The registry of one process.

    Args:
        prefix: what every name starts with, "admitq" by default.
        role: the replica's role at the start.
        custom: further labels, from what objects say of themselves.

    Attributes:
        role: the replica's role now.
        errors: where the tasks of the process report unexpected exceptions, which are counted here.
    """

    def __init__(
        self, prefix: str = "admitq", *, role: Role = "standalone", custom: Iterable[CustomLabel] = ()
    ) -> None:
        # The library files the counter x_total under the family x, so that a gauge x would clash with it.
        self._counters, self._others = CollectorRegistry(), CollectorRegistry()
        self.role = role
        self._custom = CustomLabels(custom)
        self._described: dict[tuple[Source, tuple[str, ...]], Mapping[str, str]] = {}
        self._carries = {
            series.name: tuple(source for source in series.carries if self._custom.names((source,)))
            for series in TABLE
        }
        self._at_reading: list[Callable[[], None]] = []
        self._series = {series.name: self._build(prefix, series) for series in TABLE}
        self.errors = UnexpectedErrors(
            lambda part, route: self.increment(UNEXPECTED_ERRORS, part=part, route=route)
        )
        self._sources = [(part, "") for part in ErrorPart if part is not ErrorPart.REVIEW]
        self._show_errors()
        self.set(
            "build_info",
            1,
            git_version=f"v{VERSION}",
            git_commit="",
            build_date="",
            go_version="",
            compiler=f"{platform.python_implementation()} {platform.python_version()}",
            platform=f"{platform.system().lower()}/{platform.machine()}",
        )

    def _build(self, prefix: str, series: Series) -> Counter | Gauge | Histogram:
        labels = (*series.labels, *self._custom.names(series.carries), ROLE)
        name = f"{prefix}_{series.name}"
        if series.type is Type.COUNTER:
            return Counter(name, series.help, labels, registry=self._counters)
        if series.type is Type.HISTOGRAM:
            return Histogram(name, series.help, labels, registry=self._others, buckets=series.buckets)
        return Gauge(name, series.help, labels, registry=self._others)

    def increment(self, name: str, by: float = 1, /, **labels: str) -> None:
        """Count something that happened."""
        series = self._series[name].labels(**labels, **self._customs(name, labels), replica_role=self.role)
        assert isinstance(series, Counter), name  # noqa: S101
        series.inc(by)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration; a clock that went backwards counts as no time."""
        series = self._series[name].labels(**labels, **self._customs(name, labels), replica_role=self.role)
        assert isinstance(series, Histogram), name  # noqa: S101
        series.observe(max(0.0, seconds))

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """State how much there is now."""
        series = self._series[name].labels(**labels, **self._customs(name, labels), replica_role=self.role)
        assert isinstance(series, Gauge), name  # noqa: S101
        series.set(value)

    def forget(self, names: Iterable[str], /, **labels: str) -> None:
        """Drop the series of an object that is gone, whatever their other labels."""
        for name in names:
            self._series[name].remove_by_labels(labels)

    def clear(self, name: str) -> None:
        """Drop all series of a metric."""
        self._series[name].clear()

    def become(self, role: Role) -> None:
        """Take another role: gauges move to it with their values, all else stays with the former."""
        if role == self.role:
            return
        self._move_gauges(self._series, {ROLE: self.role}, {ROLE: role})
        self.role = role
        # Counters stay with the role in which they counted; of these, those that did not count are dropped.
        errors = self._series[UNEXPECTED_ERRORS]
        for sample in [one for family in errors.collect() for one in family.samples if not one.value]:
            errors.remove_by_labels(sample.labels)
        self._show_errors()

    def _show_errors(self) -> None:
        """Expose counters of errors from 0 on: of one that appears with its first error, no rate is seen."""
        for part, route in self._sources:
            self.increment(UNEXPECTED_ERRORS, 0, part=part, route=route)

    def show_routes(self, routes: Iterable[str]) -> None:
        """Expose the counters of errors in reviews, by the paths of the webhooks."""
        self._sources += [(ErrorPart.REVIEW, route) for route in routes]
        self._show_errors()

    def at_reading(self, count: Callable[[], None]) -> None:
        """Have something counted each time that metrics are read, because it is not counted as it changes."""
        self._at_reading.append(count)

    def count(self) -> None:
        """Count all that is counted when metrics are read: only in the thread of the event loop.

        Where that raises, the metrics that it counts may be old or missing; all others are as they should be.
        """
        for count in self._at_reading:
            with self.errors.contain(ErrorPart.METRICS, getattr(count, "__qualname__", "")):
                count()

    def render(self) -> bytes:
        """All series, as last counted, in the Prometheus text format. For any thread."""
        return generate_latest(self._counters) + generate_latest(self._others)

    def exposition(self) -> bytes:
        """All series as they are now, in the Prometheus text format."""
        self.count()
        return self.render()

    # --- custom labels ----------------------------------------------------------------------------

    def takes_from(self, source: Source) -> bool:
        """Whether there are custom labels from a kind."""
        return bool(self._custom.names((source,)))

    def values(self, series: str, source: Source, obj: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The custom labels that an object gives a series which does not name it; none if it has none."""
        return self._custom.values(source, obj) if source in self._carries[series] else NONE

    def described(self, series: str, source: Source, *key: str) -> Mapping[str, str]:
        """The custom labels of an object that was described, for a series which does not name it."""
        if source not in self._carries[series]:
            return NONE
        return self._described.get((source, key)) or self._custom.values(source, None)

    def is_described(self, source: Source, obj: Mapping[str, Any], *key: str) -> bool:
        """Whether an object still gives the values that it gave."""
        if not self.takes_from(source):
            return True
        former = self._described.get((source, key)) or self._custom.values(source, None)
        return former == self._custom.values(source, obj)

    def describe(self, source: Source, obj: Mapping[str, Any], *key: str) -> None:
        """Take the custom labels of an object from it.

        Gauges move to the new values. What was counted under the former values stays there.
        """
        if self.is_described(source, obj, *key):
            return
        values = self._described[source, key] = self._custom.values(source, obj)
        for parts in _KEYS[source]:
            carrying = (name for name in _SERIES_OF[source, parts] if source in self._carries[name])
            self._move_gauges(carrying, dict(zip(parts, key, strict=True)), values)

    def _move_gauges(
        self, names: Iterable[str], labels: Mapping[str, str], values: Mapping[str, str]
    ) -> None:
        """Give gauges that carry some labels other values of labels."""
        for name in names:
            gauge = self._series[name]
            if not isinstance(gauge, Gauge):
                continue
            moved = [
                (sample.labels, sample.value)
                for family in gauge.collect()
                for sample in family.samples
                if labels.items() <= sample.labels.items()
            ]
            gauge.remove_by_labels(dict(labels))
            for former, value in moved:
                gauge.labels(**{**former, **values}).set(value)

    def _customs(self, name: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The custom labels of a series that the caller did not give."""
        sources = self._carries[name]
        if not sources:
            return NONE
        found: dict[str, str] = {}
        for source in sources:
            key = next(
                (
                    tuple(labels[part] for part in parts)
                    for parts in _KEYS.get(source, ())
                    if all(part in labels for part in parts)
                ),
                (),
            )
            values = self._described.get((source, key)) or self._custom.values(source, None)
            found.update((one, value) for one, value in values.items() if one not in labels)
        return found

    # --- objects that are gone --------------------------------------------------------------------

    def forget_cluster_queue(self, name: str) -> None:
        """Drop all series of a ClusterQueue that is gone."""
        self._gone(Source.CLUSTER_QUEUE, (name,))

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """Drop all series of a LocalQueue that is gone."""
        self._gone(Source.LOCAL_QUEUE, (namespace, name))

    def forget_cohort(self, name: str) -> None:
        """Drop all series of a cohort that is gone."""
        self._gone(Source.COHORT, (name,))

    def _gone(self, source: Source, key: tuple[str, ...]) -> None:
        self._drop(source, key)
        self._drop_nameless(source, self._described.pop((source, key), NONE))

    def _drop(self, source: Source, key: tuple[str, ...]) -> None:
        """Drop the series that name an object."""
        for parts in _KEYS[source]:
            self.forget(_SERIES_OF[source, parts], **dict(zip(parts, key, strict=True)))

    def _drop_nameless(self, source: Source, values: Mapping[str, str]) -> None:
        """Drop the series that carry such values without the name of an object, once no object gives them.

        Objects that give none are not known here: what carries empty values alone stays.
        """
        given = (theirs for (kind, _), theirs in self._described.items() if kind is source)
        if any(values.values()) and values not in given:
            self.forget((name for name in _NAMELESS[source] if source in self._carries[name]), **values)


_OTHERS_BESIDE: Final = {
    Source.COHORT: "cluster_queue",
    Source.CLUSTER_QUEUE: "local_queue",
}
"""By kind, the prefix of series of its children, which name it beside the child."""


def _tells_of(series: Series, source: Source, parts: tuple[str, ...]) -> bool:
    """Whether a series is about the object that these labels name, not one that merely names it beside."""
    if not all(part in series.labels for part in parts):
        return False
    other = _OTHERS_BESIDE.get(source)
    return other is None or not series.name.startswith(other)


_SERIES_OF: Final = {
    (source, parts): tuple(series.name for series in TABLE if _tells_of(series, source, parts))
    for source, keys in _KEYS.items()
    for parts in keys
}

_NAMELESS: Final = {
    source: tuple(
        series.name
        for series in TABLE
        if source in series.carries
        and not any(series.name in _SERIES_OF[source, parts] for parts in _KEYS.get(source, ()))
    )
    for source in Source
}
"""Series that carry the custom labels of a kind without naming the object that gives them."""
