"""What happened, told to the metrics: the one place that knows which series an occurrence moves."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admitq.core.amounts import UNLIMITED
from admitq.core.fair_sharing import Share
from admitq.core.model import ClusterQueue, ObjectKey, Workload
from admitq.core.statuses import (
    ClusterQueueStatus,
    CohortStatus,
    FlavorTotals,
    LocalQueueStatus,
    PendingWorkload,
)
from admitq.custom_labels import Source
from admitq.metrics import Metrics
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason

RawObject = Mapping[str, Any]
MILLI = 1000
INFINITE = float("inf")

Values = tuple[tuple[str, str], ...]
"""Custom labels of one object, by name."""


def in_units(resource: str, amount: int) -> float:
    """An amount as metrics carry it: CPU in cores, everything else in its unit, no limit as infinite."""
    if amount >= UNLIMITED:
        return INFINITE
    return amount / MILLI if resource == "cpu" else float(amount)


def _share(share: Share) -> float:
    """A weighted share as metrics carry it: exact; not a number while a weight of 0 borrows."""
    return float("nan") if share.infinite else float(share.amount)


def _labelled(custom: Values, **labels: str) -> Values:
    """Labels that may be counted by."""
    return (*labels.items(), *custom)


def _priority_class(workload: RawObject) -> str:
    return ((workload.get("spec") or {}).get("priorityClassRef") or {}).get("name", "")


@dataclass
class Measures:
    """Tells the metrics what happened to queues and workloads. Durations are seconds.

    Args:
        metrics: the registry.
        cluster_queue_of: the ClusterQueue that a LocalQueue leads to; None if there is no such LocalQueue.
        cohorts_of: the cohorts that a ClusterQueue is in, the nearest first.
        of_local_queues: whether LocalQueues have series of their own, and which.
        with_resources: whether quota and usage of ClusterQueues are exposed by flavor and resource.
        of_cohorts: whether cohorts have series.
        waiting: everyone who waits, asked for each time that metrics are read.
        pending_shapes: how many distinct shapes of workloads wait in a ClusterQueue, to be tried and parked.
        pending_requests: what the workloads that wait in a ClusterQueue request, by resource.
    """

    metrics: Metrics
    cluster_queue_of: Callable[[ObjectKey], str | None]
    cohorts_of: Callable[[str], Sequence[str]] = lambda _: ()
    of_local_queues: Callable[[ObjectKey], bool] = lambda _: True
    with_resources: bool = False
    of_cohorts: bool = True
    waiting: Callable[[], Iterable[PendingWorkload]] = lambda: ()
    pending_shapes: Callable[[str], tuple[int, int]] = lambda _: (0, 0)
    pending_requests: Callable[[str], Mapping[str, int]] = lambda _: {}
    _census: "_Census" = field(init=False)
    _skipped: set[str] = field(default_factory=set[str])
    """ClusterQueues of which some were skipped in the last cycle."""
    _places: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The cohorts above each ClusterQueue that was looked at, the nearest first."""
    _admitted: Counter[str] = field(default_factory=Counter[str])
    """How many workloads each of these ClusterQueues has admitted."""
    _cluster_queues: set[str] = field(default_factory=set[str])
    """ClusterQueues that exist."""
    _cohorts: set[str] = field(default_factory=set[str])
    """Cohorts that have series."""
    _without_object: dict[str, CohortStatus] = field(default_factory=dict[str, CohortStatus])
    """Cohorts that lost their object and are still named, with their numbers at that moment."""
    _listed: dict[ObjectKey, int] = field(default_factory=dict[ObjectKey, int])
    """How many wait in each LocalQueue that was looked at."""

    def __post_init__(self) -> None:
        self._census = _Census(self)
        self.metrics.at_reading(self._count_waiting)
        self.metrics.at_reading(self._count_pending)
        self.metrics.at_reading(self._count_subtrees)
        self.metrics.at_reading(self._count_census)
        if self.metrics.takes_from(Source.WORKLOAD):
            self.metrics.at_reading(self._count_by_workload)

    # --- workloads --------------------------------------------------------------------------------

    def workload_created(self, job_kind: str, seconds: float, queue: ObjectKey) -> None:
        """A Workload was created so long after its job (of generation 1), for a LocalQueue."""
        series = "workload_creation_latency_seconds"
        custom = self.metrics.described(series, Source.LOCAL_QUEUE, *queue)
        self.metrics.observe(series, seconds, job_kind=job_kind, **custom)

    def quota_reserved(self, workload: RawObject, cluster_queue: str, since_queued: float) -> None:
        """A workload got quota so long after it began to wait."""
        self._happened("quota_reserved_workloads_total", workload, cluster_queue)
        self._lasted("quota_reserved_wait_time_seconds", since_queued, workload, cluster_queue)

    def admitted(
        self, workload: RawObject, cluster_queue: str, since_queued: float, since_reserved: float
    ) -> None:
        """A workload was admitted: nothing is outstanding any more."""
        self._happened("admitted_workloads_total", workload, cluster_queue)
        if self.of_cohorts:
            for cohort in self.cohorts_of(cluster_queue):
                self.metrics.increment(
                    "cohort_subtree_admitted_workloads_total",
                    cohort=cohort,
                    priority_class=_priority_class(workload),
                )
        self._lasted("admission_wait_time_seconds", since_queued, workload, cluster_queue)
        self._lasted("admission_checks_wait_time_seconds", since_reserved, workload, cluster_queue)

    def pods_became_ready(self, workload: RawObject, since_queued: float, since_admitted: float) -> None:
        """All pods of an admitted workload were ready for the first time since its admission."""
        queue = self._cluster_queue(workload)
        self._lasted("ready_wait_time_seconds", since_queued, workload, queue)
        self._lasted("admitted_until_ready_wait_time_seconds", since_admitted, workload, queue)

    def evicted(self, workload: RawObject, reason: str, cause: str, *, first: bool) -> None:
        """An eviction began; ``first`` if it is the workload's first for this reason and cause."""
        queue = self._cluster_queue(workload)
        labels = {
            "reason": reason,
            "underlying_cause": cause,
            "priority_class": _priority_class(workload),
        }
        self.metrics.increment("evicted_workloads_total", cluster_queue=queue, **labels)
        if first:
            self.metrics.increment("evicted_workloads_once_total", cluster_queue=queue, **labels)
        key = _local_queue(workload)
        if self.of_local_queues(key):
            self.metrics.increment(
                "local_queue_evicted_workloads_total", name=key.name, namespace=key.namespace, **labels
            )
        ready = conditions.find(_state(workload), ConditionType.PODS_READY)
        evicted = conditions.find(_state(workload), ConditionType.EVICTED)
        if ready is not None and evicted is not None and ready.get("status") == "True":
            lasted = _seconds_between(ready, evicted)
            self.metrics.observe(
                "pods_ready_to_evicted_time_seconds",
                lasted,
                cluster_queue=queue,
                reason=reason,
                underlying_cause=cause,
            )

    def preempted(self, preempting: str, reason: str) -> None:
        """A workload was preempted for one of the ClusterQueue ``preempting``."""
        self.metrics.increment(
            "preempted_workloads_total", preempting_cluster_queue=preempting, reason=reason
        )

    def targets_recomputed(self, cluster_queue: str, result: str) -> None:
        """A workload was assigned anew, because another one preempts whom it would have to preempt."""
        self.metrics.increment(
            "preemption_target_recomputations_total", cluster_queue=cluster_queue, result=result
        )

    def preemptions_skipped(self, by_cluster_queue: Mapping[str, int]) -> None:
        """In the last cycle so many workloads could not preempt, because others already did."""
        series = "admission_cycle_preemption_skips"
        for name in self._skipped - by_cluster_queue.keys():
            self.metrics.set(series, 0, cluster_queue=name)
        for name, count in by_cluster_queue.items():
            self.metrics.set(series, count, cluster_queue=name)
        self._skipped = set(by_cluster_queue)

    def quota_released(self, workload: RawObject, reason: str, since_evicted: float) -> None:
        """The quota of an evicted workload is free: its job has stopped, or ended."""
        self.metrics.observe(
            "workload_eviction_latency_seconds",
            since_evicted,
            cluster_queue=self._cluster_queue(workload),
            reason=reason,
        )

    def finished(self, workload: RawObject, ran: float | None) -> None:
        """A workload finished; ``ran`` since its admission, None if it was not admitted."""
        queue = self._cluster_queue(workload)
        self._happened("finished_workloads_total", workload, queue)
        if ran is not None:
            self._lasted("execution_time_seconds", ran, workload, queue)

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        """A scheduling gate was taken off a pod that it held for so long after it might have gone."""
        self.metrics.observe(
            "pod_scheduling_gate_removal_seconds",
            seconds,
            name=gate,
            cluster_queue=cluster_queue,
            is_group=str(is_group).lower(),
        )

    def excess_pods(self, workload: RawObject, job_kind: str, number: int) -> None:
        """So many pods of a job ran, or might have run, beyond what is reserved for its Workload."""
        queue = self._cluster_queue(workload)
        self.metrics.increment("excess_pods_total", number, cluster_queue=queue, job_kind=job_kind)

    def pod_forcefully_deleted(self) -> None:
        """A pod on a node that cannot be reached was deleted by force."""
        self.metrics.increment("forcefully_deleted_pods_total")

    def slice_replaced(self, workload: RawObject) -> None:
        """A slice of an elastic job was replaced by a larger one."""
        self.metrics.increment("replaced_workload_slices_total", cluster_queue=self._cluster_queue(workload))

    def workload_observed(self, value: Workload, obj: RawObject) -> None:
        """A Workload is now as given: how many there are, and what they are, may have changed."""
        self._census.take(value, obj)

    def workload_gone(self, key: ObjectKey) -> None:
        """A Workload does not exist any more."""
        self._census.leave(key)

    # --- queues -----------------------------------------------------------------------------------

    def cluster_queue_observed(self, queue: ClusterQueue, obj: RawObject) -> None:
        """A ClusterQueue's quota, and its labels, are now as given."""
        self._cluster_queues.add(queue.name)
        if queue.name in self._places:
            self._place(queue.name)
        self.metrics.describe(Source.CLUSTER_QUEUE, obj, queue.name)
        if not self.with_resources:
            return
        labels = {"cohort": queue.cohort or "", "cluster_queue": queue.name}
        quotas = ("nominal_quota", "borrowing_limit", "lending_limit")
        self.metrics.forget((f"cluster_queue_{name}" for name in quotas), cluster_queue=queue.name)
        for group in queue.resource_groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources:
                    amounts = (quota.nominal, quota.borrowing_limit, quota.lending_limit)
                    for name, amount in zip(quotas, amounts, strict=True):
                        self.metrics.set(
                            f"cluster_queue_{name}",
                            in_units(resource, UNLIMITED if amount is None else amount),
                            flavor=flavor.name,
                            resource=resource,
                            **labels,
                        )

    def local_queue_observed(self, key: ObjectKey, obj: RawObject) -> None:
        """A LocalQueue's labels are now as given: it has series only while it is selected."""
        if not self.of_local_queues(key):
            self.forget_local_queue(*key)
            return
        self.metrics.describe(Source.LOCAL_QUEUE, obj, *key)

    def cohort_observed(self, name: str, obj: RawObject) -> None:
        """A cohort's labels are now as given."""
        self._without_object.pop(name, None)
        self.metrics.describe(Source.COHORT, obj, name)

    def cohort_object_deleted(self, name: str, status: CohortStatus | None) -> None:
        """A cohort's object was deleted, and its series go.

        While it is still named, ``status`` has its numbers; when they change, its series are back.
        """
        self.forget_cohort(name)
        if status is not None:
            self._without_object[name] = status

    def cohorts_changed(self) -> None:
        """A cohort came, went, or has another parent: ClusterQueues may have another place."""
        for name in self._places:
            self._place(name)

    def _place(self, name: str) -> None:
        cohorts = tuple(self.cohorts_of(name))
        if self._places.get(name) == cohorts:
            return
        self._places[name] = cohorts
        self.metrics.forget(("cluster_queue_info",), cluster_queue=name)
        parent, root = (cohorts[0], cohorts[-1]) if cohorts else ("", "")
        self.metrics.set("cluster_queue_info", 1, cluster_queue=name, parent_cohort=parent, root_cohort=root)

    def cluster_queue_reported(self, name: str, status: ClusterQueueStatus) -> None:
        """The core's numbers of a ClusterQueue were looked at."""
        self._place(name)
        self._admitted[name] = status.admitted
        gauges = self.metrics
        active = status.pending - status.inadmissible
        gauges.set("reserving_active_workloads", status.reserving, cluster_queue=name)
        if not gauges.takes_from(Source.WORKLOAD):
            gauges.set("pending_workloads", active, cluster_queue=name, status="active")
            gauges.set("pending_workloads", status.inadmissible, cluster_queue=name, status="inadmissible")
            gauges.set("admitted_active_workloads", status.admitted, cluster_queue=name)
        current = "active" if status.active else "pending"
        if status.reason == Reason.TERMINATING:
            current = "terminating"
        for state in ("pending", "active", "terminating"):
            gauges.set("cluster_queue_status", float(state == current), cluster_queue=name, status=state)
        if status.share is not None:
            gauges.forget(("cluster_queue_weighted_share",), cluster_queue=name)
            cohort = next(iter(self._places[name]), "")
            gauges.set(
                "cluster_queue_weighted_share",
                _share(status.share),
                cluster_queue=name,
                cohort=cohort,
            )
        if self.with_resources:
            self._totals("cluster_queue_resource_reservation", status.flavors_reservation, name)
            self._totals("cluster_queue_resource_usage", status.flavors_usage, name)

    def local_queue_reported(self, key: ObjectKey, status: LocalQueueStatus) -> None:
        """The core's numbers of a LocalQueue were looked at."""
        if not self.of_local_queues(key):
            return
        gauges, labels = self.metrics, {"name": key.name, "namespace": key.namespace}
        self._listed[key] = status.pending
        gauges.set("local_queue_reserving_active_workloads", status.reserving, **labels)
        if not gauges.takes_from(Source.WORKLOAD):
            gauges.set("local_queue_admitted_active_workloads", status.admitted, **labels)
        for state in ("True", "False", "Unknown"):
            gauges.set("local_queue_status", float(state == str(status.active)), active=state, **labels)
        for series, totals in (
            ("local_queue_resource_reservation", status.flavors_reservation),
            ("local_queue_resource_usage", status.flavors_usage),
        ):
            gauges.forget((series,), **labels)
            for flavor in totals or ():
                for resource, total, _ in flavor.resources:
                    gauges.set(
                        series, in_units(resource, total), flavor=flavor.flavor, resource=resource, **labels
                    )

        gauges.forget(("local_queue_admission_fair_sharing_usage",), **labels)
        if status.consumed is not None:
            gauges.set(
                "local_queue_admission_fair_sharing_usage",
                INFINITE if status.fair_usage is None else float(status.fair_usage),
                cluster_queue=self.cluster_queue_of(key) or "",
                **labels,
            )

    def cohort_reported(self, name: str, parent: str, root: str, status: CohortStatus) -> None:
        """The core's numbers of a cohort were looked at."""
        if not self.of_cohorts or self._without_object.get(name) == status:
            return
        self._without_object.pop(name, None)
        self._cohorts.add(name)
        self.metrics.forget(("cohort_info",), cohort=name)
        self.metrics.set("cohort_info", 1, cohort=name, parent_cohort=parent, root_cohort=root)
        if status.share is not None:
            self.metrics.set("cohort_weighted_share", _share(status.share), cohort=name)
        for series, amounts in (
            ("cohort_subtree_quota", status.subtree_quota),
            ("cohort_subtree_resource_reservations", status.subtree_reservations),
        ):
            self.metrics.forget((series,), cohort=name)
            for (flavor, resource), amount in amounts:
                self.metrics.set(
                    series, in_units(resource, amount), cohort=name, flavor=flavor, resource=resource
                )

    def forget_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone."""
        self._places.pop(name, None)
        self._admitted.pop(name, None)
        self._cluster_queues.discard(name)
        self._skipped.discard(name)
        self.metrics.forget_cluster_queue(name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """A LocalQueue is gone, or has no series any more."""
        self._listed.pop(ObjectKey(namespace, name), None)
        self.metrics.forget_local_queue(namespace, name)

    def forget_cohort(self, name: str) -> None:
        """A cohort is gone: it has no object, and nothing names it."""
        self._cohorts.discard(name)
        self._without_object.pop(name, None)
        self.metrics.forget_cohort(name)

    # --- what is counted when it is read ----------------------------------------------------------

    def _count_waiting(self) -> None:
        """Tell of each LocalQueue how many wait to be tried, and how many are parked."""
        parked = Counter(one.local_queue for one in self.waiting() if one.is_parked) if self._listed else {}
        for key, pending in self._listed.items():
            labels = {"name": key.name, "namespace": key.namespace}
            aside = parked.get(key, 0)
            for status, count in (("active", pending - aside), ("inadmissible", aside)):
                self.metrics.set("local_queue_pending_workloads", max(0, count), status=status, **labels)

    def _count_pending(self) -> None:
        """Count of each ClusterQueue what its workloads that wait request, and their distinct shapes."""
        shapes, requests = "pending_scheduling_hashes", "cluster_queue_resource_pending"
        self.metrics.clear(requests)
        for name in self._places:
            for status, count in zip(("active", "inadmissible"), self.pending_shapes(name), strict=True):
                self.metrics.set(shapes, count, cluster_queue=name, status=status)
            for resource, amount in self.pending_requests(name).items():
                self.metrics.set(requests, in_units(resource, amount), cluster_queue=name, resource=resource)

    def _count_subtrees(self) -> None:
        """Sum up the admitted workloads of ClusterQueues by cohort, and by custom labels of ClusterQueues."""
        if not self.of_cohorts:
            return
        series = "cohort_subtree_admitted_active_workloads"
        counts: Counter[Values] = Counter()
        for name, cohorts in self._places.items():
            custom = tuple(self.metrics.described(series, Source.CLUSTER_QUEUE, name).items())
            for cohort in cohorts:
                if cohort not in self._without_object:
                    counts[_labelled(custom, cohort=cohort)] += self._admitted[name]
        self._spread(series, counts, [{"cohort": cohort} for cohort in self._cohorts])

    def _count_census(self) -> None:
        """Count the workloads that are finished or not admitted, of queues that exist."""
        counts = self._census.counts(self.cluster_queue_of)
        for series, by_labels in counts.items():
            self.metrics.clear(series)
            for labels, count in by_labels.items():
                if self._has_series(named := dict(labels)):
                    self.metrics.set(series, count, **named)

    def _has_series(self, labels: Mapping[str, str]) -> bool:
        """Whether the queue that labels name exists, and is selected."""
        if "name" in labels:
            return self.of_local_queues(ObjectKey(labels["namespace"], labels["name"]))
        return labels["cluster_queue"] in self._cluster_queues

    def _count_by_workload(self) -> None:
        """Tell of those who wait, and of those admitted, by the custom labels of Workloads."""
        places = [{"cluster_queue": name} for name in self._places]
        self._spread(
            "pending_workloads",
            Counter(
                _labelled(
                    self._census.custom(one.workload),
                    cluster_queue=one.cluster_queue,
                    status="inadmissible" if one.is_parked else "active",
                )
                for one in self.waiting()
                if one.cluster_queue in self._places
            ),
            [{**place, "status": status} for place in places for status in ("active", "inadmissible")],
        )
        by_cluster_queue, by_local_queue = Counter[Values](), Counter[Values]()
        for one, count in self._census.admitted():
            if one.held_in in self._places:
                by_cluster_queue[_labelled(one.custom, cluster_queue=one.held_in)] += count
            if one.queue in self._listed:
                of_queue = {"name": one.queue.name, "namespace": one.queue.namespace}
                by_local_queue[_labelled(one.custom, **of_queue)] += count
        self._spread("admitted_active_workloads", by_cluster_queue, places)
        self._spread(
            "local_queue_admitted_active_workloads",
            by_local_queue,
            [{"name": key.name, "namespace": key.namespace} for key in self._listed],
        )

    def _spread(self, series: str, counts: Mapping[Values, int], queues: Sequence[Mapping[str, str]]) -> None:
        """Tell of queues how many there are by what Workloads say; 0 of a queue that has none."""
        self.metrics.clear(series)
        # What names a queue stands before what its Workloads say.
        named = len(queues[0]) if queues else 0
        told = {labels[:named] for labels in counts}
        for queue in queues:
            if tuple(queue.items()) not in told:
                self.metrics.set(series, 0, **queue)
        for labels, count in counts.items():
            self.metrics.set(series, count, **dict(labels))

    # --- how --------------------------------------------------------------------------------------

    def _cluster_queue(self, workload: RawObject) -> str:
        status: RawObject = workload.get("status") or {}
        is_reserved = conditions.is_true(status.get("conditions"), ConditionType.QUOTA_RESERVED)
        admission: RawObject = (status.get("admission") or {}) if is_reserved else {}
        return admission.get("clusterQueue") or self.cluster_queue_of(_local_queue(workload)) or ""

    def _happened(self, series: str, workload: RawObject, cluster_queue: str) -> None:
        labels = {"priority_class": _priority_class(workload)}
        self.metrics.increment(series, cluster_queue=cluster_queue, **labels)
        key = _local_queue(workload)
        if self.of_local_queues(key):
            series = f"local_queue_{series}"
            custom = self.metrics.values(series, Source.WORKLOAD, workload)
            self.metrics.increment(series, name=key.name, namespace=key.namespace, **labels, **custom)

    def _lasted(self, series: str, seconds: float, workload: RawObject, cluster_queue: str) -> None:
        labels = {"priority_class": _priority_class(workload)}
        self.metrics.observe(series, seconds, cluster_queue=cluster_queue, **labels)
        key = _local_queue(workload)
        if self.of_local_queues(key):
            series = f"local_queue_{series}"
            custom = self.metrics.values(series, Source.WORKLOAD, workload)
            self.metrics.observe(series, seconds, name=key.name, namespace=key.namespace, **labels, **custom)

    def _totals(self, series: str, totals: tuple[FlavorTotals, ...], name: str) -> None:
        self.metrics.forget((series,), cluster_queue=name)
        cohort = next(iter(self._places.get(name, ())), "")
        for flavor in totals:
            for resource, total, _ in flavor.resources:
                self.metrics.set(
                    series,
                    in_units(resource, total),
                    cohort=cohort,
                    cluster_queue=name,
                    flavor=flavor.flavor,
                    resource=resource,
                )


@dataclass(frozen=True, slots=True)
class _Place:
    """What one workload counts as."""

    queue: ObjectKey
    held_in: str
    """The ClusterQueue whose quota it holds, or held when it finished; empty if none."""
    finished: bool
    unadmitted: tuple[str, str] | None
    is_admitted: bool
    custom: Values
    """Its custom labels."""


_FINISHED, _UNADMITTED = "finished_workloads", "unadmitted_workloads"


class _Census:
    """How many workloads are finished, admitted or neither, kept up to date by what changes."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._places: dict[ObjectKey, _Place] = {}
        self._counts: Counter[_Place] = Counter()

    def take(self, value: Workload, obj: RawObject) -> None:
        """Count a workload as it is now."""
        self.leave(value.key)
        place = self._places[value.key] = _Place(
            queue=ObjectKey(value.key.namespace, value.queue_name),
            held_in="" if value.admission is None else value.admission.cluster_queue,
            finished=value.finished,
            unadmitted=_why_unadmitted(obj) if not value.finished and not value.admitted else None,
            is_admitted=value.admitted and not value.finished and value.admission is not None,
            custom=self._custom_of(obj),
        )
        self._counts[place] += 1

    def leave(self, key: ObjectKey) -> None:
        """Count a workload no more."""
        place = self._places.pop(key, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def custom(self, key: ObjectKey) -> Values:
        """The custom labels of a Workload."""
        place = self._places.get(key)
        return self._custom_of(None) if place is None else place.custom

    def _custom_of(self, obj: RawObject | None) -> Values:
        return tuple(self._measures.metrics.values("pending_workloads", Source.WORKLOAD, obj).items())

    def admitted(self) -> Iterator[tuple[_Place, int]]:
        """How many are admitted and have not finished, by what they count as."""
        return ((place, count) for place, count in self._counts.items() if place.is_admitted)

    def counts(self, cluster_queue_of: Callable[[ObjectKey], str | None]) -> dict[str, Counter[Values]]:
        """How many are finished, and how many are not admitted, by series and labels."""
        of_cluster_queues = {_FINISHED: Counter[Values](), _UNADMITTED: Counter[Values]()}
        of_local_queues = {_FINISHED: Counter[Values](), _UNADMITTED: Counter[Values]()}
        for place, count in self._counts.items():
            cluster_queue = place.held_in or cluster_queue_of(place.queue) or ""
            of_queue = (("name", place.queue.name), ("namespace", place.queue.namespace))
            named = (("cluster_queue", cluster_queue),)
            if place.finished:
                of_cluster_queues[_FINISHED][named] += count
                of_local_queues[_FINISHED][of_queue] += count
            if place.unadmitted is not None:
                reason, cause = place.unadmitted
                labels = (*named, ("reason", reason), ("underlying_cause", cause))
                of_cluster_queues[_UNADMITTED][labels] += count
                of_local_queues[_UNADMITTED][(*of_queue, *labels)] += count
        return of_cluster_queues | {f"local_queue_{name}": of for name, of in of_local_queues.items()}


def _state(workload: RawObject) -> list[conditions.Condition]:
    return (workload.get("status") or {}).get("conditions") or []


def _why_unadmitted(obj: RawObject) -> tuple[str, str]:
    admitted = conditions.find(_state(obj), ConditionType.ADMITTED) or {}
    reserved = conditions.find(_state(obj), ConditionType.QUOTA_RESERVED) or {}
    return admitted.get("reason") or Reason.NO_RESERVATION, reserved.get("reason") or ""


def _local_queue(workload: RawObject) -> ObjectKey:
    metadata = workload["metadata"]
    return ObjectKey(metadata.get("namespace", ""), (workload.get("spec") or {}).get("queueName", ""))


def _seconds_between(earlier: conditions.Condition, later: conditions.Condition) -> float:
    start = conditions.parse_time(earlier["lastTransitionTime"])
    return (conditions.parse_time(later["lastTransitionTime"]) - start) / 1e9
