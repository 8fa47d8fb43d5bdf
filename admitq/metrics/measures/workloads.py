"""Counters and durations of what happens to workloads and their pods."""

from collections.abc import Mapping

from admitq.core.model import ObjectKey
from admitq.metrics.custom_labels import LabelSource
from admitq.metrics.measures.scope import MeasureScope, conditions_of, local_queue_of
from admitq_api import conditions
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject


class WorkloadMeasures:
    """Counts what happens to workloads. Durations are seconds.

    Args:
        scope: which objects have series.
    """

    def __init__(self, scope: MeasureScope) -> None:
        self._scope = scope
        self._metrics = scope.metrics
        self._skipped: set[str] = set()
        """ClusterQueues with preemptions that were skipped in the last cycle."""

    def workload_created(self, job_kind: str, seconds: float, queue: ObjectKey) -> None:
        """Record how long after its job (of generation 1) a Workload was created, for a LocalQueue."""
        series = "workload_creation_latency_seconds"
        custom = self._metrics.stored_labels(series, LabelSource.LOCAL_QUEUE, *queue)
        self._metrics.observe(series, seconds, job_kind=job_kind, **custom)

    def quota_reserved(self, workload: JsonObject, cluster_queue: str, since_queued: float) -> None:
        """Count a reservation of quota, and the time since the workload was queued."""
        self._record(
            workload,
            cluster_queue,
            counter="quota_reserved_workloads_total",
            durations={"quota_reserved_wait_time_seconds": since_queued},
        )

    def admitted(
        self, workload: JsonObject, cluster_queue: str, since_queued: float, since_reserved: float
    ) -> None:
        """Count an admission, and the times since the workload was queued and since it reserved quota."""
        self._record(
            workload,
            cluster_queue,
            counter="admitted_workloads_total",
            durations={
                "admission_wait_time_seconds": since_queued,
                "admission_checks_wait_time_seconds": since_reserved,
            },
        )
        if self._scope.has_cohort_series:
            for cohort in self._scope.cohorts_of(cluster_queue):
                self._metrics.increment(
                    "cohort_subtree_admitted_workloads_total",
                    cohort=cohort,
                    priority_class=_priority_class(workload),
                )

    def pods_became_ready(self, workload: JsonObject, since_queued: float, since_admitted: float) -> None:
        """Record when all pods of a workload were ready for the first time since its admission."""
        self._record(
            workload,
            self._cluster_queue(workload),
            durations={
                "ready_wait_time_seconds": since_queued,
                "admitted_until_ready_wait_time_seconds": since_admitted,
            },
        )

    def evicted(self, workload: JsonObject, reason: str, cause: str, *, first: bool) -> None:
        """Count an eviction; ``first`` if it is the workload's first for this reason and cause."""
        queue = self._cluster_queue(workload)
        labels = {
            "reason": reason,
            "underlying_cause": cause,
            "priority_class": _priority_class(workload),
        }
        self._metrics.increment("evicted_workloads_total", cluster_queue=queue, **labels)
        if first:
            self._metrics.increment("evicted_workloads_once_total", cluster_queue=queue, **labels)
        key = local_queue_of(workload)
        if self._scope.has_local_queue_series(key):
            self._metrics.increment(
                "local_queue_evicted_workloads_total", name=key.name, namespace=key.namespace, **labels
            )
        ready = conditions.find_condition(conditions_of(workload), ConditionType.PODS_READY)
        evicted = conditions.find_condition(conditions_of(workload), ConditionType.EVICTED)
        if ready is not None and evicted is not None and ready.get("status") == "True":
            seconds = _seconds_between(ready, evicted)
            self._metrics.observe(
                "pods_ready_to_evicted_time_seconds",
                seconds,
                cluster_queue=queue,
                reason=reason,
                underlying_cause=cause,
            )

    def preempted(self, preempting: str, reason: str) -> None:
        """Count a preemption for a workload of the ClusterQueue ``preempting``."""
        self._metrics.increment(
            "preempted_workloads_total", preempting_cluster_queue=preempting, reason=reason
        )

    def targets_recomputed(self, cluster_queue: str, result: str) -> None:
        """Count that a workload was assigned again, because another one preempts its targets."""
        self._metrics.increment(
            "preemption_target_recomputations_total", cluster_queue=cluster_queue, result=result
        )

    def preemptions_skipped(self, by_cluster_queue: Mapping[str, int]) -> None:
        """Set how many workloads could not preempt in the last cycle because another one already did."""
        series = "admission_cycle_preemption_skips"
        for name in self._skipped - by_cluster_queue.keys():
            self._metrics.set(series, 0, cluster_queue=name)
        for name, count in by_cluster_queue.items():
            self._metrics.set(series, count, cluster_queue=name)
        self._skipped = set(by_cluster_queue)

    def quota_released(self, workload: JsonObject, reason: str, since_evicted: float) -> None:
        """Record how long after its eviction a workload released its quota."""
        self._metrics.observe(
            "workload_eviction_latency_seconds",
            since_evicted,
            cluster_queue=self._cluster_queue(workload),
            reason=reason,
        )

    def finished(self, workload: JsonObject, ran: float | None) -> None:
        """Count a finished workload; ``ran`` since its admission, None if it was not admitted."""
        self._record(
            workload,
            self._cluster_queue(workload),
            counter="finished_workloads_total",
            durations={} if ran is None else {"execution_time_seconds": ran},
        )

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        """Record how long a scheduling gate held a pod after the gate could be removed."""
        self._metrics.observe(
            "pod_scheduling_gate_removal_seconds",
            seconds,
            name=gate,
            cluster_queue=cluster_queue,
            is_group=str(is_group).lower(),
        )

    def excess_pods(self, workload: JsonObject, job_kind: str, number: int) -> None:
        """Count pods of a job that ran, or might have run, beyond the reservation of its Workload."""
        queue = self._cluster_queue(workload)
        self._metrics.increment("excess_pods_total", number, cluster_queue=queue, job_kind=job_kind)

    def pod_forcefully_deleted(self) -> None:
        """Count a pod that was deleted by force because its node cannot be reached."""
        self._metrics.increment("forcefully_deleted_pods_total")

    def slice_replaced(self, workload: JsonObject) -> None:
        """Count a slice of an elastic job that was replaced by a larger one."""
        self._metrics.increment("replaced_workload_slices_total", cluster_queue=self._cluster_queue(workload))

    def _cluster_queue(self, workload: JsonObject) -> str:
        status: JsonObject = workload.get("status") or {}
        is_reserved = conditions.is_true(status.get("conditions"), ConditionType.QUOTA_RESERVED)
        admission: JsonObject = (status.get("admission") or {}) if is_reserved else {}
        return admission.get("clusterQueue") or self._scope.cluster_queue_of(local_queue_of(workload)) or ""

    def _record(
        self, workload: JsonObject, cluster_queue: str, *, durations: Mapping[str, float], counter: str = ""
    ) -> None:
        """Increment a counter and record durations of a workload, for its ClusterQueue and its LocalQueue.

        Args:
            workload: the workload.
            cluster_queue: its ClusterQueue.
            durations: the seconds by metric.
            counter: the counter; empty for none.
        """
        metrics, priority_class = self._metrics, _priority_class(workload)
        labels = {"cluster_queue": cluster_queue, "priority_class": priority_class}
        if counter:
            metrics.increment(counter, **labels)
        for series, seconds in durations.items():
            metrics.observe(series, seconds, **labels)
        key = local_queue_of(workload)
        if not self._scope.has_local_queue_series(key):
            return
        labels = {"name": key.name, "namespace": key.namespace, "priority_class": priority_class}
        if counter:
            series = f"local_queue_{counter}"
            custom = metrics.labels_from_object(series, LabelSource.WORKLOAD, workload)
            metrics.increment(series, **labels, **custom)
        for name, seconds in durations.items():
            series = f"local_queue_{name}"
            custom = metrics.labels_from_object(series, LabelSource.WORKLOAD, workload)
            metrics.observe(series, seconds, **labels, **custom)

    def forget_cluster_queue(self, name: str) -> None:
        """Forget what the last cycle skipped in a ClusterQueue that was deleted."""
        self._skipped.discard(name)


def _priority_class(workload: JsonObject) -> str:
    return ((workload.get("spec") or {}).get("priorityClassRef") or {}).get("name", "")


def _seconds_between(earlier: conditions.Condition, later: conditions.Condition) -> float:
    start = conditions.parse_time(earlier["lastTransitionTime"])
    return (conditions.parse_time(later["lastTransitionTime"]) - start) / 1e9
