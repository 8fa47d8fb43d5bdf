"""What happens to queues and workloads moves the right series, and nothing stays behind."""

import math
from fractions import Fraction
from typing import Any

import pytest

from admitq.core.activity import ActiveReason
from admitq.core.amounts import FlavorResource
from admitq.core.fair_sharing import NO_SHARE, Share
from admitq.core.model import ConsumedResources, ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, LocalQueueReason, LocalQueueStatus
from admitq.metrics.measures.gauges import PendingWorkloads
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.translate.cluster_queues import read_cluster_queue
from admitq.translate.workloads import read_workload
from admitq_api.labels import DEFAULT_GROUP, names_for
from tests.unit.metrics.metric_table import PROMISED

NAMES = names_for(DEFAULT_GROUP)
IDLE = ClusterQueueStatus(True, ActiveReason.READY, (), 3, 1, 2, 1, (), ())


class Told:
    """Measures on a registry that can be asked."""

    def __init__(self, pending: PendingWorkloads | None = None, **options: Any) -> None:
        self.metrics = Metrics()
        self.cohorts = ["teams", "company"]
        options.setdefault("cluster_queue_of", lambda key: f"cq-of-{key.name}")
        self.measures = ManagerMeasures(
            MeasureScope(self.metrics, cohorts_of=lambda _: self.cohorts, **options), pending
        )

    def value(self, series: str, **labels: str) -> float | None:
        """The value of the one series with these labels; None if there is none."""
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith(f"admitq_{series}{{")
            and all(f'{name}="{value}"' in line for name, value in labels.items())
        ]
        assert len(found) < 2, found
        return found[0] if found else None


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


def observe_cluster_queue(told: Told, name: str) -> None:
    obj = {"metadata": {"name": name}, "spec": {}}
    told.measures.queues.cluster_queue_observed(read_cluster_queue(obj), obj)


def observe(told: Told, obj: Any) -> None:
    told.measures.gauges.workload_observed(read_workload(obj, NAMES), obj)


def test_an_admission_counts_for_its_queues_and_every_cohort_above() -> None:
    told = Told()
    told.measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    assert told.value("admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1
    assert told.value("local_queue_admitted_workloads_total", name="main", namespace="team") == 1
    assert told.value("admission_wait_time_seconds_sum", cluster_queue="cq") == 4
    for cohort in ("teams", "company"):
        assert told.value("cohort_subtree_admitted_workloads_total", cohort=cohort) == 1


def test_series_of_local_queues_are_only_for_those_selected() -> None:
    told = Told(has_local_queue_series=lambda key: key.name == "other")
    told.measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    assert told.value("local_queue_admitted_workloads_total") is None


def test_the_place_of_a_cluster_queue_follows_the_tree() -> None:
    told = Told()
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert told.value("cluster_queue_info", parent_cohort="teams", root_cohort="company") == 1
    told.cohorts = ["teams", "holding"]
    told.measures.queues.cohorts_changed()
    assert told.value("cluster_queue_info", cluster_queue="cq", root_cohort="holding") == 1
    assert told.value("cluster_queue_info", root_cohort="company") is None


def test_admitted_workloads_are_summed_up_the_tree_and_follow_its_changes() -> None:
    told = Told()

    def of(cohort: str) -> float | None:
        return told.value("cohort_subtree_admitted_active_workloads", cohort=cohort)

    told.measures.queues.cluster_queue_reported("one", IDLE)
    told.measures.queues.cluster_queue_reported("two", IDLE._replace(admitted=4))
    told.measures.queues.cluster_queue_reported("two", IDLE._replace(admitted=3))
    assert (of("teams"), of("company")) == (4, 4)
    told.cohorts = ["teams", "holding"]
    told.measures.queues.cohorts_changed()
    assert (of("teams"), of("company"), of("holding")) == (4, None, 4)
    told.measures.forget_cluster_queue("two")
    assert (of("teams"), of("holding")) == (1, 1)


def test_numbers_of_a_cluster_queue() -> None:
    told = Told(PendingWorkloads(count_scheduling_keys=lambda _: (1, 2)))
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert told.value("pending_workloads", status="active") == 2
    assert told.value("pending_workloads", status="inadmissible") == 1
    assert told.value("reserving_active_workloads") == 2
    assert told.value("admitted_active_workloads") == 1
    assert told.value("cluster_queue_status", status="active") == 1
    assert told.value("cluster_queue_status", status="pending") == 0
    assert told.value("pending_scheduling_hashes", status="inadmissible") == 2
    told.measures.forget_cluster_queue("cq")
    assert told.value("cluster_queue_info") is None
    assert told.value("pending_scheduling_hashes") is None


@pytest.mark.parametrize("ended", ["finished", "deleted"])
def test_pending_workloads_are_counted_while_they_wait(ended: str) -> None:
    told = Told()
    observe_cluster_queue(told, "cq-of-main")
    waiting = workload(QuotaReserved=("False", "WaitingForQuota"))
    observe(told, waiting)
    observe(told, waiting)
    labels = {"cluster_queue": "cq-of-main", "reason": "NoReservation", "underlying_cause": "WaitingForQuota"}
    assert told.value("unadmitted_workloads", **labels) == 1
    if ended == "finished":
        observe(told, workload(Finished=("True", "Succeeded")))
        assert told.value("finished_workloads", cluster_queue="cq-of-main") == 1
    told.measures.gauges.workload_deleted(ObjectKey("team", "w"))
    for series in ("unadmitted_workloads", "finished_workloads"):
        assert told.value(series) is None, series


def test_an_eviction_counts_once_for_the_first_time_only() -> None:
    told = Told()
    for first in (True, False):
        told.measures.workloads.evicted(workload(), "Preempted", "", first=first)
    assert told.value("evicted_workloads_total", reason="Preempted", cluster_queue="cq-of-main") == 2
    assert told.value("evicted_workloads_once_total", reason="Preempted") == 1
    assert told.value("local_queue_evicted_workloads_total", name="main") == 2


def test_preemption_counts_for_the_preemptor() -> None:
    told = Told()
    told.measures.workloads.preempted("cq", "InClusterQueue")
    assert (
        told.value("preempted_workloads_total", preempting_cluster_queue="cq", reason="InClusterQueue") == 1
    )


def test_weighted_shares_are_reported_with_fair_sharing_only() -> None:
    told = Told()
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert told.value("cluster_queue_weighted_share") is None
    told.measures.queues.cluster_queue_reported("cq", IDLE._replace(share=NO_SHARE))
    assert told.value("cluster_queue_weighted_share", cluster_queue="cq", cohort="teams") == 0


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (Share(infinite=False, amount=Fraction(2000, 3)), 2000 / 3),
        (Share(infinite=False, amount=Fraction(10**30)), 1e30),
        (Share(infinite=True, amount=Fraction(500)), math.nan),
    ],
)
def test_d20_weighted_share_metric_is_exact_and_nan_without_weight(share: Share, expected: float) -> None:
    told = Told()
    told.measures.queues.cluster_queue_reported("cq", IDLE._replace(share=share))
    told.measures.queues.cohort_reported("teams", "company", "company", CohortStatus((), (), share))
    for series in ("cluster_queue_weighted_share", "cohort_weighted_share"):
        value = told.value(series, cohort="teams")
        assert value is not None
        assert value == expected or (math.isnan(value) and math.isnan(expected))


CPU = FlavorResource("f", "cpu")
SOME = CohortStatus(((CPU, 4000),), ((CPU, 1000),), NO_SHARE)


def cohort_series(told: Told, cohort: str) -> set[str]:
    """The metrics that have a series about the cohort."""
    lines = told.metrics.exposition().decode().splitlines()
    return {
        line.partition("{")[0].removeprefix("admitq_")
        for line in lines
        if f',cohort="{cohort}"' in line.replace("{", ",") and "cluster_queue" not in line
    }


ALL_OF_A_COHORT = {name for name in PROMISED if name.startswith("cohort_")}


def in_cohort(told: Told, cohort: str, status: CohortStatus = SOME) -> None:
    """Report a ClusterQueue with an admitted workload in a cohort."""
    told.cohorts = [cohort]
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    told.measures.queues.cohort_reported(cohort, "", cohort, status)
    told.measures.workloads.admitted(workload(), "cq", 4.0, 1.0)


def test_d19_all_series_of_a_cohort_go_with_its_object_while_queues_name_it() -> None:
    told = Told()
    in_cohort(told, "teams")
    assert cohort_series(told, "teams") == ALL_OF_A_COHORT
    without_quota = SOME._replace(subtree_quota=())
    told.measures.queues.cohort_object_deleted("teams", without_quota)
    told.measures.queues.cohorts_changed()
    told.measures.queues.cohort_reported("teams", "", "teams", without_quota)
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert cohort_series(told, "teams") == set()


@pytest.mark.parametrize("cause", ["its object is back", "its numbers changed"])
def test_d19_series_of_a_cohort_come_back_when(cause: str) -> None:
    told = Told()
    in_cohort(told, "teams")
    told.measures.queues.cohort_object_deleted("teams", SOME)
    if cause == "its object is back":
        told.measures.queues.cohort_observed("teams", {"metadata": {"name": "teams"}})
        told.measures.queues.cohort_reported("teams", "", "teams", SOME)
    else:
        told.measures.queues.cohort_reported(
            "teams", "", "teams", SOME._replace(subtree_reservations=((CPU, 2000),))
        )
    assert cohort_series(told, "teams") >= ALL_OF_A_COHORT - {"cohort_subtree_admitted_workloads_total"}
    assert told.value("cohort_subtree_admitted_active_workloads", cohort="teams") == 1


def test_d19_all_series_of_an_implicit_cohort_go_with_its_last_member() -> None:
    told = Told()
    in_cohort(told, "teams")
    told.cohorts = ["other"]
    told.measures.queues.forget_cohort("teams")
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert cohort_series(told, "teams") == set()
    assert told.value("cohort_subtree_admitted_active_workloads", cohort="other") == 1


def test_d19_cohort_without_members_has_no_admitted_workloads() -> None:
    told = Told()
    told.measures.queues.cohort_reported("teams", "", "teams", SOME)
    assert told.value("cohort_subtree_admitted_active_workloads", cohort="teams") == 0


def test_d19_series_of_a_local_queue_go_while_its_labels_do_not_match() -> None:
    selected = True
    told = Told(has_local_queue_series=lambda _: selected)
    key = ObjectKey("team", "main")

    def series() -> set[str]:
        lines = told.metrics.exposition().decode().splitlines()
        return {line.partition("{")[0] for line in lines if 'namespace="team"' in line}

    def report() -> None:
        told.measures.queues.local_queue_observed(key, {"metadata": {"name": "main", "namespace": "team"}})
        told.measures.queues.local_queue_reported(
            key, LocalQueueStatus(True, LocalQueueReason.READY, 1, 1, 1, (), ())
        )

    report()
    observe(told, workload(QuotaReserved=("False", "WaitingForQuota")))
    told.measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
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


def test_d19_pending_requests_and_shapes_are_those_of_the_core() -> None:
    pending = PendingWorkloads(
        count_scheduling_keys=lambda _: (2, 3), total_requests=lambda _: {"cpu": 1500, "memory": 2**30}
    )
    told = Told(pending)
    told.measures.queues.cluster_queue_reported("cq", IDLE)
    assert told.value("cluster_queue_resource_pending", cluster_queue="cq", resource="cpu") == 1.5
    assert told.value("cluster_queue_resource_pending", cluster_queue="cq", resource="memory") == 2**30
    assert told.value("pending_scheduling_hashes", cluster_queue="cq", status="active") == 2
    assert told.value("pending_scheduling_hashes", cluster_queue="cq", status="inadmissible") == 3
    told.measures.forget_cluster_queue("cq")
    assert told.value("cluster_queue_resource_pending", resource="cpu") is None


@pytest.mark.parametrize("series", ["unadmitted_workloads", "finished_workloads"])
def test_d19_gauges_of_a_deleted_cluster_queue_stay_away_when_its_workloads_change(series: str) -> None:
    told = Told()
    condition: dict[str, Any] = {"Finished": ("True", "Succeeded")} if series == "finished_workloads" else {}
    observe_cluster_queue(told, "cq-of-main")
    observe(told, workload("first", **condition))
    assert told.value(series, cluster_queue="cq-of-main") == 1
    told.measures.forget_cluster_queue("cq-of-main")
    observe(told, workload("second", **condition))
    assert told.value(series) is None
    assert told.value(f"local_queue_{series}", name="main") == 2
    observe_cluster_queue(told, "cq-of-main")
    assert told.value(series, cluster_queue="cq-of-main") == 2


def test_d19_workloads_before_their_local_queue_count_for_its_cluster_queue() -> None:
    leads_to = dict[str, str]()
    told = Told(cluster_queue_of=lambda key: leads_to.get(key.name))
    observe(told, workload(Finished=("True", "Succeeded")))
    observe_cluster_queue(told, "cq")
    assert told.value("finished_workloads") is None
    leads_to["main"] = "cq"
    assert told.value("finished_workloads", cluster_queue="cq") == 1


def test_d19_skips_of_a_deleted_cluster_queue_do_not_come_back() -> None:
    told = Told()
    told.measures.workloads.preemptions_skipped({"cq": 2})
    told.measures.forget_cluster_queue("cq")
    told.measures.workloads.preemptions_skipped({})
    assert told.value("admission_cycle_preemption_skips", cluster_queue="cq") is None


def test_what_local_queues_take_turns_by() -> None:
    told = Told()
    key = ObjectKey("team", "main")
    status = LocalQueueStatus(True, LocalQueueReason.READY, 0, 0, 0, (), ())
    told.measures.queues.local_queue_reported(key, status)
    assert told.value("local_queue_admission_fair_sharing_usage") is None
    status = status._replace(consumed=ConsumedResources((), 0), fair_usage=Fraction(3, 2))
    told.measures.queues.local_queue_reported(key, status)
    assert (
        told.value("local_queue_admission_fair_sharing_usage", name="main", cluster_queue="cq-of-main") == 1.5
    )
    told.measures.queues.local_queue_reported(key, status._replace(fair_usage=None))
    assert told.value("local_queue_admission_fair_sharing_usage", name="main") == math.inf


def test_recomputed_targets_are_counted_and_skips_are_those_of_the_last_cycle() -> None:
    told = Told()
    told.measures.workloads.targets_recomputed("cq", "deferred_fit")
    assert (
        told.value("preemption_target_recomputations_total", cluster_queue="cq", result="deferred_fit") == 1
    )
    told.measures.workloads.preemptions_skipped({"cq": 2, "other": 1})
    told.measures.workloads.preemptions_skipped({"other": 3})
    assert told.value("admission_cycle_preemption_skips", cluster_queue="cq") == 0
    assert told.value("admission_cycle_preemption_skips", cluster_queue="other") == 3


def test_pods_deleted_by_force_are_counted() -> None:
    told = Told()
    told.measures.workloads.pod_forcefully_deleted()
    assert told.value("forcefully_deleted_pods_total") == 1


def test_excess_pods_are_counted_for_the_cluster_queue_of_their_workload() -> None:
    told = Told()
    for number in (2, 1):
        told.measures.workloads.excess_pods(workload(), "Job.batch", number)
    labels = {"cluster_queue": "cq-of-main", "job_kind": "Job.batch"}
    assert told.value("excess_pods_total", **labels) == 3
    told.metrics.forget_cluster_queue("cq-of-main")
    assert told.value("excess_pods_total", **labels) is None


def test_removed_gate_is_counted_with_its_queue() -> None:
    told = Told()
    told.measures.workloads.gate_removed("example.com/gate", "cq", 2.5, is_group=True)
    labels = {"name": "example.com/gate", "cluster_queue": "cq", "is_group": "true"}
    assert told.value("pod_scheduling_gate_removal_seconds_sum", **labels) == 2.5
    told.metrics.forget_cluster_queue("cq")
    assert told.value("pod_scheduling_gate_removal_seconds_sum", **labels) is None
