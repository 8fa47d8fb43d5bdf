"""The metrics that clients of the API group know by name: type, labels, and sources of custom labels.

Names are without prefix. Every metric also has the label ``replica_role``. Metrics of MultiKueue are missing.
"""

from typing import Final, NamedTuple


class Row(NamedTuple):
    """The specification of one metric."""

    type: str
    labels: str
    carries: str = ""
    """Sources of custom labels, by their short names."""
    buckets: int = 0
    """Number of upper bounds of a histogram, without infinity."""


_CLASS: Final = "cluster_queue priority_class"
_QUOTA: Final = "cohort cluster_queue flavor resource"
_LQ: Final = "name namespace"
_LQ_CLASS: Final = "name namespace priority_class"
_EVICTION: Final = "reason underlying_cause priority_class"

PROMISED: Final = {
    "admission_attempts_total": Row("counter", "result"),
    "admission_attempt_duration_seconds": Row("histogram", "result", buckets=11),
    "admission_cycle_preemption_skips": Row("gauge", "cluster_queue", "cq"),
    "preemption_target_recomputations_total": Row("counter", "cluster_queue result", "cq"),
    "build_info": Row("gauge", "git_version git_commit build_date go_version compiler platform"),
    "pending_workloads": Row("gauge", "cluster_queue status", "cq wl"),
    "pending_scheduling_hashes": Row("gauge", "cluster_queue status", "cq"),
    "finished_workloads": Row("gauge", "cluster_queue", "cq"),
    "quota_reserved_workloads_total": Row("counter", _CLASS, "cq"),
    "finished_workloads_total": Row("counter", _CLASS, "cq"),
    "admitted_workloads_total": Row("counter", _CLASS, "cq"),
    "quota_reserved_wait_time_seconds": Row("histogram", _CLASS, "cq", 14),
    "admission_wait_time_seconds": Row("histogram", _CLASS, "cq", 16),
    "admission_checks_wait_time_seconds": Row("histogram", _CLASS, "cq", 14),
    "ready_wait_time_seconds": Row("histogram", _CLASS, "cq", 14),
    "admitted_until_ready_wait_time_seconds": Row("histogram", _CLASS, "cq", 14),
    "execution_time_seconds": Row("histogram", _CLASS, "cq", 16),
    "pods_ready_to_evicted_time_seconds": Row("histogram", "cluster_queue reason underlying_cause", "cq", 14),
    "workload_eviction_latency_seconds": Row("histogram", "cluster_queue reason", "cq", 14),
    "evicted_workloads_total": Row("counter", f"cluster_queue {_EVICTION}", "cq"),
    "evicted_workloads_once_total": Row("counter", f"cluster_queue {_EVICTION}", "cq"),
    "preempted_workloads_total": Row("counter", "preempting_cluster_queue reason", "cq"),
    "replaced_workload_slices_total": Row("counter", "cluster_queue", "cq"),
    "reserving_active_workloads": Row("gauge", "cluster_queue", "cq"),
    "admitted_active_workloads": Row("gauge", "cluster_queue", "cq wl"),
    "cluster_queue_status": Row("gauge", "cluster_queue status", "cq"),
    "unadmitted_workloads": Row("gauge", "cluster_queue reason underlying_cause", "cq"),
    "cluster_queue_resource_pending": Row("gauge", "cluster_queue resource", "cq"),
    "cluster_queue_info": Row("gauge", "cluster_queue parent_cohort root_cohort", "cq"),
    "cluster_queue_weighted_share": Row("gauge", "cluster_queue cohort", "cq"),
    "cluster_queue_resource_reservation": Row("gauge", _QUOTA, "cq"),
    "cluster_queue_resource_usage": Row("gauge", _QUOTA, "cq"),
    "cluster_queue_nominal_quota": Row("gauge", _QUOTA, "cq"),
    "cluster_queue_borrowing_limit": Row("gauge", _QUOTA, "cq"),
    "cluster_queue_lending_limit": Row("gauge", _QUOTA, "cq"),
    "cohort_weighted_share": Row("gauge", "cohort", "co"),
    "cohort_subtree_quota": Row("gauge", "cohort flavor resource", "co"),
    "cohort_subtree_resource_reservations": Row("gauge", "cohort flavor resource", "co"),
    "cohort_subtree_admitted_workloads_total": Row("counter", "cohort priority_class", "co"),
    "cohort_subtree_admitted_active_workloads": Row("gauge", "cohort", "cq"),
    "cohort_info": Row("gauge", "cohort parent_cohort root_cohort", "co"),
    "local_queue_pending_workloads": Row("gauge", f"{_LQ} status", "lq"),
    "local_queue_finished_workloads": Row("gauge", _LQ, "lq"),
    "local_queue_reserving_active_workloads": Row("gauge", _LQ, "lq"),
    "local_queue_admitted_active_workloads": Row("gauge", _LQ, "lq wl"),
    "local_queue_quota_reserved_workloads_total": Row("counter", _LQ_CLASS, "lq"),
    "local_queue_finished_workloads_total": Row("counter", _LQ_CLASS, "lq"),
    "local_queue_admitted_workloads_total": Row("counter", _LQ_CLASS, "lq wl"),
    "local_queue_evicted_workloads_total": Row("counter", f"{_LQ} {_EVICTION}", "lq"),
    "local_queue_quota_reserved_wait_time_seconds": Row("histogram", _LQ_CLASS, "lq", 14),
    "local_queue_admission_wait_time_seconds": Row("histogram", _LQ_CLASS, "lq wl", 14),
    "local_queue_admission_checks_wait_time_seconds": Row("histogram", _LQ_CLASS, "lq", 14),
    "local_queue_ready_wait_time_seconds": Row("histogram", _LQ_CLASS, "lq", 14),
    "local_queue_admitted_until_ready_wait_time_seconds": Row("histogram", _LQ_CLASS, "lq", 14),
    "local_queue_execution_time_seconds": Row("histogram", _LQ_CLASS, "lq", 16),
    "local_queue_status": Row("gauge", f"{_LQ} active", "lq"),
    "local_queue_resource_reservation": Row("gauge", f"{_LQ} flavor resource", "lq"),
    "local_queue_resource_usage": Row("gauge", f"{_LQ} flavor resource", "lq"),
    "local_queue_unadmitted_workloads": Row("gauge", f"{_LQ} cluster_queue reason underlying_cause", "lq"),
    "local_queue_admission_fair_sharing_usage": Row("gauge", f"{_LQ} cluster_queue", "lq"),
    "workload_creation_latency_seconds": Row("histogram", "job_kind", "lq", 11),
    "pod_scheduling_gate_removal_seconds": Row("histogram", "name cluster_queue is_group", buckets=14),
}
