"""The table of all metric series: names, types, labels and help texts.

Every series also has the label ``replica_role``: leader, follower or standalone. Durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from admitq.metrics.custom_labels import LabelSource


class SeriesType(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


def _wait_buckets(count: int) -> tuple[float, ...]:
    return (1.0, *(2.5 * 2**i for i in range(count - 1)))


WAIT_BUCKETS: Final = _wait_buckets(14)
LONG_WAIT_BUCKETS: Final = _wait_buckets(16)
CREATION_BUCKETS: Final = tuple(0.01 * 2**i for i in range(11))
ATTEMPT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of the Prometheus client for Go. Dashboards for the API group expect them."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: its name without prefix, its help text, and its labels besides ``replica_role``."""

    name: str
    type: SeriesType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = WAIT_BUCKETS
    label_sources: tuple[LabelSource, ...] = ()
    """The kinds of objects from which the series has custom labels, in addition to ``labels``."""


FROM_CLUSTER_QUEUE: Final = (LabelSource.CLUSTER_QUEUE,)
FROM_CLUSTER_QUEUE_AND_WORKLOAD: Final = (LabelSource.CLUSTER_QUEUE, LabelSource.WORKLOAD)
FROM_COHORT: Final = (LabelSource.COHORT,)
FROM_LOCAL_QUEUE: Final = (LabelSource.LOCAL_QUEUE,)
FROM_LOCAL_QUEUE_AND_WORKLOAD: Final = (LabelSource.LOCAL_QUEUE, LabelSource.WORKLOAD)

_C, _G, _H = SeriesType.COUNTER, SeriesType.GAUGE, SeriesType.HISTOGRAM
_CQ: Final = ("cluster_queue",)
_CQ_CLASS: Final = ("cluster_queue", "priority_class")
_CQ_QUOTA: Final = ("cohort", "cluster_queue", "flavor", "resource")
_LQ: Final = ("name", "namespace")
_LQ_CLASS: Final = ("name", "namespace", "priority_class")
_LQ_QUOTA: Final = ("name", "namespace", "flavor", "resource")
_EVICTION: Final = ("reason", "underlying_cause", "priority_class")

# Clients of the API group expect these names. Labels to which admitq gives no value are empty.
_BUILD: Final = ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")

UNEXPECTED_ERRORS: Final = "unexpected_errors_total"

TABLE: Final[tuple[Series, ...]] = (
    Series("build_info", _G, "1, labelled with the version and platform", _BUILD),
    Series("admission_attempts_total", _C, "Admission cycles by result", ("result",)),
    Series(
        "admission_attempt_duration_seconds", _H, "Length of an admission cycle", ("result",), ATTEMPT_BUCKETS
    ),
    Series(
        "decision_longest_stretch_seconds",
        _G,
        "Longest time in the last one to two minutes in which decisions blocked other work",
    ),
    Series(
        "admission_cycle_preemption_skips",
        _G,
        "Workloads of the last cycle that could not preempt because another one already did",
        _CQ,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "preemption_target_recomputations_total",
        _C,
        "Assignments that were computed again because another workload preempts the same targets",
        ("cluster_queue", "result"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "pending_workloads",
        _G,
        "Workloads that wait",
        ("cluster_queue", "status"),
        label_sources=FROM_CLUSTER_QUEUE_AND_WORKLOAD,
    ),
    Series(
        "pending_scheduling_hashes",
        _G,
        "Distinct combinations of requests and priority among pending workloads",
        ("cluster_queue", "status"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "finished_workloads", _G, "Finished workloads that still exist", _CQ, label_sources=FROM_CLUSTER_QUEUE
    ),
    Series(
        "quota_reserved_workloads_total",
        _C,
        "Workloads that got quota",
        _CQ_CLASS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series("admitted_workloads_total", _C, "Workloads admitted", _CQ_CLASS, label_sources=FROM_CLUSTER_QUEUE),
    Series("finished_workloads_total", _C, "Workloads finished", _CQ_CLASS, label_sources=FROM_CLUSTER_QUEUE),
    Series(
        "replaced_workload_slices_total",
        _C,
        "Slices of elastic jobs replaced by larger ones",
        _CQ,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "quota_reserved_wait_time_seconds",
        _H,
        "From queued to quota reserved",
        _CQ_CLASS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "admission_wait_time_seconds",
        _H,
        "From queued to admitted",
        _CQ_CLASS,
        LONG_WAIT_BUCKETS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "admission_checks_wait_time_seconds",
        _H,
        "From quota reserved to admitted",
        _CQ_CLASS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "ready_wait_time_seconds",
        _H,
        "From queued to all pods ready",
        _CQ_CLASS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "admitted_until_ready_wait_time_seconds",
        _H,
        "From admitted to all pods ready",
        _CQ_CLASS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "execution_time_seconds",
        _H,
        "From admitted to finished",
        _CQ_CLASS,
        LONG_WAIT_BUCKETS,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "pods_ready_to_evicted_time_seconds",
        _H,
        "From all pods ready to evicted",
        ("cluster_queue", "reason", "underlying_cause"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "workload_eviction_latency_seconds",
        _H,
        "From evicted to quota released",
        ("cluster_queue", "reason"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "evicted_workloads_total",
        _C,
        "Evictions",
        ("cluster_queue", *_EVICTION),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "evicted_workloads_once_total",
        _C,
        "Workloads evicted at least once",
        ("cluster_queue", *_EVICTION),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "preempted_workloads_total",
        _C,
        "Preemptions",
        ("preempting_cluster_queue", "reason"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "reserving_active_workloads", _G, "Workloads that hold quota", _CQ, label_sources=FROM_CLUSTER_QUEUE
    ),
    Series(
        "admitted_active_workloads",
        _G,
        "Workloads admitted and not finished",
        _CQ,
        label_sources=FROM_CLUSTER_QUEUE_AND_WORKLOAD,
    ),
    Series(
        "cluster_queue_status",
        _G,
        "1 for the current status",
        ("cluster_queue", "status"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "unadmitted_workloads",
        _G,
        "Workloads not admitted",
        ("cluster_queue", "reason", "underlying_cause"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_resource_pending",
        _G,
        "Requests of pending workloads, without those of reclaimable pods",
        ("cluster_queue", "resource"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_info",
        _G,
        "1, labelled with the place",
        ("cluster_queue", "parent_cohort", "root_cohort"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_weighted_share",
        _G,
        "Exact weighted share, NaN while a weight of 0 borrows",
        ("cluster_queue", "cohort"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_resource_reservation",
        _G,
        "Quota reserved",
        _CQ_QUOTA,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_resource_usage",
        _G,
        "Quota used by admitted workloads",
        _CQ_QUOTA,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series("cluster_queue_nominal_quota", _G, "Nominal quota", _CQ_QUOTA, label_sources=FROM_CLUSTER_QUEUE),
    Series(
        "cluster_queue_borrowing_limit",
        _G,
        "Borrowing limit, +Inf if unset",
        _CQ_QUOTA,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cluster_queue_lending_limit",
        _G,
        "Lending limit, +Inf if unset",
        _CQ_QUOTA,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "cohort_info",
        _G,
        "1, labelled with the place",
        ("cohort", "parent_cohort", "root_cohort"),
        label_sources=FROM_COHORT,
    ),
    Series(
        "cohort_weighted_share",
        _G,
        "Exact weighted share, NaN while a weight of 0 borrows",
        ("cohort",),
        label_sources=FROM_COHORT,
    ),
    Series(
        "cohort_subtree_quota",
        _G,
        "Quota of the cohort's subtree",
        ("cohort", "flavor", "resource"),
        label_sources=FROM_COHORT,
    ),
    Series(
        "cohort_subtree_resource_reservations",
        _G,
        "Quota reserved in the cohort's subtree",
        ("cohort", "flavor", "resource"),
        label_sources=FROM_COHORT,
    ),
    Series(
        "cohort_subtree_admitted_workloads_total",
        _C,
        "Workloads admitted in the cohort's subtree",
        ("cohort", "priority_class"),
        label_sources=FROM_COHORT,
    ),
    Series(
        "cohort_subtree_admitted_active_workloads",
        _G,
        "Admitted workloads of the ClusterQueues in the cohort's subtree",
        ("cohort",),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "local_queue_pending_workloads",
        _G,
        "Workloads that wait",
        (*_LQ, "status"),
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_finished_workloads",
        _G,
        "Finished workloads that still exist",
        _LQ,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_reserving_active_workloads",
        _G,
        "Workloads that hold quota",
        _LQ,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_admitted_active_workloads",
        _G,
        "Workloads admitted and not finished",
        _LQ,
        label_sources=FROM_LOCAL_QUEUE_AND_WORKLOAD,
    ),
    Series(
        "local_queue_quota_reserved_workloads_total",
        _C,
        "Workloads that got quota",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_admitted_workloads_total",
        _C,
        "Workloads admitted",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE_AND_WORKLOAD,
    ),
    Series(
        "local_queue_finished_workloads_total",
        _C,
        "Workloads finished",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_evicted_workloads_total",
        _C,
        "Evictions",
        (*_LQ, *_EVICTION),
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_quota_reserved_wait_time_seconds",
        _H,
        "From queued to quota reserved",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_admission_wait_time_seconds",
        _H,
        "From queued to admitted",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE_AND_WORKLOAD,
    ),
    Series(
        "local_queue_admission_checks_wait_time_seconds",
        _H,
        "From reserved to admitted",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_ready_wait_time_seconds",
        _H,
        "From queued to all pods ready",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_admitted_until_ready_wait_time_seconds",
        _H,
        "From admitted to ready",
        _LQ_CLASS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_execution_time_seconds",
        _H,
        "From admitted to finished",
        _LQ_CLASS,
        LONG_WAIT_BUCKETS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_status", _G, "1 for the current status", (*_LQ, "active"), label_sources=FROM_LOCAL_QUEUE
    ),
    Series(
        "local_queue_resource_reservation", _G, "Quota reserved", _LQ_QUOTA, label_sources=FROM_LOCAL_QUEUE
    ),
    Series(
        "local_queue_resource_usage",
        _G,
        "Quota used by admitted workloads",
        _LQ_QUOTA,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_unadmitted_workloads",
        _G,
        "Workloads not admitted",
        (*_LQ, "cluster_queue", "reason", "underlying_cause"),
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "local_queue_admission_fair_sharing_usage",
        _G,
        "Weighted past usage by which LocalQueues are ordered",
        (*_LQ, "cluster_queue"),
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "workload_creation_latency_seconds",
        _H,
        "From the job's creation to its Workload's",
        ("job_kind",),
        CREATION_BUCKETS,
        label_sources=FROM_LOCAL_QUEUE,
    ),
    Series(
        "pod_scheduling_gate_removal_seconds",
        _H,
        "From the creation of a pod, or the later admission of its workload, to the removal of its gate",
        ("name", "cluster_queue", "is_group"),
    ),
    Series(
        "excess_pods_total",
        _C,
        "Pods beyond what was reserved for their workload, stopped or about to be created",
        ("cluster_queue", "job_kind"),
    ),
    Series(
        "forcefully_deleted_pods_total", _C, "Pods deleted by force because their nodes were not reachable"
    ),
    Series(
        "unwritten_decisions",
        _G,
        "Reservations and preemptions with writes that have failed for more than 5 seconds and are retried",
        ("decision",),
    ),
    Series("malformed_objects", _G, "Stored objects in quarantine", ("resource",)),
    Series("core_failures_total", _C, "Internal errors of the core; each rebuilt its state", ("during",)),
    Series("quarantined_keys", _G, "Objects that are not reconciled until they change", ("controller",)),
    Series(
        "managed_kinds",
        _G,
        "1 if the API server serves the kind of a controller and admitq manages it, 0 otherwise",
        ("controller",),
    ),
    Series("reconciliations_total", _C, "Reconciliations by result", ("controller", "result")),
    Series(
        "api_requests_total",
        _C,
        "Requests to the API server. A subresource is a part of the resource, such as pods/status",
        ("verb", "resource", "code"),
    ),
    Series("api_server_slowness", _G, "How many times longer writes take than on an idle API server"),
    Series("concurrent_writes_limit", _G, "Limit of concurrent writes, by class", ("write_class",)),
    Series("waiting_writes", _G, "Writes that wait for the limit of their class", ("write_class",)),
    Series("watch_restarts_total", _C, "Watches that had to start again", ("resource", "reason")),
    Series(
        UNEXPECTED_ERRORS,
        _C,
        "Unexpected exceptions; the log has their tracebacks. The route of a review is its path",
        ("part", "route"),
    ),
    Series("webhook_reviews_total", _C, "Reviews by verdict", ("path", "result")),
    Series("webhook_review_duration_seconds", _H, "Time to a verdict", ("path",), ATTEMPT_BUCKETS),
    Series(
        "shadow_decisions_total",
        _C,
        "Decisions that a shadow compared with its own",
        _CQ,
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series(
        "shadow_disagreements_total",
        _C,
        "Compared decisions in which the manager in charge decided differently",
        ("cluster_queue", "kind"),
        label_sources=FROM_CLUSTER_QUEUE,
    ),
    Series("certificate_expiry_timestamp_seconds", _G, "When the serving certificate ends", ("certificate",)),
)

NAME_LABELS: Final[Mapping[LabelSource, tuple[tuple[str, ...], ...]]] = {
    LabelSource.CLUSTER_QUEUE: (("cluster_queue",), ("preempting_cluster_queue",)),
    LabelSource.COHORT: (("cohort",),),
    LabelSource.LOCAL_QUEUE: (("namespace", "name"),),
}
"""The labels that name an object in its series, by kind."""

_PREFIX_OF_CHILDREN: Final = {
    LabelSource.COHORT: "cluster_queue",
    LabelSource.CLUSTER_QUEUE: "local_queue",
}
"""The prefix of the series of an object's children, by the object's kind. These series name their parent,
too."""


def _describes(series: Series, source: LabelSource, parts: tuple[str, ...]) -> bool:
    """Whether a series describes the object that these labels name, and not a child of the object."""
    if not all(part in series.labels for part in parts):
        return False
    prefix = _PREFIX_OF_CHILDREN.get(source)
    return prefix is None or not series.name.startswith(prefix)


SERIES_BY_NAME_LABELS: Final[Mapping[tuple[LabelSource, tuple[str, ...]], tuple[str, ...]]] = {
    (source, parts): tuple(series.name for series in TABLE if _describes(series, source, parts))
    for source, keys in NAME_LABELS.items()
    for parts in keys
}
"""The series that describe an object, by its kind and the labels that name it."""

SERIES_WITHOUT_NAME: Final[Mapping[LabelSource, tuple[str, ...]]] = {
    source: tuple(
        series.name
        for series in TABLE
        if source in series.label_sources
        and not any(
            series.name in SERIES_BY_NAME_LABELS[source, parts] for parts in NAME_LABELS.get(source, ())
        )
    )
    for source in LabelSource
}
"""By kind, the series that have custom labels of an object without the name of the object."""
