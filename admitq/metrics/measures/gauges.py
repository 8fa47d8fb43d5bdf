"""Gauges of workloads, which are set before each scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from admitq.core.model import ObjectKey, Workload
from admitq.core.statuses import PendingWorkload
from admitq.metrics.custom_labels import LabelSource
from admitq.metrics.measures.queues import QueueMeasures
from admitq.metrics.measures.scope import Labels, MeasureScope, add_custom_labels, metric_amount, set_counts
from admitq.metrics.measures.workload_counts import WorkloadStateCounter
from admitq_api.json_objects import JsonObject


@dataclass(frozen=True, slots=True)
class PendingWorkloads:
    """Reads the pending workloads of the core before each scrape.

    Args:
        workloads: all pending workloads. Slow; only for metrics with custom labels.
        inadmissible_by_local_queue: how many of them are inadmissible, by LocalQueue.
        count_scheduling_keys: how many scheduling keys are active and inadmissible in a ClusterQueue.
        total_requests: what the pending workloads of a ClusterQueue request, by resource.
    """

    workloads: Callable[[], Iterable[PendingWorkload]] = lambda: ()
    inadmissible_by_local_queue: Callable[[], Mapping[ObjectKey, int]] = dict
    count_scheduling_keys: Callable[[str], tuple[int, int]] = lambda _: (0, 0)
    total_requests: Callable[[str], Mapping[str, int]] = lambda _: {}


class WorkloadGauges:
    """Counts the workloads that exist, by their state.

    Args:
        scope: which objects have series.
        queues: the queues that were reported.
        pending: the pending workloads.
    """

    def __init__(self, scope: MeasureScope, queues: QueueMeasures, pending: PendingWorkloads) -> None:
        self._scope = scope
        self._metrics = scope.metrics
        self._queues = queues
        self._pending = pending
        self._counts = WorkloadStateCounter(scope.metrics)
        for count in (
            self._set_pending_by_local_queue,
            self._set_pending_requests,
            self._set_finished_and_unadmitted,
        ):
            self._metrics.update_on_scrape(count)
        if self._metrics.has_custom_labels_from(LabelSource.WORKLOAD):
            self._metrics.update_on_scrape(self._set_counts_by_custom_labels)

    def workload_observed(self, value: Workload, obj: JsonObject) -> None:
        """Count a Workload as it is now."""
        self._counts.put(value, obj)

    def workload_deleted(self, key: ObjectKey) -> None:
        """Stop counting a Workload."""
        self._counts.remove(key)

    def _set_pending_by_local_queue(self) -> None:
        """Count the active and the inadmissible workloads of each LocalQueue."""
        by_queue = self._queues.pending_by_local_queue
        inadmissible_by_queue = self._pending.inadmissible_by_local_queue() if by_queue else {}
        for key, pending in by_queue.items():
            labels = {"name": key.name, "namespace": key.namespace}
            inadmissible = inadmissible_by_queue.get(key, 0)
            for status, count in (("active", pending - inadmissible), ("inadmissible", inadmissible)):
                self._metrics.set("local_queue_pending_workloads", max(0, count), status=status, **labels)

    def _set_pending_requests(self) -> None:
        """Sum up requests of pending workloads by ClusterQueue; count their distinct scheduling keys."""
        keys, requests = "pending_scheduling_hashes", "cluster_queue_resource_pending"
        self._metrics.clear(requests)
        for name in self._queues.reported_cluster_queues:
            for status, count in zip(
                ("active", "inadmissible"), self._pending.count_scheduling_keys(name), strict=True
            ):
                self._metrics.set(keys, count, cluster_queue=name, status=status)
            for resource, amount in self._pending.total_requests(name).items():
                self._metrics.set(
                    requests, metric_amount(resource, amount), cluster_queue=name, resource=resource
                )

    def _set_finished_and_unadmitted(self) -> None:
        """Count the workloads that are finished or not admitted, of queues that exist."""
        counts = self._counts.counts(self._scope.cluster_queue_of)
        for series, by_labels in counts.items():
            self._metrics.clear(series)
            for labels, count in by_labels.items():
                if self._has_series(named := dict(labels)):
                    self._metrics.set(series, count, **named)

    def _has_series(self, labels: Mapping[str, str]) -> bool:
        """Whether the queue that the labels name exists, and is selected."""
        if "name" in labels:
            return self._scope.has_local_queue_series(ObjectKey(labels["namespace"], labels["name"]))
        return self._queues.has_cluster_queue(labels["cluster_queue"])

    def _set_counts_by_custom_labels(self) -> None:
        """Count pending and admitted workloads by the custom labels of Workloads."""
        queues, by_queue = self._queues.reported_cluster_queues, self._queues.pending_by_local_queue
        places = [{"cluster_queue": name} for name in queues]
        set_counts(
            self._metrics,
            "pending_workloads",
            Counter(
                add_custom_labels(
                    self._counts.custom_labels_of(workload.workload),
                    cluster_queue=workload.cluster_queue,
                    status="inadmissible" if workload.is_inadmissible else "active",
                )
                for workload in self._pending.workloads()
                if workload.cluster_queue in queues
            ),
            [{**place, "status": status} for place in places for status in ("active", "inadmissible")],
        )
        by_cluster_queue, by_local_queue = Counter[Labels](), Counter[Labels]()
        for state, count in self._counts.admitted():
            if state.reserved_in in queues:
                by_cluster_queue[add_custom_labels(state.custom_labels, cluster_queue=state.reserved_in)] += (
                    count
                )
            if state.queue in by_queue:
                of_queue = {"name": state.queue.name, "namespace": state.queue.namespace}
                by_local_queue[add_custom_labels(state.custom_labels, **of_queue)] += count
        set_counts(self._metrics, "admitted_active_workloads", by_cluster_queue, places)
        set_counts(
            self._metrics,
            "local_queue_admitted_active_workloads",
            by_local_queue,
            [{"name": key.name, "namespace": key.namespace} for key in by_queue],
        )
