"""The metrics that clients know by name have exactly their specified labels."""

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import admitq
from admitq.core.activity import ActiveReason
from admitq.core.amounts import FlavorResource
from admitq.core.fair_sharing import NO_SHARE
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
from admitq.metrics.custom_labels import LabelSource, SeriesLabel, SeriesLabels
from admitq.metrics.measures.gauges import PendingWorkloads, WorkloadGauges
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.queue_statuses import ChangedStatuses
from admitq.metrics.measures.queues import QueueMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.metrics.registry import Metrics, label_name_problems
from admitq.metrics.table import TABLE
from admitq.translate.cluster_queues import read_cluster_queue
from admitq.translate.workloads import read_workload
from admitq_api.labels import names_for
from tests.unit.metrics.metric_table import PROMISED, Row
from tests.unit.metrics.test_measures import workload

NAMES = names_for()
OTHER = NAMES.untracked_label_value
SOURCES = {
    "cq": LabelSource.CLUSTER_QUEUE,
    "co": LabelSource.COHORT,
    "lq": LabelSource.LOCAL_QUEUE,
    "wl": LabelSource.WORKLOAD,
}
ADMITQ_METRICS = {series.name for series in TABLE} - PROMISED.keys()
"""Metrics that only admitq has."""


def from_label(name: str, source: LabelSource, *tracked: str) -> SeriesLabel:
    return SeriesLabel(name, source, name, "labels", frozenset(tracked), OTHER)


LABELS_OF_EVERY_SOURCE = (
    from_label("model", LabelSource.WORKLOAD, "big", "small"),
    from_label("squad", LabelSource.LOCAL_QUEUE),
    from_label("org", LabelSource.COHORT),
    from_label("tier", LabelSource.CLUSTER_QUEUE),
    SeriesLabel("center", LabelSource.CLUSTER_QUEUE, "cost", "annotations", frozenset(), OTHER),
)
LABELS_OF = {
    "cq": ("custom_tier", "custom_center"),
    "co": ("custom_org",),
    "lq": ("custom_squad",),
    "wl": ("custom_model",),
}


def queue_object(name: str, *, annotations: Mapping[str, str] | None = None, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations or {}}}


TOTALS = (FlavorTotals("spot", (ResourceTotal("cpu", 2000, 0),)),)
CQ = ClusterQueueStatus(True, ActiveReason.READY, (), 3, 1, 2, 1, TOTALS, TOTALS, NO_SHARE)
LQ = LocalQueueStatus(
    True,
    LocalQueueReason.READY,
    3,
    2,
    1,
    TOTALS,
    TOTALS,
    ConsumedResources((), 0),
    Fraction(3, 2),
)
CPU = (FlavorResource("spot", "cpu"), 4000)
MAIN = ObjectKey("team", "main")
QUOTA = read_cluster_queue(
    {
        "metadata": {"name": "cq"},
        "spec": {
            "cohortName": "teams",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                }
            ],
        },
    }
)


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


WAITING = labelled(workload("waits", QuotaReserved=("False", "WaitingForQuota")), model="big")
PARKED = labelled(workload("parked", QuotaReserved=("False", "WaitingForQuota")), model="odd")
RUNNING = labelled(
    workload("runs", QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted")), model="small"
)
RUNNING["status"]["admission"] = {
    "clusterQueue": "cq",
    "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 3}
    ],
}
FINISHED = workload("ended", Finished=("True", "Succeeded"))
EVICTED = labelled(
    workload("evicted", PodsReady=("True", "Started"), Evicted=("True", "Preempted")), model="small"
)


class PlayedHistory:
    """A history that writes every metric."""

    def __init__(self, *custom: SeriesLabel) -> None:
        self.metrics = Metrics(custom=custom)
        self.waiting = [
            PendingWorkload(ObjectKey("team", "waits"), MAIN, "cq", False),
            PendingWorkload(ObjectKey("team", "parked"), MAIN, "cq", True),
        ]
        scope = MeasureScope(
            self.metrics,
            lambda _: "cq",
            cohorts_of=lambda _: ["teams", "company"],
            has_resource_series=True,
        )
        pending = PendingWorkloads(
            workloads=lambda: self.waiting,
            inadmissible_by_local_queue=lambda: {MAIN: 1},
            count_scheduling_keys=lambda _: (1, 1),
            total_requests=lambda _: {"cpu": 12000},
        )
        self.measures = ManagerMeasures(scope, pending)
        self.play()

    def play(self) -> None:
        measures = self.measures
        self.label("gold", squad="ml", org="science")
        for obj in (WAITING, PARKED, RUNNING, FINISHED):
            measures.gauges.workload_observed(read_workload(obj, NAMES), obj)
        self.report()
        measures.workloads.workload_created("Job.batch", 0.2, MAIN)
        measures.workloads.quota_reserved(RUNNING, "cq", 1.0)
        measures.workloads.admitted(RUNNING, "cq", 2.0, 1.0)
        measures.workloads.pods_became_ready(RUNNING, 3.0, 1.0)
        measures.workloads.finished(RUNNING, 5.0)
        measures.workloads.evicted(EVICTED, "Preempted", "", first=True)
        measures.workloads.quota_released(EVICTED, "Preempted", 1.0)
        measures.workloads.preempted("cq", "InClusterQueue")
        measures.workloads.targets_recomputed("cq", "new_targets")
        measures.workloads.preemptions_skipped({"cq": 1})
        measures.workloads.slice_replaced(RUNNING)
        measures.workloads.gate_removed("example.com/gate", "cq", 1.0, is_group=False)
        self.metrics.increment("admission_attempts_total", result="success")
        self.metrics.observe("admission_attempt_duration_seconds", 0.1, result="success")

    def label(self, tier: str, *, squad: str, org: str) -> None:
        """Observe the queues and cohorts with these labels."""
        cluster_queue = queue_object("cq", annotations={"cost": "c7"}, tier=tier)
        self.measures.queues.cluster_queue_observed(QUOTA, cluster_queue)
        self.measures.queues.local_queue_observed(MAIN, queue_object("main", squad=squad))
        for cohort in ("teams", "company"):
            self.measures.queues.cohort_observed(cohort, queue_object(cohort, org=org))

    def report(self) -> None:
        """Report the status of all queues and cohorts."""
        measures = self.measures
        measures.queues.cluster_queue_reported("cq", CQ)
        measures.queues.local_queue_reported(MAIN, LQ)
        measures.queues.cohort_reported("teams", "company", "company", CohortStatus((CPU,), (CPU,), NO_SHARE))

    def series(self, name: str) -> list[dict[str, str]]:
        """Return the labels of all series of a metric. The label ``=`` is the value."""
        series: list[dict[str, str]] = []
        for line in self.metrics.exposition().decode().splitlines():
            match = re.fullmatch(rf"admitq_{name}(_bucket|_sum|_count)?{{(.*)}} (\S+)", line)
            if match:
                series.append({**dict(re.findall(r'(\w+)="([^"]*)"', match[2])), "=": match[3]})
        return series


@pytest.fixture(scope="module")
def played() -> PlayedHistory:
    return PlayedHistory(*LABELS_OF_EVERY_SOURCE)


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_metric_has_exactly_its_specified_labels_type_and_buckets(played: PlayedHistory, name: str) -> None:
    row: Row = PROMISED[name]
    custom = {label for kind in row.carries.split() for label in LABELS_OF[kind]}
    expected = {*row.labels.split(), *custom, "replica_role", "="}
    exposed = played.series(name)
    assert exposed, "missing"
    assert {frozenset(labels) - {"le"} for labels in exposed} == {frozenset(expected)}
    (entry,) = (series for series in TABLE if series.name == name)
    assert entry.type.value == row.type
    if row.type == "histogram":
        bounds = {labels["le"] for labels in exposed if "le" in labels} - {"+Inf"}
        assert len(bounds) == row.buckets
    assert entry.label_sources == tuple(SOURCES[kind] for kind in row.carries.split())


def test_metrics_that_only_admitq_has_are_listed() -> None:
    assert {
        "api_requests_total",
        "api_server_slowness",
        "certificate_expiry_timestamp_seconds",
        "concurrent_writes_limit",
        "core_failures_total",
        "decision_longest_stretch_seconds",
        "excess_pods_total",
        "forcefully_deleted_pods_total",
        "malformed_objects",
        "managed_kinds",
        "quarantined_keys",
        "reconciliations_total",
        "shadow_decisions_total",
        "shadow_disagreements_total",
        "unexpected_errors_total",
        "unwritten_decisions",
        "waiting_writes",
        "watch_restarts_total",
        "webhook_review_duration_seconds",
        "webhook_reviews_total",
    } == ADMITQ_METRICS


def test_every_measure_is_called_by_the_product() -> None:
    folder = Path(str(admitq.__file__)).parent
    callers = [
        *(path for path in folder.rglob("*.py") if path.parent.name != "measures"),
        folder / "metrics/measures/queue_statuses.py",
    ]
    called = {
        name
        for path in callers
        for name in re.findall(
            r"(?:measures|metrics)(?:\.workloads|\.queues|\.gauges|\.changed)?\.(\w+)\(", path.read_text()
        )
    }
    public = {
        name
        for measures in (WorkloadMeasures, QueueMeasures, WorkloadGauges, ChangedStatuses)
        for name, member in vars(measures).items()
        if callable(member) and not name.startswith("_")
    }
    assert public - {"has_cluster_queue", "set_gauges"} <= called


def test_custom_labels_are_ordered_by_source_and_then_as_configured() -> None:
    assert SeriesLabels(LABELS_OF_EVERY_SOURCE).names(reversed(LabelSource)) == (
        "custom_tier",
        "custom_center",
        "custom_org",
        "custom_squad",
        "custom_model",
    )


@pytest.mark.parametrize(
    ("label", "metadata", "expected"),
    [
        (from_label("tier", LabelSource.COHORT), {"labels": {"tier": "gold"}}, "gold"),
        (from_label("tier", LabelSource.COHORT), {"annotations": {"tier": "gold"}}, ""),
        (from_label("tier", LabelSource.COHORT), {}, ""),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"tier": "gold"}}, "gold"),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"tier": "lead"}}, OTHER),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"other": "gold"}}, ""),
        (
            LABELS_OF_EVERY_SOURCE[-1],
            {"annotations": {"cost": "c7"}, "labels": {"cost": "no", "center": "no"}},
            "c7",
        ),
    ],
)
def test_custom_label_value_is_that_of_object_if_tracked(
    label: SeriesLabel, metadata: dict[str, Any], expected: str
) -> None:
    assert label.value_in({"metadata": metadata}) == expected


def test_series_have_custom_label_values_of_all_their_sources() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    (labels,) = played.series("admitted_workloads_total")
    assert (labels["custom_tier"], labels["custom_center"]) == ("gold", "c7")
    (labels,) = played.series("cohort_weighted_share")
    assert labels["custom_org"] == "science"
    (labels,) = played.series("local_queue_admitted_workloads_total")
    assert (labels["custom_squad"], labels["custom_model"]) == ("ml", "small")
    (labels,) = played.series("cohort_subtree_admitted_active_workloads")[:1]
    assert (labels["custom_tier"], labels["custom_center"]) == ("gold", "c7")
    (labels, *_) = played.series("workload_creation_latency_seconds")
    assert labels["custom_squad"] == "ml"


def test_active_workload_gauges_are_split_by_workload_labels() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)

    def pending() -> dict[tuple[str, str], str]:
        series = played.series("pending_workloads")
        return {(labels["status"], labels["custom_model"]): labels["="] for labels in series}

    def admitted(metric: str) -> list[tuple[str, str]]:
        return [(labels["custom_model"], labels["="]) for labels in played.series(metric)]

    assert pending() == {("active", "big"): "1.0", ("inadmissible", OTHER): "1.0"}
    played.waiting.pop(0)
    assert pending() == {("active", ""): "0.0", ("inadmissible", OTHER): "1.0"}
    for metric in ("admitted_active_workloads", "local_queue_admitted_active_workloads"):
        assert admitted(metric) == [("small", "1.0")]
    played.measures.gauges.workload_deleted(ObjectKey("team", "runs"))
    for metric in ("admitted_active_workloads", "local_queue_admitted_active_workloads"):
        assert admitted(metric) == [("", "0.0")]


def test_pending_workloads_are_exposed_by_local_queue() -> None:
    played = PlayedHistory()
    series = played.series("local_queue_pending_workloads")
    assert {labels["status"]: labels["="] for labels in series} == {"active": "2.0", "inadmissible": "1.0"}


@pytest.mark.parametrize("name", sorted(name for name, row in PROMISED.items() if row.carries))
def test_d18_custom_labels_have_prefix_in_every_series(played: PlayedHistory, name: str) -> None:
    configured = {label.name for label in LABELS_OF_EVERY_SOURCE}
    own = set(PROMISED[name].labels.split()) | {"replica_role", "le", "="}
    custom = {label for labels in played.series(name) for label in labels} - own
    assert {label.removeprefix("custom_") for label in custom} <= configured
    assert all(label.startswith("custom_") for label in custom)


@pytest.mark.parametrize("kind", ["cq", "co", "lq"])
def test_d18_changed_label_value_moves_gauges_and_keeps_counters(kind: str) -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    former = {"tier": "gold", "squad": "ml", "org": "science"}
    label = LABELS_OF[kind][0]
    name = label.removeprefix("custom_")
    metrics = [metric for metric, row in PROMISED.items() if kind in row.carries.split()]

    def values() -> dict[str, set[tuple[str, str]]]:
        return {
            metric: {(labels[label], labels["="]) for labels in played.series(metric) if "le" not in labels}
            for metric in metrics
        }

    before = values()
    played.label(**(former | {name: "changed"}))
    for metric, exposed in values().items():
        expected = "changed" if PROMISED[metric].type == "gauge" else former[name]
        assert exposed == {(expected, value) for _, value in before[metric]}, metric


def test_d18_counter_counts_under_new_value_after_label_change() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    played.label("silver", squad="ml", org="science")
    played.measures.workloads.admitted(RUNNING, "cq", 2.0, 1.0)
    series = played.series("admitted_workloads_total")
    assert {labels["custom_tier"]: labels["="] for labels in series} == {"gold": "1.0", "silver": "1.0"}


def test_d18_series_of_all_label_values_are_removed_with_object() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    played.label("silver", squad="ml", org="science")
    played.measures.forget_cluster_queue("cq")
    assert played.series("admitted_workloads_total") == []


def test_series_with_custom_labels_are_removed_with_their_objects() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    played.measures.forget_cluster_queue("cq")
    played.measures.queues.forget_local_queue("team", "main")
    played.measures.queues.forget_cohort("teams")
    for obj in (WAITING, PARKED, RUNNING, FINISHED):
        played.measures.gauges.workload_deleted(read_workload(obj, NAMES).key)
    labelled_metrics = [name for name, row in PROMISED.items() if row.carries and "cohort_" not in name]
    assert {name for name in labelled_metrics if played.series(name)} == set()


def test_series_by_label_value_only_stays_while_another_local_queue_has_value() -> None:
    played = PlayedHistory(*LABELS_OF_EVERY_SOURCE)
    other = ObjectKey("team", "other")

    def squads() -> set[str]:
        series = played.series("workload_creation_latency_seconds")
        return {labels["custom_squad"] for labels in series}

    played.measures.queues.local_queue_observed(other, queue_object("other", squad="ml"))
    played.measures.workloads.workload_created("Job.batch", 0.2, ObjectKey("team", "without a label"))
    assert squads() == {"ml", ""}
    played.measures.queues.forget_local_queue(*MAIN)
    assert squads() == {"ml", ""}
    played.measures.queues.forget_local_queue(*other)
    assert squads() == {""}


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([from_label("reason", LabelSource.CLUSTER_QUEUE)], ""),
        ([from_label("replica_role", LabelSource.COHORT)], ""),
        (
            [from_label("team", LabelSource.CLUSTER_QUEUE), from_label("team", LabelSource.WORKLOAD, "a")],
            "'team' is taken from ClusterQueue and Workload, which one metric carries: rename one",
        ),
        ([from_label("team", LabelSource.CLUSTER_QUEUE), from_label("team", LabelSource.LOCAL_QUEUE)], ""),
    ],
)
def test_two_label_sources_of_one_name_on_one_metric_are_a_problem(
    labels: list[SeriesLabel], problem: str
) -> None:
    problems = [text.split(": use")[0] for text in label_name_problems(labels)]
    assert problems == ([problem] if problem else [])
