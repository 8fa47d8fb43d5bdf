"""Measures change the series of their queues, cohorts and workloads, and remove them with the objects."""

import math
from fractions import Fraction
from typing import Any

import pytest

from admitq.core.activity import ActiveReason
from admitq.core.amounts import FlavorResource
from admitq.core.fair_sharing import NO_SHARE, Share
from admitq.core.model import ConsumedResources, ObjectKey
from admitq.core.statuses import (
    ClusterQueueStatus,
    CohortStatus,
    FlavorTotals,
    LocalQueueReason,
    LocalQueueStatus,
    PendingWorkload,
    ResourceTotal,
)
from admitq.metrics.measures.gauges import PendingWorkloads
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.queue_statuses import NO_STATUSES, QueueStatuses
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.translate.cluster_queues import read_cluster_queue
from admitq.translate.workloads import read_workload
from admitq_api.labels import DEFAULT_GROUP, names_for
from tests.unit.metrics.metric_table import PROMISED

NAMES = names_for(DEFAULT_GROUP)
IDLE = ClusterQueueStatus(True, ActiveReason.READY, (), 3, 1, 2, 1, (), ())


class MeasuresWithMetrics(ManagerMeasures):
    """Measures, and the registry that they write to."""

    def __init__(
        self,
        pending: PendingWorkloads | None = None,
        statuses: QueueStatuses = NO_STATUSES,
        **options: Any,
    ) -> None:
        self.metrics = Metrics()
        self.cohorts = ["teams", "company"]
        options.setdefault("cluster_queue_of", lambda key: f"cq-of-{key.name}")
        scope = MeasureScope(self.metrics, cohorts_of=lambda _: self.cohorts, **options)
        super().__init__(scope, pending, statuses)

    def value(self, series: str, **labels: str) -> float | None:
        """Return the value of the only series with these labels, or None."""
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith(f"admitq_{series}{{")
            and all(f'{name}="{value}"' in line for name, value in labels.items())
        ]
        assert len(values) < 2, values
        return values[0] if values else None


def workload(name: str = "w", *, queue: str = "main", cpu: str = "2", **conditions: tuple[str, str]) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    state = [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-03-01T10:00:00Z",
        }
        for type_, (status, reason) in conditions.items()
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": "2026-03-01T09:00:00Z",
        },
        "spec": {
            "queueName": queue,
            "priorityClassRef": {"name": "high"},
            "podSets": [{"count": 3, "template": {"spec": {"containers": [container]}}}],
        },
        "status": {"conditions": state},
    }


def observe_cluster_queue(measures: MeasuresWithMetrics, name: str) -> None:
    obj = {"metadata": {"name": name}, "spec": {}}
    measures.queues.cluster_queue_observed(read_cluster_queue(obj), obj)


def observe(measures: MeasuresWithMetrics, obj: Any) -> None:
    measures.gauges.workload_observed(read_workload(obj, NAMES), obj)


def test_admission_is_counted_for_its_queues_and_all_cohorts_above() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    assert measures.value("admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1
    assert measures.value("local_queue_admitted_workloads_total", name="main", namespace="team") == 1
    assert measures.value("admission_wait_time_seconds_sum", cluster_queue="cq") == 4
    for cohort in ("teams", "company"):
        assert measures.value("cohort_subtree_admitted_workloads_total", cohort=cohort) == 1


def test_local_queue_without_selected_labels_has_no_series() -> None:
    measures = MeasuresWithMetrics(has_local_queue_series=lambda key: key.name == "other")
    measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    assert measures.value("local_queue_admitted_workloads_total") is None


def test_cluster_queue_info_names_current_parent_and_root_cohort() -> None:
    measures = MeasuresWithMetrics()
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert measures.value("cluster_queue_info", parent_cohort="teams", root_cohort="company") == 1
    measures.cohorts = ["teams", "holding"]
    measures.queues.cohorts_changed()
    assert measures.value("cluster_queue_info", cluster_queue="cq", root_cohort="holding") == 1
    assert measures.value("cluster_queue_info", root_cohort="company") is None


def test_admitted_workloads_of_cohorts_are_sums_over_current_tree() -> None:
    measures = MeasuresWithMetrics()

    def admitted_in(cohort: str) -> float | None:
        return measures.value("cohort_subtree_admitted_active_workloads", cohort=cohort)

    measures.queues.cluster_queue_reported("one", IDLE)
    measures.queues.cluster_queue_reported("two", IDLE._replace(admitted=4))
    measures.queues.cluster_queue_reported("two", IDLE._replace(admitted=3))
    assert (admitted_in("teams"), admitted_in("company")) == (4, 4)
    measures.cohorts = ["teams", "holding"]
    measures.queues.cohorts_changed()
    assert (admitted_in("teams"), admitted_in("company"), admitted_in("holding")) == (4, None, 4)
    measures.forget_cluster_queue("two")
    assert (admitted_in("teams"), admitted_in("holding")) == (1, 1)


def test_reported_cluster_queue_status_is_exposed() -> None:
    measures = MeasuresWithMetrics(PendingWorkloads(count_scheduling_keys=lambda _: (1, 2)))
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert measures.value("pending_workloads", status="active") == 2
    assert measures.value("pending_workloads", status="inadmissible") == 1
    assert measures.value("reserving_active_workloads") == 2
    assert measures.value("admitted_active_workloads") == 1
    assert measures.value("cluster_queue_status", status="active") == 1
    assert measures.value("cluster_queue_status", status="pending") == 0
    assert measures.value("pending_scheduling_hashes", status="inadmissible") == 2


class CoreStatuses:
    """The statuses of a core, of which the test counts the computed ones."""

    def __init__(self) -> None:
        self.is_reporting = True
        self.cluster_queues = {"cq": IDLE}
        self.local_queues = {
            ObjectKey("team", "main"): LocalQueueStatus(True, LocalQueueReason.READY, 1, 7, 1, (), ())
        }
        self.cohorts = {"teams": COHORT_STATUS}
        self.computed = 0

    def measures(self) -> MeasuresWithMetrics:
        def cluster_queue(name: str) -> ClusterQueueStatus | None:
            self.computed += 1
            return self.cluster_queues.get(name)

        return MeasuresWithMetrics(
            statuses=QueueStatuses(
                is_reporting=lambda: self.is_reporting,
                cluster_queue=cluster_queue,
                local_queue=self.local_queues.get,
                cohort=self.cohorts.get,
                cohort_path=lambda name: [name, "company"],
            )
        )


def test_changed_cluster_queue_is_computed_once_for_the_next_scrape() -> None:
    core = CoreStatuses()
    measures = core.measures()
    for admitted in range(4):
        core.cluster_queues["cq"] = IDLE._replace(admitted=admitted)
        measures.changed.cluster_queue_changed("cq")
    assert measures.value("admitted_active_workloads") == 3
    assert measures.value("cohort_subtree_admitted_active_workloads", cohort="company") == 3
    assert core.computed == 1


def test_gauges_of_changed_local_queue_and_cohort_are_set_before_scrape() -> None:
    core = CoreStatuses()
    measures = core.measures()
    measures.changed.local_queue_changed(ObjectKey("team", "main"))
    measures.changed.cohort_changed("teams")
    assert measures.value("local_queue_reserving_active_workloads", name="main") == 7
    assert measures.value("cohort_info", cohort="teams", parent_cohort="company") == 1
    core.cohorts.clear()
    measures.changed.cohort_changed("teams")
    assert measures.value("cohort_info", cohort="teams") is None


def test_process_that_does_not_report_statuses_sets_their_gauges_once_it_does() -> None:
    core = CoreStatuses()
    core.is_reporting = False
    measures = core.measures()
    measures.changed.cluster_queue_changed("cq")
    assert measures.value("admitted_active_workloads") is None
    core.is_reporting = True
    assert measures.value("admitted_active_workloads") == 1


def test_deleted_queues_have_no_gauges_although_they_changed() -> None:
    core = CoreStatuses()
    measures = core.measures()
    measures.changed.cluster_queue_changed("cq")
    measures.changed.cluster_queue_changed("unknown to the core")
    measures.changed.local_queue_changed(ObjectKey("team", "main"))
    measures.forget_cluster_queue("cq")
    measures.forget_local_queue(ObjectKey("team", "main"))
    assert measures.value("admitted_active_workloads") is None
    assert measures.value("local_queue_reserving_active_workloads") is None


def test_series_of_forgotten_cluster_queue_are_removed() -> None:
    measures = MeasuresWithMetrics(PendingWorkloads(count_scheduling_keys=lambda _: (1, 2)))
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert measures.value("cluster_queue_info") == 1
    measures.forget_cluster_queue("cq")
    assert measures.value("cluster_queue_info") is None
    assert measures.value("pending_scheduling_hashes") is None


@pytest.mark.parametrize("end", ["finished", "deleted"])
def test_pending_workload_is_counted_as_unadmitted_until_its_end(end: str) -> None:
    measures = MeasuresWithMetrics()
    observe_cluster_queue(measures, "cq-of-main")
    waiting = workload(QuotaReserved=("False", "WaitingForQuota"))
    observe(measures, waiting)
    observe(measures, waiting)
    labels = {"cluster_queue": "cq-of-main", "reason": "NoReservation", "underlying_cause": "WaitingForQuota"}
    assert measures.value("unadmitted_workloads", **labels) == 1
    if end == "finished":
        observe(measures, workload(Finished=("True", "Succeeded")))
        assert measures.value("finished_workloads", cluster_queue="cq-of-main") == 1
    measures.gauges.workload_deleted(ObjectKey("team", "w"))
    for series in ("unadmitted_workloads", "finished_workloads"):
        assert measures.value(series) is None, series


def test_first_eviction_counts_in_once_metric_and_every_eviction_in_total() -> None:
    measures = MeasuresWithMetrics()
    for first in (True, False):
        measures.workloads.evicted(workload(), "Preempted", "", first=first)
    assert measures.value("evicted_workloads_total", reason="Preempted", cluster_queue="cq-of-main") == 2
    assert measures.value("evicted_workloads_once_total", reason="Preempted") == 1
    assert measures.value("local_queue_evicted_workloads_total", name="main") == 2


def test_preemption_is_counted_for_cluster_queue_of_preemptor() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.preempted("cq", "InClusterQueue")
    assert (
        measures.value("preempted_workloads_total", preempting_cluster_queue="cq", reason="InClusterQueue")
        == 1
    )


def test_weighted_share_is_exposed_only_with_fair_sharing() -> None:
    measures = MeasuresWithMetrics()
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert measures.value("cluster_queue_weighted_share") is None
    measures.queues.cluster_queue_reported("cq", IDLE._replace(share=NO_SHARE))
    assert measures.value("cluster_queue_weighted_share", cluster_queue="cq", cohort="teams") == 0


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (Share(infinite=False, amount=Fraction(2000, 3)), 2000 / 3),
        (Share(infinite=False, amount=Fraction(10**30)), 1e30),
        (Share(infinite=True, amount=Fraction(500)), math.nan),
    ],
)
def test_d20_weighted_share_metric_is_exact_and_nan_if_infinite(share: Share, expected: float) -> None:
    measures = MeasuresWithMetrics()
    measures.queues.cluster_queue_reported("cq", IDLE._replace(share=share))
    measures.queues.cohort_reported("teams", "company", "company", CohortStatus((), (), share))
    for series in ("cluster_queue_weighted_share", "cohort_weighted_share"):
        value = measures.value(series, cohort="teams")
        assert value is not None
        assert value == expected or (math.isnan(value) and math.isnan(expected))


CPU = FlavorResource("f", "cpu")
COHORT_STATUS = CohortStatus(((CPU, 4000),), ((CPU, 1000),), NO_SHARE)


def cohort_series(measures: MeasuresWithMetrics, cohort: str) -> set[str]:
    """Return the metrics that have a series of the cohort."""
    lines = measures.metrics.exposition().decode().splitlines()
    return {
        line.partition("{")[0].removeprefix("admitq_")
        for line in lines
        if f',cohort="{cohort}"' in line.replace("{", ",") and "cluster_queue" not in line
    }


COHORT_METRICS = {name for name in PROMISED if name.startswith("cohort_")}


def report_in_cohort(
    measures: MeasuresWithMetrics, cohort: str, status: CohortStatus = COHORT_STATUS
) -> None:
    """Report a ClusterQueue with an admitted workload in a cohort."""
    measures.cohorts = [cohort]
    measures.queues.cluster_queue_reported("cq", IDLE)
    measures.queues.cohort_reported(cohort, "", cohort, status)
    measures.workloads.admitted(workload(), "cq", 4.0, 1.0)


def test_d19_series_of_cohort_are_removed_with_its_object_while_queues_name_it() -> None:
    measures = MeasuresWithMetrics()
    report_in_cohort(measures, "teams")
    assert cohort_series(measures, "teams") == COHORT_METRICS
    without_quota = COHORT_STATUS._replace(subtree_quota=())
    measures.queues.cohort_object_deleted("teams", without_quota)
    measures.queues.cohorts_changed()
    measures.queues.cohort_reported("teams", "", "teams", without_quota)
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert cohort_series(measures, "teams") == set()


@pytest.mark.parametrize("cause", ["object created again", "status changed"])
def test_d19_removed_series_of_cohort_return_after(cause: str) -> None:
    measures = MeasuresWithMetrics()
    report_in_cohort(measures, "teams")
    measures.queues.cohort_object_deleted("teams", COHORT_STATUS)
    if cause == "object created again":
        measures.queues.cohort_observed("teams", {"metadata": {"name": "teams"}})
        measures.queues.cohort_reported("teams", "", "teams", COHORT_STATUS)
    else:
        measures.queues.cohort_reported(
            "teams", "", "teams", COHORT_STATUS._replace(subtree_reservations=((CPU, 2000),))
        )
    assert cohort_series(measures, "teams") >= COHORT_METRICS - {"cohort_subtree_admitted_workloads_total"}
    assert measures.value("cohort_subtree_admitted_active_workloads", cohort="teams") == 1


def test_d19_series_of_implicit_cohort_are_removed_with_its_last_member() -> None:
    measures = MeasuresWithMetrics()
    report_in_cohort(measures, "teams")
    measures.cohorts = ["other"]
    measures.queues.forget_cohort("teams")
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert cohort_series(measures, "teams") == set()
    assert measures.value("cohort_subtree_admitted_active_workloads", cohort="other") == 1


def test_d19_cohort_without_members_has_zero_admitted_workloads() -> None:
    measures = MeasuresWithMetrics()
    measures.queues.cohort_reported("teams", "", "teams", COHORT_STATUS)
    assert measures.value("cohort_subtree_admitted_active_workloads", cohort="teams") == 0


def test_d19_series_of_local_queue_are_removed_while_its_labels_do_not_match() -> None:
    selected = True
    measures = MeasuresWithMetrics(has_local_queue_series=lambda _: selected)
    key = ObjectKey("team", "main")

    def series() -> set[str]:
        lines = measures.metrics.exposition().decode().splitlines()
        return {line.partition("{")[0] for line in lines if 'namespace="team"' in line}

    def report() -> None:
        measures.queues.local_queue_observed(key, {"metadata": {"name": "main", "namespace": "team"}})
        measures.queues.local_queue_reported(
            key, LocalQueueStatus(True, LocalQueueReason.READY, 1, 1, 1, (), ())
        )

    report()
    observe(measures, workload(QuotaReserved=("False", "WaitingForQuota")))
    measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    everything = series()
    assert "admitq_local_queue_unadmitted_workloads" in everything
    selected = False
    report()
    assert series() == set()
    selected = True
    report()
    lasting = {
        name for name in everything if name.rpartition("_")[2] not in {"total", "bucket", "sum", "count"}
    }
    assert series() == lasting


def test_d19_pending_requests_and_scheduling_keys_are_those_of_the_core() -> None:
    pending = PendingWorkloads(
        count_scheduling_keys=lambda _: (2, 3), total_requests=lambda _: {"cpu": 1500, "memory": 2**30}
    )
    measures = MeasuresWithMetrics(pending)
    measures.queues.cluster_queue_reported("cq", IDLE)
    assert measures.value("cluster_queue_resource_pending", cluster_queue="cq", resource="cpu") == 1.5
    assert measures.value("cluster_queue_resource_pending", cluster_queue="cq", resource="memory") == 2**30
    assert measures.value("pending_scheduling_hashes", cluster_queue="cq", status="active") == 2
    assert measures.value("pending_scheduling_hashes", cluster_queue="cq", status="inadmissible") == 3
    measures.forget_cluster_queue("cq")
    assert measures.value("cluster_queue_resource_pending", resource="cpu") is None


def test_pending_workloads_of_local_queue_are_counted_without_a_list_of_all() -> None:
    def list_all() -> list[PendingWorkload]:
        raise AssertionError("a scrape lists all pending workloads")

    main = ObjectKey("team", "main")
    pending = PendingWorkloads(workloads=list_all, inadmissible_by_local_queue=lambda: {main: 2})
    measures = MeasuresWithMetrics(pending)
    status = LocalQueueStatus(True, LocalQueueReason.READY, 5, 0, 0, (), ())
    measures.queues.local_queue_reported(main, status)
    assert measures.value("local_queue_pending_workloads", name="main", status="active") == 3
    assert measures.value("local_queue_pending_workloads", name="main", status="inadmissible") == 2


@pytest.mark.parametrize("series", ["unadmitted_workloads", "finished_workloads"])
def test_d19_gauges_of_deleted_cluster_queue_do_not_return_with_workload_changes(series: str) -> None:
    measures = MeasuresWithMetrics()
    condition: dict[str, Any] = {"Finished": ("True", "Succeeded")} if series == "finished_workloads" else {}
    observe_cluster_queue(measures, "cq-of-main")
    observe(measures, workload("first", **condition))
    assert measures.value(series, cluster_queue="cq-of-main") == 1
    measures.forget_cluster_queue("cq-of-main")
    observe(measures, workload("second", **condition))
    assert measures.value(series) is None
    assert measures.value(f"local_queue_{series}", name="main") == 2
    observe_cluster_queue(measures, "cq-of-main")
    assert measures.value(series, cluster_queue="cq-of-main") == 2


def test_d19_workload_observed_before_its_local_queue_counts_for_cluster_queue() -> None:
    cluster_queues = dict[str, str]()
    measures = MeasuresWithMetrics(cluster_queue_of=lambda key: cluster_queues.get(key.name))
    observe(measures, workload(Finished=("True", "Succeeded")))
    observe_cluster_queue(measures, "cq")
    assert measures.value("finished_workloads") is None
    cluster_queues["main"] = "cq"
    assert measures.value("finished_workloads", cluster_queue="cq") == 1


def test_d19_preemption_skips_of_deleted_cluster_queue_do_not_return() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.preemptions_skipped({"cq": 2})
    measures.forget_cluster_queue("cq")
    measures.workloads.preemptions_skipped({})
    assert measures.value("admission_cycle_preemption_skips", cluster_queue="cq") is None


def test_usage_of_local_queue_is_exposed_for_its_present_flavors() -> None:
    measures = MeasuresWithMetrics()

    def report(queue: str, *flavors: str) -> None:
        totals = tuple(FlavorTotals(flavor, (ResourceTotal("cpu", 2000, 0),)) for flavor in flavors)
        status = LocalQueueStatus(True, LocalQueueReason.READY, 0, 1, 1, totals, totals)
        measures.queues.local_queue_reported(ObjectKey("team", queue), status)

    def exposed(queue: str) -> set[str]:
        return {
            flavor
            for flavor in ("spot", "reserved")
            if measures.value("local_queue_resource_usage", name=queue, flavor=flavor) == 2
        }

    report("main", "spot", "reserved")
    report("other", "spot")
    assert exposed("main") == {"spot", "reserved"}
    report("main", "reserved")
    assert (exposed("main"), exposed("other")) == ({"reserved"}, {"spot"})
    measures.queues.forget_local_queue("team", "main")
    assert exposed("main") == set()
    report("main", "spot")
    assert exposed("main") == {"spot"}


def test_fair_sharing_usage_of_local_queue_is_exposed_if_it_counts() -> None:
    measures = MeasuresWithMetrics()
    key = ObjectKey("team", "main")
    status = LocalQueueStatus(True, LocalQueueReason.READY, 0, 0, 0, (), ())
    measures.queues.local_queue_reported(key, status)
    assert measures.value("local_queue_admission_fair_sharing_usage") is None
    status = status._replace(consumed=ConsumedResources((), 0), weighted_past_usage=Fraction(3, 2))
    measures.queues.local_queue_reported(key, status)
    assert (
        measures.value("local_queue_admission_fair_sharing_usage", name="main", cluster_queue="cq-of-main")
        == 1.5
    )
    measures.queues.local_queue_reported(key, status._replace(weighted_past_usage=None))
    assert measures.value("local_queue_admission_fair_sharing_usage", name="main") == math.inf


def test_target_recomputation_is_counted_with_its_result() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.targets_recomputed("cq", "deferred_fit")
    assert (
        measures.value("preemption_target_recomputations_total", cluster_queue="cq", result="deferred_fit")
        == 1
    )


def test_preemption_skips_are_those_of_last_cycle() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.preemptions_skipped({"cq": 2, "other": 1})
    measures.workloads.preemptions_skipped({"other": 3})
    assert measures.value("admission_cycle_preemption_skips", cluster_queue="cq") == 0
    assert measures.value("admission_cycle_preemption_skips", cluster_queue="other") == 3


def test_forcefully_deleted_pod_is_counted() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.pod_forcefully_deleted()
    assert measures.value("forcefully_deleted_pods_total") == 1


def test_excess_pods_are_counted_for_cluster_queue_of_their_workload() -> None:
    measures = MeasuresWithMetrics()
    for number in (2, 1):
        measures.workloads.excess_pods(workload(), "Job.batch", number)
    labels = {"cluster_queue": "cq-of-main", "job_kind": "Job.batch"}
    assert measures.value("excess_pods_total", **labels) == 3
    measures.metrics.forget_cluster_queue("cq-of-main")
    assert measures.value("excess_pods_total", **labels) is None


def test_gate_removal_is_observed_for_its_cluster_queue() -> None:
    measures = MeasuresWithMetrics()
    measures.workloads.gate_removed("example.com/gate", "cq", 2.5, is_group=True)
    labels = {"name": "example.com/gate", "cluster_queue": "cq", "is_group": "true"}
    assert measures.value("pod_scheduling_gate_removal_seconds_sum", **labels) == 2.5
    measures.metrics.forget_cluster_queue("cq")
    assert measures.value("pod_scheduling_gate_removal_seconds_sum", **labels) is None
