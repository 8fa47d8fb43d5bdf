"""Gauges of ClusterQueues, LocalQueues and cohorts, set before a scrape if their statuses changed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from admitq.core.amounts import UNLIMITED
from admitq.core.model import ClusterQueue, ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, FlavorTotals, LocalQueueStatus
from admitq.metrics.custom_labels import LabelSource
from admitq.metrics.measures.scope import (
    INFINITE,
    Labels,
    MeasureScope,
    add_custom_labels,
    metric_amount,
    metric_share,
    set_counts,
)
from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject


class QueueMeasures:
    """Keeps the gauges of queues and cohorts.

    Args:
        scope: which objects have series.
    """

    def __init__(self, scope: MeasureScope) -> None:
        self._scope = scope
        self._metrics = scope.metrics
        self._ancestors: dict[str, tuple[str, ...]] = {}
        """The cohorts above each ClusterQueue that was reported, its parent first."""
        self._admitted: Counter[str] = Counter()
        """How many workloads each of these ClusterQueues has admitted."""
        self._cluster_queues: set[str] = set()
        """ClusterQueues that exist."""
        self._cohorts: set[str] = set()
        """Cohorts that have series."""
        self._without_object: dict[str, CohortStatus] = {}
        """Cohorts with a deleted object that are still named, with their numbers at that time."""
        self._pending: dict[ObjectKey, int] = {}
        """How many workloads are pending in each LocalQueue that was reported."""
        self._replaced: dict[Labels, dict[str, set[Labels]]] = {}
        """The other labels of the series of each object, by the labels that name it and by gauge."""
        self._metrics.update_on_scrape(self._count_subtrees)

    @property
    def reported_cluster_queues(self) -> Collection[str]:
        """ClusterQueues with a reported status."""
        return self._ancestors.keys()

    @property
    def pending_by_local_queue(self) -> Mapping[ObjectKey, int]:
        """How many workloads are pending in each LocalQueue with a reported status."""
        return self._pending

    def has_cluster_queue(self, name: str) -> bool:
        """Whether a ClusterQueue exists."""
        return name in self._cluster_queues

    def cluster_queue_observed(self, queue: ClusterQueue, obj: JsonObject) -> None:
        """Set the quota of a ClusterQueue, and its custom labels."""
        self._cluster_queues.add(queue.name)
        if queue.name in self._ancestors:
            self._update_ancestors(queue.name)
        self._metrics.store_labels(LabelSource.CLUSTER_QUEUE, obj, queue.name)
        if not self._scope.has_resource_series:
            return
        labels = {"cohort": queue.cohort or "", "cluster_queue": queue.name}
        quotas = ("nominal_quota", "borrowing_limit", "lending_limit")
        self._metrics.forget((f"cluster_queue_{name}" for name in quotas), cluster_queue=queue.name)
        for group in queue.resource_groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources:
                    amounts = (quota.nominal, quota.borrowing_limit, quota.lending_limit)
                    for name, amount in zip(quotas, amounts, strict=True):
                        self._metrics.set(
                            f"cluster_queue_{name}",
                            metric_amount(resource, UNLIMITED if amount is None else amount),
                            flavor=flavor.name,
                            resource=resource,
                            **labels,
                        )

    def local_queue_observed(self, key: ObjectKey, obj: JsonObject) -> None:
        """Set the custom labels of a LocalQueue; drop its series if it is not selected any more."""
        if not self._scope.has_local_queue_series(key):
            self.forget_local_queue(*key)
            return
        self._metrics.store_labels(LabelSource.LOCAL_QUEUE, obj, *key)

    def cohort_observed(self, name: str, obj: JsonObject) -> None:
        """Set the custom labels of a cohort."""
        self._without_object.pop(name, None)
        self._metrics.store_labels(LabelSource.COHORT, obj, name)

    def cohort_object_deleted(self, name: str, status: CohortStatus | None) -> None:
        """Drop the series of a cohort with a deleted object.

        A cohort that is still named has a ``status``. When this status changes, the series are set again.
        """
        self.forget_cohort(name)
        if status is not None:
            self._without_object[name] = status

    def cohorts_changed(self) -> None:
        """Update the parents and roots of all ClusterQueues after a change of cohorts."""
        for name in self._ancestors:
            self._update_ancestors(name)

    def _update_ancestors(self, name: str) -> None:
        cohorts = tuple(self._scope.cohorts_of(name))
        if self._ancestors.get(name) == cohorts:
            return
        self._ancestors[name] = cohorts
        self._metrics.forget(("cluster_queue_info",), cluster_queue=name)
        parent, root = (cohorts[0], cohorts[-1]) if cohorts else ("", "")
        self._metrics.set("cluster_queue_info", 1, cluster_queue=name, parent_cohort=parent, root_cohort=root)

    def cluster_queue_reported(self, name: str, status: ClusterQueueStatus) -> None:
        """Set the gauges of a ClusterQueue to the core's numbers."""
        self._update_ancestors(name)
        self._admitted[name] = status.admitted
        gauges = self._metrics
        active = status.pending - status.inadmissible
        cohort = (("cohort", next(iter(self._ancestors[name]), "")),)
        gauges.set("reserving_active_workloads", status.reserving, cluster_queue=name)
        if not gauges.has_custom_labels_from(LabelSource.WORKLOAD):
            gauges.set("pending_workloads", active, cluster_queue=name, status="active")
            gauges.set("pending_workloads", status.inadmissible, cluster_queue=name, status="inadmissible")
            gauges.set("admitted_active_workloads", status.admitted, cluster_queue=name)
        current = "active" if status.active else "pending"
        if status.reason == Reason.TERMINATING:
            current = "terminating"
        for state in ("pending", "active", "terminating"):
            gauges.set("cluster_queue_status", float(state == current), cluster_queue=name, status=state)
        if status.share is not None:
            shares = {cohort: metric_share(status.share)}
            self._replace("cluster_queue_weighted_share", {"cluster_queue": name}, shares)
        if self._scope.has_resource_series:
            for series, totals in (
                ("cluster_queue_resource_reservation", status.flavors_reservation),
                ("cluster_queue_resource_usage", status.flavors_usage),
            ):
                self._replace(series, {"cluster_queue": name}, _values_of(totals, *cohort))

    def local_queue_reported(self, key: ObjectKey, status: LocalQueueStatus) -> None:
        """Set the gauges of a LocalQueue to the core's numbers."""
        if not self._scope.has_local_queue_series(key):
            return
        gauges, labels = self._metrics, {"name": key.name, "namespace": key.namespace}
        self._pending[key] = status.pending
        gauges.set("local_queue_reserving_active_workloads", status.reserving, **labels)
        if not gauges.has_custom_labels_from(LabelSource.WORKLOAD):
            gauges.set("local_queue_admitted_active_workloads", status.admitted, **labels)
        for state in ("True", "False", "Unknown"):
            gauges.set("local_queue_status", float(state == str(status.active)), active=state, **labels)
        for series, totals in (
            ("local_queue_resource_reservation", status.flavors_reservation),
            ("local_queue_resource_usage", status.flavors_usage),
        ):
            self._replace(series, labels, _values_of(totals or ()))
        self._replace("local_queue_admission_fair_sharing_usage", labels, self._past_usage(key, status))

    def _past_usage(self, key: ObjectKey, status: LocalQueueStatus) -> Mapping[Labels, float]:
        """Return the past usage of a LocalQueue by ClusterQueue, if it is known."""
        if status.consumed is None:
            return {}
        usage = INFINITE if status.weighted_past_usage is None else float(status.weighted_past_usage)
        return {(("cluster_queue", self._scope.cluster_queue_of(key) or ""),): usage}

    def _replace(self, series: str, labels: Mapping[str, str], values: Mapping[Labels, float]) -> None:
        """Set all values of a gauge for one object, and drop its series that have no value any more.

        A search for series takes long if there are many, so it only runs if one may have to be dropped.

        Args:
            series: the gauge.
            labels: the labels that name the object.
            values: the values by the other labels.
        """
        by_series = self._replaced.setdefault(tuple(labels.items()), {})
        if not by_series.get(series, set()) <= values.keys():
            self._metrics.forget((series,), **labels)
        by_series[series] = set(values)
        for others, value in values.items():
            self._metrics.set(series, value, **labels, **dict(others))

    def cohort_reported(self, name: str, parent: str, root: str, status: CohortStatus) -> None:
        """Set the gauges of a cohort to the core's numbers."""
        if not self._scope.has_cohort_series or self._without_object.get(name) == status:
            return
        self._without_object.pop(name, None)
        self._cohorts.add(name)
        labels = {"cohort": name}
        self._replace("cohort_info", labels, {(("parent_cohort", parent), ("root_cohort", root)): 1})
        if status.share is not None:
            self._metrics.set("cohort_weighted_share", metric_share(status.share), cohort=name)
        for series, amounts in (
            ("cohort_subtree_quota", status.subtree_quota),
            ("cohort_subtree_resource_reservations", status.subtree_reservations),
        ):
            values = {
                (("flavor", flavor), ("resource", resource)): metric_amount(resource, amount)
                for (flavor, resource), amount in amounts
            }
            self._replace(series, labels, values)

    def forget_cluster_queue(self, name: str) -> None:
        """Drop the series of a ClusterQueue that was deleted."""
        self._ancestors.pop(name, None)
        self._admitted.pop(name, None)
        self._cluster_queues.discard(name)
        self._replaced.pop((("cluster_queue", name),), None)
        self._metrics.forget_cluster_queue(name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """Drop the series of a LocalQueue that was deleted or is not selected any more."""
        self._pending.pop(ObjectKey(namespace, name), None)
        self._replaced.pop((("name", name), ("namespace", namespace)), None)
        self._metrics.forget_local_queue(namespace, name)

    def forget_cohort(self, name: str) -> None:
        """Drop the series of a cohort that has no object and is not named any more."""
        self._cohorts.discard(name)
        self._without_object.pop(name, None)
        self._replaced.pop((("cohort", name),), None)
        self._metrics.forget_cohort(name)

    def _count_subtrees(self) -> None:
        """Sum up the admitted workloads of ClusterQueues by cohort, and by custom labels of ClusterQueues."""
        if not self._scope.has_cohort_series:
            return
        series = "cohort_subtree_admitted_active_workloads"
        counts: Counter[Labels] = Counter()
        for name, cohorts in self._ancestors.items():
            custom = tuple(self._metrics.stored_labels(series, LabelSource.CLUSTER_QUEUE, name).items())
            for cohort in cohorts:
                if cohort not in self._without_object:
                    counts[add_custom_labels(custom, cohort=cohort)] += self._admitted[name]
        set_counts(self._metrics, series, counts, [{"cohort": cohort} for cohort in self._cohorts])


def _values_of(totals: Iterable[FlavorTotals], *labels: tuple[str, str]) -> dict[Labels, float]:
    """Return amounts by flavor and resource, each after further labels."""
    return {
        (*labels, ("flavor", flavor.flavor), ("resource", resource)): metric_amount(resource, total)
        for flavor in totals
        for resource, total, _ in flavor.resources
    }
